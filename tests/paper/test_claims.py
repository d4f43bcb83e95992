"""Each claim by hand: numbers for which it holds, and the change that turns it. Both are written in claims.yaml, and
none is computed by the code under test."""

from pathlib import Path

import pandas as pd
import pytest
import yaml

from lib.analysis.results import Results
from lib.paper.verdicts import CLAIMS, judge

MODELS, DATASETS = {"llama": "Llama-3", "qwen": "Qwen3"}, {"easy": "Easy", "hard": "Hard"}
NAMES = {claim.name: claim for claim in CLAIMS}
ACCURACY = [("llama", "easy", "", "acc", 0.9), ("llama", "hard", "", "acc", 0.3)]  # what makes a dataset the hardest


def results(**frames):
    return Results(MODELS, DATASETS, MODELS, (MODELS, DATASETS), (), frames)


def rows(columns, *values, **more):
    return pd.DataFrame(values, columns=columns.split()).assign(**more)


def table(name="result_estimation", metric="ece", hard=None, **easy):
    """A table of one model: errors by estimator on the easy dataset, and on the hard one."""
    values = [("llama", "easy", estimator, metric, value) for estimator, value in easy.items()]
    values += [("llama", "hard", estimator, metric, value) for estimator, value in (hard or {}).items()]
    return {name: rows("model dataset estimator metric value", *ACCURACY, *values)}


def statistics(name, **values):
    return {name: pd.DataFrame([{"model": "llama", "dataset": "easy"} | values])}


def gaps(**values):
    """Mean confidence minus accuracy by estimator."""
    return {"overconfidence": rows("estimator gap", *values.items(), model="llama", dataset="easy")}


def intervals(seq, ans):
    ends = rows("estimator low high", ("seq_avg", *seq), ("ans_avg", *ans), metric="ece", model="llama", dataset="easy")
    return {"result_estimation_full": ends}


def running(right, wrong):
    """Running means at four positions."""
    values = [(at, correct, mean) for correct, means in ((True, right), (False, wrong))
              for at, mean in zip((0.0, 0.1, 0.5, 1.0), means, strict=True)]  # fmt: skip
    return {"running_mean": rows("position correct mean", *values, model="llama", dataset="easy")}


def positions(*values):
    return {"positions": rows("position single running", *values, model="llama", dataset="easy")}


def entropies(term, *means):
    values = [(term, passes, mean) for passes, mean in enumerate(means, 1)]
    return {"entropies": rows("term passes mean", *values, model="llama", dataset="easy")}


def by_rate(*errors, estimator="c_bald"):
    frame = rows("rate value", *zip((0.1, 0.2, 0.3), errors, strict=False), model="llama", dataset="easy", metric="ece")
    return {"dropout_grid_search": frame.assign(estimator=estimator)}


def by_passes(**errors):
    values = [(int(passes[1:]), ece) for passes, ece in errors.items()]
    return {"by_passes": rows("passes ece", *values, model="llama", dataset="easy")}


def saved(*percent):
    return {"insitu_ptrue": rows("value", *[(p,) for p in percent], metric="token_reduction_pct", estimator="x",
                                 model=[*"ab"][: len(percent)], dataset="easy")}  # fmt: skip


def calibrated(*values, name="result_calibration", estimator="ans_avg"):
    """ECE and relative gain by method."""
    pair = {"model": "llama", "dataset": "easy", "metric": "ece"}
    return {name: rows("method value relative", *values, **pair, estimator=estimator)}


def learning(*values, dataset="easy"):
    """Mean ECE and 90th percentile of the draws by method and number of rows; the raw score has no method."""
    frame = rows("method n mean high", *values, model="llama", dataset=dataset, sampling="uniform")
    return frame


def needed(easy, hard, above=0.4):
    """Curves of which nine draws in ten improve on the raw .3 from so many rows on (None: never), and are `above`."""
    parts = [pd.DataFrame()]
    for dataset, enough in (("easy", easy), ("hard", hard)):
        curve = [("isotonic", n, 0.1, above if enough is None or n < enough else 0.2) for n in (5, 10, 50)]
        parts.append(learning(("", 50, 0.3, 0.3), *curve, dataset=dataset))
    return table() | {"learning": pd.concat(parts)}


def fifty(few, every):
    """Curves from raw .5: with 10 rows, with 50 (`few`), and with 400 (`every`)."""
    values = [("", 50, 0.5, 0.5), ("isotonic", 10, 0.0, 0), ("isotonic", 50, few, 0), ("isotonic", 400, every, 0)]
    return {"learning": learning(*values)}


def errors_of_rows(easy, hard, curved=0.5):
    frame = rows("dataset confident_errors", ("easy", easy), ("hard", hard), model="llama", curved=curved)
    return table() | {"calibration_rows": frame}


def arrows(*values):
    """Changes of ECE: source model, source dataset, model, dataset."""
    names = "source_model source_dataset model dataset value"
    frame = rows(names, *values, metric="delta_ece", method="isotonic")
    return table() | {"calibration_transfer_summary": frame}


def between_models(there, back, dataset="easy"):
    return arrows(("llama", dataset, "qwen", dataset, there), ("qwen", dataset, "llama", dataset, back))


def between_datasets(to_hard, to_easy):
    return arrows(("llama", "easy", "llama", "hard", to_hard), ("llama", "hard", "llama", "easy", to_easy))


BUILDERS = {
    build.__name__: build
    for build in (table, statistics, gaps, intervals, running, positions, entropies, by_rate, by_passes, saved,
                  calibrated, needed, fifty, errors_of_rows, between_models, between_datasets)
}  # fmt: skip


def frames_of(told):
    """Frames by the functions above: each name with its arguments, the last of which may be named ones."""
    found: dict = {}
    for name, words in told.items():
        named = words[-1] if isinstance(words[-1], dict) else {}
        found |= BUILDERS[name](*words[: len(words) - bool(named)], **named)
    return found


BY_HAND = yaml.safe_load(Path(__file__).with_name("claims.yaml").read_text())
TOLD = [(name, held, frames_of(told)) for name, cases in BY_HAND.items() for held, told in cases]


@pytest.mark.parametrize("name, held, frames", TOLD, ids=[f"{name}-{held}" for name, held, _ in TOLD])
def test_a_claim_holds_for_these_numbers_and_not_for_others(name, held, frames):
    assert judge(NAMES[name], results(**frames)).held is held


def test_every_claim_has_such_numbers():
    assert set(BY_HAND) == set(NAMES)
    assert all({True, False} <= {held for held, _ in cases} for cases in BY_HAND.values())


def test_a_claim_without_its_frame_says_what_it_lacks():
    for name, ((_, told), *_) in BY_HAND.items():
        frames = frames_of(told)
        lacks = judge(NAMES[name], results()).lacks
        assert lacks in frames, name
        without = {other: frame for other, frame in frames.items() if other != lacks}
        assert judge(NAMES[name], results(**without)).lacks == lacks, name
