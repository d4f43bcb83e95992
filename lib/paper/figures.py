"""The paper's figures from frames. Formatting only.

Two kinds in a plot always differ in colour, lightness and line style or hatching, for greyscale print and for
colour-blind readers.
"""

import re
import unicodedata
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.font_manager import findfont, get_font
from matplotlib.patches import Rectangle

from lib.paper.figure_style import BLUE, GREY, ORANGE, WIDTH, Canvas, Figure, style
from lib.paper.targets import target

KINDS = ((True, "right", BLUE, "-"), (False, "wrong", ORANGE, "--"))
MARK = r"<\|[^|<>\n]*\|>|</?think>|</?s>"  # special tokens as tokenizers spell them
LEADING, MONO = 8.6, "DejaVu Sans Mono"  # of prompts: points from line to line, and the font


# ---- running mean of token probabilities; entropies; in-situ verification


def _running_mean(ax: Axes, curves: pd.DataFrame) -> None:
    for correct, label, colour, line in KINDS:
        part = curves[curves["correct"] == correct]
        if len(part):
            label = f"{label} (n = {part['n'].iloc[0]})"
            ax.plot(part["position"], part["mean"], line, color=colour, label=label)
            band = (part["position"], part["low"], part["high"])
            ax.fill_between(*band, color=colour, alpha=0.25, linewidth=0)
    ax.set(xlabel="normalised token position", ylabel="mean probability so far", xlim=(0, 1))
    ax.legend(loc="best", handlelength=2.6)


def _entropies(ax: Axes, frame: pd.DataFrame) -> None:
    for term, colour, line in (("predictive", BLUE, "o-"), ("conditional", ORANGE, "s--")):
        part = frame[frame["term"] == term]
        ax.plot(part["passes"], part["mean"], line, markersize=3, color=colour, label=term)
        ax.fill_between(part["passes"], part["low"], part["high"], color=colour, alpha=0.25, linewidth=0)
    ax.set(xlabel="passes T", ylabel="entropy (nats)", ylim=(0, 1.4 * frame["high"].max() or None))
    ax.legend(loc="upper left", handlelength=2.6)


def _in_situ(ax: Axes, frame: pd.DataFrame) -> None:
    places, top = np.arange(len(frame)), frame[["standard", "in situ"]].to_numpy().max()
    for shift, column, colour, hatch in ((-0.2, "standard", BLUE, ""), (0.2, "in situ", ORANGE, "////")):
        look: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "black", "linewidth": 0.5}
        ax.bar(places + shift, frame[column], 0.38, label=column, **look)
    slant: dict[str, Any] = {"rotation": 20, "ha": "right", "rotation_mode": "anchor"}
    crowded = sum(map(len, frame["dataset"])) > 20  # letters that stand side by side under half a column
    ax.set_xticks(places, frame["dataset"], parse_math=False, **slant if crowded else {})
    ax.set(ylabel="ECE", ylim=(0, 1.4 * top or None))
    ax.legend(loc="upper left", handlelength=1.6)


@target("fig_main_analysis", "What the signals look like",
        "(a) Running mean of token probabilities against position, right and wrong responses apart. (b) Predictive and "
        "conditional entropy against the number of dropout passes. (c) ECE of verification in situ and by a prompt.",
        place=3)  # fmt: skip
def main_analysis(
    curves: pd.DataFrame | None = None,
    entropies: pd.DataFrame | None = None,
    in_situ: pd.DataFrame | None = None,
    title: str = "",
    rate: float | None = None,
) -> Figure:
    """`fig:main_analysis`, with the panels whose data is given and has rows: (a) `curves`, as `running_mean_curves`
    returns them; (b) `entropies`, as `curves.entropy_curves` does; (c) `in_situ`: dataset, standard, in situ
    (both ECE). `title` (model and dataset) stands over the first, the dropout `rate` over the second."""
    panels = {"a": (_running_mean, curves), "b": (_entropies, entropies), "c": (_in_situ, in_situ)}
    given = {letter: (draw, data) for letter, (draw, data) in panels.items() if data is not None and len(data)}
    with style():
        canvas = Canvas(figsize=(WIDTH, 2.1 if len(given) == 1 else 4.0), layout="constrained")
        axes = canvas.subplot_mosaic("aa;bc" if len(given) == 3 else ";".join(given))
        for letter, (draw, data) in given.items():
            draw(axes[letter], data)
            words = f"({letter})" if len(given) > 1 else ""
            if letter == min(given):
                words = f"{words} {title}".lstrip()
            if letter == "b" and rate is not None:
                words = f"{words} rate {rate:.2f}".lstrip()
            axes[letter].set_title(words, parse_math=False)
    return Figure(canvas)


