"""What a user finds after a command, as lines of text, kept in goldens/ and compared line by line.

    python tests/blackbox/goldens.py [NAME...]      # makes them again, shows and keeps what changed

Nothing here knows a name of the code: only commands, files of figures/ and artifacts/, and what an
executed notebook shows.
"""

import difflib
import html
import json
import lzma
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from clone import ENV, SMALL, copy_of_project, edit, run, tables

KEPT = Path(__file__).with_name("goldens")
# run: its command
RUNS = {"published": ["published"], "replay": ["replay"], "replay-small": ["replay", "small"]}
PICTURES = r"data:image/[a-z+]+;base64,[A-Za-z0-9+/=]+"
STYLE = r"(?s)<(style|script)\b.*?</\1>"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
# Of a manifest or a notebook: what no two runs, or no two machines, share.
OWN = re.compile(
    r"/(code|\w*seconds\w*|peak_memory_mb|libraries|sha256|inputs|generations|made_on|loaded"
    r"|machine|python)\b"
)
# every score of every row, which tests/paper/test_explorer.py compares with the run
LEFT_OUT = ("rep_explorer",)
# by which an entry of a list is called
NAMES = ("table", "choice", "key", "name", "model", "dataset")
MOST = 25  # lines of a difference that are shown of each text
# How far numbers may move, for last digits are the processor's: those of a model that was run, and
# those of an optimum, of which the records alone hold so many.
NEAR = {"demo": 2e-3, "notebooks": 2e-3, "published": 0}
NEAR_RECORD = 1e-5


Texts = dict[str, str]

# ---- what is there


def documents(folder: Path, name: str) -> Texts:
    """Everything that a LaTeX document would input: tables, macros, and the document that sets them
    all."""
    return {path: text.decode() for path, text in tables(folder, name).items()}


def report(folder: Path, name: str) -> Texts:
    """The report without its pictures and its style, an element to a line."""
    text = (folder / "figures" / name / "report.html").read_text("utf-8")
    text = re.sub(PICTURES, "(picture)", re.sub(STYLE, "", text))
    return {"report.html": join_stripped(text.replace("<", "\n<").splitlines())}


def join_stripped(lines: Iterable[str]) -> str:
    """The lines that hold more than blanks, without those around them."""
    stripped = (line.strip() for line in lines)
    return "\n".join(line for line in stripped if line)


def outputs(path: Path) -> list[dict]:
    """What an executed notebook shows, in the order of its cells."""
    outputs_of_cells = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        outputs_of_cells += cell.get("outputs", [])
    return outputs_of_cells


def records(folder: Path, name: str) -> Texts:
    """What the executed notebooks hand to the report: numbers beside the paper's, verdicts with
    their counts."""
    texts = {}
    for path in sorted((folder / "artifacts" / name / "notebooks").glob("*.ipynb")):
        for output in outputs(path):
            kind = output.get("metadata", {}).get("paper", "")
            record = output.get("data", {}).get("application/json")
            if kind.startswith("rep_") and kind not in LEFT_OUT and record is not None:
                texts[kind] = "\n".join(flat(record))
    return texts


def without_clock(text: str) -> str:
    """A table, or a printed line, without its numbers where it speaks of seconds."""
    return NUMBER.sub("N", text) if re.search(r"seconds|\d s\b", text) else text


def visible_text(path: Path) -> str:
    """All that a reader of an executed notebook sees, but the pictures: text, and tables without
    their tags."""
    texts = []
    # printed in pieces
    for stream, pieces in groupby(outputs(path), lambda output: output.get("name")):
        if stream:
            printed = "".join("".join(output["text"]) for output in pieces)
            texts.append("\n".join(map(without_clock, printed.splitlines())))
        else:
            for output in pieces:
                data = output.get("data", {})
                text = data.get("text/html") or data.get("text/plain", "")
                texts.append(without_clock("".join(text)))
    lines = []
    for text in texts:
        text = re.sub(r"<(td|th)\b[^>]*>", " ", re.sub(STYLE, "", text))
        lines += html.unescape(re.sub(r"<[^>]+>", "", text)).splitlines()
    return join_stripped(lines)


def frames(folder: Path, name: str) -> Texts:
    """Every frame that a run keeps, a row to a line, and its manifest."""
    texts = {}
    for path in sorted((folder / "artifacts" / name).glob("*/*.parquet")):
        frame = pd.read_parquet(path)
        clocks = [name for name in frame if "seconds" in name]
        frame = frame.drop(columns=[*clocks, "top_ids"], errors="ignore")  # near ties
        lines = [" | ".join(frame.columns)]
        for row in frame.itertuples(index=False):
            lines.append(" | ".join(map(cell, row)))
        place = f"{path.parent.name}/{path.stem}"
        texts[place] = "\n".join(lines)
        facts = flat(json.loads(path.with_suffix(".json").read_text("utf-8")))
        shared_facts = [fact for fact in facts if not OWN.match(fact)]
        texts[f"{place}, manifest"] = "\n".join(shared_facts)
    return texts


