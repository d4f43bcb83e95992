"""Table `tab:estimators`: one small pure function per row, and their registry.

Each maps a signal to a probability in [0, 1]; sums are float64. Log-probabilities are natural, one
per token. To add an estimator, write its function and one row of `_DECLARED` with the signal it
needs (computed in `lib.score.confidence`). It then appears in every table, curve and calibrator.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

WINDOW = 16  # tokens, about the length of one step of a solution
MOST_ABOVE_ZERO = 1e-5  # rounding can lift a float32 log-softmax this much above 0


def validate_logprobs(logprobs: Any) -> np.ndarray:
    """Return float64 log-probabilities (n,), at most 0. Raise ValueError if there are none, or one
    is NaN or above 0.

    Examples
    --------
    >>> validate_logprobs([-1, 1e-6])
    array([-1.,  0.])
    """
    values = np.asarray(logprobs, dtype=np.float64)
    if values.size == 0 or not (values <= MOST_ABOVE_ZERO).all():  # NaN fails the comparison too
        raise ValueError("log-probabilities must be at least one number, none above 0")
    return np.minimum(values, 0.0)


def seq_joint(logprobs: Any) -> float:
    """Return the length-normalized joint probability (geometric mean) of the response's n tokens;
    `logprobs` is (n,).

    Examples
    --------
    >>> round(seq_joint(np.log([0.5, 0.125])), 4)
    0.25
    """
    return float(np.exp(validate_logprobs(logprobs).mean()))


def seq_avg(logprobs: Any) -> float:
    """Return the arithmetic mean of the probabilities of the response's n tokens; `logprobs` is
    (n,).

    Examples
    --------
    >>> seq_avg(np.log([0.5, 0.25]))
    0.375
    """
    return float(np.exp(validate_logprobs(logprobs)).mean())


ans_joint = seq_joint  # of the answer's tokens only
ans_avg = seq_avg  # likewise


def p_true(margin: float) -> float:
    """Return the mass of the option for True relative to both, from the difference of their
    log-masses.

    Examples
    --------
    >>> p_true(0.0)
    0.5
    >>> round(p_true(np.log(0.6) - np.log(0.2)), 4)
    0.75
    """
    return float(np.exp(-np.logaddexp(0.0, -margin)))


def min_window_mean(logprobs: Any) -> float:
    """Return the lowest mean probability of WINDOW neighboring tokens, or of all tokens of a
    shorter response.

    `logprobs` is (n,). This is the lowest group of DeepConf (arXiv 2508.15260), with the chosen
    tokens' probabilities.

    Examples
    --------
    >>> min_window_mean(np.log([0.5] * 16 + [1.0] * 16))
    0.5
    """
    probabilities = np.exp(validate_logprobs(logprobs))
    width = min(WINDOW, probabilities.size)
    means = np.convolve(probabilities, np.full(width, 1 / width), "valid")
    return float(np.clip(means.min(), 0, 1))


def min_top2_margin(margins: Any) -> float:
    """Return the smallest margin of the answer's tokens: top probability minus the next; `margins`
    is (m,).

    Examples
    --------
    >>> min_top2_margin([0.75, 0.25])
    0.25
    """
    return float(np.clip(np.min(margins), 0, 1))


def exp_neg_entropy(entropies: Any) -> float:
    """Return exp(-H) for the mean entropy H of the answer's tokens; (m,) in nats. 1 if all are
    certain.

    Examples
    --------
    >>> exp_neg_entropy([0.0, 0.0])
    1.0
    """
    return float(np.exp(-max(np.mean(entropies), 0.0)))


def c_bald(bald: Any) -> float:
    """Return the mean of clip(1 - BALD_j, 0, 1) over the answer's tokens, `eq:bald`; (m,), from
    `scale_bald`.

    Examples
    --------
    >>> c_bald([0.25, 2.0])
    0.375
    """
    return float(np.clip(1 - np.asarray(bald, dtype=np.float64), 0, 1).mean())


# ---- the table


@dataclass(frozen=True)
class Estimator:
    """One row of `tab:estimators`. `function` maps the signal named in `needs` to a confidence."""

    name: str
    label: str  # LaTeX
    plain: str
    definition: str  # LaTeX; without one it has no column in the result tables
    group: str  # "single_pass" | "multi_pass"
    needs: str  # one of SIGNALS
    function: Callable[[Any], float]
    own: bool = False  # not of the paper: shown only in tables of our own


SIGNALS = (  # in the order of the result tables' columns
    "response",  # (n,) log-probabilities of the response's tokens
    "answer",  # (m,) those of the answer's tokens
    # log-mass of P(True)'s option for True less that of the other, standard prompt
    "standard_margin",
    "bald",  # (m,) disagreement of the dropout passes at the answer's tokens, as phi scales it
    "in_situ_margin",  # as `standard_margin`, in situ
    "answer_margin",  # (m,) lead of the most probable token over the next, at the answer's tokens
    "answer_entropy",  # (m,) entropy of the next-token distribution there, nats
)


def _joint(index: str, length: str, token: str) -> str:
    return rf"$\left(\prod_{{{index}=1}}^{{{length}}} {token}\right)^{{1/{length}}}$"


def _avg(index: str, length: str, token: str) -> str:
    return rf"$\frac{{1}}{{{length}}}\sum_{{{index}=1}}^{{{length}}}{token}$"


_SEQ = ("i", r"|\hat{\bm{y}}|", r"\mathbb{P}(y_i \mid \bm{x}, \hat{\bm{y}}_{<i})")
_ANS = ("j", r"|\yans|", r"\mathbb{P}(y^{\mathrm{ans}}_j \mid \bm{x}, \yreason, \yans_{<j})")
_BALD = ("j", r"|\yans|", r"\phi(\mathrm{BALD}_j)")
_TRUE = r"\mathbb{P}(y_{\mathtt{True}}\mid \bm{x}^{\mathrm{ver}})"
_PTRUE = rf"$\frac{{{_TRUE}}}{{{_TRUE}+{_TRUE.replace('True', 'False')}}}$"


def _single_pass(
    name: str,
    plain: str,
    needs: str,
    function: Callable[[Any], float],
    definition: str = "",
    own: bool = False,
) -> Estimator:
    label = rf"\textsc{{{plain}}}"
    return Estimator(name, label, plain, definition, "single_pass", needs, function, own)


_DECLARED = (
    _single_pass("seq_joint", "Seq Joint", "response", seq_joint, _joint(*_SEQ)),
    _single_pass("seq_avg", "Seq Avg", "response", seq_avg, _avg(*_SEQ)),
    _single_pass("ans_joint", "Ans Joint", "answer", ans_joint, _joint(*_ANS)),
    _single_pass("ans_avg", "Ans Avg", "answer", ans_avg, _avg(*_ANS)),
    Estimator("p_true", r"$\ptrue$", "P(True)", _PTRUE, "multi_pass", "standard_margin", p_true),
    Estimator(
        "c_bald", r"$c_{\mathrm{BALD}}$", "c_BALD", _avg(*_BALD), "multi_pass", "bald", c_bald
    ),
    # only in `tab:insitu_ptrue`: no definition, and no column in the result tables
    Estimator(
        name="p_true_insitu",
        label=r"In-situ $\ptrue$",
        plain="In-situ P(True)",
        definition="",
        group="multi_pass",
        needs="in_situ_margin",
        function=p_true,
    ),
    _single_pass("seq_window", "Seq Window", "response", min_window_mean, own=True),
    _single_pass("ans_margin", "Ans Margin", "answer_margin", min_top2_margin, own=True),
    _single_pass("ans_entropy", "Ans Entropy", "answer_entropy", exp_neg_entropy, own=True),
)
ESTIMATORS = {estimator.name: estimator for estimator in _DECLARED}
PAPER_ESTIMATORS = [estimator.name for estimator in _DECLARED if estimator.definition]


def in_column_order(estimators: Iterable[Estimator]) -> list[Estimator]:
    """Sort by signal as the columns of the result tables, then by name: Avg before Joint.

    Examples
    --------
    >>> [estimator.name for estimator in in_column_order(ESTIMATORS.values())][:4]
    ['seq_avg', 'seq_joint', 'seq_window', 'ans_avg']
    """

    def column(estimator: Estimator) -> tuple[int, str]:
        return SIGNALS.index(estimator.needs), estimator.name

    return sorted(estimators, key=column)
