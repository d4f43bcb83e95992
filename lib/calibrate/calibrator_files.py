"""Fitted calibrators as self-contained JSON files, with exact float64 round trips."""

import json
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib import store
from lib.calibrate.calibrators import METHODS, Calibrator
from lib.calibrate.fitting import Fit
from lib.files import parse_json, read_bytes, write_atomically
from lib.paths import UserError, first_line, nearest, relative_path


def save_calibrators(fits: Iterable[Fit], run: str) -> pd.DataFrame:
    """Write each calibrator to artifacts/<run>/calibrators/<model>__<dataset>__<estimator>__<calibrator>.json.

    Return a frame with model, dataset, estimator, calibrator, rows and file. Raise UserError as `calibrator_record`.
    """
    written = []
    for fit in fits:
        who = [*fit.pair, fit.estimator, type(fit.calibrator).__name__.lower()]
        path = store.frame_path(run, "calibrators", "__".join(who)).with_suffix(".json")
        text = json.dumps(calibrator_record(fit), indent=1, sort_keys=True) + "\n"
        write_atomically(path, partial(Path.write_text, data=text, encoding="utf-8"))
        written.append((*who, fit.calibrator.n_rows_, path.name))
    return pd.DataFrame(written, columns=["model", "dataset", "estimator", "calibrator", "rows", "file"])


def calibrator_record(fit: Fit) -> dict[str, Any]:
    """Return the contents of a file. Raise UserError if its predictions on the fitting data would differ."""
    learned = {name: value for name, value in vars(fit.calibrator).items() if name.endswith("_")}
    record = {"model": fit.pair[0], "dataset": fit.pair[1], "estimator": fit.estimator, "method": fit.method.name,
              "input": fit.kind, "settings": fit.calibrator.get_params(), "learned": learned}  # fmt: skip
    try:
        record = json.loads(json.dumps(record, allow_nan=False, default=lambda value: value.tolist()))
        again = calibrator_from_record(record)
        for joint in (False, True):
            if not np.array_equal(again.predict(fit.fitted_on, joint), fit.calibrator.predict(fit.fitted_on, joint)):
                raise ValueError("the saved calibrator would predict otherwise")
    except Exception as error:  # a user's class may raise anything
        name = type(fit.calibrator).__name__
        raise UserError(f"the calibrator {name} can't be kept as a file: {first_line(error)}") from None
    return record | {"sha256": store.digest(record)}


def calibrator_from_record(record: Mapping[str, Any]) -> Calibrator:
    if record["method"] not in METHODS:
        raise UserError(f"there is no method '{record['method']}'; {nearest(record['method'], METHODS)}")
    calibrator = METHODS[record["method"]].inputs[record["input"]](**record["settings"])
    for name, value in record["learned"].items():
        setattr(calibrator, name, np.asarray(value) if isinstance(value, list) else value)
    return calibrator


def load_calibrator(path: Path | str) -> Calibrator:
    """Load a calibrator from its JSON file.

    Returns
    -------
    Calibrator
        Ready to `predict` from the file's kind of input: scores, margins or answer tokens.

    Raises
    ------
    UserError
        If the file is missing or modified, or its method is not declared.
    """
    path, where = Path(path), relative_path(Path(path))
    if not path.exists():
        beside = [other.name for other in path.parent.glob("*.json")]
        raise UserError(f"there is no calibrator {where}; {nearest(path.name, beside)}")
    record = parse_json(read_bytes(path, where), where)
    if not isinstance(record, dict) or record.pop("sha256", None) != store.digest(record):
        raise UserError(f"{where} is not a calibrator, or was modified: remove it and run 09 again")
    try:
        return calibrator_from_record(record)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{where}: no calibrator can be made of it ({first_line(error)})") from None
