"""Rename the parameters in the outputs of the previous version: `python -m workflow.carry_over RUN...`.

Manifests and records of finished jobs get the new names (`RENAMED`), so that no job needs to run its model again. No
frame changes. `shipped/RUN` selects the signals shipped with the project. This module stays for one release.
"""

import sys
from pathlib import Path

from lib import params
from lib.paths import ARTIFACTS, ROOT, UserError, nearest
from lib.validation import REMOVED, RENAMED
from workflow import reference_data
from workflow.files import read_json, write_json
from workflow.fingerprint import checksum, declared_parameters, semantic_checksum
from workflow.pipeline import Run
from workflow.records import is_valid, record_key
from workflow.rules import NOTEBOOKS

BEFORE = ".before.json"  # in a run's folder: old checksums of frames and manifests, until all records are updated
OPEN_CHOICES = {"dtype": "fastest", "attention": "cudnn"}  # removed values of model files


def main(names: list[str]) -> int:
    try:
        for name in names:
            if not (ARTIFACTS / name).is_dir():
                there = [path.name for path in ARTIFACTS.iterdir() if path.is_dir()]
                raise UserError(f"there is no run '{name}' in artifacts/; {nearest(name, there)}")
            manifests, records = carry_over(ARTIFACTS / name)
            print(f"{name}: {manifests} manifests and {records} records carried over")
    except UserError as problem:
        print(f"carry_over: {problem}", file=sys.stderr)
        return 2
    return 0


def check_carried_over(run: Run) -> None:
    """Raise UserError if the records of a run have the parameter names of the previous version."""
    for path in (ROOT / run.folder / "jobs").glob("*.json"):
        record = read_json(path)
        parts = record.get("parts") if isinstance(record, dict) else None
        if isinstance(parts, dict) and any(f"parameter {name}" in parts for name in (*RENAMED, *REMOVED)):
            raise UserError(
                f"{run.folder} was made by an earlier version: "
                f"`.venv/bin/python -m workflow.carry_over {run.name}` brings it over, and nothing is "
                "run again"
            )


def carry_over(folder: Path) -> tuple[int, int]:
    """Update a run's folder and return the numbers of changed manifests and records. The next call finishes after a
    kill, because the old checksums are saved first."""
    frames = [path.relative_to(ROOT).as_posix() for path in folder.rglob("*.parquet") if "shards" not in path.parts]
    before = read_json(folder / BEFORE)
    if not isinstance(before, dict):
        before = {path: [semantic_checksum(path), checksum(path.removesuffix(".parquet") + ".json")] for path in frames}
        write_json(folder / BEFORE, before)
    manifests = sum(carry_over_manifest(ROOT / path) for path in frames)
    known = read_json(folder / "run.json")
    values = rename_keys(known["values"]) if isinstance(known, dict) and "values" in known else {}
    records = sum(carry_over_record(path, before, values) for path in sorted(folder.rglob("jobs/*.json")))
    (folder / BEFORE).unlink()  # before the list of checksums, which includes every file
    if (folder / reference_data.LIST).is_file():
        reference_data.write_checksums(folder)
    return manifests, records


def rename_keys(value: object) -> object:
    """Return JSON data with the new names of parameters as keys."""
    if isinstance(value, list):
        return [rename_keys(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {RENAMED.get(name, name): rename_keys(part) for name, part in value.items()}


def carry_over_manifest(frame: Path) -> bool:
    """Rename the parameters in the manifest of a frame; return whether it changed."""
    path = frame.with_suffix(".json")
    facts = read_json(path)
    renamed = rename_keys(facts)
    if not isinstance(facts, dict) or renamed == facts:
        return False
    write_json(path, renamed)
    return True


def carry_over_record(path: Path, before: dict, values: dict) -> bool:
    """Update the parameter names and checksums in a job's record; return whether it changed."""
    record = read_json(path)
    if not is_valid(record):
        return False
    parts = {}
    for name, value in record["parts"].items():
        kind, _, what = name.partition(" ")
        if kind == "parameter" and what not in REMOVED:
            parts[f"parameter {RENAMED.get(what, what)}"] = value
        elif kind == "model":
            parts[name] = carry_over_model(what, value)
        elif kind != "parameter":
            same = kind == "input" and before.get(what, (None,))[0] == value
            parts[name] = semantic_checksum(what) if same else value
    for notebook in NOTEBOOKS:
        if f"code {notebook.path}" in parts:  # add parameters that are new to the notebook, with the run's values
            for name in (*declared_parameters(notebook.path), *notebook.takes):
                if name in values and name not in params.BUDGETS:
                    parts.setdefault(f"parameter {name}", values[name])
    outputs = {name: carried_sum(name, value, before) for name, value in record["outputs"].items()}
    if parts == record["parts"] and outputs == record["outputs"]:
        return False
    renewed = record | {"key": record_key(parts), "parts": parts, "outputs": outputs}
    write_json(move_stale(path, record["key"], renewed["key"]), renewed)
    return True


def move_stale(path: Path, old: str, new: str) -> Path:
    """Rename the folder in stale of a record to its new key; return the record's path."""
    folder = path.parents[3]
    if folder.parent.name != "stale" or not folder.name.startswith(old):
        return path
    return folder.rename(folder.with_name(folder.name.replace(old, new))) / path.relative_to(folder)


def carry_over_model(name: str, spec: dict) -> dict:
    """Return a record's content of a model file, with removed values replaced by those of the file now."""
    known = params.parameter_file_names(params.PARAMS / "models")
    now = params.load_model_config(name).model_dump(mode="json") if name in known else {}
    gone = {word: now[word] for word, old in OPEN_CHOICES.items() if spec.get(word) == old and word in now}
    return {word: value for word, value in spec.items() if word not in REMOVED} | gone


def carried_sum(path: str, value: str, before: dict) -> str:
    """Return the checksum of an output; the current one for a manifest that matched its record before."""
    frame = path.removesuffix(".json") + ".parquet"
    return checksum(path) if path.endswith(".json") and before.get(frame, (None, None))[1] == value else value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
