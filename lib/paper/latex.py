"""The paper's LaTeX macros and commands, and escaping of user text."""

import html
import re

from lib.paths import visible

# The paper's macros in labels and definitions; a document's own definitions take precedence.
MACROS = {
    r"\ptrue": r"p(\mathrm{True})",
    r"\yans": r"\bm{y}^{\text{ans}}",
    r"\yreason": r"\bm{y}^{\text{reason}}",
}
# The paper's commands for scores with intervals: number of arguments, and definition.
_SCORE, _BEST = r"\ensuremath{#1_{\scriptscriptstyle[#2,#3]}}", r"\ensuremath{\mathbf{#1}_{\scriptscriptstyle[#2,#3]}}"
COMMANDS = {
    r"\scoreci": (3, _SCORE),
    r"\bestscoreci": (3, _BEST),
    r"\calci": (4, _SCORE[:-1] + r"\,(#4)}"),
    r"\bestcalci": (4, _BEST[:-1] + r"\,\mathbf{(#4)}}"),
    r"\isoCI": (4, _SCORE + r"\hspace{0.15em}\ensuremath{(#4)}"),
    r"\isoBestCI": (4, _BEST + r"\hspace{0.15em}\textbf{\ensuremath{(#4)}}"),
}
BEST = {r"\scoreci": r"\bestscoreci", r"\calci": r"\bestcalci", r"\isoCI": r"\isoBestCI"}  # in bold
SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
}  # fmt: skip


def escape(text: str) -> str:
    """Escape a user's words as LaTeX text."""
    return "".join(SPECIAL.get(c, c) for c in visible(" ".join(text.split())))


def embolden(latex: str) -> str:
    """Return a cell in bold: by its command, if it is an interval."""
    if latex.startswith("$"):
        return rf"$\bm{{{latex[1:-1]}}}$"
    command = latex.partition("{")[0]
    return BEST[command] + latex.removeprefix(command) if command in BEST else rf"\textbf{{{latex}}}"


# ---- the same on screen

WORDS = {r"\ptrue": "P(True)", r"c_{\mathrm{BALD}}": "c_BALD", r"\rightarrow": "\u2192", r"\backslash": "\\"}
UNESCAPED = {latex: character for character, latex in SPECIAL.items()}
# Escaped characters, the longest first, then formulas, then what marks small capitals and bold:
PIECE = re.compile(rf"({'|'.join(map(re.escape, sorted(UNESCAPED, key=len)[::-1]))})|\$(.+?)\$|\\text(?:sc|bf){{|}}")
FORMULA = re.compile(r"(?<!\\)\$(.+?)\$")
COMMAND = re.compile(r"\\\w+((?:\{(?:[^{}\\]|\\.)*\}){3,4})")


def plain(latex: str) -> str:
    """Return a cell as text: \\scoreci{.1}{.0}{.2} as .1 [.0, .2]. Of formulas only the WORDS are replaced."""
    if command := COMMAND.fullmatch(latex):
        value, low, high, *gain = command[1][1:-1].split("}{")
        latex = f"{value} [{low}, {high}]" + "".join(f" ({part})" for part in gain)
    return PIECE.sub(lambda piece: UNESCAPED.get(piece[1]) or _plain_formula(piece[2] or ""), latex)


def _plain_formula(formula: str) -> str:
    for latex, word in WORDS.items():
        formula = formula.replace(latex, word)
    return formula[4:-1] if re.fullmatch(r"\\bm\{[^{}]*\}", formula) else formula


def as_html(latex: str) -> str:
    """Return a cell as HTML, with formulas for MathJax."""
    if any(re.search(r"\\[a-z]", _plain_formula(formula)) for formula in FORMULA.findall(latex)):
        return mathjax(latex)
    text = html.escape(plain(latex))
    return f"<b>{text}</b>" if latex.startswith((r"\textbf{", r"$\bm{", *BEST.values())) else text


def mathjax(latex: str) -> str:
    """Convert LaTeX formulas to HTML for a notebook's MathJax, which lacks the paper's macros and bm.

    The formulas are marked for MathJax, because everything else in a table is plain text.
    """
    for macro, meaning in MACROS.items():
        latex = _macro(macro).sub(meaning.replace("\\", "\\\\"), latex)
    text = html.escape(latex.replace(r"\bm{", r"\boldsymbol{"))
    return f'<span class="mathjax_process">{text}</span>'


def preamble(body: str) -> str:
    """Return the packages as a comment, and the macros and commands that the body uses."""
    meanings = {name: f"{{{meaning}}}" for name, meaning in MACROS.items()}
    meanings |= {name: f"[{count}]{{{meaning}}}" for name, (count, meaning) in COMMANDS.items()}
    used = [rf"\providecommand{{{name}}}{meaning}%" for name, meaning in meanings.items() if _macro(name).search(body)]
    return "\n".join([r"% \usepackage{amsmath,amssymb,bm,booktabs,multirow}", *used, ""])


def _macro(name: str) -> re.Pattern:
    return re.compile(re.escape(name) + r"(?![A-Za-z])")
