"""The sentences, the picture and the lines of Python with which a run answers for a model of the
user's (lib.analysis.model_answers)."""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from lib.analysis.model_answers import METHOD, AfterCalibration, ChosenScore, ModelAnswer
from lib.analysis.run_thresholds import AnsweringThreshold, Estimate
from lib.paper import figure_style as style
from lib.paper.cells import format_3dp
from lib.paper.figure_style import Canvas, in_paper_style
from lib.paper.figures import draw_reliability
from lib.paper.judged import INCHES, LOOK, describe_more_labels, diagram_title, join_words
from lib.score.estimators import ESTIMATORS

RANKS = "ranks right above wrong answers best"
METRICS = {"auroc": ("AUROC", RANKS), "ece": ("ECE", "is calibrated best as it is")}
LEAST_MORE = 20  # rows; fewer than an estimate can tell
OF_TOKENS = ("response", "answer")  # signals that `score` reads in a response


def format_estimate(estimate: Estimate) -> str:
    """Return a number and its interval.

    Examples
    --------
    >>> format_estimate(Estimate(0.5, 0.25, 0.75))
    '.500 [.250, .750]'
    """
    low, high = format_3dp(estimate.low), format_3dp(estimate.high)
    return f"{format_3dp(estimate.value)} [{low}, {high}]"


def format_percent(estimate: Estimate) -> str:
    """Return a share and its interval in percent.

    Examples
    --------
    >>> format_percent(Estimate(0.5, 0.25, 0.75))
    '50% [25%, 75%]'
    """
    value, low, high = (f"{100 * number:.0f}%" for number in estimate)
    return f"{value} [{low}, {high}]"


def name_scores(names: Sequence[str]) -> str:
    """Return the labels of scores as in a sentence.

    Examples
    --------
    >>> name_scores(["seq_avg", "ans_avg", "p_true"])
    'Seq Avg, Ans Avg and P(True)'
    """
    return join_words([ESTIMATORS[name].plain for name in names])


class Sentence(NamedTuple):
    """A sentence of the answer, and what it is about."""

    topic: str
    text: str


def list_sentences(answer: ModelAnswer) -> list[Sentence]:
    """Return what a run says of one model on one dataset, the most important first."""
    if not answer.evaluated:
        return []
    sentences = [
        Sentence(
            "Right",
            f"{answer.right} of {answer.evaluated} evaluation questions: "
            f"{format_percent(answer.accuracy)}.{describe_unread(answer)}",
        )
    ]
    if answer.ranking:
        sentences.append(Sentence("Ranking", describe_choice(answer.ranking)))
    if answer.raw:
        sentences.append(Sentence("Raw scores", describe_choice(answer.raw)))
    if answer.calibrated:
        text = describe_calibrated(answer.estimator, answer.calibrated)
        sentences.append(Sentence("Calibrated", text))
    if answer.threshold:
        text = describe_threshold(answer.estimator, answer.threshold)
        sentences.append(Sentence("When to answer", text))
    return sentences


def describe_unread(answer: ModelAnswer) -> str:
    """Say how many responses count as wrong for want of an answer; empty if none do."""
    if not answer.unread:
        return ""
    return f" {answer.unread} responses have no readable answer, and count as wrong."


def describe_choice(choice: ChosenScore) -> str:
    """Say which score is best by a metric, as far as the evaluation rows tell."""
    label, is_best = METRICS[choice.metric]
    name = ESTIMATORS[choice.estimator].plain
    number = f"{label} {format_estimate(choice.estimate)}, {describe_chance(choice)}"
    if choice.is_best:
        return f"{name} {is_best}, of all: {number}."
    parts = [f"Which score {is_best} cannot be told. The calibration questions choose {name}"]
    if choice.better:
        does = "does" if len(choice.better) == 1 else "do"
        parts = [f"{name_scores(choice.better)} {does} better than {name}"]
        parts[0] += ", which the calibration questions choose"
    parts[0] += f": {number}"
    if choice.worse:
        verb = "is" if len(choice.worse) == 1 else "are"
        parts.append(f"{name_scores(choice.worse)} {verb} worse")
    if choice.open_to:
        parts.append(f"{name_scores(choice.open_to)} cannot be told from it")
    return "; ".join(parts) + "."


