"""JSON files, checksums of files, and of code without its comments and docstrings."""

import ast
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.util import resolve_name
from itertools import accumulate
from pathlib import Path

from lib.errors import UserError
from lib.files import digest, parse_json, read_bytes, sha256, write_text
from lib.paths import ROOT, local_path

COST = re.compile("^peak_|seconds$")  # facts of a manifest that do not count
BIG = 64e6  # bytes: checksums of larger files are cached
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# a string that may name a file beside a module, or be its suffix
NAME = re.compile(r"[\w-]*(\.[a-z]+)+")

# ---- files


def read_json(path: Path) -> object:
    """Return a file's content, or None if it is missing or not JSON.

    Raise OSError if it may not be read: the outputs that it records must not be generated again.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None


def write_json(path: Path, content: object) -> None:
    """Write a JSON file atomically."""
    text = json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n"
    write_text(path, text)


def checksum(path: str) -> str | None:
    """Return the SHA-256 of a file, cached for a big file; None if there is no file."""
    place = local_path(path)
    if not place.is_file():
        return None
    state = place.stat()
    if state.st_size < BIG:
        return sha256(place)
    identity = (str(place), state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino)
    memory = ROOT / "artifacts" / ".checksums" / digest(identity)
    if not memory.is_file():
        value = sha256(place)
        with suppress(OSError):  # of a disk that is full, or may only be read
            write_text(memory, value)
        return value
    return memory.read_text()


def semantic_checksum(path: str) -> str | None:
    """Return the checksum of a file's content. For a frame it includes the manifest, without time
    and memory, which differ between runs, and without the code: the rows themselves count."""
    value = checksum(path)
    if value is None or not path.endswith(".parquet"):
        return value
    manifest = read_json((ROOT / path).with_suffix(".json"))
    if not isinstance(manifest, dict):  # its reader reports a damaged one
        return value
    facts = {}
    for name, fact in manifest.items():
        if name not in ("sha256", "code") and not COST.search(name):
            facts[name] = fact
    return digest([value, facts])


# ---- code


def read_cells(path: str) -> list[dict]:
    return parse_json(read_bytes(ROOT / path), path)["cells"]


def is_parameters(cell: dict) -> bool:
    return "parameters" in cell.get("metadata", {}).get("tags", [])


def code_cells(path: str) -> list[str]:
    """Return the sources of the code cells, without the parameters cell, whose values are replaced;
    of a module, its source."""
    if path.endswith(".py"):
        return [(ROOT / path).read_text(encoding="utf-8")]
    sources = []
    for cell in read_cells(path):
        if cell["cell_type"] == "code" and not is_parameters(cell):
            sources.append("".join(cell["source"]))
    return sources


def declared_parameters(path: str) -> list[str]:
    """Return the names assigned in the one cell tagged `parameters`, which may contain only `name =
    literal` lines."""
    if path.endswith(".py"):
        return []
    tagged = [cell for cell in read_cells(path) if is_parameters(cell)]
    if len(tagged) != 1:
        raise UserError(f"{path} needs exactly one cell tagged 'parameters', it has {len(tagged)}")
    source = "".join(tagged[0]["source"])
    return [name_of_literal(statement, path) for statement in parse_source(path, source).body]


def name_of_literal(statement: ast.stmt, path: str) -> str:
    """Return the name to which a statement of a notebook assigns a literal. Raise UserError for
    another statement."""
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        with suppress(ValueError):  # no literal
            ast.literal_eval(statement.value or statement)
            if len(targets) == 1 and isinstance(targets[0], ast.Name):
                return targets[0].id
    line = ast.unparse(statement).splitlines()[0]
    raise UserError(f"{path}: '{line}' in the parameters cell is not of the form name = literal")


def parse_source(path: str, source: str) -> ast.Module:
    """Return the syntax tree of Python source, ignoring lines of magics; raise UserError if it is
    not Python."""
    lines = source.splitlines()
    code = ["" if line.lstrip().startswith(("%", "!")) else line for line in lines]
    try:
        return ast.parse("\n".join(code))
    except SyntaxError as error:
        raise UserError(
            f"{path}, line {error.lineno}: {error.msg}: {(error.text or '').strip()}"
        ) from None


@cache
def normalize_source(source: str, cell: bool = False) -> str:
    """Return Python source as its syntax tree, without comments, docstrings and spacing; other
    source (magics) unchanged. A string at the beginning of a notebook's `cell` is no docstring: the
    notebook may show it."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return source
    for node in ast.walk(tree):
        if not isinstance(node, DOCUMENTED) or (cell and node is tree):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return ast.dump(tree)


def import_closure(sources: Iterable[str], leave_out: tuple[str, ...] = ()) -> set[str]:
    """Return the files of `lib` that these sources import, directly or indirectly, and those that a
    module names in a string: the template beside it, a script that it starts.

    Folders to `leave_out` are followed, and then left out.
    """
    files: set[str] = set()
    looked_for: set[str] = set()
    waiting = [("", source) for source in sources]
    while waiting:
        new = named_files(*waiting.pop()) - looked_for
        looked_for |= new
        for file in new:
            if not (ROOT / file).is_file():
                continue
            files.add(file)
            if file.endswith(".py"):
                waiting.append((file, (ROOT / file).read_text(encoding="utf-8")))
    return {file for file in files if not file.startswith(leave_out)}


def imported_names(path: str, tree: ast.Module) -> set[str]:
    """Return the dotted names below `lib` that the source of a file imports; some may be
    attributes."""
    package = path.rpartition("/")[0].replace("/", ".")
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), package)
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.split(".")[0] == "lib"}


@cache
def named_files(path: str, source: str) -> frozenset[str]:
    """Return the places below `lib` where the files that a source imports, or names in a string,
    would lie."""
    tree = parse_source(path, source)
    files = set()
    for name in imported_names(path, tree):
        for module in accumulate(name.split("."), "{}/{}".format):  # its packages, itself
            files |= {f"{module}.py", f"{module}/__init__.py"}
    folder = path.rpartition("/")[0]
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and NAME.fullmatch(text):
            is_suffix = text.startswith(".")
            files.add(path.removesuffix(".py") + text if is_suffix else f"{folder}/{text}")
    return frozenset(file for file in files if file.startswith("lib/"))
