"""What a user finds after a command, as lines of text, kept in goldens/ and compared line by line.

    python tests/blackbox/goldens.py [NAME...]      # makes them again, shows what changed, and keeps it

Nothing here knows a name of the code: only commands, files of figures/ and artifacts/, and what an executed notebook
shows.
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
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from clone import ENV, SMALL, copy_of_project, edit, run  # noqa: E402

KEPT = Path(__file__).with_name("goldens")
RUNS = {"published": ["published"], "replay": ["replay"], "replay-small": ["replay", "small"]}  # run: its command
PICTURES, STYLE = r"data:image/[a-z+]+;base64,[A-Za-z0-9+/=]+", r"(?s)<(style|script)\b.*?</\1>"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
# Of a manifest or a notebook: what no two runs, or no two machines, share.
OWN = re.compile(
    r"/(code|\w*seconds\w*|peak_memory_mb|libraries|sha256|inputs|generations|made_on|loaded|machine|python)\b"
)
NAMES = ("table", "choice", "key", "name", "model", "dataset")  # by which an entry of a list is called
MOST = 25  # lines of a difference that are shown of each text

Texts = dict[str, str]

# ---- what is there


def tables(folder: Path, name: str) -> Texts:
    """Everything that a LaTeX document would input: tables, macros, and the document that sets them all."""
    return {path.name: path.read_text("utf-8") for path in sorted((folder / "figures" / name).glob("*.tex"))}


def report(folder: Path, name: str) -> Texts:
    """The report without its pictures and its style, an element to a line."""
    text = (folder / "figures" / name / "report.html").read_text("utf-8")
    text = re.sub(PICTURES, "(picture)", re.sub(STYLE, "", text))
    return {"report.html": "\n".join(filter(None, (line.strip() for line in text.replace("<", "\n<").splitlines())))}


def outputs(path: Path) -> list[dict]:
    """What an executed notebook shows, in the order of its cells; what was printed in pieces, as one."""
    found: list[dict] = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            output["text"] = "".join(output.get("text", ""))
            if found and output["output_type"] == "stream" and output.get("name") == found[-1].get("name"):
                found[-1]["text"] += output["text"]
            else:
                found.append(output)
    return found


def records(folder: Path, name: str) -> Texts:
    """What the executed notebooks hand to the report: numbers beside the paper's, verdicts with their counts."""
    found = {}
    for path in sorted((folder / "artifacts" / name / "notebooks").glob("*.ipynb")):
        for output in outputs(path):
            kind = output.get("metadata", {}).get("paper", "")
            if kind.startswith("rep_") and "application/json" in output["data"]:
                found[kind] = "\n".join(flat(output["data"]["application/json"]))
    return found


def without_clock(text: str) -> str:
    """A table, or a printed line, without its numbers where it speaks of seconds."""
    return NUMBER.sub("N", text) if re.search(r"seconds|\d s\b", text) else text


def shown(path: Path) -> str:
    """All that a reader of an executed notebook sees, but the pictures: text, and tables without their tags."""
    lines: list[str] = []
    for output in outputs(path):
        data = {kind: "".join(text) for kind, text in output.get("data", {}).items() if kind.startswith("text/")}
        printed = "\n".join(map(without_clock, output["text"].splitlines()))
        text = printed or without_clock(data.get("text/html") or data.get("text/plain", ""))
        text = re.sub(r"<(td|th)\b[^>]*>", " ", re.sub(STYLE, "", text))
        lines += [line.strip() for line in html.unescape(re.sub(r"<[^>]+>", "", text)).splitlines()]
    return "\n".join(filter(None, lines))