# ---- as lines


def cell(value: Any) -> str:
    """A cell of a frame: words as they are, four digits of every fraction, however deep."""
    if isinstance(value, np.ndarray | list):
        return "[" + " ".join(map(cell, value)) + "]"
    value = value.item() if isinstance(value, np.generic) else value
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value, default=str)


def flat(value: Any, path: str = "") -> Iterator[str]:
    """A line for each number or text of a record, with the way to it; six digits of a fraction."""
    if isinstance(value, dict):
        for key in sorted(value):
            yield from flat(value[key], f"{path}/{key}")
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for number, entry in enumerate(value):
            yield from flat(entry, f"{path}/{name_of(entry) or number}")
    else:
        rounded = json.loads(json.dumps(value), parse_float=six_digits)
        yield f"{path}: {json.dumps(rounded, ensure_ascii=False)}"


def name_of(entry: Any) -> str:
    """What an entry of a list is called, if anything."""
    if not isinstance(entry, dict):
        return ""
    return " ".join(str(entry[part]) for part in NAMES if entry.get(part))


def six_digits(number: str) -> float:
    return float(f"{float(number):.6g}")


def alike(before: str, after: str, near: float) -> bool:
    """Whether two lines have the same words, and numbers that are as near as the kernels of two
    processors are."""
    if not near or NUMBER.sub("#", before) != NUMBER.sub("#", after):
        return before == after
    old = np.array(NUMBER.findall(before), float)
    new = np.array(NUMBER.findall(after), float)
    return bool(np.allclose(old, new, rtol=near, atol=near))


def differences(name: str, texts: Texts) -> list[str]:
    """What changed of a golden, for a person to read; nothing where all is the same, or as near as
    a text may be."""
    stored = read(name)
    lines = []
    for part in sorted(stored.keys() | texts.keys()):
        near = NEAR.get(name, NEAR_RECORD if part.startswith("rep_") else 0)
        before = stored.get(part, "").splitlines()
        after = texts.get(part, "").splitlines()
        for place, (old, new) in enumerate(zip(before, after, strict=False)):
            if alike(old, new, near):  # counts as the same
                after[place] = old
        changed = list(difflib.unified_diff(before, after, lineterm="", n=0))[2:]
        if changed:
            lines.append(f"{part}: {len(changed)} lines differ")
            lines += [line[:240] for line in changed[:MOST]]
    return lines


def same(changed: list[str], maker: str) -> None:
    """Fails where something changed, and says what, and which script of this folder keeps it."""
    head = f"this is not as it was; if it should be so, `python tests/blackbox/{maker}` keeps it:"
    assert not changed, "\n".join([head, *changed])


def check(name: str, texts: Texts) -> None:
    same(differences(name, texts), f"goldens.py {name}")


def read(name: str) -> Texts:
    path = KEPT / f"{name}.json.xz"
    return json.loads(lzma.decompress(path.read_bytes())) if path.exists() else {}


# ---- made


def of_run(folder: Path, name: str) -> Texts:
    """What a run whose numbers hang on no processor leaves: everything, byte for byte."""
    return documents(folder, name) | records(folder, name) | report(folder, name)


def small_demo(folder: Path) -> Texts:
    return documents(folder, "demo") | frames(folder, "demo")


def notebooks(folder: Path) -> Texts:
    """Every notebook, each in a fresh clone, executed by papermill with the parameters it holds."""
    texts = {}
    for path in sorted((folder / "notebooks").glob("*.ipynb")):
        shutil.rmtree(folder / "artifacts" / "lab", ignore_errors=True)
        to = folder / "played.ipynb"
        options = ["--cwd", "notebooks", "-k", "python3", "--no-progress-bar"]
        command = [sys.executable, "-m", "papermill", *options, str(path), str(to)]
        subprocess.run(command, cwd=folder, env=ENV | {"PYTHONPATH": str(folder)}, check=True)
        texts[path.stem] = visible_text(to)
    return texts


def make(name: str, scratch: Path) -> Texts:
    """One golden anew, in a copy of the project."""
    project = copy_of_project(scratch / name / "a project")
    if name == "notebooks":
        return notebooks(project)
    if name == "demo":
        edit(project / "params" / "demo.yaml", **SMALL)
    run(project, *RUNS.get(name, ["--cores", "1"]))
    return of_run(project, name) if name in RUNS else small_demo(project)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder_:
        for wanted in sys.argv[1:] or [*RUNS, "demo", "notebooks"]:
            texts_ = make(wanted, Path(folder_))
            if changed_ := differences(wanted, texts_):
                packed = lzma.compress(json.dumps(texts_, ensure_ascii=False).encode(), preset=9)
                (KEPT / f"{wanted}.json.xz").write_bytes(packed)
            print(f"--- {wanted}", *changed_ or ["the same"], sep="\n")
