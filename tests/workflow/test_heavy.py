"""Heavy notebooks use lib.score and the rooms above it to show, so that what they write cannot hang on these.

The key of a heavy notebook leaves them out (workflow/fresh.py), but for what its row says it is decided by. That is
sound only under two rules. A name from lib.paper is nothing but the head of the call with which a cell ends,
`tables.x(...)`, whose value nobody takes up. No value that lib.score had a hand in reaches what makes rows and writes
frames.
"""

import ast

import pytest

from workflow.fingerprint import ROOT, code_cells, import_closure, imported, parse
from workflow.fresh import SHOWING
from workflow.pipeline import NOTEBOOKS

ROWS = [row for row in NOTEBOOKS if row.heavy]
HEAVY = [row.path for row in ROWS]
MAKING = {"map", "write_frame", "RowCache", "run_passes", "write_passes"}  # what makes rows and writes frames


def names_of_paper(trees: list[ast.Module]) -> set[str]:
    """Names that cells import from lib.paper; AssertionError for an import that would bring it in unseen."""
    names = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & {"lib", "importlib"}, "from lib import x"
        if isinstance(node, ast.ImportFrom):
            assert not (node.module == "lib" and "paper" in [alias.name for alias in node.names]), "from lib.paper ..."
            if f"{node.module}.".startswith("lib.paper."):
                names |= {alias.asname or alias.name for alias in node.names}
    return names


def shown(tree: ast.Module) -> ast.expr | None:
    """The name that the call begins with which a cell ends with: `tables` of `tables.x(...)`."""
    last = tree.body[-1] if tree.body else None
    if not (isinstance(last, ast.Expr) and isinstance(last.value, ast.Call)):
        return None
    head = last.value
    while isinstance(head, (ast.Call, ast.Attribute)):
        head = head.func if isinstance(head, ast.Call) else head.value
    return head


def misused(cells: list[str]) -> list[str]:
    """Lines of cells in which a name from lib.paper, or a cell's displayed value, does more than be shown."""
    trees = [parse("a cell", source) for source in cells]
    names = names_of_paper(trees)
    lines = []
    for tree in trees:
        head = shown(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node is not head:
                takes_up = node.id in ("Out", "_", "__", "___") and isinstance(node.ctx, ast.Load)
                lines += [ast.unparse(node)] if takes_up or node.id in names else []
    return lines


@pytest.mark.parametrize("path", HEAVY)
def test_a_heavy_notebook_only_shows_what_lib_paper_makes(path):
    assert misused(code_cells(path)) == []


@pytest.mark.parametrize("path", HEAVY)
def test_nothing_else_that_it_imports_reaches_lib_paper(path):
    for file in import_closure(code_cells(path), leave_out=SHOWING):
        names = imported(file, file.removesuffix(".py").replace("/", ".").rpartition(".")[0], (ROOT / file).read_text())
        assert not any(f"{name.replace('.', '/')}/".startswith(SHOWING) for name in names), file


def scoring_names(trees: list[ast.Module], decided_by: tuple[str, ...]) -> set[str]:
    """Names that cells import from lib.score, calibrate and analysis, but for modules that are known to decide."""
    deciding = {path.partition(":")[0].removesuffix(".py").replace("/", ".") for path in decided_by}
    names = set()
    for node in (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)):
        for alias in node.names:
            module = str(node.module)
            scores = module.startswith(("lib.score", "lib.calibrate", "lib.analysis"))
            if scores and not deciding & {module, f"{module}.{alias.name}"}:
                names.add(alias.asname or alias.name)
    return names


def flows(cells: list[str], decided_by: tuple[str, ...] = ()) -> list[str]:
    """Calls that make rows, or write frames, of values that what scores had a hand in."""
    trees = [parse("a cell", source) for source in cells]
    touched = scoring_names(trees, decided_by)

    def names(node: ast.AST) -> set[str]:
        return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}

    lines = []
    for statement in (statement for tree in trees for statement in tree.body):
        inside = set()  # names of comprehensions, which live in this statement alone
        for node in ast.walk(statement):
            if isinstance(node, ast.Assign | ast.AugAssign | ast.For | ast.comprehension | ast.NamedExpr):
                value = getattr(node, "value", getattr(node, "iter", None))
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if names(value) & (touched | inside):
                    where = inside if isinstance(node, ast.comprehension) else touched
                    where |= set().union(*map(names, targets))
        for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call)):
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            values = [*call.args, *(keyword.value for keyword in call.keywords)]
            if name in MAKING and set().union(*map(names, values)) & (touched | inside):
                lines.append(ast.unparse(call))
    return lines


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_nothing_that_scores_decides_what_a_heavy_notebook_writes_but_what_its_row_names(row):
    assert flows(code_cells(row.path), row.decided_by) == []
    if row.decided_by:
        assert flows(code_cells(row.path)), "or it need not be named"


def test_a_flow_is_seen():
    for cell in (
        "one = interpretation.interpret_responses(frame)\ncache.map(work, [x for x in one])",
        "frame['x'] = interpretation.interpret_responses(frame)\nstore.write_frame(frame, path)",
        "for x in interpretation.interpret_responses(frame):\n    store.write_frame(x, path)",
    ):
        assert flows(["from lib.score import interpretation", cell]) and not flows([cell])


IMPORT = "from lib.paper import tables, figures as f"


def test_the_rule_is_strict():
    for cell in (
        "x = tables.rows(1)",
        "store.write(tables.rows(1), path)",
        "tables.rows(1)\nx = 1",
        "tables.rows(f.width(1))",
        "f.WIDTH",
        "store.write(_, path)",
        "store.write(Out[3], x)",
    ):
        assert misused([IMPORT, "tables.rows(1)", cell])
    assert misused([IMPORT, "x = 1\ntables.rows(x)", "f.curves(x, title='y').large()"]) == []
    for line in ("import lib.paper.tables", "from lib import paper", "import importlib"):
        with pytest.raises(AssertionError):
            misused([line])
