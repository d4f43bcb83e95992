"""Exchanges as the model reads and writes them, as framed listings (`fig:prompt_example`, `fig:prompt_comparison`)."""

import html
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from lib import store
from lib.analysis.run_signals import RunSignals
from lib.paper.booktabs import escape
from lib.paths import visible

MODEL_NOT_ASKED = "(not asked: the model is not at hand)"
LISTING = r"""\begin{minipage}[t]{%.2f\linewidth}
\textbf{%s}
\begin{lstlisting}[basicstyle=\ttfamily\scriptsize,breaklines=true,columns=fullflexible,keepspaces=true,frame=single,
xleftmargin=4pt,xrightmargin=4pt]
%s
\end{lstlisting}
\end{minipage}"""
QUOTES = {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "--"}
LOOK = 'style="flex: 1 1 20em; min-width: 0"'
WRAP = 'style="white-space: pre-wrap; overflow-wrap: anywhere; border: 1px solid; padding: .5em"'


@dataclass(frozen=True)
class Listings:
    """Named texts beside each other: LaTeX for the paper, `<pre>` on a page.

    On the page, the part `new` at the end of a text is marked: these tokens are encoded, the others are cached.
    """

    texts: Mapping[str, str]
    new: str = ""

    @property
    def latex(self) -> str:
        width = 0.98 / len(self.texts)
        boxes = [LISTING % (width, escape(name), listing(text)) for name, text in self.texts.items()]
        return "\n".join([r"% \usepackage{listings}", "\\hfill%\n".join(boxes), ""])

    def _repr_html_(self) -> str:
        parts = ((name, self.marked(text)) for name, text in self.texts.items())
        boxes = [f"<div {LOOK}><b>{html.escape(name)}</b><pre {WRAP}>{text}</pre></div>" for name, text in parts]
        return f'<div style="display: flex; flex-wrap: wrap; gap: 1em">{"".join(boxes)}</div>'

    def marked(self, text: str) -> str:
        """Return a text as HTML, with its `new` end marked."""
        end = len(text) - len(self.new) if self.new and text.endswith(self.new) else len(text)
        shown, marked = (html.escape(visible(part)) for part in (text[:end], text[end:]))
        return f"{shown}<mark>{marked}</mark>" if marked else shown

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        plain = "\n\n".join(f"{name}\n\n{text}" for name, text in self.texts.items())
        return {"text/html": self._repr_html_(), "text/latex": self.latex, "text/plain": plain}


def listing(text: str) -> str:
    """Return the text of a LaTeX listing, which cannot end it.

    Listings read no letters beyond ASCII: these become their plain form (a bar for a full-width one), else their code.
    """
    ascii_text = "".join(map(plain_letter, visible(text)))
    return ascii_text.replace(r"\end{lstlisting}", r"\end {lstlisting}").strip("\n")


def plain_letter(letter: str) -> str:
    plain = QUOTES.get(letter) or unicodedata.normalize("NFKC", letter)
    return plain if plain.isascii() else rf"\u{ord(letter):04x}"


def prompt_example(prompt_text: str, response_text: str) -> Listings:
    """Return `fig:prompt_example`: a prompt and its response with every character, special tokens included."""
    return Listings({"Prompt": prompt_text, "Response": response_text})


def prompt_comparison(standard: str, in_situ: str, new: str = "") -> Listings:
    """Return `fig:prompt_comparison`: the verification prompt, standard and in situ, side by side.

    `new` is the end of the second text, which alone is encoded; the rest is in the cache.
    """
    return Listings({"Standard P(True)": standard, "In-situ P(True)": in_situ}, new)


# ---- of a run


class VerificationExample(NamedTuple):
    """The texts of a question and its verification, for `fig:prompt_example` and `fig:prompt_comparison`."""

    prompt: str
    text: str
    standard_prompt: str  # empty if the model is unavailable

    def ways(self, query: str) -> tuple[str, str, str]:
        """Return the verification prompt, the trajectory with the query, and the query; or a message if the model
        was not asked."""
        if not self.standard_prompt:
            return MODEL_NOT_ASKED, MODEL_NOT_ASKED, ""
        return self.standard_prompt, self.prompt + self.text + query, query


def load_verification_example(run: str, signals: RunSignals, model: str, dataset: str) -> VerificationExample:
    """Return the first evaluation row of a pair.

    If the run stores no texts, return the exchange on our own question from the manifest of 03. For an unavailable
    model, the question replaces its unknown prompt.
    """
    chosen = "model == @model and dataset == @dataset and split == 'evaluation'"
    one, asked = signals.generations.query(chosen).iloc[0], signals.verification.query(chosen)
    if asked.empty:  # the model is unavailable
        question, text = (one.question, one.text) if isinstance(one.text, str) else ("(not kept)", "(not kept)")
        return VerificationExample(question, text, "")
    if isinstance(one.text, str):
        return VerificationExample(one.prompt, one.text, asked.standard_prompt.iloc[0])
    return VerificationExample(
        **store.read_manifest(store.find_frame(run, "verification", f"{model}__{dataset}"))["exchange"]
    )
