"""Exchanges as the model reads and writes them, as framed listings (`fig:prompt_example`, `fig:prompt_comparison`)."""

import html
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from lib import store
from lib.analysis.run_results import Signals
from lib.paper.booktabs import escape
from lib.paths import visible
from lib.tasks.prompts import QUERY

NOT_KEPT = "(not kept)"
NOT_ASKED = "(not asked: the model is not at hand)"
LISTING = r"""\begin{minipage}[t]{%.2f\linewidth}
\textbf{%s}
\begin{lstlisting}[basicstyle=\ttfamily\scriptsize,breaklines=true,columns=fullflexible,keepspaces=true,frame=single,
xleftmargin=4pt,xrightmargin=4pt]
%s
\end{lstlisting}
\end{minipage}"""
QUOTES = {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "--"}
BOX = """<div style="flex: 1 1 20em; min-width: 0"><b>%s</b>
<pre style="white-space: pre-wrap; overflow-wrap: anywhere; border: 1px solid; padding: .5em">%s</pre></div>"""


@dataclass(frozen=True)
class Listings:
    """Named texts beside each other: LaTeX for the paper, `<pre>` on a page.

    On the page, the verification query at the end of a text is marked: in situ it alone is encoded.
    """

    texts: Mapping[str, str]

    def _repr_latex_(self) -> str:
        width = 0.98 / len(self.texts)
        boxes = [LISTING % (width, escape(name), as_ascii(text)) for name, text in self.texts.items()]
        return "\n".join([r"% \usepackage{listings}", "\\hfill%\n".join(boxes), ""])

    def _repr_html_(self) -> str:
        shown = {name: html.escape(visible(text)) for name, text in self.texts.items()}
        query = html.escape(QUERY)
        for name, text in shown.items():
            if text.endswith(query):
                shown[name] = f"{text.removesuffix(query)}<mark>{query}</mark>"
        boxes = "".join(BOX % (html.escape(name), text) for name, text in shown.items())
        return f'<div style="display: flex; flex-wrap: wrap; gap: 1em">{boxes}</div>'


def as_ascii(text: str) -> str:
    """Return the text of a LaTeX listing, which cannot end it.

    Listings read no letters beyond ASCII: these become their plain form (a bar for a full-width one), else their code.
    """
    plain = "".join(map(plain_letter, visible(text)))
    return plain.replace(r"\end{lstlisting}", r"\end {lstlisting}").strip("\n")


def plain_letter(letter: str) -> str:
    plain = QUOTES.get(letter) or unicodedata.normalize("NFKC", letter)
    return plain if plain.isascii() else rf"\u{ord(letter):04x}"


def prompt_example(prompt: str, response: str) -> Listings:
    """Return `fig:prompt_example`: a prompt and its response with every character, special tokens included."""
    return Listings({"Prompt": prompt, "Response": response})


def prompt_comparison(standard: str, in_situ: str) -> Listings:
    """Return `fig:prompt_comparison`: the verification prompt, standard and in situ, side by side."""
    return Listings({"Standard P(True)": standard, "In-situ P(True)": in_situ})


def load_exchange(run: str, signals: Signals, model: str, dataset: str) -> dict[str, str]:
    """Return the `prompt`, the response (`text`) and both verification prompts (`standard_prompt`, `in_situ_prompt`) of
    the first evaluation row of a pair.

    If the run stores no texts, the exchange is on our own question, from the manifest of 03. Of an unavailable model,
    the question replaces its unknown prompt.
    """
    chosen = "model == @model and dataset == @dataset and split == 'evaluation'"
    one, asked = signals.generations.query(chosen).iloc[0], signals.verification.query(chosen)
    has_text = isinstance(one.text, str)
    if asked.empty:  # the model is unavailable
        question, text = (one.question, one.text) if has_text else (NOT_KEPT, NOT_KEPT)
        return {"prompt": question, "text": text, "standard_prompt": NOT_ASKED, "in_situ_prompt": NOT_ASKED}
    if has_text:
        exchange = {"prompt": one.prompt, "text": one.text, "standard_prompt": asked.standard_prompt.iloc[0]}
    else:
        exchange = store.read_manifest(store.find_frame(run, "verification", f"{model}__{dataset}"))["exchange"]
    return exchange | {"in_situ_prompt": exchange["prompt"] + exchange["text"] + QUERY}
