"""What is made again when something changes, of the project's own notebooks: no model runs, keys
are compared."""

import ast
import re
from pathlib import Path

import pytest

from lib import params
from lib.files import read_yaml
from lib.paths import ROOT
from workflow.engine import job_key
from workflow.engine.fingerprint import code_cells
from workflow.engine.job_key import SHOWING
from workflow.engine.jobs_of_run import Run
from workflow.engine.notebook_table import NOTEBOOKS

REMADE = read_yaml(Path(__file__).with_name("remade.yaml"))
HEAVY = [row for row in NOTEBOOKS if row.runs_model]

VALUES = params.load_profile("demo").model_dump() | {
    "models": ["tiny-llama"],
    "datasets": ["demo-easy"],
}


def contents(**changed):
    """What the key of each job holds, by its notebook's number."""
    jobs = Run("mine", VALUES | changed).jobs
    return {job.notebook.number: job_key.key_parts(job) for job in jobs if not job.notebook.module}


def changed_by(before, after):
    return " ".join(sorted(number for number in before if before[number] != after[number]))


@pytest.fixture(scope="module")
def before():
    return contents()


def test_what_a_parameter_remakes(before):
    for name in params.Profile.model_fields:
        (remade,) = [
            numbers for names, numbers in REMADE["parameters"].items() if name in names.split()
        ]
        other = {"model": "tiny-qwen", "dataset": "svamp"}.get(params.kind_of(name), "another")
        value = [other] if isinstance(VALUES[name], list) else other
        assert changed_by(before, contents(**{name: value})) == remade, name


@pytest.mark.parametrize("path, old, new, remade", REMADE["code"])
def test_a_job_that_runs_a_model_is_remade_only_for_code_that_decides_what_it_leaves(
    before, monkeypatch, path, old, new, remade
):
    text = job_key.read_source
    assert old in text(path)
    changed = lambda read: text(read).replace(old, new) if read == path else text(read)  # noqa: E731
    monkeypatch.setattr(job_key, "read_source", changed)
    numbers = set(changed_by(before, contents()).split())
    assert numbers and numbers & {row.number for row in HEAVY} == set(remade.split())


def names(*nodes: ast.AST, stored=False) -> set[str]:
    found = [part for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)]
    return {name.id for name in found if not stored or isinstance(name.ctx, ast.Store)}


def misused(cells: list[str], decided_by: tuple[str, ...] = ()) -> list[str]:
    """Statements that make rows or write frames with what was imported from the rooms that show, or
    computed by that, and that is not among what decides."""
    deciding = {path.partition(":")[0].removesuffix(".py").replace("/", ".") for path in decided_by}
    touched, lines = {"Out", "_", "__", "___"}, []  # what a cell showed
    for statement in (statement for cell in cells for statement in ast.parse(cell).body):
        if isinstance(statement, ast.ImportFrom) and f"{statement.module}/".replace(
            ".", "/"
        ).startswith(SHOWING):
            found = [
                one for one in statement.names if f"{statement.module}.{one.name}" not in deciding
            ]
            touched |= {one.asname or one.name for one in found}
        elif names(statement) & touched:
            touched |= names(statement, stored=True) | names(*getattr(statement, "targets", ()))
            making = re.search(
                r"\b(map|RowCache|write_frame|(verify|pass|ask)_pair)\(", ast.unparse(statement)
            )
            lines += [ast.unparse(statement)] if making else []
    return lines


@pytest.mark.parametrize("row", HEAVY, ids=lambda row: row.number)
def test_nothing_that_shows_decides_what_a_heavy_notebook_writes_but_what_its_row_names(row):
    """So its key may leave out the rooms that show, which no other room imports."""
    cells = code_cells(row.path)
    assert misused(cells, row.decided_by) == []
    assert bool(misused(cells)) == bool(row.decided_by), "what need not be named"


def test_no_module_reads_docstrings_or_source():
    """They do not count, so nothing may depend on them."""
    for path in (ROOT / "lib").rglob("*.py"):
        assert not re.search(
            r"__doc__|\bget(doc|source|comments)", path.read_text(encoding="utf-8")
        ), path
