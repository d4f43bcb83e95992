"""`python tests/benchmarks/mutants.py [HOW_MANY] [seed=N] [MODULE...]`: do the tests notice when a number is computed
otherwise?

One operator, comparison, constant, `and` or `or` of a module is changed at a time; the tests of that module alone must
then fail. Prints the mutants that survive, and how many were killed of how many tried: HOW_MANY of each module (5 by
default), drawn with a fixed seed. A process of its own holds the changed module in memory, so that no file is touched,
and ends at the first test that fails; one that takes far longer than the tests do hangs, and is noticed by that.
Survivors that no test can tell from the module as it is stand in ALIKE, with the reason.
"""

import ast
import copy
import importlib
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = {  # module of lib: its own tests
    "score/ablation": ("test_by_hand", "test_ablation", "test_growth"),
    "score/bootstrap": ("test_bootstrap",),
    "score/confidence": ("test_by_hand", "test_signals", "test_estimators"),
    "score/curves": ("test_by_hand", "test_signals", "test_estimators"),
    "score/estimators": ("test_by_hand", "test_estimators"),
    "score/metrics": ("test_metrics",),
    "score/running_example": ("test_by_hand", "test_one_row"),
    "score/passes": ("test_by_hand", "test_signals"),
    "score/proper_scoring": ("test_proper",),
    "score/interpretation": ("test_choices", "test_estimators"),
    "score/selective": ("test_by_hand", "test_selective"),
    "score/tokens": ("test_signals",),
    "calibrate/answer_logits": ("test_by_hand", "test_calibration"),
    "calibrate/calibrators": ("test_by_hand", "test_calibration"),
    "calibrate/diagnostics": ("test_by_hand", "test_experiments", "test_signals"),
    "calibrate/fitting": ("test_by_hand", "test_experiments"),
    "calibrate/calibrator_files": ("test_portable",),
    "calibrate/sample_efficiency": ("test_by_hand", "test_experiments"),
    "calibrate/transfer": ("test_experiments",),
    "generate/bald": ("test_mc_dropout",),
    "generate/sampling": ("test_generation",),
    "generate/mc_dropout": ("test_by_hand", "test_mc_dropout"),
    "generate/p_true": ("test_p_true",),
    "generate/scoring": ("test_by_hand", "test_calibration", "test_scoring"),
    "generate/generation": ("test_generation",),
    "generate/temperatures": ("test_by_hand", "test_generation", "test_calibration"),
    "tasks/answers": ("test_by_hand", "test_answers"),
    "tasks/options": ("test_p_true",),
    "paper/calibration_counting": ("test_findings",),
    "paper/comparison": ("test_findings", "test_extras"),
    "paper/counting": ("test_by_hand", "test_findings"),
    "paper/judging": ("test_by_hand", "test_findings"),
    "paper/rounding": ("test_rounding",),
    "paper/sensitivity": ("test_findings",),
    "paper/signal_counting": ("test_findings",),
    "paper/table": ("test_tables", "test_published"),
    "paper/values": ("test_tables", "test_published", "test_findings"),
}
OF_ROOM = {"score": "test_demo_numbers", "calibrate": "test_demo_numbers", "paper": "test_demo_findings"}  # comes first
# keywords that change no number, but how rows are named and ordered, and what is checked
QUIET = ("ignore_index", "drop", "index", "sort", "strict", "assume_finite", "skip_parameter_validation")
MEMORY = "bounds how much is held at once; the numbers are the same"
ALIKE = {  # (module, changed line): why no test can tell
    ("calibrate/answer_logits", "for position in range(*(span or (1, 0))):"): "no position lies in either",
    ("calibrate/calibrator_files", "text = json.dumps(record(fit), indent=2, sort_keys=True) + '\\n'"): "white space",
    ("generate/bald", "MAX_PROBABILITIES = 2 * 22"): MEMORY,
    ("generate/bald", "MAX_PROBABILITIES = 3 ** 22"): MEMORY,
    ("generate/mc_dropout", "MAX_LOGITS = 2 * 26"): MEMORY,
    ("generate/mc_dropout", "MAX_LOGITS = 3 ** 26"): MEMORY,
    ("generate/sampling", "return torch.full_like(scores, -torch.inf).scatter_(-1, token[:, None], 1.0)"):
        "one finite logit is certain, whatever it is",
    ("generate/p_true", "MARK_CHARACTERS = 5"): "what a longer token is in place is none of the options",
    ("paper/comparison", "expected, *sizes = QUESTIONS.get(here.datasets[name], (None, 0, 1))"):
        "questions of no known source are other questions, however many",
    ("paper/sensitivity", "gone = old.estimator.isin([*names, '']) if {'estimator', 'metric'} < set(old) "
                          "else pd.Series(True, old.index)"): "no frame has these two columns alone",
    ("score/bootstrap", "rng, size = (np.random.default_rng([seed, n]), max(2, BLOCK // n))"): MEMORY,
    ("score/passes", "sizes = [1] if column is None else np.concatenate([row[-1] for row in rows[column]])"):
        "without a column the record holds no number",
    ("score/selective", "kept = ~np.ceil(curve.answered * points - 1.000000001).duplicated(keep='last')"):
        "all shares are one less, and the same ones fall together",
    ("score/selective", "held = bool(binom.cdf(right.sum(), right.size, target) > 0.05)"):
        "no sum of binomial probabilities is this float itself",
    ("score/selective", "last = np.flatnonzero(np.diff(-c[order], append=3.0))"): "any number that no score has",
    ("tasks/answers", "if box < 1:"): "before it stands `####`, so that it is never at 0",
}  # fmt: skip
OTHER = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Pow: ast.Mult,
    ast.Mod: ast.Mult, ast.MatMult: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or,
    ast.Or: ast.And, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.UAdd: ast.USub,
    ast.USub: ast.UAdd, ast.Not: ast.UAdd, ast.Invert: ast.UAdd,
}  # fmt: skip