def frames(folder: Path, name: str) -> Texts:
    """Every frame that a run keeps, a row to a line, and its manifest."""
    found = {}
    for path in sorted((folder / "artifacts" / name).glob("*/*.parquet")):
        frame = pd.read_parquet(path)
        frame = frame.drop(columns=[name for name in frame if "seconds" in name or name == "top_ids"])  # near ties
        rows = (" | ".join(cell(value) for value in row) for row in frame.itertuples(index=False))
        found[f"{path.parent.name}/{path.stem}"] = "\n".join([" | ".join(frame.columns), *rows])
        facts = json.loads(path.with_suffix(".json").read_text("utf-8"))
        found[f"{path.parent.name}/{path.stem}, manifest"] = "\n".join(one for one in flat(facts) if not OWN.match(one))
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
            names = [str(one[part]) for part in NAMES if one.get(part)] if isinstance(one, dict) else []
            yield from flat(one, f"{path}/{' '.join(names) or number}")
    else:
        rounded = json.loads(json.dumps(value), parse_float=lambda digits: float(f"{float(digits):.6g}"))
        yield f"{path}: {json.dumps(rounded, ensure_ascii=False)}"


def alike(before: str, after: str, near: float) -> bool:
    """Whether two lines have the same words, and numbers that are as near as the kernels of two processors are."""
    if before == after or not near:
        return before == after
    one, other = (NUMBER.findall(line) for line in (before, after))
    if NUMBER.sub("#", before) != NUMBER.sub("#", after) or len(one) != len(other):
        return False
    return bool(np.allclose([float(x) for x in one], [float(x) for x in other], rtol=near, atol=near))


def differences(kept: Texts, found: Texts, near: Mapping[str, float] = MappingProxyType({})) -> list[str]:
    """What changed, for a person to read; nothing where all is the same, or as near as a text may be."""
    lines = []
    for name in sorted(kept.keys() | found.keys()):
        if name not in kept or name not in found:
            lines.append(f"{name}: {'is gone' if name in kept else 'is new'}")
            continue
        before, after = kept[name].splitlines(), found[name].splitlines()
        if len(before) == len(after):
            pairs = [pair for pair in zip(before, after, strict=True) if not alike(*pair, near.get(name, 0))]
            changed = [line for one, other in pairs for line in (f"-{one}", f"+{other}")]
        else:
            changed = [line for line in difflib.unified_diff(before, after, lineterm="", n=0) if line[:2] != "@@"][2:]
        if changed:
            shown_ = [line[:240] for line in changed[:MOST]]
            lines += [f"{name}: {len(changed)} lines differ", *shown_, *["..."][: len(changed) > MOST]]
    return lines


def same(changed: list[str], maker: str) -> None:
    """Fails where something changed, and says what, and which script of this folder keeps it."""
    head = f"this is not as it was; if it should be so, `python tests/blackbox/{maker}` keeps it:"
    assert not changed, "\n".join([head, *changed])


# ---- kept


def read(name: str) -> Texts:
    return json.loads(lzma.decompress((KEPT / f"{name}.json.xz").read_bytes()))


def renew(name: str, texts: Texts) -> None:
    """Keep these, and say what changed."""
    path = KEPT / f"{name}.json.xz"
    print(f"--- {name}", *differences(read(name) if path.exists() else {}, texts) or ["the same"], sep="\n")
    path.write_bytes(lzma.compress(json.dumps(texts, ensure_ascii=False).encode(), preset=9))


# ---- made


def of_run(folder: Path, name: str) -> Texts:
    """What a run whose numbers hang on no processor leaves: everything, byte for byte."""
    return tables(folder, name) | records(folder, name) | report(folder, name)


def small_demo(folder: Path) -> Texts:
    return tables(folder, "demo") | frames(folder, "demo")


def played(folder: Path, name: str, *options: str) -> Path:
    """A notebook of a project, executed by papermill as a reader would."""
    to, command = folder / "played.ipynb", [sys.executable, "-m", "papermill", "--cwd", "notebooks"]
    command += [*options, "-k", "python3", "--no-progress-bar", f"notebooks/{name}.ipynb", str(to)]
    done = subprocess.run(command, cwd=folder, env=ENV | {"PYTHONPATH": str(folder)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return to


def notebooks(folder: Path) -> Texts:
    """Every notebook, each in a fresh clone, played from top to bottom with the parameters it holds."""
    found = {}
    for path in sorted((folder / "notebooks").glob("*.ipynb")):
        shutil.rmtree(folder / "artifacts" / "lab", ignore_errors=True)
        found[path.stem] = shown(played(folder, path.stem))
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
            renew(wanted, make(wanted, Path(folder_)))