def phi_sensitivity(results: pd.DataFrame) -> Figure:
    """ECE of c_BALD against the dropout rate for each phi (`results`: phi, rate, value), appendix `app:bald`."""
    looks = ((BLUE, "o-"), (ORANGE, "s--"), ("black", "^:"), (GREY, "D-."))
    with style():
        canvas = Canvas(figsize=(WIDTH, 2.1), layout="constrained")
        ax = canvas.subplots()
        for number, (phi, part) in enumerate(results.groupby("phi", sort=False)):
            colour, line = looks[number % len(looks)]
            look: dict[str, Any] = {"markersize": 3, "color": colour, "label": phi_in_words(phi)}
            ax.plot(part["rate"], part["value"].astype(float), line, **look)
        ax.set_xticks(sorted(results["rate"].unique()))
        ax.set(xlabel="dropout rate", ylabel="ECE (tuning rows)", ylim=(0, None))
        canvas.legend(loc="outside upper left", ncols=3, handlelength=2.6, columnspacing=1)
    return Figure(canvas)


def phi_in_words(name: str) -> str:
    """A phi of the stored columns, as the appendix calls it: clip, top-k (k = 10), top-p (p = 0.95)."""
    kind, _, value = name.removeprefix("top_").partition("_")
    return f"top-{kind} ({kind} = {value})" if value else name


# ---- how sure the answer tokens are


def answer_density(tokens: pd.DataFrame, title: str = "") -> Figure:
    """Share of answer tokens by probability, right and wrong apart (`tokens`: correct, logprob, as
    `curves.answer_tokens` returns them). Nearly all lie close to 1, hence the axis 1 - p in powers of
    ten; beyond 1e-7, which float32 cannot tell from 1, everything counts in the last bin."""
    bins = np.arange(0, 8, 0.5)
    with style():
        canvas = Canvas(figsize=(WIDTH, 2.1), layout="constrained")
        ax = canvas.subplots()
        for correct, label, colour, line in KINDS:
            logprob = tokens.loc[tokens["correct"] == correct, "logprob"].to_numpy(dtype=float)
            if logprob.size:
                powers = -np.log10(np.maximum(-np.expm1(logprob), 10**-7.25))  # of ten, in 1 - p
                share = np.histogram(powers, bins)[0] / logprob.size
                ax.stairs(share, bins, fill=correct, color=colour, alpha=0.25, linewidth=0)
                label = f"{label} (n = {logprob.size})"
                ax.stairs(share, bins, color=colour, linestyle=line, linewidth=1.4, label=label)
        ax.set_xticks(range(8), ["1", ".1", ".01", ".001", "1e-4", "1e-5", "1e-6", "\u22641e-7"])
        ax.set(xlabel="1 \N{MINUS SIGN} probability of the answer token (surer to the right)")
        ax.set(ylabel="share of tokens", xlim=(0, 7.5), ylim=(0, None))
        ax.set_title(title, parse_math=False)
        ax.legend(loc="best", handlelength=2.6)
    return Figure(canvas)


# ---- a real exchange


def _drawable(text: str) -> str:
    """Characters that the font lacks in their plain form (a full-width bar as a bar), else as their code."""
    known = get_font(findfont(MONO)).get_charmap()
    for character in {c for c in text if ord(c) not in known and c not in "\n\t"}:
        plain = unicodedata.normalize("NFKC", character)
        shown = plain if all(ord(c) in known for c in plain) else f"\\u{ord(character):04x}"
        text = text.replace(character, shown)
    return text


