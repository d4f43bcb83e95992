"""Calibrators as files: self-contained JSON, with exact float64 round trips."""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib import store
from lib.calibrate.calibration_sets import Pair
from lib.calibrate.calibrator_base import Calibrator
from lib.calibrate.calibrators import METHODS
from lib.calibrate.fit_methods import Fit
from lib.errors import UserError, check_choice, first_line
from lib.files import digest, parse_json, read_bytes, write_text
from lib.paths import relative_path
from lib.store import SCORE_CELL

LONGEST_WORD = 60  # letters of a file's name that are a column's


def save_calibrators(
    fits: Iterable[Fit], run: str, asking: Mapping[Pair, Mapping[str, Any]] | None = None
) -> pd.DataFrame:
    """Write each calibrator to
    artifacts/<run>/calibrators/<model>__<dataset>__<estimator>__<calibrator>.json; without the
    model for a table of scores.

    `asking` says of each pair how its rows were asked. Return a frame with model, dataset,
    estimator, calibrator, rows and file.

    Examples
    --------
    >>> save_calibrators([], run="lab").columns.tolist()
    ['model', 'dataset', 'estimator', 'calibrator', 'rows', 'file']
    """
    written = []
    names: set[str] = set()
    of_pair = asking if asking is not None else {}
    for fit in fits:
        parts = (*fit.pair, fit.estimator, type(fit.calibrator).__name__.lower())
        name = name_file(parts, names)
        names.add(name)
        path = store.frame_path(run, "calibrators", name).with_suffix(".json")
        record = calibrator_record(fit, of_pair.get(fit.pair))
        text = json.dumps(record, indent=1, sort_keys=True)
        write_text(path, text + "\n")
        written.append((*parts, fit.calibrator.n_rows_, path.name))
    return pd.DataFrame(written, columns=[*SCORE_CELL, "calibrator", "rows", "file"])


def name_file(parts: Iterable[str], taken: Collection[str]) -> str:
    """Return the name of a calibrator's file, which may hold the words of a user's table; numbered
    if it is taken.

    Examples
    --------
    >>> name_file(["", "scores", "P(True), %", "platt"], [])
    'scores__P-True-__platt'
    """
    words = [re.sub(r"[^\w.-]+", "-", part)[:LONGEST_WORD] for part in parts if part]
    name = "__".join(words)
    number = 2
    while name in taken:
        name = f"{'__'.join(words)}-{number}"
        number += 1
    return name


def calibrator_record(
    fit: Fit, asking: Mapping[str, Any] | None = None, **facts: Any
) -> dict[str, Any]:
    """Return the contents of a file: what was fitted on how many rows (`n`), and how these were
    `asking`, as `lib.analysis.generation_settings` says, with further `facts`.

    Examples
    --------
    >>> isotonic = METHODS["isotonic"].inputs["confidence"]().fit([0.4, 0.8], [False, True])
    >>> fit = Fit(("m", "d"), "seq_avg", METHODS["isotonic"], "confidence", isotonic)
    >>> calibrator_record(fit)["attributes"]["y_"]
    [0.0, 1.0]
    """
    model, dataset = fit.pair
    record = {
        "model": model,
        "dataset": dataset,
        "estimator": fit.estimator,
        "method": fit.method.name,
        "input": fit.kind,
        "n": fit.calibrator.n_rows_,
        "asking": dict(asking) if asking is not None else {},
        "attributes": vars(fit.calibrator),
        **facts,
    }
    try:
        text = json.dumps(record, allow_nan=False, default=lambda value: value.tolist())
    except (AttributeError, ValueError) as error:
        raise UserError(
            f"the calibrator {fit.method.name} can't be kept as a file: {first_line(error)}"
        ) from None
    record = json.loads(text)
    return record | {"sha256": digest([record])}


def read_calibrator_record(path: Path) -> dict[str, Any]:
    """Return the contents of a file, which `calibrator_record` made. Raise UserError as
    `load_calibrator`.

    Examples
    --------
    >>> shipped = Path(__file__).with_name("shipped")
    >>> name = "qwen2.5-coder-1.5b__gsm8k__seq_avg__isotonic.json"
    >>> read_calibrator_record(shipped / name)["estimator"]
    'seq_avg'
    """
    where = relative_path(path)
    record = parse_json(read_bytes(path), where)
    if not isinstance(record, dict) or record.pop("sha256", None) != digest([record]):
        raise UserError(f"{where} is not a calibrator, or was modified: remove it and run 09 again")
    if "asking" not in record:
        raise UserError(f"{where} is of an earlier version: run 09 again")
    return record


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

    Examples
    --------
    >>> folder = Path(__file__).with_name("shipped")
    >>> load_calibrator(folder / "qwen2.5-coder-1.5b__gsm8k__seq_avg__isotonic.json").n_rows_
    290
    """
    record = read_calibrator_record(Path(path))
    method = METHODS[check_choice("method", record["method"], METHODS)]
    calibrator = method.inputs[record["input"]]()
    for name, value in record["attributes"].items():
        setattr(calibrator, name, np.asarray(value) if isinstance(value, list) else value)
    return calibrator
