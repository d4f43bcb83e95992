"""What files hold, told by checksums: of all their bytes, or of what they say."""

import hashlib
import json
import time
from pathlib import Path

from lib.paths import ROOT
from workflow.pipeline import read_json, write_json

BIG = 64e6  # bytes: checksums of larger files are remembered


def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def of_bytes(path: Path) -> str:
    """SHA-256 of a file, read whole whatever its size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksum(path: str) -> str | None:
    """SHA-256 of a file below the root, None where there is none; that of a big file is remembered."""
    place = ROOT / path
    if not place.is_file():
        return None
    state = place.stat()
    if state.st_size < BIG:
        return of_bytes(place)
    memory = ROOT / "artifacts" / ".checksums" / digest(str(place))
    identity = [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]
    known = read_json(memory)
    if isinstance(known, dict) and known.get("identity") == identity and isinstance(known.get("sha256"), str):
        return known["sha256"]
    value = of_bytes(place)
    if time.time() - state.st_mtime > 2:  # file times are coarse: a later write could bear the same one
        write_json(memory, {"identity": identity, "sha256": value})
    return value


def meaning(path: str) -> str | None:
    """Checksum of what a file says. Of a frame: together with its manifest, but for the seconds and the memory that it
    took, which differ from run to run, and on which nothing hangs; nor on what code came to the same rows."""
    value, beside = checksum(path), (ROOT / path).with_suffix(".json")
    if value is None or not path.endswith(".parquet") or not beside.is_file():
        return value
    facts = read_json(beside)
    if not isinstance(facts, dict):  # damaged: whoever reads it will say so
        return value
    if timed := [name for name in facts.get("columns") or () if is_cost(str(name))]:
        value = without(path, timed, value)
    facts = {name: fact for name, fact in facts.items() if name not in ("sha256", "code") and not is_cost(name)}
    return digest(value, json.dumps(facts, sort_keys=True))


def is_cost(name: str) -> bool:
    return name.endswith("seconds") or name.startswith("peak_")


def without(path: str, columns: list[str], value: str) -> str:
    """Checksum of a parquet file without some columns; remembered by that of the whole, as it takes a second."""
    memory = ROOT / "artifacts" / ".checksums" / digest(value, *columns)
    known = read_json(memory)
    if not isinstance(known, str) or len(known) != 64:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rest = pa.BufferOutputStream()
        pq.write_table(pq.read_table(ROOT / path).drop_columns(columns), rest)
        known = hashlib.sha256(rest.getvalue()).hexdigest()
        write_json(memory, known)
    return known
