"""Finding 4 on Ans Avg: calibrators fitted on fewer rows, on more wrong ones, and on rows of other pairs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import sklearn
from sklearn.feature_extraction.text import CountVectorizer

from lib.calibrate.calibration import METHODS
from lib.calibrate.fitting import Pair, Rows, Sets
from lib.generate.temperatures import temperatures
from lib.score.metrics import METRICS, ece

# ---- how many rows, and which


def _uniform(correct: np.ndarray, n: int, rng: np.random.Generator, share: float) -> tuple[np.ndarray, np.ndarray]:
    return rng.choice(len(correct), n, replace=False), np.ones(n)


def _more_wrong(correct: np.ndarray, n: int, rng: np.random.Generator, share: float) -> tuple[np.ndarray, np.ndarray]:
    """n rows of which a `share` is wrong, or what is wrong of all where that is more (as far as there are enough of
    both kinds); each kind weighs what it weighs in the whole set, so that the calibrator stays unbiased."""
    wrong, right = np.flatnonzero(~correct), np.flatnonzero(correct)
    k = max(min(round(n * max(share, 1 - correct.mean())), len(wrong)), n - len(right))
    rows = np.append(rng.choice(wrong, k, replace=False), rng.choice(right, n - k, replace=False))
    kinds = (len(wrong) / max(k, 1), len(right) / max(n - k, 1))
    return rows, np.repeat(kinds, (k, n - k)) * n / len(correct)


def _more_wrong_unweighted(*given: Any) -> tuple[np.ndarray, np.ndarray]:
    return _more_wrong(*given)[0], np.ones(given[1])


SAMPLING: dict[str, Callable[..., tuple[np.ndarray, np.ndarray]]] = {
    "uniform": _uniform, "more wrong, weighted": _more_wrong, "more wrong, unweighted": _more_wrong_unweighted,
}  # fmt: skip


class _Grid:
    """Temperature for thousands of fits: losses and confidence at 161 temperatures, computed once; the optimum of a
    draw is the vertex of the parabola through the three lowest points, confidence is interpolated."""

    def __init__(self, old: Rows, new: Rows):
        self.log_t = np.log(temperatures(161))
        self.losses = np.stack([old.answers.loss(t, old.correct) for t in np.exp(self.log_t)], axis=1)
        self.scores = np.stack([new.answers.confidence(t)[0] for t in np.exp(self.log_t)], axis=1)

    def predict(self, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
        loss = weights @ self.losses[rows]
        k = int(np.clip(loss.argmin(), 1, len(loss) - 2))
        left, middle, right = loss[k - 1 : k + 2]
        bend = left - 2 * middle + right
        x = np.clip(k + (0.5 * (left - right) / bend if bend > 0 else 0), 0, len(loss) - 1)
        low = min(int(x), len(loss) - 2)
        return self.scores[:, low] + (x - low) * (self.scores[:, low + 1] - self.scores[:, low])


def learning_curves(
    sets: Sets, sizes: Iterable[int], draws: int = 50, seed: int = 0, sampling: Sequence[str] = ("uniform",),
    wrong_share: float = 0.5, bins: int = 10, closed: str = "right",
) -> pd.DataFrame:  # fmt: skip
    """ECE of Ans Avg on the evaluation rows against the number of calibration rows, a row per draw: model, dataset,
    sampling, method ("" for the raw score), n, draw, ece, one_class (the draw had one class only).

    Draws hang on (seed, dataset, n), so models and methods share them. All rows is one draw, the same for each way.
    """
    found = []
    for (model, dataset), (old, new) in sets.items():
        total, grid = len(old.correct), _Grid(old, new)
        raw = ece(new.confidence, new.correct, bins, closed)
        for way in sampling:
            found.append((model, dataset, way, "", total, 0, raw, False))
            for n in [*(n for n in sizes if n < total), total]:
                rng = np.random.default_rng([seed, n, *dataset.encode()])
                for draw in range(draws if n < total else 1):
                    rows, weights = SAMPLING[way](old.correct, n, rng, wrong_share)
                    y = old.correct[rows]
                    one_class = bool(y.all() or not y.any())
                    for name, method in METHODS.items():
                        if method.of_answers == "answers" and not one_class:
                            score = grid.predict(rows, weights)
                        else:
                            with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
                                fitted = method.make(method.of_answers).fit(old.confidence[rows], y, weights)
                                score = fitted.predict(new.confidence)
                        value = ece(score, new.correct, bins, closed)
                        found.append((model, dataset, way, name, n, draw, value, one_class))
    columns = ["model", "dataset", "sampling", "method", "n", "draw", "ece", "one_class"]
    return pd.DataFrame(found, columns=columns)


def curve_bands(curves: pd.DataFrame) -> pd.DataFrame:
    """Mean over draws, the band that holds the middle 80% of them, number of draws of one class."""
    groups = curves.groupby(["model", "dataset", "sampling", "method", "n"], sort=False)
    bands = groups.agg(mean=("ece", "mean"), one_class=("one_class", "sum"))
    return bands.assign(low=groups.ece.quantile(0.1), high=groups.ece.quantile(0.9)).reset_index()


def enough(bands: pd.DataFrame, within: float = 0.1) -> pd.DataFrame:
    """Smallest n from which on the mean ECE stays within a share of its value on all rows."""
    found = []
    for key, part in bands[bands.method != ""].groupby(["model", "dataset", "sampling", "method"], sort=False):
        good = part["mean"].to_numpy() <= (1 + within) * part["mean"].iloc[-1]
        first = len(good) - int(np.argmin(good[::-1])) if not good.all() else 0
        found.append((*key, part.n.iloc[first], part.n.iloc[-1], part["mean"].iloc[-1]))
    return pd.DataFrame(found, columns=["model", "dataset", "sampling", "method", "enough", "all", "ece of all"])


# ---- fitted here, applied there


def unseen(frame: pd.DataFrame, likeness: float = 0.9) -> dict[tuple[str, str], set[str]]:
    """By (source, target) dataset: evaluation rows of the target without a twin among the source's calibration
    questions, that is one whose words, numbers put aside, overlap by `likeness` (shared over all, Jaccard)."""
    texts = frame.drop_duplicates(["dataset", "split", "example_id"])
    parts = {key: part for key, part in texts.groupby(["dataset", "split"], sort=False)}
    words = CountVectorizer(binary=True, token_pattern=r"[^\W\d_]+").fit(texts.question)
    found = {}
    for source in texts.dataset.unique():
        for target in texts.dataset.unique():
            new = parts[target, "evaluation"]
            one, other = words.transform(new.question), words.transform(parts[source, "calibration"].question)
            both = (one @ other.T).toarray()
            either = one.sum(axis=1).reshape(-1, 1) + other.sum(axis=1).reshape(1, -1) - both
            twin = (np.asarray(both / np.maximum(either, 1)) >= likeness).any(axis=1)
            found[source, target] = set(new.example_id[~twin])
    return found


def transfer(
    sets: Sets, bins: int = 10, closed: str = "right", joint: bool = False,
    keep: Mapping[tuple[str, str], set[str]] | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Isotonic and temperature of Ans Avg fitted on each pair, applied unchanged to each: model and dataset (the
    target), source_model, source_dataset ("" for the raw score), method, metric (ECE, MCE, Brier, delta_ece against
    the raw score on the same rows), value, n. `keep`: evaluation rows by (source, target) dataset; all by default."""
    fitted = {pair: {name: one.make(one.of_answers, joint).fit(getattr(old, one.of_answers), old.correct)
                     for name, one in METHODS.items()} for pair, (old, _) in sets.items()}  # fmt: skip
    found: list[tuple] = []

    def measure(target: Pair, source: Pair, method: str, score: np.ndarray, mask: np.ndarray) -> None:
        new = sets[target][1]
        y = new.correct[mask]
        values = {name: METRICS[name](score[mask], y, bins, closed) for name in ("ece", "mce", "brier")}
        values["delta_ece"] = values["ece"] - ece(new.confidence[mask], y, bins, closed)
        found.extend((*target, *source, method, name, value, len(y)) for name, value in values.items())

    for target, (_, new) in sets.items():
        measure(target, ("", ""), "", new.confidence, np.full(len(new.correct), True))
        for source, models in fitted.items():
            mask = np.full(len(new.correct), True)
            if keep is not None:
                mask = new.keys.example_id.isin(keep[source[1], target[1]]).to_numpy()
            for method, model in models.items() if mask.any() else ():
                score = model.predict(getattr(new, METHODS[method].of_answers))
                measure(target, source, method, score, mask)
    columns = ["model", "dataset", "source_model", "source_dataset", "method", "metric", "value", "n"]
    return pd.DataFrame(found, columns=columns)
