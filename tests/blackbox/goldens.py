"""What a user finds after a command, as lines of text, kept in goldens/ and compared line by line.

    python tests/blackbox/goldens.py [NAME...]      # makes them again, shows what changed, and keeps it

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
from collections.abc import Iterator
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
PICTURES, STYLE = r"data:image/[a-z+]+;base64,[A-Za-z0-9+/=]+", r"(?s)<(style|script)\b.*?</\1>"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
# Of a manifest or a notebook: what no two runs, or no two machines, share.
OWN = re.compile(
    r"/(code|\w*seconds\w*|peak_memory_mb|libraries|sha256|inputs|generations|made_on|loaded|machine|python)\b"
)
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
    return {
        "report.html": "\n".join(
            filter(None, (line.strip() for line in text.replace("<", "\n<").splitlines()))
        )
    }


def outputs(path: Path) -> list[dict]:
    """What an executed notebook shows, in the order of its cells."""
    return [
        output
        for cell in json.loads(path.read_text("utf-8"))["cells"]
        for output in cell.get("outputs", [])
    ]


def records(folder: Path, name: str) -> Texts:
    """What the executed notebooks hand to the report: numbers beside the paper's, verdicts with
    their counts."""
    paths = sorted((folder / "artifacts" / name / "notebooks").glob("*.ipynb"))
    found = [
        one
        for path in paths
        for one in outputs(path)
        if one.get("metadata", {}).get("paper", "")[:4] == "rep_"
    ]
    data = {one["metadata"]["paper"]: one["data"].get("application/json") for one in found}
    return {kind: "\n".join(flat(record)) for kind, record in data.items() if record is not None}


def without_clock(text: str) -> str:
    """A table, or a printed line, without its numbers where it speaks of seconds."""
    return NUMBER.sub("N", text) if re.search(r"seconds|\d s\b", text) else text


def shown(path: Path) -> str:
    """All that a reader of an executed notebook sees, but the pictures: text, and tables without
    their tags."""
    texts = []
    # printed in pieces
    for stream, some in groupby(outputs(path), lambda output: output.get("name")):
        if stream:
            printed = "".join("".join(output["text"]) for output in some)
            texts.append("\n".join(map(without_clock, printed.splitlines())))
        else:
            found = [output.get("data", {}) for output in some]
            texts += [
                without_clock("".join(data.get("text/html") or data.get("text/plain", "")))
                for data in found
            ]
    lines = []
    for text in texts:
        text = re.sub(r"<(td|th)\b[^>]*>", " ", re.sub(STYLE, "", text))
        lines += [line.strip() for line in html.unescape(re.sub(r"<[^>]+>", "", text)).splitlines()]
    return "\n".join(filter(None, lines))


def frames(folder: Path, name: str) -> Texts:
    """Every frame that a run keeps, a row to a line, and its manifest."""
    found = {}
    for path in sorted((folder / "artifacts" / name).glob("*/*.parquet")):
        frame = pd.read_parquet(path)
        # near ties
        frame = frame.drop(
            columns=[name for name in frame if "seconds" in name or name == "top_ids"]
        )
        rows = (" | ".join(cell(value) for value in row) for row in frame.itertuples(index=False))
        found[f"{path.parent.name}/{path.stem}"] = "\n".join([" | ".join(frame.columns), *rows])
        facts = json.loads(path.with_suffix(".json").read_text("utf-8"))
        found[f"{path.parent.name}/{path.stem}, manifest"] = "\n".join(
            one for one in flat(facts) if not OWN.match(one)
        )
    return found


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
    elif isinstance(value, list) and any(isinstance(one, dict | list) for one in value):
        for number, one in enumerate(value):
            names = (
                [str(one[part]) for part in NAMES if one.get(part)] if isinstance(one, dict) else []
            )
            yield from flat(one, f"{path}/{' '.join(names) or number}")
    else:
        rounded = json.loads(
            json.dumps(value), parse_float=lambda digits: float(f"{float(digits):.6g}")
        )
        yield f"{path}: {json.dumps(rounded, ensure_ascii=False)}"


def alike(before: str, after: str, near: float) -> bool:
    """Whether two lines have the same words, and numbers that are as near as the kernels of two
    processors are."""
    one, other = (NUMBER.findall(line) for line in (before, after))
    if not near or NUMBER.sub("#", before) != NUMBER.sub("#", after):
        return before == after
    return bool(
        np.allclose([float(x) for x in one], [float(x) for x in other], rtol=near, atol=near)
    )


def differences(name: str, found: Texts) -> list[str]:
    """What changed of a golden, for a person to read; nothing where all is the same, or as near as
    a text may be."""
    kept, lines = read(name), []
    for part in sorted(kept.keys() | found.keys()):
        near = NEAR.get(name, NEAR_RECORD if part.startswith("rep_") else 0)
        before, after = (texts.get(part, "").splitlines() for texts in (kept, found))
        # lines that are near enough count as the same
        after[: len(before)] = [
            one if alike(one, other, near) else other
            for one, other in zip(before, after, strict=False)
        ]
        if changed := list(difflib.unified_diff(before, after, lineterm="", n=0))[2:]:
            lines += [
                f"{part}: {len(changed)} lines differ",
                *(line[:240] for line in changed[:MOST]),
            ]
    return lines


def same(changed: list[str], maker: str) -> None:
    """Fails where something changed, and says what, and which script of this folder keeps it."""
    head = f"this is not as it was; if it should be so, `python tests/blackbox/{maker}` keeps it:"
    assert not changed, "\n".join([head, *changed])


def check(name: str, found: Texts) -> None:
    same(differences(name, found), f"goldens.py {name}")


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
    found = {}
    for path in sorted((folder / "notebooks").glob("*.ipynb")):
        shutil.rmtree(folder / "artifacts" / "lab", ignore_errors=True)
        to, options = (
            folder / "played.ipynb",
            ["--cwd", "notebooks", "-k", "python3", "--no-progress-bar"],
        )
        command = [sys.executable, "-m", "papermill", *options, str(path), str(to)]
        subprocess.run(command, cwd=folder, env=ENV | {"PYTHONPATH": str(folder)}, check=True)
        found[path.stem] = shown(to)
    return found


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