def describe_chance(choice: ChosenScore) -> str:
    """Say what chance gives beside a number."""
    if choice.metric == "auroc":
        return "where .5 is chance"
    if choice.within_chance:
        return f"and calibrated scores would have up to {format_3dp(choice.chance)} by chance too"
    return f"where calibrated scores would have at most {format_3dp(choice.chance)} by chance"


def describe_calibrated(estimator: str, made: AfterCalibration) -> str:
    """Say what calibration gives, beside chance and a constant."""
    error = f"{ESTIMATORS[estimator].plain} after {METHOD} regression: ECE"
    if made.estimate.value <= made.chance:
        verdict = f"no more than chance gives ({format_3dp(made.chance)}), so it may be calibrated"
    else:
        verdict = f"more than chance gives ({format_3dp(made.chance)}), so an error remains"
    constant = f"a constant has {format_3dp(made.constant)}, and ranks nothing"
    return f"{error} {format_estimate(made.estimate)}, {verdict}; {constant}."


def describe_threshold(estimator: str, made: AnsweringThreshold) -> str:
    """Say from which score up a precision is guaranteed, or what a guarantee takes."""
    name = ESTIMATORS[estimator].plain
    precision = f"{100 * made.target:g}%"
    certainty = f"with {100 * made.certainty:g}% confidence"
    if made.threshold is None:
        sentence = f"No threshold of {name} guarantees that {precision} of the answers are right"
        if made.more is None:
            return f"{sentence}: at none are they right so often."
        more = f"{describe_more_labels(made.more)} more calibration questions"
        if made.more < LEAST_MORE:
            more = "a few more calibration questions, or other ones of them"
        return f"{sentence}, {certainty}: it would take {more}."
    guarantee = (
        f"Of answers with {name} of {made.threshold:.4g} or more at least {precision} are right, "
        f"{certainty}, if new questions are like these."
    )
    if not made.answered:
        return f"{guarantee} No evaluation question has so much."
    return (
        f"{guarantee} These are {100 * made.answered:.0f}% of the evaluation questions, and "
        f"{format_percent(made.precision)} of them are right."
    )


def explain_choices(answer: ModelAnswer) -> str:
    """Say which rows choose, fit, and judge."""
    return (
        f"A third of the calibration questions ({answer.choosing}) chooses scores and proposes "
        "thresholds, the other two thirds test these, and all of them "
        f"({answer.calibrating}) fit calibrators. The evaluation questions ({answer.evaluated}) "
        "only judge. Scores are the paper's. In brackets are 95% intervals; two scores are told "
        "apart by that of their paired difference."
    )


# ---- the picture


@in_paper_style
def draw_answer(answer: ModelAnswer) -> Canvas:
    """Draw the reliability diagrams of the score in use, raw and calibrated."""
    canvas = style.new_canvas(INCHES, style.WIDTH * 0.9, "")
    panels: dict[str, pd.DataFrame] = {}
    for title, bins in (answer.diagrams or {}).items():
        name = ESTIMATORS[answer.estimator].plain
        panels[diagram_title(f"{name}, {title}")] = bins
    draw_reliability(canvas, panels, LOOK)
    return canvas


# ---- the lines of Python


class CodeLines(NamedTuple):
    """Lines of Python, and what they are for."""

    use: str
    text: str


def list_code(answer: ModelAnswer, folder: str) -> list[CodeLines]:
    """Return the lines that calibrate a new response by the file in a `folder`, and decide whether
    to answer; none without a calibrator that says something."""
    if not answer.has_calibrator:
        return []
    name = answer.estimator
    file = f"{folder}/{'__'.join((*answer.pair, name, METHOD))}.json"
    if ESTIMATORS[name].needs in OF_TOKENS:
        call, given = "score(response, calibrator)", "response: a chat completion with logprobs"
    else:
        call = "score_confidence(confidence, calibrator)"
        given = f"confidence: {ESTIMATORS[name].plain} of a response"
    function = call.partition("(")[0]
    calibrate = (
        f"from lib.calibrate.one_response import {function}\n\n"
        f'calibrator = "{file}"\n'
        f"confidence = {call}  # {given}\n"
        "print(confidence.calibrated)"
    )
    lines = [CodeLines("The probability that a new answer is right", calibrate)]
    made = answer.threshold
    if made and made.threshold is not None:
        decide = f"is_answered = confidence.raw >= {made.threshold!r}"
        lines.append(CodeLines(f"Answer only where {100 * made.target:g}% are right", decide))
    return lines
