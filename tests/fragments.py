"""Fragments of the project's code, and the code with one of them changed.

A change is named by a module, a function in it (`RowCache.map`; empty for the module itself), and a
fragment before and after: an expression, a statement of one line, or a `name=value` of a call or of
a function's defaults. Fragments are compared as syntax trees. So a change holds wherever the line
breaks are, whether variables have other names or a function has moved to another module; and where
the code no longer has the fragment, or has it twice, nothing is changed.
"""

import ast
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMED_VALUE = re.compile(r"\w+=[^=]")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Change:
    """A fragment of a function, and what comes in its place."""

    module: str
    function: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.module} {self.function}: {self.before} -> {self.after}"


def modules() -> list[str]:
    """Return the modules of lib and workflow, as "lib/score/metrics"."""
    names = []
    for room in ("lib", "workflow"):
        for path in sorted((ROOT / room).rglob("*.py")):
            if path.stem != "__init__":
                names.append(path.relative_to(ROOT).with_suffix("").as_posix())
    return names


def read_module(module: str) -> str:
    """Return the text of a module as `ast.unparse` sets it; empty if there is no such module."""
    path = ROOT / f"{module}.py"
    return ast.unparse(ast.parse(path.read_bytes())) if path.exists() else ""


# ---- places


def locate(change: Change) -> Change | None:
    """Return a change as the code spells it today; None if it has no place.

    The places, in this order: its function; a function of the same name in another module; in both
    also with other names of variables; and its whole module.
    """
    places = [(change.module, change.function)]
    for module in modules():
        if module != change.module and change.function:
            places.append((module, change.function))
    for module, function in places:
        moved = replace(change, module=module, function=function)
        spelled = spell(moved) or spell_with_other_names(moved)
        if spelled is not None:
            return spelled
    return spell(replace(change, function=""))


def spell(change: Change) -> Change | None:
    """Return a change as `ast.unparse` sets it; None if its function lacks the fragment."""
    before = parse_fragment(change.before)
    wanted = ast.dump(before)
    for part in parts_of(functions_in(change.module).get(change.function)):
        if type(part) is type(before) and ast.dump(part) == wanted:
            after = parse_fragment(change.after)
            return replace(change, before=ast.unparse(before), after=ast.unparse(after))
    return None


def spell_with_other_names(change: Change) -> Change | None:
    """Return a change with the names that variables have today.

    None unless its function has, but for these names, the fragment once.
    """
    before, after = parse_fragment(change.before), parse_fragment(change.after)
    matches = []
    for part in parts_of(functions_in(change.module).get(change.function)):
        names = match_variables(before, part)
        if names is not None:
            matches.append(names)
    if len(matches) != 1:
        return None
    (names,) = matches
    for fragment in (before, after):
        for variable in variables_of(fragment):
            variable.id = names.get(variable.id, variable.id)
    return replace(change, before=ast.unparse(before), after=ast.unparse(after))


def change_module(change: Change, text: str | None = None) -> str:
    """Return the module of a change that was located, or another text of it, with the change."""
    tree = ast.parse(read_module(change.module) if text is None else text)
    before, after = parse_fragment(change.before), parse_fragment(change.after)
    wanted = ast.dump(before)
    for part in parts_of(functions_of(tree)[change.function]):
        if type(part) is type(before) and ast.dump(part) == wanted:
            if isinstance(part, ast.keyword):
                exchange(tree, part.value, after.value)
            else:
                exchange(tree, part, after)
            return ast.unparse(tree)
    raise LookupError(f"there is no {change}")


@cache
def functions_in(module: str) -> dict[str, ast.AST]:
    return functions_of(ast.parse(read_module(module)))


def functions_of(tree: ast.AST, prefix: str = "") -> dict[str, ast.AST]:
    """Return the functions and classes of a module by name, as "RowCache.map", itself as ""."""
    functions = {} if prefix else {"": tree}
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, FUNCTIONS):
            name = f"{prefix}{node.name}"
            functions[name] = node
            functions |= functions_of(node, f"{name}.")
        elif not isinstance(node, ast.expr):
            nested = functions_of(node, prefix)
            nested.pop("", None)
            functions |= nested
    return functions


def parts_of(tree: ast.AST | None) -> Iterator[ast.AST]:
    """Yield the nodes of a syntax tree; a parameter with its default as `name=value`, too."""
    for node in ast.walk(tree) if tree else ():
        yield node
        if isinstance(node, ast.arguments):
            positional = [*node.posonlyargs, *node.args]
            with_default = positional[len(positional) - len(node.defaults) :]
            pairs = [*zip(with_default, node.defaults, strict=True)]
            pairs += zip(node.kwonlyargs, node.kw_defaults, strict=True)
            for parameter, default in pairs:
                if default is not None:
                    yield ast.keyword(parameter.arg, default)


def exchange(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    """Put a node in the place of another one."""
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list):
                setattr(parent, name, [new if child is old else child for child in value])


# ---- fragments


def parse_fragment(text: str) -> ast.AST:
    """Return an expression, a statement, or the `name=value` of a call."""
    if NAMED_VALUE.match(text):
        return ast.parse(f"_({text})", mode="eval").body.keywords[0]
    statement = ast.parse(text).body[0]
    return statement.value if isinstance(statement, ast.Expr) else statement


def match_variables(fragment: ast.AST, node: ast.AST) -> dict[str, str] | None:
    """Return what the variables of a fragment are called in a node, if that is the same otherwise.

    None if it is not.
    """
    if type(fragment) is not type(node) or shape(fragment) != shape(node):
        return None
    names: dict[str, str] = {}
    for before, now in zip(variables_of(fragment), variables_of(node), strict=True):
        if names.setdefault(before.id, now.id) != now.id:
            return None
    return names if len(set(names.values())) == len(names) else None


def shape(node: ast.AST) -> str:
    """Return what a node is, whatever its variables are called."""
    nameless = copy.deepcopy(node)
    for variable in variables_of(nameless):
        variable.id = "_"
    return ast.dump(nameless)


def variables_of(tree: ast.AST) -> list[ast.Name]:
    """Return the names in a syntax tree but those of functions that are called."""
    nodes = list(ast.walk(tree))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return [node for node in nodes if isinstance(node, ast.Name) and id(node) not in called]