def _wrapped(text: str, width: int, most: int) -> list[tuple[str, bool]]:
    """Lines of at most `width` characters, each with whether it continues the one before; of more than
    `most` the middle is left out. Breaks fall at spaces and special tokens, else inside a word."""
    lines: list[tuple[str, bool]] = []
    for line in text.strip("\n").expandtabs(4).split("\n"):
        start, current = len(lines), ""
        pieces = re.findall(rf"{MARK}|\s+|(?:(?!{MARK})\S)+", line)
        for piece in (p[i : i + width] for p in pieces for i in range(0, len(p), width)):
            if len(current) + len(piece) > width:
                lines.append((current, len(lines) > start))
                current = ""
            current += "" if piece.isspace() and not current and len(lines) > start else piece
        lines.append((current, len(lines) > start))
    left_out = len(lines) - most
    note = [(f"[... {left_out} lines left out ...]", False)]
    return lines if left_out <= 0 else lines[: most // 2] + note + lines[most // 2 + left_out :]


def _box(ax: Axes, name: str, colour: Any, lines: list[tuple[str, bool]], high: float) -> None:
    """One framed part, `high` points, in axes whose units are points from the upper left corner."""
    wide, step = WIDTH * 72, 7 * 0.602  # a letter is 0.602 em wide
    ax.set(xlim=(0, wide), ylim=(high, 0))
    ax.axis("off")
    look: dict[str, Any] = {"facecolor": (*colour, 0.07), "edgecolor": colour, "linewidth": 0.8}
    ax.add_patch(Rectangle((1, 1), wide - 2, high - 4, **look))
    ax.text(6, LEADING, name, size=7, weight="bold", color="0.25", va="center")
    for number, (line, continued) in enumerate(lines):
        write: dict[str, Any] = {"y": LEADING * (number + 2.1), "size": 7, "family": MONO, "va": "center"}
        if continued:
            ax.text(3, s="\N{RIGHTWARDS ARROW WITH HOOK}", color="0.5", **write)
        for match in re.finditer(rf"({MARK})|(?:(?!{MARK}).)+", line):
            weight = "bold" if match.group(1) else "normal"
            ax.text(12 + step * match.start(), s=match.group(), parse_math=False, weight=weight, **write)


@target("fig_prompt_example", "One exchange",
        "A prompt as the model reads it, special tokens and all, and its response.", place=15)  # fmt: skip
def prompt_example(prompt_text: str, response_text: str, width: int = 52, most: int = 60) -> Figure:
    """`fig:prompt_example`: a prompt and its response as the model saw and wrote them, every character:
    special tokens bold, an arrow where a line was broken to fit `width`, at most `most` lines of each."""
    return _boxes((("prompt", GREY, prompt_text), ("response", BLUE, response_text)), width, most, across=False)


@target("fig_prompt_comparison", "Two ways to ask",
        "The same response verified by a prompt of its own, and in situ, where the query follows the trajectory.",
        place=16)  # fmt: skip
def prompt_comparison(standard: str, in_situ: str, width: int = 52, most: int = 60) -> Figure:
    """`fig:prompt_comparison`: the verification prompt, standard and in situ, side by side, as `prompt_example` sets
    its parts."""
    return _boxes((("standard", GREY, standard), ("in situ", BLUE, in_situ)), width, most, across=True)


def _boxes(texts: tuple[tuple[str, Any, str], ...], width: int, most: int, across: bool) -> Figure:
    """Named texts in frames, below one another or, equally high, `across` the page."""
    parts = [(name, colour, _wrapped(_drawable(text), width, most)) for name, colour, text in texts]
    heights = [LEADING * (len(lines) + 2.4) for _, _, lines in parts]
    heights = [max(heights)] * len(parts) if across else heights
    grid: dict[str, Any] = {"ncols": len(parts)} if across else {"nrows": len(parts), "height_ratios": heights}
    size = (WIDTH * len(parts), heights[0] / 72) if across else (WIDTH, sum(heights) / 72)
    with style():
        canvas = Canvas(figsize=size)
        for ax, part, high in zip(canvas.subplots(**grid), parts, heights, strict=True):
            _box(ax, *part, high)
        canvas.subplots_adjust(0, 0, 1, 1, wspace=0, hspace=0)
    return Figure(canvas)
