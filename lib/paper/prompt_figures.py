"""Real exchanges, set as the model reads and writes them: every character, special tokens bold. Formatting only."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.font_manager import findfont, get_font
from matplotlib.patches import Rectangle

from lib import store
from lib.analysis.run_signals import RunSignals
from lib.paper.figure_style import BLUE, GREY, ORANGE, WIDTH, Canvas, Figure, style

SPECIAL_TOKEN = r"<\|[^|<>\n]*\|>|</?think>|</?s>"  # special tokens as tokenizers spell them
LEADING, MONO = 8.6, "DejaVu Sans Mono"  # of prompts: points from line to line, and the font
NOT_ASKED = "(not asked: the model is not at hand)"
Lines = list[tuple[str, bool]]  # each with whether it continues the one before


def _drawable(text: str) -> str:
    """Characters that the font lacks in their plain form (a full-width bar as a bar), else as their code."""
    known = get_font(findfont(MONO)).get_charmap()
    for character in {c for c in text if ord(c) not in known and c not in "\n\t"}:
        plain = unicodedata.normalize("NFKC", character)
        shown = plain if all(ord(c) in known for c in plain) else f"\\u{ord(character):04x}"
        text = text.replace(character, shown)
    return text


def _wrapped(text: str, width: int, most: int) -> Lines:
    """Lines of at most `width` characters; of more than `most` the middle is left out. Breaks fall at spaces and
    special tokens, else inside a word."""
    lines: Lines = []
    for line in text.strip("\n").expandtabs(4).split("\n"):
        start, current = len(lines), ""
        pieces = re.findall(rf"{SPECIAL_TOKEN}|\s+|(?:(?!{SPECIAL_TOKEN})\S)+", line)
        for piece in (p[i : i + width] for p in pieces for i in range(0, len(p), width)):
            if len(current) + len(piece) > width:
                lines.append((current, len(lines) > start))
                current = ""
            current += "" if piece.isspace() and not current and len(lines) > start else piece
        lines.append((current, len(lines) > start))
    left_out = len(lines) - most
    note = [(f"[... {left_out} lines left out ...]", False)]
    return lines if left_out <= 0 else lines[: most // 2] + note + lines[most // 2 + left_out :]


def _box(ax: Axes, name: str, colour: Any, lines: Lines, high: float, new: int = 0) -> None:
    """One framed part, `high` points, in axes whose units are points from the upper left corner; its last `new` lines
    shaded."""
    wide, step = WIDTH * 72, 7 * 0.602  # a letter is 0.602 em wide
    ax.set(xlim=(0, wide), ylim=(high, 0))
    ax.axis("off")
    look: dict[str, Any] = {"facecolor": (*colour, 0.07), "edgecolor": colour, "linewidth": 0.8}
    ax.add_patch(Rectangle((1, 1), wide - 2, high - 4, **look))
    ax.text(6, LEADING, name, size=7, weight="bold", color="0.25", va="center")
    if new:
        place = (4, LEADING * (len(lines) - new + 1.6)), wide - 8, LEADING * new
        ax.add_patch(Rectangle(*place, facecolor=ORANGE, alpha=0.25, linewidth=0))
    for number, (line, continued) in enumerate(lines):
        write: dict[str, Any] = {"y": LEADING * (number + 2.1), "size": 7, "family": MONO, "va": "center"}
        if continued:
            ax.text(3, s="\N{RIGHTWARDS ARROW WITH HOOK}", color="0.5", **write)
        for match in re.finditer(rf"({SPECIAL_TOKEN})|(?:(?!{SPECIAL_TOKEN}).)+", line):
            weight = "bold" if match.group(1) else "normal"
            ax.text(12 + step * match.start(), s=match.group(), parse_math=False, weight=weight, **write)


def prompt_example(prompt_text: str, response_text: str, width: int = 52, most: int = 60) -> Figure:
    """`fig:prompt_example`: a prompt and its response as the model saw and wrote them, every character:
    special tokens bold, an arrow where a line was broken to fit `width`, at most `most` lines of each."""
    return _boxes((("prompt", GREY, prompt_text), ("response", BLUE, response_text)), width, most, across=False)


def prompt_comparison(standard: str, in_situ: str, new: str = "", width: int = 52, most: int = 60) -> Figure:
    """`fig:prompt_comparison`: the verification prompt, standard and in situ, side by side, as `prompt_example` sets
    its parts. Shaded is what has to be encoded: all of the first, of the second its last part `new` (by default none is
    shaded); the rest of it is in the cache."""
    first, second = "standard", "in situ"
    if new:
        first, second = f"{first}: all is encoded", f"{second}: shaded is encoded, the rest is cached"
    parts = ((first, GREY, standard), (second, BLUE, in_situ))
    return _boxes(parts, width, most, across=True, new=(standard, new) if new else ())


def responses_beside(texts: Mapping[str, str], width: int = 52, most: int = 60) -> Figure:
    """Responses to one question by what they are called, side by side."""
    colours = (GREY, BLUE, ORANGE)
    parts = tuple((name, colours[i % len(colours)], text) for i, (name, text) in enumerate(texts.items()))
    return _boxes(parts, width, most, across=True)


def _boxes(texts: tuple[tuple[str, Any, str], ...], width: int, most: int, across: bool, new: tuple[str, ...] = ()
           ) -> Figure:  # fmt: skip
    """Named texts in frames, below one another or, equally high, `across` the page; of each the end that is `new`
    shaded."""
    parts = [(name, colour, _wrapped(_drawable(text), width, most)) for name, colour, text in texts]
    shaded = [len(_wrapped(_drawable(text), width, most)) for text in new] or [0] * len(parts)
    heights = [LEADING * (len(lines) + 2.4) for _, _, lines in parts]
    heights = [max(heights)] * len(parts) if across else heights
    grid: dict[str, Any] = {"ncols": len(parts)} if across else {"nrows": len(parts), "height_ratios": heights}
    size = (WIDTH * len(parts), heights[0] / 72) if across else (WIDTH, sum(heights) / 72)
    with style():
        canvas = Canvas(figsize=size)
        axes = canvas.subplots(squeeze=False, **grid).ravel()
        for ax, part, high, last in zip(axes, parts, heights, shaded, strict=True):
            _box(ax, *part, high, last)
        canvas.subplots_adjust(0, 0, 1, 1, wspace=0, hspace=0)
    return Figure(canvas)


# ---- of a run


class Exchange(NamedTuple):
    """A question asked and verified, as texts: what `fig:prompt_example` and `fig:prompt_comparison` show."""

    prompt: str
    text: str
    standard_prompt: str  # empty where the model is not at hand, and was not asked

    def ways(self, query: str) -> tuple[str, str, str]:
        """The verification prompt, the trajectory with the query, and the query; what to say where none was asked."""
        if not self.standard_prompt:
            return NOT_ASKED, NOT_ASKED, ""
        return self.standard_prompt, self.prompt + self.text + query, query


def load_exchange(run: str, signals: RunSignals, model: str, dataset: str) -> Exchange:
    """The first evaluation row of a pair; of a run that keeps no texts, the exchange on a question of ours that 03 left
    in its manifest. Of a model that is not at hand the question stands for its prompt, which nobody knows."""
    chosen = "model == @model and dataset == @dataset and split == 'evaluation'"
    one, asked = signals.generations.query(chosen).iloc[0], signals.verification.query(chosen)
    if asked.empty:  # the model is not at hand
        question, text = (one.question, one.text) if isinstance(one.text, str) else ("(not kept)", "(not kept)")
        return Exchange(question, text, "")
    if isinstance(one.text, str):
        return Exchange(one.prompt, one.text, asked.standard_prompt.iloc[0])
    return Exchange(**store.read_manifest(store.find_frame(run, "verification", f"{model}__{dataset}"))["exchange"])
