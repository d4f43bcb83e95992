"""Fitted calibrators as files: JSON that holds what was learned and on what, loads without the data, and predicts the
same bits. Numbers are written as the shortest decimal that reads back as the same float64.

    artifacts/<run>/calibrators/<model>__<dataset>__<estimator>__<calibrator>.json
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib import store
from lib.calibrate.calibrators import METHODS, Calibrator
from lib.calibrate.fitting import ANSWER_ESTIMATORS, Fit
from lib.project import UserError, nearest

FORMAT = 1
KEYS = ("format", "model", "dataset", "estimators", "method", "takes", "settings", "learned", "data", "range")


def record(fit: Fit) -> dict[str, Any]:
    """All that a fitted calibrator is: which `estimators` it serves, what it `takes`, its `settings`, what it
    `learned`, the `data` (rows, how many right, a checksum of ids, scores and correctness), and the `range` of their
    scores (of the answer's tokens: of Ans Avg). Raises UserError for one that holds more than numbers."""
    scores = np.asarray(fit.scores, dtype="<f8")
    parts = ["\n".join(fit.ids).encode(), scores.tobytes(), np.asarray(fit.correct, dtype="<i1").tobytes()]
    data = {"rows": len(fit.ids), "right": int(np.sum(fit.correct)),
            "sha256": hashlib.sha256(b"\0".join(parts)).hexdigest()}  # fmt: skip
    model, dataset = fit.pair
    estimators = list(ANSWER_ESTIMATORS) if fit.kind == "answers" else [fit.estimator]
    return {"format": FORMAT, "model": model, "dataset": dataset, "estimators": estimators,
            "method": fit.method.name, "takes": fit.kind, "settings": fit.calibrator.get_params(),
            "learned": plain(fit.calibrator.state()), "data": data,
            "range": [float(scores.min()), float(scores.max())] if scores.size else []}  # fmt: skip


def plain(state: Mapping[str, Any]) -> dict[str, Any]:
    """What was learned as JSON holds it. Raises UserError for what is neither a number, nor a word, nor a row of
    numbers."""
    values = {name: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
              for name, value in state.items()}  # fmt: skip
    try:
        return json.loads(json.dumps(values, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise UserError(f"a calibrator can't be kept as a file: {error}") from None


def write(fits: Iterable[Fit], run: str) -> pd.DataFrame:
    """Every calibrator of a run, a file each; what was written: model, dataset, estimators, calibrator, rows, file (or
    why there is none)."""
    rows = []
    for fit in fits:
        name = type(fit.calibrator).__name__.lower()
        path = store.place(run, "calibrators", "__".join([*fit.pair, fit.estimator, name])).with_suffix(".json")
        try:
            text = json.dumps(record(fit), indent=1, sort_keys=True) + "\n"
            store.atomically(path, partial(Path.write_text, data=text, encoding="utf-8"))
            said = path.name
        except UserError as error:
            said = str(error)
        rows.append((*fit.pair, fit.estimator, name, len(fit.ids), said))
    return pd.DataFrame(rows, columns=["model", "dataset", "estimator", "calibrator", "rows", "file"])


def read(path: Path | str) -> dict[str, Any]:
    """What a file says. Raises UserError where it is not there, or no calibrator."""
    path = Path(path)
    where = store.relative(path)
    if not path.exists():
        there = {other.name for other in path.parent.glob("*.json")}
        raise UserError(f"there is no calibrator {where}; {nearest(path.name, there)}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise UserError(f"{where} is not JSON: no calibrator of ours, or damaged") from None
    lacking = [key for key in KEYS if not isinstance(content, dict) or key not in content]
    if lacking:
        raise UserError(f"{where} is no calibrator: it has no '{lacking[0]}'")
    if content["format"] != FORMAT:
        raise UserError(f"{where} is of format {content['format']}; this program reads {FORMAT}")
    return content


def load(path: Path | str) -> Calibrator:
    """The calibrator of a file, ready to `predict` (scores of the estimator that the file names, its margins or its
    answer tokens). Raises UserError as `read` does, and for a method that is not declared."""
    content, where = read(path), store.relative(Path(path))
    method = METHODS.get(content["method"])
    if method is None:
        raise UserError(f"{where}: there is no method '{content['method']}'; {nearest(content['method'], METHODS)}")
    if content["takes"] not in method.takes:
        raise UserError(f"{where}: {method.name} takes no '{content['takes']}'; "
                        f"{nearest(content['takes'], method.takes)}")  # fmt: skip
    return method.takes[content["takes"]](**content["settings"]).restore(content["learned"])

