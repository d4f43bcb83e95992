"""A fitted calibrator as a file, which needs no data: JSON, whose numbers read back as the same float64."""

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
from lib.calibrate.fitting import Fit
from lib.paths import UserError, first_line, nearest, parse_json, read_bytes


def save_calibrators(fits: Iterable[Fit], run: str) -> pd.DataFrame:
    """Every calibrator as artifacts/<run>/calibrators/<model>__<dataset>__<estimator>__<calibrator>.json; what was
    written: model, dataset, estimator, calibrator, rows, file (or why there is none)."""
    written = []
    for fit in fits:
        who, name = (*fit.pair, fit.estimator), type(fit.calibrator).__name__.lower()
        path = store.frame_path(run, "calibrators", "__".join([*who, name])).with_suffix(".json")
        try:
            text = json.dumps(calibrator_record(fit), indent=1, sort_keys=True) + "\n"
            store.write_atomically(path, partial(Path.write_text, data=text, encoding="utf-8"))
            said = path.name
        except UserError as error:
            said = str(error)
        written.append((*who, name, fit.calibrator.n_rows_, said))
    return pd.DataFrame(written, columns=["model", "dataset", "estimator", "calibrator", "rows", "file"])


def calibrator_record(fit: Fit) -> dict[str, Any]:
    """All that a file says. Raises UserError where it would not predict the same bits on what it was fitted on."""
    learned = {name: value for name, value in vars(fit.calibrator).items() if name.endswith("_")}
    about = {"model": fit.pair[0], "dataset": fit.pair[1], "estimator": fit.estimator}
    how = {"method": fit.method.name, "takes": fit.kind, "settings": fit.calibrator.get_params()}
    try:
        record = json.loads(
            json.dumps(about | how | {"learned": learned}, allow_nan=False, default=lambda value: value.tolist())
        )
        again = calibrator_from_record(record)
        for joint in (False, True):
            if not np.array_equal(again.predict(fit.fitted_on, joint), fit.calibrator.predict(fit.fitted_on, joint)):
                raise ValueError("what was read from it would predict otherwise")
    except Exception as error:  # of a class of anybody's
        raise UserError(f"a calibrator can't be kept as a file: {first_line(error)}") from None
    return record | {"sha256": record_checksum(record)}


def calibrator_from_record(record: Mapping[str, Any]) -> Calibrator:
    if record["method"] not in METHODS:
        raise UserError(f"there is no method '{record['method']}'; {nearest(record['method'], METHODS)}")
    calibrator = METHODS[record["method"]].takes[record["takes"]](**record["settings"])
    for name, value in record["learned"].items():
        setattr(calibrator, name, np.asarray(value) if isinstance(value, list) else value)
    return calibrator


def record_checksum(record: Mapping[str, Any]) -> str:
    """Of all that a file says but its checksum."""
    said = {name: value for name, value in record.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def load_calibrator(path: Path | str) -> Calibrator:
    """Load a calibrator from its JSON file.

    Returns
    -------
    Calibrator
        Ready to `predict` from what the file names: scores, margins or answer tokens.

    Raises
    ------
    UserError
        Where the file is missing, not what was written, or of a method that is not declared.
    """
    path, where = Path(path), store.relative_path(Path(path))
    if not path.exists():
        beside = [other.name for other in path.parent.glob("*.json")]
        raise UserError(f"there is no calibrator {where}; {nearest(path.name, beside)}")
    record = parse_json(read_bytes(path, where), where)
    if not isinstance(record, dict) or record.get("sha256") != record_checksum(record):
        raise UserError(f"{where} is no calibrator, or is not what was written: remove it and run 10 again")
    try:
        return calibrator_from_record(record)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{where}: no calibrator can be made of it ({first_line(error)})") from None
