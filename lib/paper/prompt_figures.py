"""Real exchanges as the model reads and writes them: every character, special tokens bold. Formatting only."""

import re
import unicodedata
from collections.abc import Mapping
from itertools import cycle
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.font_manager import findfont, get_font
from matplotlib.patches import Rectangle

from lib import store
from lib.analysis.run_signals import RunSignals
from lib.paper.figure_style import BLUE, GRAY, MAX_HEIGHT, ORANGE, WIDTH, Canvas, Figure, in_paper_style

SPECIAL_TOKEN = r"<\|[^|<>\n]*\|>|</?think>|</?s>"  # special tokens as tokenizers spell them
LEADING, LETTERS, MONO = 8.6, 52, "DejaVu Sans Mono"  # points per line, letters per line, and the font
MODEL_NOT_ASKED = "(not asked: the model is not at hand)"
Lines = list[tuple[str, bool]]  # each with whether it continues the line before


def _drawable(text: str) -> str:
    """Replace characters that the font lacks by their plain form (a full-width bar by a bar), else by their code."""
    known = get_font(findfont(MONO)).get_charmap()
    for character in {c for c in text if ord(c) not in known and c not in "\n\t"}:
        plain = unicodedata.normalize("NFKC", character)
        shown = plain if all(ord(c) in known for c in plain) else f"\\u{ord(character):04x}"
        text = text.replace(character, shown)
    return text


def _wrapped(text: str, most: int) -> Lines:
    """Return lines of at most LETTERS characters; beyond `most` lines the middle is omitted.

    Breaks are at spaces and special tokens, else inside a word.
    """
    lines: Lines = []
    for line in _drawable(text).strip("\n").expandtabs(4).split("\n"):
        start, current = len(lines), ""
        pieces = re.findall(rf"{SPECIAL_TOKEN}|\s+|(?:(?!{SPECIAL_TOKEN})\S)+", line)
        for piece in (p[i : i + LETTERS] for p in pieces for i in range(0, len(p), LETTERS)):
            if len(current) + len(piece) > LETTERS:
                lines.append((current, len(lines) > start))
                current = ""
            current += "" if piece.isspace() and not current and len(lines) > start else piece
        lines.append((current, len(lines) > start))
    left_out = len(lines) - most
    note = [(f"[... {left_out} lines left out ...]", False)]
    return lines if left_out <= 0 else lines[: most // 2] + note + lines[most // 2 + left_out :]


def _box(ax: Axes, name: str, color: Any, lines: Lines, high: float, new: int = 0) -> None:
    """Draw one framed part of height `high`, with its last `new` lines shaded.

    The units of the axes are points from the upper left corner.
    """
    wide, step = WIDTH * 72, 7 * 0.602  # a letter is 0.602 em wide
    ax.set(xlim=(0, wide), ylim=(high, 0))
    ax.axis("off")
    ax.add_patch(Rectangle((1, 1), wide - 2, high - 4, facecolor=(*color, 0.07), edgecolor=color, linewidth=0.8))
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
            ax.text(12 + step * match.start(), s=match.group(), weight=weight, **write)


def prompt_example(prompt_text: str, response_text: str) -> Figure:
    """Draw `fig:prompt_example`: a prompt and its response with every character; special tokens are bold.

    An arrow marks a wrapped line.
    """
    return _boxes((("prompt", GRAY, prompt_text), ("response", BLUE, response_text)), across=False)


def prompt_comparison(standard: str, in_situ: str, new: str = "") -> Figure:
    """Draw `fig:prompt_comparison`: the verification prompt, standard and in situ, side by side, as in
    `prompt_example`.

    Shading marks encoded text: all of the first, and the last part `new` of the second (by default nothing is shaded).
    The rest of the second is in the cache.
    """
    first, second = "standard", "in situ"
    if new:
        first, second = f"{first}: all is encoded", f"{second}: shaded is encoded, the rest is cached"
    return _boxes(((first, GRAY, standard), (second, BLUE, in_situ)), new=(standard, new) if new else ())


def responses_side_by_side(texts: Mapping[str, str]) -> Figure:
    """Draw responses to one question side by side, by their names."""
    return _boxes(tuple((name, color, text) for (name, text), color in zip(texts.items(), cycle((GRAY, BLUE, ORANGE)))))


@in_paper_style
def _boxes(texts: tuple[tuple[str, Any, str], ...], across: bool = True, new: tuple[str, ...] = ()) -> Canvas:
    """Draw named texts in frames, equally high `across` the page, or one below another, each with its `new` end shaded.

    The figure is at most as high as a screen.
    """
    most = int(72 * MAX_HEIGHT / LEADING / (1 if across else len(texts)) - 3.4)
    parts = [(name, color, _wrapped(text, most)) for name, color, text in texts]
    shaded = [len(_wrapped(text, most)) for text in new] or [0] * len(parts)
    heights = [LEADING * (len(lines) + 2.4) for _, _, lines in parts]
    heights = [max(heights)] * len(parts) if across else heights
    grid: dict[str, Any] = {"ncols": len(parts)} if across else {"nrows": len(parts), "height_ratios": heights}
    size = (WIDTH * len(parts), heights[0] / 72) if across else (WIDTH, sum(heights) / 72)
    canvas = Canvas(figsize=size)
    axes = canvas.subplots(squeeze=False, **grid).ravel()
    for ax, part, high, last in zip(axes, parts, heights, shaded, strict=True):
        _box(ax, *part, high, last)
    canvas.subplots_adjust(0, 0, 1, 1, wspace=0, hspace=0)
    return canvas


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
