"""`python docs/tables/picture.py` draws docs/results/fig_response.png, the picture of README.

A wrong response of a real model, each token shaded by its probability, the answer boxed; beside it
the reliability of Ans Avg, raw and after isotonic regression. All of it is of shipped signals.
"""

import sys
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lib import params
from lib.analysis.running_example import rows_of_example
from lib.analysis.signals import Signals, load_signals
from lib.paper import figure_style as style
from lib.paper import figures
from lib.paper.cells import format_3dp
from lib.paper.response_views import SHADES, SpelledToken, load_token_speller, spell_tokens
from lib.score import estimators
from lib.score.reliability import reliability_by_method

PATH = ROOT / "docs" / "results" / "fig_response.png"
MODEL, DATASET, EXAMPLE = "qwen2.5-coder-1.5b", "gsm8k", "evaluation-1109"
BINS = 10
SIZE = (7.2, 2.7)  # inches
COLUMNS, LINES = 38, 10  # letters of equal width that the left part holds
LETTER = 10.3  # points
SHADE = (213 / 255, 120 / 255, 0)  # of the least probable tokens, as on the page
OPACITY = (0, 0.15, 0.3, 0.45, 0.65)  # by the number of SHADES above the probability
TOLD_BELOW = 0.9  # a probability that stands below its token


def load_example() -> tuple[Signals, list[SpelledToken], dict[str, float]]:
    """Return the signals of the pair, the tokens of the response, and two of its scores."""
    signals = load_signals("replay-small", [MODEL], [DATASET], params.EvaluationChoices(bins=BINS))
    response = signals.responses.set_index("example_id", drop=False).loc[EXAMPLE]
    row = rows_of_example(signals.generations, response).iloc[0]
    tokens = spell_tokens(row, response, load_token_speller(MODEL))
    scores = {
        "Seq Avg": estimators.seq_avg(response.response),
        "Ans Avg": estimators.ans_avg(response.answer),
    }
    return signals, tokens, scores


def draw_tokens(ax: Axes, tokens: list[SpelledToken]) -> None:
    """Draw a response in letters of equal width, two lines high each for the numbers below."""
    column, line = 0, 1.0
    for token in tokens:
        text = token.text.rstrip("\n")
        if column + len(text) > COLUMNS:
            column, line = 0, line + 2
            text = text.lstrip()
        draw_token(ax, token, text, column, line)
        column += len(text)
        if token.text.endswith("\n"):
            column, line = 0, line + 2


def draw_token(ax: Axes, token: SpelledToken, text: str, column: int, line: float) -> None:
    shade = sum(token.probability < least for least in SHADES)
    edge = "black" if token.in_answer else "none"
    width = len(text)
    color = (*SHADE, OPACITY[shade])
    ax.add_patch(Rectangle((column, line - 0.6), width, 1.2, fc=color, ec=edge, lw=0.8))
    ax.text(column, line, text, family="monospace", size=LETTER, va="center")
    if token.probability < TOLD_BELOW and width > 1:  # below one letter it has no room
        number = format_3dp(token.probability)[:3]
        middle = column + width / 2
        ax.text(middle, line + 1.0, number, size=6, color="0.35", ha="center", va="center")


def draw_picture() -> style.Figure:
    """Return the picture."""
    signals, tokens, scores = load_example()
    diagrams = reliability_by_method(signals.calibration.scores, MODEL, DATASET, BINS)
    panels = {"Ans Avg, raw": diagrams[""], "isotonic": diagrams["isotonic"]}

    @style.in_paper_style
    def draw() -> style.Canvas:
        canvas = style.new_canvas(SIZE[1], SIZE[0])
        left, right = canvas.subfigures(1, 2, width_ratios=[1, 1], frameon=False)
        ax = left.subplots()
        ax.set(xlim=(-0.5, COLUMNS), ylim=(LINES, -0.5))
        ax.axis("off")
        draw_tokens(ax, tokens)
        told = [f"Seq Avg {format_3dp(scores['Seq Avg'])}"]
        told.append(f"Ans Avg {scores['Ans Avg']:.4f}".replace("0.", "."))
        ax.text(0, LINES - 1.5, "\u2717 wrong", size=11, color="#b3261e", va="center")
        ax.text(11, LINES - 1.5, "     ".join(told), size=11, va="center")
        figures.draw_reliability(right, panels, style.ESTIMATOR_LOOKS["ans_avg"])
        return canvas

    return draw()


if __name__ == "__main__":
    PATH.write_bytes(draw_picture().save("png"))
