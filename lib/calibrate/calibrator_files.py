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
    """Return the contents of a file. Raise UserError for attributes that are no numbers, texts or arrays."""
    model, dataset = fit.pair
    record = {"model": model, "dataset": dataset, "estimator": fit.estimator, "method": fit.method.name,
              "input": fit.kind, "attributes": vars(fit.calibrator)}  # fmt: skip
    try:
        record = json.loads(json.dumps(record, allow_nan=False, default=lambda value: value.tolist()))
    except (AttributeError, TypeError, ValueError) as error:
        name = type(fit.calibrator).__name__
        raise UserError(f"the calibrator {name} can't be kept as a file: {first_line(error)}") from None
    return record | {"sha256": store.digest(record)}


def calibrator_from_record(record: Mapping[str, Any]) -> Calibrator:
    if record["method"] not in METHODS:
        raise UserError(f"there is no method '{record['method']}'; {nearest(record['method'], METHODS)}")
    calibrator = METHODS[record["method"]].inputs[record["input"]]()
    for name, value in record["attributes"].items():
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
