"""What a claim of the paper is: a quotation, a word for how many cases must agree, and a function
that returns the cases.

A case is a model-dataset pair, say. It agrees, disagrees, or is open. Where the rows are at hand,
the paired 95% interval of a difference decides. The paper's printed numbers have no rows, so there
the number decides, as it does for claims about medians, shares and curves. A case whose number is
missing is left out. A function raises MissingFrameError if the results lack what it needs, and
NotJudgedError if what they have cannot decide.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lib.analysis.results import Results

AGREES, OPEN, DISAGREES = "agrees", "open", "disagrees"  # of a case: the column `outcome`
# condition of each word on the agreeing cases
QUANTIFIERS: Mapping[str, tuple[str, Callable[[int, int], bool]]] = {
    "all": ("every case", lambda count, total: count == total),
    "often": ("more than half", lambda count, total: count > 0.5 * total),
    "generally": (
        "more than half, also for claims without a quantity",
        lambda count, total: count > 0.5 * total,
    ),
    "several": ("at least a quarter", lambda count, total: count >= 0.25 * total),
    "some": ("at least one", lambda count, total: count > 0),
    "can": ("at least one", lambda count, total: count > 0),
    "figure": ("the one number that the text states", lambda count, total: count == total),
}
# What a word of the paper means where it gives no number: the same for every claim.
SUBSTANTIALLY = 0.8  # lower by at least a fifth
COMPARABLE = 1.25  # higher by at most a quarter
TIE = 1e-9  # "at most" holds for equal printed numbers

CountCases = Callable[[Results], pd.DataFrame]
DescribeCases = Callable[[pd.DataFrame], str]


class NotJudgedError(Exception):
    """The rows of a run cannot decide a claim, for the reason given."""


@dataclass(frozen=True)
class Claim:
    """A claim and how it is counted: `count_cases` returns its cases, with their `outcome`.

    `quote` has the paper's words below the heading `group`, `quantifier` the word for how many
    cases must agree. `counted` says in one sentence when a case agrees, `place` is the target that
    shows it, `unit` what is counted. `numbers` says what a count does not.
    """

    name: str
    count_cases: CountCases
    group: str
    quote: str
    quantifier: str
    counted: str
    place: str
    unit: str = "pairs"
    numbers: DescribeCases | None = None


def claim(
    group: str, quote: str, quantifier: str, **counting: Any
) -> Callable[[CountCases], Claim]:
    """Return a decorator that turns a function into a Claim of its name; `counting` are the further
    fields of a Claim."""

    def decorate(function: CountCases) -> Claim:
        return Claim(function.__name__, function, group, quote, quantifier, **counting)

    return decorate


def format_cases(template: str) -> DescribeCases:
    """Return a function that writes the numbers of each case: "hard 0.137, elsewhere 0.013"."""

    def describe(cases: pd.DataFrame) -> str:
        return ", ".join(template.format(**case) for case in cases.to_dict("records"))

    return describe


# ---- the outcome of a case


def decide(margin: float, low: float = np.nan, high: float = np.nan) -> str:
    """Return the outcome of a case that agrees if a difference, its `margin`, is above 0.

    `low` and `high` are the ends of its 95% interval. Without them the margin itself decides. An
    interval that ends at 0 has no room for the claim.
    """
    if np.isnan(low):
        return AGREES if margin > 0 else DISAGREES
    if low > 0:
        return AGREES
    return DISAGREES if high <= 0 else OPEN


def decide_by_number(cases: pd.DataFrame, agrees: Any) -> pd.DataFrame:
    """Return cases with the outcome that their number decides; without one, where it is missing."""
    outcome = pd.Series(np.where(agrees, AGREES, DISAGREES), cases.index, dtype=object)
    complete = cases.notna().all(axis=1)
    return cases.assign(outcome=outcome.where(complete), by_number=True)