def mutants(tree: ast.Module) -> Iterator[tuple[int, ast.Module]]:
    """The module with one thing changed, and its line. Annotations, and what only raises or names, stay."""
    skipped = {id(part) for node in ast.walk(tree) for part in untouched(node)}
    for place, node in enumerate(ast.walk(tree)):
        if id(node) in skipped:
            continue
        for change in changes(node):
            new = copy.deepcopy(tree)
            change(list(ast.walk(new))[place])
            yield getattr(node, "lineno", 0), new


def untouched(node: ast.AST) -> list[ast.AST]:
    """Below a node, what changes no number: annotations, decorators, messages, names of rows, checks."""
    roots = [getattr(node, "annotation", None), getattr(node, "returns", None), *getattr(node, "decorator_list", ())]
    roots += [node] if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom) else []
    roots += [node.value] if isinstance(node, ast.keyword) and node.arg in QUIET else []
    return [part for root in roots if root for part in ast.walk(root)]


def changes(node: ast.AST) -> Iterator:
    """What can be changed at a node, as functions of its copy."""
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.UnaryOp | ast.AugAssign) and type(node.op) in OTHER:
        yield lambda other: setattr(other, "op", OTHER[type(other.op)]())
    if isinstance(node, ast.Compare):
        yield lambda other: other.ops.__setitem__(0, OTHER[type(other.ops[0])]())
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield lambda other: setattr(other, "value", not other.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield lambda other: setattr(other, "value", other.value + 1)


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives a module another source."""

    def __init__(self, module: str, path: Path, source: str):
        self.module, self.path, self.source = module, path, source

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.module else None

    def exec_module(self, module):
        exec(compile(self.source, str(self.path), "exec"), vars(module))


def outcome(name: str, source: str, seconds: int = 0, learned: Path | None = None) -> int:
    """How the module's tests end, in a process of their own, with this source in place of its own: 0 if all pass. It is
    killed after some seconds, and leaves the names of the modules that it has `learned`."""
    if child := os.fork():
        return os.waitpid(child, 0)[1]
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1), os.dup2(silent, 2)
    signal.alarm(seconds)
    sys.meta_path.insert(0, Changed(f"lib.{name.replace('/', '.')}", ROOT / f"lib/{name}.py", source))
    of_room = OF_ROOM.get(name.partition("/")[0])
    tests = [f"tests/{test}.py" for test in (of_room, *TESTS[name]) if test]
    code = int(pytest.main(["-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]))
    if learned:
        learned.write_text("\n".join(name for name, module in list(sys.modules.items()) if not ours(module)))
    os._exit(code)


def ours(module: ModuleType) -> bool:
    """Whether a module is of this project, and may import what is changed."""
    file = getattr(module, "__file__", None) or ROOT / "tests"
    return any(Path(file).is_relative_to(ROOT / part) for part in ("lib", "workflow", "tests", "demo"))


def prepare(name: str, text: str) -> int:
    """Import, once for all children, what the tests of a module import of others; the seconds that they may take then.
    Ends everything where they fail as it is."""
    with tempfile.TemporaryDirectory() as folder:
        learned = Path(folder) / "modules"
        if outcome(name, text, 0, learned):
            sys.exit(f"{name}: its tests fail as it is")
        for module in learned.read_text().split("\n"):
            with suppress(Exception):
                importlib.import_module(module)
    began = time.monotonic()
    outcome(name, text)
    return 60 + 5 * round(time.monotonic() - began)


def sample(name: str, text: str, count: int, seed: int) -> tuple[list[tuple[int, str]], int]:
    """The line and the source of some mutants of a module, and how many there are."""
    every = [(line, ast.unparse(ast.fix_missing_locations(new))) for line, new in mutants(ast.parse(text))]
    return sorted(random.Random(f"{seed} {name}").sample(every, min(count, len(every)))), len(every)


def main(words: list[str]) -> None:
    count = next((int(word) for word in words if word.isdigit()), 5)
    seed = next((int(word[5:]) for word in words if word.startswith("seed=")), 0)
    chosen = [word for word in words if word in TESTS] or list(TESTS)
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    killed = tried = 0
    for name in chosen:
        text = (ROOT / f"lib/{name}.py").read_text(encoding="utf-8")
        lines, plain = text.splitlines(), ast.unparse(ast.parse(text)).splitlines()
        began, seconds = time.monotonic(), prepare(name, text)
        some, there = sample(name, text, count, seed)
        alive = alike = 0
        for line, source in some:
            if outcome(name, source, seconds):
                continue
            changed = " ".join(part.strip() for part in source.splitlines() if part not in plain)
            if (name, changed) in ALIKE:
                alike += 1
                continue
            alive += 1
            print(f"  survives: {name}:{line}: {lines[line - 1].strip()} -> {changed}", flush=True)
        here = len(some) - alike
        killed, tried = killed + here - alive, tried + here
        left_out = f" ({alike} more are alike)" if alike else ""
        print(f"{name}: {here - alive} of {here} killed{left_out}, of {there} that there are, "
              f"in {time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
    print(f"{killed} of {tried} killed, {killed / max(tried, 1):.1%}")


if __name__ == "__main__":
    main(sys.argv[1:])
