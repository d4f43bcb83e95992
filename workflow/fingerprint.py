"""What files hold, told without running them: checksums of bytes or of what counts, and code without comments."""

import ast
import hashlib
import json
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from lib.paths import ROOT, UserError
from workflow.files import read_json, write_json

BIG = 64e6  # bytes: checksums of larger files are remembered

# ---- checksums


def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def file_sha256(path: Path) -> str:
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
        return file_sha256(place)
    memory = ROOT / "artifacts" / ".checksums" / digest(str(place))
    identity = [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]
    known = read_json(memory)
    if isinstance(known, dict) and known.get("identity") == identity and isinstance(known.get("sha256"), str):
        return known["sha256"]
    value = file_sha256(place)
    if time.time() - state.st_mtime > 2:  # file times are coarse: a later write could bear the same one
        write_json(memory, {"identity": identity, "sha256": value})
    return value


def semantic_checksum(path: str) -> str | None:
    """Checksum of what a file says. Of a frame: together with its manifest, but for the seconds and the memory that it
    took, which differ from run to run, and on which nothing hangs; nor on what code came to the same rows."""
    value, beside = checksum(path), (ROOT / path).with_suffix(".json")
    if value is None or not path.endswith(".parquet") or not beside.is_file():
        return value
    facts = read_json(beside)
    if not isinstance(facts, dict):  # damaged: whoever reads it will say so
        return value
    if timed := [name for name in facts.get("columns") or () if is_cost(str(name))]:
        value = checksum_without(path, timed, value)
    facts = {name: fact for name, fact in facts.items() if name not in ("sha256", "code") and not is_cost(name)}
    return digest(value, json.dumps(facts, sort_keys=True))


def is_cost(name: str) -> bool:
    return name.endswith("seconds") or name.startswith("peak_")


def checksum_without(path: str, columns: list[str], value: str) -> str:
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


# ---- code


def cells(path: str) -> list[dict]:
    try:
        return json.loads((ROOT / path).read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError) as error:
        problem = getattr(error, "strerror", None) or error
        raise UserError(f"{path} cannot be read as a notebook: {problem}") from None


def is_parameters(cell: dict) -> bool:
    return "parameters" in cell.get("metadata", {}).get("tags", [])


def code_cells(path: str) -> list[str]:
    """Sources of the code cells; the parameters cell is left out, as every value there is replaced."""
    code = [cell for cell in cells(path) if cell["cell_type"] == "code" and not is_parameters(cell)]
    return ["".join(cell["source"]) for cell in code]


def declared_parameters(path: str) -> list[str]:
    """Names assigned in the one cell tagged `parameters`, which may hold nothing but `name = literal` lines."""
    tagged = [cell for cell in cells(path) if is_parameters(cell)]
    if len(tagged) != 1:
        raise UserError(f"{path} needs exactly one cell tagged 'parameters', it has {len(tagged)}")
    names = []
    for statement in parse(path, "".join(tagged[0]["source"])).body:
        try:
            (target,) = [statement.target] if isinstance(statement, ast.AnnAssign) else statement.targets
            ast.literal_eval(statement.value)
            names.append(target.id)
        except (AttributeError, ValueError):  # no assignment, or of more than a name, or of more than a literal
            line = ast.unparse(statement).splitlines()[0]
            raise UserError(f"{path}: '{line}' in the parameters cell is not of the form name = literal") from None
    return names


def parse(path: str, source: str) -> ast.Module:
    """The syntax tree of Python in which lines of magics are blank; UserError where it is not Python."""
    code = "\n".join("" if line.lstrip()[:1] in ("%", "!") else line for line in source.splitlines())
    try:
        return ast.parse(code)
    except SyntaxError as error:
        raise UserError(f"{path}, line {error.lineno}: {error.msg}: {(error.text or '').strip()}") from None


@cache
def normalize_source(source: str) -> str:
    """What Python source says: its syntax tree, without comments and spacing. Other source (magics) as it is."""
    try:
        return dump_ast(ast.parse(source))
    except SyntaxError:
        return source


def dump_ast(node: object) -> str:
    """A syntax tree as text, without the empty fields and empty ends of f-strings that some versions of Python add."""
    if isinstance(node, list):
        return f"[{','.join(map(dump_ast, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = {name: value for name, value in ast.iter_fields(node) if value is not None and value != []}
    if isinstance(node, ast.JoinedStr):
        fields["values"] = [part for part in node.values if getattr(part, "value", None) != ""]
    return f"{type(node).__name__}({','.join(f'{name}={dump_ast(value)}' for name, value in fields.items())})"


def import_closure(sources: Iterable[str], path: str = "", leave_out: tuple[str, ...] = ()) -> set[str]:
    """Files of `lib` that these sources import, and those that they import, and so on.

    Folders to `leave_out` are not entered: what is imported only from there is left out, too.
    """
    files: set[str] = set()
    waiting = [(path, "", source) for source in sources]
    while waiting:
        for module in imported(*waiting.pop()):
            for file in (f"{module.replace('.', '/')}.py", f"{module.replace('.', '/')}/__init__.py"):
                if file not in files and (ROOT / file).is_file() and not file.startswith(leave_out):
                    files.add(file)
                    package = module if file.endswith("__init__.py") else module.rpartition(".")[0]
                    waiting.append((file, package, (ROOT / file).read_text(encoding="utf-8")))
    return files


@cache
def imported(path: str, package: str, source: str) -> frozenset[str]:
    """Dotted names below `lib` that a source imports, with their packages; some may be mere attributes."""
    names: set[str] = set()
    for node in ast.walk(parse(path, source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    whole = {".".join(name.split(".")[: i + 1]) for name in names for i in range(name.count(".") + 1)}
    return frozenset(name for name in whole if name.split(".")[0] == "lib")


def third_party_imports(sources: Iterable[str], path: str = "") -> list[str]:
    """The statements by which sources, and the files of `lib` that they reach, import others' modules at once."""
    sources = list(sources)
    files = [(file, (ROOT / file).read_text(encoding="utf-8")) for file in sorted(import_closure(sources, path))]
    statements = []
    for name, source in [*((path, source) for source in sources), *files]:
        for node in parse(name, source).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            if names and names[0].split(".")[0] not in ("lib", "workflow", "__future__"):
                statements.append(ast.unparse(node))
    return list(dict.fromkeys(statements))
