"""The paper's LaTeX: its macros and commands, and a user's words as text."""

import html
import re

from lib.paths import visible

# The paper's macros that labels and definitions use; a document that has its own keeps them.
MACROS = {
    r"\ptrue": r"p(\mathrm{True})",
    r"\yans": r"\bm{y}^{\text{ans}}",
    r"\yreason": r"\bm{y}^{\text{reason}}",
}
# Its commands for scores with intervals: number of arguments, and what they set.
_SCORE, _BEST = r"\ensuremath{#1_{\scriptscriptstyle[#2,#3]}}", r"\ensuremath{\mathbf{#1}_{\scriptscriptstyle[#2,#3]}}"
COMMANDS = {
    r"\scoreci": (3, _SCORE),
    r"\bestscoreci": (3, _BEST),
    r"\calci": (4, _SCORE[:-1] + r"\,(#4)}"),
    r"\bestcalci": (4, _BEST[:-1] + r"\,\mathbf{(#4)}}"),
    r"\isoCI": (4, _SCORE + r"\hspace{0.15em}\ensuremath{(#4)}"),
    r"\isoBestCI": (4, _BEST + r"\hspace{0.15em}\textbf{\ensuremath{(#4)}}"),
}
SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
}  # fmt: skip


def escape(text: str) -> str:
    """A user's words as LaTeX text."""
    return "".join(SPECIAL.get(c, c) for c in visible(" ".join(text.split())))


def mathjax(latex: str) -> str:
    """LaTeX formulas as HTML for a notebook's MathJax, which knows neither the paper's macros nor bm; marked, for all
    else in a table is text, whatever signs it holds."""
    for macro, meaning in MACROS.items():
        latex = _macro(macro).sub(meaning.replace("\\", "\\\\"), latex)
    text = html.escape(latex.replace(r"\bm{", r"\boldsymbol{"))
    return f'<span class="mathjax_process">{text}</span>'


def preamble(body: str) -> str:
    """Packages as a comment, and the macros and commands that the body uses."""
    lines = [r"% \usepackage{amsmath,amssymb,bm,booktabs,multirow}"]
    for name, meaning in MACROS.items():
        if _macro(name).search(body):
            lines.append(rf"\providecommand{{{name}}}{{{meaning}}}%")
    for name, (count, meaning) in COMMANDS.items():
        if _macro(name).search(body):
            lines.append(rf"\providecommand{{{name}}}[{count}]{{{meaning}}}%")
    return "\n".join([*lines, ""])


def _macro(name: str) -> re.Pattern:
    return re.compile(re.escape(name) + r"(?![A-Za-z])")
