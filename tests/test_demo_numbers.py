"""The numbers of the demo, made again from its shipped signals by what the notebooks call: every row and every column
of the frames that are shipped, and of the others what `python tests/test_demo_numbers.py` wrote to demo_numbers.json,
however deep what changed lies."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from digests import check, digest, write

from lib import params, store
from lib.calibrate import evidence, fitting, sample_efficiency, transfer
from lib.paper.run_results import RunSignals
from lib.score import ablation, bootstrap, confidence, curves, metrics, one_row, passes, proper, selective, tokens
from lib.score import reading as reading_
from lib.score.confidence import confidence_frame, selected
from lib.score.estimators import ESTIMATORS, EXTRAS

VALUES = params.load_profile("demo").model_dump()
MODELS, DATASETS = VALUES["models"], VALUES["datasets"]
READING, CHOICES = params.Reading.of(VALUES), params.Calibration.of(VALUES)
RUN = "replay-demo"  # a run of its own has nothing: all is read from what is shipped
KNOWN = Path(__file__).with_name("demo_numbers.json")


def check_as_shipped(frame: pd.DataFrame, kind: str, name: str) -> None:
    shipped = store.read(store.locate(RUN, kind, name))
    assert list(frame) == list(shipped) and len(frame) == len(shipped)
    for column in frame:
        ours, theirs = frame[column].reset_index(drop=True), shipped[column].reset_index(drop=True)
        if pd.api.types.is_float_dtype(theirs):
            np.testing.assert_allclose(ours.astype(float), theirs.astype(float), rtol=1e-6, atol=1e-9, err_msg=column)
        else:
            assert (ours.astype("string").fillna("-") == theirs.astype("string").fillna("-")).all(), column


@cache
def signals() -> RunSignals:
    return RunSignals.of(RUN, MODELS, DATASETS, READING)


@cache
def fitted():
    return fitting.fit_answers(signals().sets, CHOICES)


def passes_at_the_answer() -> pd.DataFrame:
    return store.gather(RUN, "dropout_answer", MODELS, DATASETS)[0]


def every_score() -> pd.DataFrame:
    """Of the estimators that the project adds, too."""
    at_answer = selected(passes_at_the_answer(), READING)
    return confidence_frame(signals().responses, signals().verification, selected(signals().dropout, READING), READING,
                            ESTIMATORS | EXTRAS, at_answer, fitting.token_signals(signals().sets))  # fmt: skip


def test_confidence():
    check_as_shipped(confidence_frame(signals().responses), "confidence", "single_pass")


def test_calibrated_confidence_and_its_intervals():
    calibrated, learned = fitting.calibrate(signals().confidence, signals().sets, fitted(), CHOICES)
    check_as_shipped(calibrated, "calibration", "confidence")
    resampled = bootstrap.bootstrap(calibrated, VALUES["bins"], VALUES["closed"], VALUES["resamples"], VALUES["seed"])
    check_as_shipped(pd.concat([resampled.results, learned], ignore_index=True), "calibration", "results")


def test_sample_efficiency():
    of_model = {pair: one for pair, one in signals().sets.items() if pair[0] == VALUES["calibration_model"]}
    curves = sample_efficiency.learning_curves(
        of_model, VALUES["calibration_sizes"], VALUES["draws"], VALUES["seed"], list(sample_efficiency.SAMPLING),
        VALUES["wrong_share"], VALUES["bins"], VALUES["closed"], CHOICES)  # fmt: skip
    check_as_shipped(curves, "calibration", "curves")


def test_transfer():
    moved = transfer.transfer(signals().sets, fitted(), VALUES["bins"], VALUES["closed"])
    check_as_shipped(moved, "calibration", "transfer")


def test_what_the_confidence_is_good_for():
    whole, answer, raw = signals().dropout, passes_at_the_answer(), every_score()
    fits = fitting.every_fit(raw, signals().sets, fitted(), CHOICES)
    scores, constants = proper.with_base(raw, fitting.applied(raw, fits))
    check_as_shipped(proper.compare(scores, constants, VALUES["bins"], VALUES["closed"], seed=VALUES["seed"]),
                     "selective", "scores")  # fmt: skip
    check_as_shipped(selective.curves(scores), "selective", "curves")
    tuned = {"c_bald": whole[whole.tuning.astype(bool)], "c_bald_insitu": answer[answer.tuning.astype(bool)]}
    thresholds = selective.thresholds(raw, VALUES["precision_targets"], VALUES["precision_certainty"], VALUES["seed"],
                                      tuned)  # fmt: skip
    check_as_shipped(thresholds, "selective", "thresholds")


def other_frames() -> dict[str, pd.DataFrame]:
    """What the notebooks show beside the frames that they keep, by name."""
    frame, responses, scores, sets = (
        getattr(signals(), what) for what in ("generations", "responses", "confidence", "sets"))  # fmt: skip
    verified, whole, answer = signals().verification, signals().dropout, passes_at_the_answer()
    asked_again = store.gather(RUN, "ablation", MODELS, DATASETS)[0]
    results, one = metrics.evaluate(scores), one_row.choose(responses, "medium-0355", MODELS[0], DATASETS[1])
    tuned, chosen = (passes.answered(part, responses) for part in (whole[whole.tuning], whole[whole.selected]))
    of_one = one_row.of(whole[whole.selected], one)
    of_pair = asked_again[(asked_again.model == one.model) & (asked_again.dataset == one.dataset)]
    of_model = {pair: part for pair, part in sets.items() if pair[0] == MODELS[0]}
    calibrated, learned = fitting.calibrate(scores, sets, fitted(), CHOICES)
    bands = sample_efficiency.curve_bands(store.read(store.locate(RUN, "calibration", "curves")))
    place = one_row.place(sets[one_row.pair(one)].evaluation.keys, one)
    extras = every_score()
    raw, constants = proper.with_base(extras, extras[extras.split == "evaluation"].assign(method=""))
    return {
        "coverage": reading_.coverage(frame, READING),
        "coverage, relative": reading_.coverage(frame, READING.model_copy(update={"grader": "relative"})),
        "estimators": results,
        "bins": metrics.ablate_bins(scores, VALUES["bin_counts"]),
        "positions": tokens.position_curves(responses),
        "tokens": tokens.summary(responses),
        "unread": tokens.unread(frame, READING),
        "verification costs": tokens.verification_costs(verified, frame),
        "running means": curves.running_means(responses),
        "running mean curves": curves.running_mean_curves(responses),
        "answer tokens": curves.answer_tokens(responses),
        "entropy curves": curves.entropy_curves(chosen),
        "reduction": confidence.reduction(verified),
        "option mass": confidence.option_mass(verified),
        "in situ errors": confidence.in_situ_errors(results, MODELS[0], {name: name for name in DATASETS}),
        "grid": confidence.grid(responses, whole, READING),
        "passes": passes.summary(chosen),
        "tokens of passes": passes.answer_tokens(chosen),
        "by passes": passes.by_passes(responses, whole[whole.selected], READING),
        "by scope": passes.by_scope(frame, responses, {"trajectory": whole, "answer": answer}, READING),
        "by phi": passes.by_phi(responses, whole[whole.tuning], READING),
        "by rate": passes.by_rate(tuned),
        "options of one row": one_row.options(one_row.of(verified, one).iloc[0]),
        "passes over one row": one_row.disagreement(of_one, READING),
        "arms": ablation.summary(asked_again),
        "demonstration": ablation.demonstration(asked_again),
        "arms by question": ablation.graded_by_arm(of_pair).astype(float),
        "matched": proper.matched(raw, resamples=50),
        "compared": proper.compare(raw, constants, resamples=50),
        "thinned curves": selective.curves(raw),
        "calibration rows": evidence.calibration_rows(sets),
        "learned": learned,
        "maps": fitting.maps(scores, sets, fitted(), one_row.pair(one), CHOICES),
        "reliability": pd.concat(fitting.reliability(calibrated, *one_row.pair(one))),
        "signals of tokens": fitting.token_signals(sets),
        "bands": bands,
        "enough": sample_efficiency.enough(bands),
        "sizes of one row": sample_efficiency.of_row(of_model[one_row.pair(one)], place, one.dataset, [5, 50], 20, 0,
                                                     CHOICES),
        "oversampled": sample_efficiency.learning_curves(of_model, [10], 20, 1, list(sample_efficiency.SAMPLING), 0.7,
                                                         10, "right", CHOICES),
        "unseen": transfer.transfer(sets, fitted(), keep=transfer.unseen(frame)),
        "transfer of one row": transfer.of_row(sets, fitted(), one_row.pair(one), place),
    }  # fmt: skip


def test_what_the_notebooks_show_beside():
    check(KNOWN, {name: digest(frame) for name, frame in other_frames().items()})


if __name__ == "__main__":
    write(KNOWN, {name: digest(frame) for name, frame in other_frames().items()})
