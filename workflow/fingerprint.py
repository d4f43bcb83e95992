"""Checksums of files, and of code without its comments and docstrings."""

import ast
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable
from functools import cache

from lib.files import sha256
from lib.paths import ROOT, UserError
from workflow.files import read_json

COST = re.compile("^peak_|seconds$")  # facts of a manifest that do not count
BIG = 64e6  # bytes: checksums of larger files are cached
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
NAME = re.compile(r"[\w-]*(\.[a-z]+)+")  # a string that may name a file beside a module, or be its suffix

# ---- checksums


def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def checksum(path: str) -> str | None:
    """Return the SHA-256 of a file, cached for a big file; None if there is no file."""
    place = ROOT / os.path.expanduser(path)
    if not place.is_file():
        return None
    state = place.stat()
    if state.st_size < BIG:
        return sha256(place)
    memory = ROOT / "artifacts" / ".checksums" / digest(str(place))
    identity = [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]
    known = read_json(memory)
    if isinstance(known, dict) and known.get("identity") == identity and isinstance(known.get("sha256"), str):
        return known["sha256"]
    value = sha256(place)
    if time.time() - state.st_mtime > 2:  # file times are coarse: a later write could have the same time
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text(json.dumps({"identity": identity, "sha256": value}))  # if cut short, it is not read
    return value


def semantic_checksum(path: str) -> str | None:
    """Return the checksum of a file's content. For a frame it includes the manifest, without time and memory, which
    differ between runs, and without the code: the rows themselves count."""
    value, beside = checksum(path), (ROOT / path).with_suffix(".json")
    if value is None or not path.endswith(".parquet") or not beside.is_file():
        return value
    facts = read_json(beside)
    if not isinstance(facts, dict):  # damaged: its reader reports it
        return value
    facts = {name: fact for name, fact in facts.items() if name not in ("sha256", "code") and not COST.search(name)}
    return digest(value, json.dumps(facts, sort_keys=True))


# ---- code


def read_cells(path: str) -> list[dict]:
    try:
        return json.loads((ROOT / path).read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError) as error:
        problem = getattr(error, "strerror", None) or error
        raise UserError(f"{path} cannot be read as a notebook: {problem}") from None


def is_parameters(cell: dict) -> bool:
    return "parameters" in cell.get("metadata", {}).get("tags", [])


def code_cells(path: str) -> list[str]:
    """Return the sources of the code cells, without the parameters cell, whose values are replaced; of a module, its
    source."""
    if path.endswith(".py"):
        return [(ROOT / path).read_text(encoding="utf-8")]
    code = [cell for cell in read_cells(path) if cell["cell_type"] == "code" and not is_parameters(cell)]
    return ["".join(cell["source"]) for cell in code]


def declared_parameters(path: str) -> list[str]:
    """Return the names assigned in the one cell tagged `parameters`, which may contain only `name = literal` lines."""
    if path.endswith(".py"):
        return []
    tagged = [cell for cell in read_cells(path) if is_parameters(cell)]
    if len(tagged) != 1:
        raise UserError(f"{path} needs exactly one cell tagged 'parameters', it has {len(tagged)}")
    names = []
    for statement in parse_source(path, "".join(tagged[0]["source"])).body:
        try:
            (target,) = [statement.target] if isinstance(statement, ast.AnnAssign) else statement.targets
            ast.literal_eval(statement.value)
            names.append(target.id)
        except (AttributeError, ValueError):  # not an assignment of a literal to a name
            line = ast.unparse(statement).splitlines()[0]
            raise UserError(f"{path}: '{line}' in the parameters cell is not of the form name = literal") from None
    return names


def parse_source(path: str, source: str) -> ast.Module:
    """Return the syntax tree of Python source, ignoring lines of magics; raise UserError if it is not Python."""
    code = "\n".join("" if line.lstrip()[:1] in ("%", "!") else line for line in source.splitlines())
    try:
        return ast.parse(code)
    except SyntaxError as error:
        raise UserError(f"{path}, line {error.lineno}: {error.msg}: {(error.text or '').strip()}") from None


@cache
def normalize_source(source: str, cell: bool = False) -> str:
    """Return Python source as its syntax tree, without comments, docstrings and spacing; other source (magics)
    unchanged. A string at the beginning of a notebook's `cell` is no docstring: the notebook may show it."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return source
    return dump_ast(tree.body if cell else tree)


def dump_ast(node: object) -> str:
    """Return a syntax tree as text, without docstrings, and without the empty fields and f-string parts that some
    Python versions add."""
    if isinstance(node, list):
        return f"[{','.join(map(dump_ast, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = {name: value for name, value in ast.iter_fields(node) if value is not None and value != []}
    if isinstance(node, ast.JoinedStr):
        fields["values"] = [part for part in node.values if getattr(part, "value", None) != ""]
    if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
        fields["body"] = node.body[1:]
    return f"{type(node).__name__}({','.join(f'{name}={dump_ast(value)}' for name, value in fields.items())})"


def import_closure(sources: Iterable[str], path: str = "", leave_out: tuple[str, ...] = ()) -> set[str]:
    """Return the files of `lib` that these sources import, directly or indirectly, and those that a module names in a
    string: the template beside it, a script that it starts.

    Folders to `leave_out` are followed, and then left out.
    """
    files: set[str] = set()
    waiting = [(path, source) for source in sources]
    while waiting:
        for file in named_files(*waiting.pop()):
            if file not in files and (ROOT / file).is_file():
                files.add(file)
                if file.endswith(".py"):
                    waiting.append((file, (ROOT / file).read_text(encoding="utf-8")))
    return {file for file in files if not file.startswith(leave_out)}


@cache
def imported_names(path: str, source: str) -> frozenset[str]:
    """Return the dotted names below `lib` that a source imports, with their packages; some may be attributes."""
    package, names = path.split("/")[:-1], set()
    for node in ast.walk(parse_source(path, source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    whole = {".".join(name.split(".")[: i + 1]) for name in names for i in range(name.count(".") + 1)}
    return frozenset(name for name in whole if name.split(".")[0] == "lib")


@cache
def named_files(path: str, source: str) -> frozenset[str]:
    """Return the places below `lib` where the files that a source imports, or names in a string, would lie."""
    modules = (name.replace(".", "/") for name in imported_names(path, source))
    files = {f"{module}{suffix}" for module in modules for suffix in (".py", "/__init__.py")}
    for node in ast.walk(parse_source(path, source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value):
            beside = path.removesuffix(".py") if node.value[0] == "." else f"{path.rpartition('/')[0]}/"
            files.add(beside + node.value)
    return frozenset(file for file in files if file.startswith("lib/"))
