"""Ten faults that a reorganization may make: does the net see each, and does it say what changed?

    python tests/faults.py [WORD...]  # all, some minutes; or those whose name holds a word

Each is made in a copy of the project, one at a time. The test that is to fail then runs there, and
its message must hold a word. By hand, never in CI: a fragment that the code holds no more is to be
looked up anew (`fragments.py` says what a fragment is).
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import fragments
from fragments import Change
from mutants import copy_beside_shared, run_tests

PUBLISHED = "blackbox/test_published.py::test_it_is_what_it_was"
REPLAYED = "blackbox/test_goldens.py::test_the_replay_of_what_was_unpacked_from_the_archive"
SMALL_DEMO = "blackbox/test_goldens.py::test_a_small_demo"
KILLED_WHILE_SAMPLING = "blackbox/test_killed_at_every_step.py::test_crash_points[sample]"
TRANSCRIPT = "blackbox/test_transcript.py::test_it_says_the_same[False]"
ROW_CACHE = "files/test_row_cache.py::test_a_killed_run_goes_on_where_it_stopped"


@dataclass(frozen=True)
class Fault:
    """Changes of a module's function, the test that is to fail, and a word of its message."""

    name: str
    module: str
    function: str
    changes: dict[str, str]  # fragments before and after
    test: str
    word: str


FAULTS = [
    Fault(
        "two methods' labels are swapped",
        module="lib/calibrate/calibrators",
        function="",
        changes={
            "Method('isotonic', 'Isotonic', {'confidence': Isotonic})":
                "Method('isotonic', 'Platt', {'confidence': Isotonic})",
            "Method('platt', 'Platt', {'answers': Temperature, 'margin': Platt})":
                "Method('platt', 'Isotonic', {'answers': Temperature, 'margin': Platt})",
        },
        test=PUBLISHED,
        word=".tex: ",
    ),
    Fault(
        "all of a claim's cases become any",
        module="lib/paper/claims",
        function="",
        changes={
            "('every case', lambda count, total: count == total)":
                "('every case', lambda count, total: count > 0)",
        },
        test=PUBLISHED,
        word="rep_",
    ),
    Fault(
        "a cell has more digits",
        module="lib/paper/cells",
        function="format_values",
        changes={"form='{:.3f}'.format": "form='{:.5}'.format"},
        test=REPLAYED,
        word=".tex: ",
    ),
    Fault(
        "the title below a table is forgotten",
        module="lib/paper/tables",
        function="result_calibration",
        changes={"results.title": "''"},
        test=PUBLISHED,
        word="tab_result_calibration",
    ),
    Fault(
        "a record is written before its outputs",
        module="workflow/engine/job_process",
        function="make_outputs",
        changes={
            "notebook.execute(job, parts, scratch, tell)":
                "job_key.write_record(job, parts, []) "
                "or notebook.execute(job, parts, scratch, tell)",
        },
        test=KILLED_WHILE_SAMPLING,
        word="without writing",
    ),
    Fault(
        "a partial file is left behind",
        module="workflow/machine",
        function="remove_partial_files",
        changes={"path.unlink()": "path.exists()"},
        test=KILLED_WHILE_SAMPLING,
        word="left ",
    ),
    Fault(
        "a manifest's key is renamed",
        module="lib/store",
        function="write_frame",
        changes={"'columns'": "'names'"},
        test=SMALL_DEMO,
        word="manifest",
    ),
    Fault(
        "an exit code changes",
        module="workflow/cli",
        function="main",
        changes={"return 2": "return 3"},
        test=TRANSCRIPT,
        word="= 3",
    ),
    Fault(
        "the last shard is lost",
        module="lib/row_cache",
        function="RowCache.read_shards",
        changes={
            "sorted(self.folder.glob('*.parquet'))": "sorted(self.folder.glob('*.parquet'))[:-1]"
        },
        test=ROW_CACHE,
        word="assert",
    ),
    Fault(
        "bins hold their left edge",
        module="lib/score/reliability",
        function="bin_index",
        changes={"edge - 1": "edge"},
        test=REPLAYED,
        word=".tex: ",
    ),
]  # fmt: skip


def make_fault(fault: Fault) -> tuple[str, str]:
    """Return the module of a fault and its text with the fault. Raise LookupError if the code
    lacks a fragment."""
    module, text = fault.module, None
    for before, after in fault.changes.items():
        change = Change(fault.module, fault.function, before, after)
        located = fragments.locate(change)
        if located is None:
            raise LookupError(f"the code has no longer {change}")
        module, text = located.module, fragments.change_module(located, text)
    return module, text


def describe_failure(project: Path, fault: Fault) -> str:
    """Return the first line of a test's message, with the fault, that holds its word; or what came
    instead."""
    try:
        module, text = make_fault(fault)
    except LookupError as problem:
        return f"NOT TRIED: {problem}"
    done = run_tests(project / f"{module}.py", text, project, "--all", f"tests/{fault.test}")
    messages = [line[1:].strip() for line in done.stdout.splitlines() if line.startswith("E ")]
    for message in messages:
        if fault.word in message:
            return message[:160]
    return f"NOT SEEN: {done.returncode} {messages[:1]}"


def main(words: list[str]) -> int:
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        project = copy_beside_shared(Path(scratch) / "a project")
        for fault in FAULTS:
            if not words or any(word in fault.name for word in words):
                failure = describe_failure(project, fault)
                print(f"{fault.name:40} {fault.test:80} {failure}", flush=True)
                failed = failed or failure.startswith("NOT ")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
