"""The numbers of the demo, made again from its shipped signals by what the notebooks call: every row and column of the
frames that are shipped; of the others what `python tests/demo/test_demo_numbers.py` wrote to demo_numbers.json."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lib import params, store
from lib.analysis import ablation_statistics, calibration_statistics, dropout_statistics, token_statistics
from lib.analysis.run_signals import RunSignals
from lib.calibrate import fitting, sample_efficiency, transfer
from lib.score import bootstrap, proper_scores, running_example, selective
from lib.score import interpretation as reading_
from lib.score.confidence import confidence_frame, rows_at_selected_rate
from lib.score.estimators import ESTIMATORS, EXTRAS

DEMO = params.load_profile("demo")
MODELS, DATASETS, BINS = DEMO.models, DEMO.datasets, (DEMO.bins, DEMO.closed)
READING, CHOICES, DRAWN = (
    kind.of(DEMO.model_dump()) for kind in (params.Reading, params.Calibration, params.Subsampling)
)
RUN = "replay-demo"  # a run of its own has nothing: all is read from what is shipped
KNOWN = Path(__file__).with_name("demo_numbers.json")


def digest(frame: pd.DataFrame) -> dict[str, list[float]]:
    """Of every column of numbers: how many there are, their mean, and their mean weighted by place; of others, how many
    different ones."""
    found, places = {}, np.arange(1, len(frame) + 1)
    for column in frame:
        if pd.api.types.is_numeric_dtype(frame[column]) or pd.api.types.is_bool_dtype(frame[column]):
            values = frame[column].astype("Float64").to_numpy(float, na_value=np.nan)
            there = ~np.isnan(values)
            means = [values[there].mean(), (values * places)[there].sum() / places.sum()] if there.any() else []
            found[str(column)] = [int(there.sum()), *(float(f"{value:.9g}") for value in means)]
        else:
            found[str(column)] = [frame[column].astype(str).nunique()]
    return found


def check_as_known(found) -> None:
    """What was `found`, by name and column, is what the file says."""
    known = json.loads(KNOWN.read_text())
    assert list(known) == list(found)
    for name, columns in found.items():
        assert list(known[name]) == list(columns), name
        for column, values in columns.items():
            assert values == pytest.approx(known[name][column], rel=1e-6, abs=1e-9), (name, column)


def check_as_shipped(frame: pd.DataFrame, kind: str, name: str) -> None:
    shipped = store.read_frame(store.find_frame(RUN, kind, name))
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


def test_confidence():
    check_as_shipped(confidence_frame(signals().responses), "confidence", "single_pass")


def test_calibrated_confidence_and_its_intervals():
    calibrated, learned, _ = fitting.calibrate(signals().confidence, signals().sets, fitted(), CHOICES)
    check_as_shipped(calibrated, "calibration", "confidence")
    resampled = bootstrap.bootstrap(calibrated, *BINS, DEMO.resamples, DEMO.seed)
    check_as_shipped(pd.concat([resampled.results, learned], ignore_index=True), "calibration", "results")


def test_sample_efficiency():
    of_model = {pair: one for pair, one in signals().sets.items() if pair[0] == DEMO.figure_model}
    curves = sample_efficiency.learning_curves(of_model, DRAWN, list(sample_efficiency.SAMPLING), *BINS, CHOICES)
    check_as_shipped(curves, "calibration", "curves")


def test_transfer():
    check_as_shipped(transfer.transfer(signals().sets, fitted(), *BINS), "calibration", "transfer")


def test_what_the_confidence_is_good_for():
    """Of the estimators that the project adds, too."""
    whole, answer = signals().dropout, store.load_frames(RUN, "dropout_answer", MODELS, DATASETS)[0]
    chosen, at_answer = (rows_at_selected_rate(passes, READING) for passes in (whole, answer))
    read, tokens = (signals().responses, signals().verification), fitting.token_signals(signals().sets)
    raw = confidence_frame(*read, chosen, READING, ESTIMATORS | EXTRAS, at_answer, tokens)
    calibrated, *_ = fitting.calibrate(raw, signals().sets, fitted(), CHOICES)
    scores, constants = proper_scores.add_base_rate(raw, calibrated)
    compared = proper_scores.compare_with_base_rate(scores, constants, *BINS, seed=DEMO.seed)
    check_as_shipped(compared, "selective", "scores")
    check_as_shipped(selective.risk_coverage_curves(scores), "selective", "curves")
    tuned = {"c_bald": whole[whole.tuning.astype(bool)], "c_bald_insitu": answer[answer.tuning.astype(bool)]}
    promised = DEMO.target_precisions, DEMO.precision_confidence, DEMO.seed
    check_as_shipped(selective.selective_thresholds(raw, *promised, tuned), "selective", "thresholds")


def other_frames() -> dict[str, pd.DataFrame]:
    """What the notebooks show or draw beside the frames that they keep, by name: where no other test knows it."""
    frame, responses = signals().generations, signals().responses
    scores, sets = signals().confidence, signals().sets
    one = running_example.choose_example(responses, "medium-0355", MODELS[0], DATASETS[1])
    chosen = signals().dropout[signals().dropout.selected]
    verified, passes = (running_example.rows_of_example(part, one) for part in (signals().verification, chosen))
    answered = dropout_statistics.answered(chosen, responses)
    asked_again = store.load_frames(RUN, "ablation", [one.model], [one.dataset])[0]
    calibrated, *_ = fitting.calibrate(scores, sets, fitted(), CHOICES)
    of_model = {pair: part for pair, part in sets.items() if pair[0] == MODELS[0]}
    more_wrong = params.Subsampling(calibration_sizes=[10], draws=20, seed=1, incorrect_fraction=0.7)
    moved = transfer.scores_by_source(sets[one.model, one.dataset].evaluation, fitted()).loc[one.example_id]
    return {
        "coverage": reading_.answer_coverage(frame, READING),
        "coverage, relative": reading_.answer_coverage(frame, READING.model_copy(update={"grader": "relative"})),
        "running mean curves": token_statistics.running_mean_curves(responses),
        "answer tokens": token_statistics.answer_token_logprobs(responses),
        "entropy curves": dropout_statistics.entropy_curves(answered),
        "tokens of passes": dropout_statistics.answer_tokens(answered),
        "options of one row": running_example.option_probabilities(verified.iloc[0]),
        "passes over one row": running_example.bald_by_token(passes, READING),
        "arms by question": ablation_statistics.graded_by_arm(asked_again).astype(float),
        "maps": calibration_statistics.calibration_maps(scores, sets, fitted(), (one.model, one.dataset), CHOICES),
        "reliability": pd.concat(calibration_statistics.reliability_by_method(calibrated, one.model, one.dataset)),
        "oversampled": sample_efficiency.learning_curves(
            of_model, more_wrong, sample_efficiency.SAMPLING, choices=CHOICES
        ),
        "unseen": transfer.transfer(sets, fitted(), keep=transfer.rows_without_near_duplicates(frame)),
        "transfer of one row": moved.rename("confidence").reset_index(),
    }


def test_what_the_notebooks_show_beside():
    check_as_known({name: digest(frame) for name, frame in other_frames().items()})


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(digest(frame))}" for name, frame in other_frames().items()]
    KNOWN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
