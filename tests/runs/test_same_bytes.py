"""The same run under everything that must not matter: cores, batches, shards, folder, link, locale, time zone, and two
kills.

Every step on the disk is tried on the small project, in tests/blackbox/test_killed_at_every_step.py, and the death of
each of a run's processes in tests/workflow/test_runs.py.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from clone import SMALL, copy_of_project, counts, edit, kill, run, start, tables, wait_for
from PIL import Image

pytestmark = pytest.mark.slow

OTHERWISE = {"rows_per_shard": 5, "max_batch_tokens": 2500, "max_dropout_tokens": 700}
ELSEWHERE = {"TZ": "Asia/Kathmandu", "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "COLUMNS": "40"}
WORDS = ("demo", "--cores", "2")
POINTS = ("shards/01_*/*.parquet", "shards/04_*/*.parquet")
LEFT = (".*.partial", ".*.json.[0-9]*")
PICTURE = r"base64,[A-Za-z0-9+/=]+"
SECONDS = r'(?s)<h2 id="rep_costs">.*?</table>'  # what no two runs share
SHADES = 12  # of 255


def killed(folder: Path, point: str) -> str:
    """Starts a run, and kills all its processes once there is a file; what the run said."""
    process = start(folder, *WORDS, **ELSEWHERE)
    wait_for(process, lambda: any((folder / "artifacts/demo").glob(point)), 600)
    kill(process)
    said = process.communicate(timeout=600)[0]
    assert "Traceback" not in said, said
    return said


@pytest.fixture(scope="module")
def otherwise(tmp_path_factory):
    """A run on two cores, called through a link and killed at each of the points, with everything else otherwise, too;
    and what it said."""
    there = copy_of_project(tmp_path_factory.mktemp("two") / "a folder, far & away")
    edit(there / "params" / "demo.yaml", **(SMALL | OTHERWISE))
    link = there.parent / "link"
    link.symlink_to(there)
    before, said = {}, ""
    for point in POINTS:
        said += killed(link, point)
        now = {path: path.stat().st_mtime_ns for path in there.glob("artifacts/demo/shards/*/*.parquet")}
        assert all(now.get(path, then) == then for path, then in before.items()), "a finished shard was made again"
        before = now
    return there, said + run(link, *WORDS, **ELSEWHERE)


@pytest.fixture
def both(alone, otherwise):
    """The folders of a run on one core that nobody stops, and of the other."""
    return alone[0], otherwise[0]


def test_no_shard_is_made_twice_and_nothing_half_written_is_left(otherwise):
    there, said = otherwise
    made = sum(map(int, re.findall(r"01_generate \S+ \S+ +shard \d/\d: (\d+) rows", said)))
    assert 15 <= made <= 2 * SMALL["limit"]  # what was said of the first and the last may be lost with their processes
    assert not [path for name in LEFT for part in ("artifacts", "figures") for path in (there / part).rglob(name)]
    assert counts(run(there))[0] == 0


def test_tables_are_the_same_bytes(both):
    one, other = map(tables, both)
    assert one == other and len(one) > 12


def test_reports_differ_in_nothing_but_the_shade_of_pixels(both):
    """Batches of another size move a probability by 1e-7, and a line drawn there by a shade that nobody sees."""
    one, other = (re.sub(SECONDS, "", (folder / "figures/demo/report.html").read_text("utf-8")) for folder in both)
    assert re.sub(PICTURE, "", one) == re.sub(PICTURE, "", other) and len(re.findall(PICTURE, one)) >= 4
    pictures = [[p for p in sorted((folder / "figures/demo").iterdir()) if p.suffix == ".png"] for folder in both]
    assert [p.name for p in pictures[0]] == [p.name for p in pictures[1]] and len(pictures[0]) >= 4
    for pair in zip(*pictures, strict=True):
        first, second = (np.asarray(Image.open(path).convert("RGB"), dtype=int) for path in pair)
        assert first.shape == second.shape and np.abs(first - second).max() <= SHADES, pair[0].name
