"""Heavy notebooks use lib.score and the rooms above it to show, so that what they write cannot hang on these.

The key of a heavy notebook leaves them out (workflow/keys.py), but for what its row says it is decided by. That is
sound only if nothing that these had a hand in, nor what a cell shows, stands in a statement that makes rows or writes
frames.
"""

import ast

import pytest

from workflow.fingerprint import ROOT, code_cells, import_closure, imported_names, parse_source
from workflow.keys import SHOWING
from workflow.rules import NOTEBOOKS

ROWS = [row for row in NOTEBOOKS if row.runs_model]
MAKING = {"map", "write_frame", "RowCache", "write_passes"}  # what makes rows and writes frames
SHOWN = {"Out", "_", "__", "___"}  # names of what a cell showed
ROOMS = tuple(folder.rstrip("/").replace("/", ".") for folder in SHOWING)


def names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, context)}


def written(statement: ast.stmt) -> set[str]:
    """Names that a statement binds, or puts something into."""
    nodes = list(ast.walk(statement))
    filled = [target for node in nodes if isinstance(node, ast.Assign) for target in node.targets]
    inside = [node.target for node in nodes if isinstance(node, ast.comprehension)]  # is gone after the statement
    loaded = set().union(*(names(target, ast.Load) for target in filled))
    return loaded | names(statement, ast.Store) - set().union(*(names(target, ast.Store) for target in inside))


def imported_to_show(node: ast.Import | ast.ImportFrom, decided_by: tuple[str, ...]) -> set[str]:
    """Names that an import brings from what only scores and shows; AssertionError where that could not be seen."""
    if isinstance(node, ast.Import):
        assert not {alias.name.split(".")[0] for alias in node.names} & {"lib", "importlib"}, "from lib.room import x"
        return set()
    rooms = {room.removeprefix("lib.") for room in ROOMS} if node.module == "lib" else set()
    assert not rooms & {alias.name for alias in node.names}, "from lib.room import x"
    deciding = {path.partition(":")[0].removesuffix(".py").replace("/", ".") for path in decided_by}
    return {
        alias.asname or alias.name
        for alias in node.names
        if str(node.module).startswith(ROOMS) and not deciding & {node.module, f"{node.module}.{alias.name}"}
    }


def misused(cells: list[str], decided_by: tuple[str, ...] = ()) -> list[str]:
    """Statements that make rows, or write frames, with something in them that what shows had a hand in."""
    touched, lines = set(SHOWN), []
    for statement in (statement for cell in cells for statement in parse_source("a cell", cell).body):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            touched |= imported_to_show(statement, decided_by)
        elif names(statement, ast.Load) & touched:
            touched |= written(statement)
            calls = {getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(statement)}
            lines += [ast.unparse(statement)] if calls & MAKING else []
    return lines


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_nothing_that_shows_decides_what_a_heavy_notebook_writes_but_what_its_row_names(row):
    cells = code_cells(row.path)
    assert misused(cells, row.decided_by) == []
    assert bool(misused(cells)) == bool(row.decided_by), "what need not be named"
    for file in (file for file in import_closure(cells, leave_out=SHOWING) if file.endswith(".py")):
        used = imported_names(file, (ROOT / file).read_text())
        assert not any(f"{name.replace('.', '/')}/".startswith(SHOWING) for name in used), file
