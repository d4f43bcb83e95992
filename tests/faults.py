"""Ten faults that a reorganization may make: does the net see each, and does it say what changed?

    python tests/faults.py [WORD...]      # all, some minutes; or those whose name holds one of the words

Each is made in a copy of the project, one at a time. The test that is to fail then runs there, and its message must
hold a word. By hand, never in CI: a text that the code holds no more, or twice, is to be looked up anew.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from clone import ENV, repository

CRASHES = "test_killed_at_every_step.py::test_crash_points[sample]"
PUBLISHED = "test_published.py::test_it_is_what_it_was"
REPLAY = "test_goldens.py::test_the_replay_of_what_was_unpacked_from_the_archive"
DEMO = "test_goldens.py::test_a_small_demo"
EMPTY = '{"key": records.record_key(parts), "parts": parts, "outputs": {}, "seconds": 0}'
UNTIMELY = f"records.write_json(ROOT / job.record, {EMPTY})"


class Fault(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    test: str
    word: str


FAULTS = (
    Fault("two methods' labels are swapped", "lib/calibrate/calibrators.py",
          'Method("isotonic", "Isotonic", {"confidence": Isotonic}),\n    "platt": Method("platt", "Platt"',
          'Method("isotonic", "Platt", {"confidence": Isotonic}),\n    "platt": Method("platt", "Isotonic"',
          PUBLISHED, ".tex: "),
    Fault("all of a claim's cases become any", "lib/paper/claims.py",
          '"all": ("every case", lambda count, total: count == total)',
          '"all": ("every case", lambda count, total: count > 0)',
          PUBLISHED, "rep_"),
    Fault("a cell has more digits", "lib/paper/cells.py",
          'form: Callable[[float], str] = "{:.3f}".format) -> pd.Series:\n    return',
          'form: Callable[[float], str] = "{:.5}".format) -> pd.Series:\n    return', REPLAY, ".tex: "),
    Fault("the title below a table is forgotten", "lib/paper/tables.py",
          "columns, spec, results.title", 'columns, spec, ""',
          PUBLISHED, "tab_result_calibration"),
    Fault("a record is written before its outputs", "workflow/notebook.py",
          "    nb = execute(job, scratch, tell)\n", f"    {UNTIMELY}\n    nb = execute(job, scratch, tell)\n",
          CRASHES, "does not exist"),
    Fault("a partial file is left behind", "workflow/locks.py",
          "            path.unlink()\n", "            pass\n", CRASHES, "left "),
    Fault("a manifest's key is renamed", "lib/store.py",
          '"columns": table.column_names', '"names": table.column_names', DEMO, "manifest"),
    Fault("an exit code changes", "workflow/cli.py",
          "        return 2\n", "        return 3\n", "test_transcript.py::test_it_says_the_same[at once]", "= 3"),
    Fault("the last shard is lost", "lib/row_cache.py",
          'sorted(self.folder.glob("*.parquet"))', 'sorted(self.folder.glob("*.parquet"))[:-1]',
          "../files/test_row_cache.py::test_a_killed_run_goes_on_where_it_stopped", "assert"),
    Fault("bins hold their left edge", "lib/score/metrics.py",
          'on_edge, edge - 1, np', 'on_edge, edge, np', REPLAY, ".tex: "),
)  # fmt: skip


def failure(project: Path, fault: Fault) -> str:
    """The first line of a test's message, with the fault, that holds its word; or what came instead."""
    path = project / fault.file
    text = path.read_text("utf-8") if path.exists() else ""
    if (count := text.count(fault.old)) != 1:
        return f"NOT TRIED: {fault.file} holds the text {count} times"
    path.write_text(text.replace(fault.old, fault.new), "utf-8")
    words = ["-q", "-x", "-n", "0", "--all", "-p", "no:cacheprovider", f"tests/blackbox/{fault.test}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=project,
        capture_output=True,
        text=True,
        env=ENV | {"PYTHONPATH": str(project)},
    )
    path.write_text(text, "utf-8")
    said = [line[1:].strip() for line in done.stdout.splitlines() if line.startswith("E ")]
    if done.returncode != 1 or not said:
        return f"NOT SEEN: pytest ended with {done.returncode}"
    return next((line[:160] for line in said if fault.word in line), f"NOT SAID: {said[0][:160]}")


if __name__ == "__main__":
    chosen = [fault for fault in FAULTS if not sys.argv[1:] or any(word in fault.name for word in sys.argv[1:])]
    unseen = 0
    with tempfile.TemporaryDirectory() as scratch:
        project_ = repository(Path(scratch) / "a project")
        for one in chosen:
            line_ = failure(project_, one)
            unseen += line_.startswith("NOT ")
            print(f"{one.name:40} {one.test:70} {line_}", flush=True)
    sys.exit(f"{unseen} of {len(chosen)} are not seen" if unseen else 0)
