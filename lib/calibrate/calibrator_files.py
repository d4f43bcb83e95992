"""Fitted calibrators as files: JSON that holds what was learned and on what, loads without the data, and predicts the
same bits: that is tried before a file is written. Numbers are written as the shortest decimal that reads back as the
same float64, and a checksum over all that the file says tells whether it was altered.

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
from lib.project import UserError, first_line, nearest, parse_json, read_bytes

RECORD_FORMAT = 2
RECORD_KEYS = {
    "format": int,
    "model": str,
    "dataset": str,
    "estimators": list,
    "method": str,
    "takes": str,
    "settings": dict,
    "learned": dict,
    "data": dict,
    "range": list,
    "sha256": str,
}


def calibrator_record(fit: Fit) -> dict[str, Any]:
    """All that a fitted calibrator is: which `estimators` it serves, what it `takes`, its `settings`, what it
    `learned`, the `data` (rows, how many right, a checksum of ids, scores and correctness), the `range` of their
    scores (of the answer's tokens: of Ans Avg), and `sha256` of all this. Raises UserError for one that holds more than
    numbers, or whose file would predict otherwise."""
    scores = np.asarray(fit.scores, dtype="<f8")
    parts = ["\n".join(fit.ids).encode(), scores.tobytes(), np.asarray(fit.correct, dtype="<i1").tobytes()]
    data = {"rows": len(fit.ids), "right": int(np.sum(fit.correct)),
            "sha256": hashlib.sha256(b"\0".join(parts)).hexdigest()}  # fmt: skip
    model, dataset = fit.pair
    estimators = list(ANSWER_ESTIMATORS) if fit.kind == "answers" else [fit.estimator]
    known = as_json_values({"format": RECORD_FORMAT, "model": model, "dataset": dataset, "estimators": estimators,
                   "method": fit.method.name, "takes": fit.kind, "settings": fit.calibrator.get_params(),
                   "learned": fit.calibrator.state(), "data": data,
                   "range": [scores.min(), scores.max()] if scores.size else []})  # fmt: skip
    check_same_predictions(fit, known)
    return known | {"sha256": record_checksum(known)}


def as_json_values(known: Mapping[str, Any]) -> dict[str, Any]:
    """What is known as JSON holds it. Raises UserError for what is neither a number, nor a word, nor a row of
    numbers."""
    try:
        return json.loads(json.dumps(known, allow_nan=False, default=as_json_value))
    except (TypeError, ValueError) as error:
        raise UserError(f"a calibrator can't be kept as a file: {error}") from None


def as_json_value(value: Any) -> Any:
    """Numbers of numpy as Python's own."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def check_same_predictions(fit: Fit, known: Mapping[str, Any]) -> None:
    """Raises UserError unless what a file holds predicts as the fitted calibrator does on the rows it was fitted on."""
    rows = fit.scores if fit.fitted_on is None else fit.fitted_on
    why = "from its file it would predict otherwise"
    try:
        again = calibrator_from_record(known)
        if all(np.array_equal(again.predict(rows, joint), fit.calibrator.predict(rows, joint))
               for joint in (False, True)):  # fmt: skip
            return
    except Exception as error:  # of a class of anybody's
        why = first_line(error)
    settings = fit.calibrator.get_params()
    lost = [name for name in vars(fit.calibrator) if not name.endswith("_") and name not in settings]
    if lost:
        why = f"what {type(fit.calibrator).__name__} learned as '{lost[0]}' needs a name that ends in '_'"
    raise UserError(f"a calibrator can't be kept as a file: {why}")


def record_checksum(known: Mapping[str, Any]) -> str:
    """Of all that a file says. Raises ValueError for a number that is not finite."""
    said = {name: value for name, value in known.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(said, sort_keys=True, allow_nan=False).encode()).hexdigest()


def save_calibrators(fits: Iterable[Fit], run: str) -> pd.DataFrame:
    """Every calibrator of a run, a file each; what was written: model, dataset, estimators, calibrator, rows, file (or
    why there is none)."""
    rows = []
    for fit in fits:
        name = type(fit.calibrator).__name__.lower()
        path = store.frame_path(run, "calibrators", "__".join([*fit.pair, fit.estimator, name])).with_suffix(".json")
        try:
            text = json.dumps(calibrator_record(fit), indent=1, sort_keys=True) + "\n"
            store.write_atomically(path, partial(Path.write_text, data=text, encoding="utf-8"))
            said = path.name
        except UserError as error:
            said = str(error)
        rows.append((*fit.pair, fit.estimator, name, len(fit.ids), said))
    return pd.DataFrame(rows, columns=["model", "dataset", "estimator", "calibrator", "rows", "file"])


def read_calibrator_record(path: Path | str) -> dict[str, Any]:
    """What a file says. Raises UserError where it is not there, no calibrator, or not as it was written."""
    path = Path(path)
    where = store.relative_path(path)
    if not path.exists():
        there = {other.name for other in path.parent.glob("*.json")}
        raise UserError(f"there is no calibrator {where}; {nearest(path.name, there)}")
    known = parse_json(read_bytes(path, where), where)
    if not isinstance(known, dict) or "format" not in known:
        raise UserError(f"{where} is no calibrator: it has no 'format'")
    if known["format"] != RECORD_FORMAT:
        raise UserError(f"{where} is of format {known['format']!r:.40}; this program reads {RECORD_FORMAT}")
    for key, kind in RECORD_KEYS.items():
        if not isinstance(known.get(key), kind):
            how = f"its '{key}' is malformed" if key in known else f"it has no '{key}'"
            raise UserError(f"{where} is no calibrator: {how}")
    try:
        whole = record_checksum(known) == known["sha256"]
    except ValueError:
        raise UserError(f"{where} holds a number that is not finite") from None
    if not whole:
        raise UserError(f"{where} is not what was written (damaged or edited): remove it and run 10 again")
    return known


def load_calibrator(path: Path | str) -> Calibrator:
    """Load a calibrator from its JSON file.

    Returns
    -------
    Calibrator
        Ready to `predict` from what the file names: scores, margins or answer tokens.

    Raises
    ------
    UserError
        Where the file is missing, damaged or edited, or no declared method can be made of it.
    """
    known, where = read_calibrator_record(path), store.relative_path(Path(path))
    try:
        return calibrator_from_record(known)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    except (TypeError, ValueError, AttributeError) as error:  # as of settings that the method does not have
        raise UserError(f"{where}: no {known['method']} can be made of it ({first_line(error)})") from None


def calibrator_from_record(known: Mapping[str, Any]) -> Calibrator:
    """The calibrator of what a file says. Raises UserError for a method that is not declared, or does not take that,
    and for a name that no calibrator learns."""
    method = METHODS.get(known["method"])
    if method is None:
        raise UserError(f"there is no method '{known['method']}'; {nearest(known['method'], METHODS)}")
    if known["takes"] not in method.takes:
        raise UserError(f"{method.name} takes no '{known['takes']}'; {nearest(known['takes'], method.takes)}")
    if foreign := [name for name in known["learned"] if not name.endswith("_") or name.startswith("_")]:
        raise UserError(f"'{foreign[0]}' is no name of what a calibrator learns: that ends in '_'")
    return method.takes[known["takes"]](**known["settings"]).restore(known["learned"])
