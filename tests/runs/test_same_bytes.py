"""The same run under everything that must not matter: cores, batches, shards, folder, link, locale, time zone, and two
kills.

Every step on the disk is tried on the small project, in tests/blackbox/test_killed_at_every_step.py, and the death of
each of a run's processes in tests/workflow/test_runs.py.
"""

import re

import pytest
from clone import SMALL, copy_of_project, counts, edit, kill, run, start, tables, wait_for
from matplotlib.testing.compare import compare_images

pytestmark = pytest.mark.slow

OTHERWISE = {"rows_per_shard": 5, "max_batch_tokens": 2500, "max_dropout_tokens": 700}
ELSEWHERE = {"TZ": "Asia/Kathmandu", "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "COLUMNS": "40"}
POINTS = ("shards/01_*/*.parquet", "shards/04_*/*.parquet")
LEFT = (".*.partial", ".*.json.[0-9]*")
PICTURE = r"base64,[A-Za-z0-9+/=]+"
SECONDS = r'(?s)<h2 id="rep_costs">.*?</table>'  # what no two runs share


@pytest.fixture(scope="module")
def otherwise(tmp_path_factory):
    """A run on two cores, called through a link and all of it killed once there is a file at each of the points, with
    everything else otherwise, too; and what it said."""
    there = copy_of_project(tmp_path_factory.mktemp("two") / "a folder, far & away")
    edit(there / "params" / "demo.yaml", **(SMALL | OTHERWISE))
    link, folder = there.parent / "link", there / "artifacts/demo"
    link.symlink_to(there)
    before, said = {}, ""
    for point in POINTS:
        process = start(link, "demo", "--cores", "2", **ELSEWHERE)
        wait_for(process, lambda point=point: any(folder.glob(point)), 600)
        kill(process)
        said += process.communicate(timeout=600)[0]
        now = {path: path.stat().st_mtime_ns for path in folder.glob("shards/*/*.parquet")}
        assert all(now.get(path, then) == then for path, then in before.items()), "a finished shard was made again"
        before = now
    return there, said + run(link, "demo", "--cores", "2", **ELSEWHERE)


def test_no_shard_is_made_twice_and_nothing_half_written_is_left(otherwise):
    there, said = otherwise
    made = sum(map(int, re.findall(r"01_generate \S+ \S+ +shard \d/\d: (\d+) rows", said)))
    assert 15 <= made <= 2 * SMALL["limit"]  # what was said of the first and the last may be lost with their processes
    assert "Traceback" not in said and counts(run(there))[0] == 0
    assert not [path for name in LEFT for part in ("artifacts", "figures") for path in (there / part).rglob(name)]


def test_tables_are_the_same_bytes_and_reports_differ_in_nothing_but_the_shade_of_pixels(alone, otherwise):
    """Batches of another size move a probability by 1e-7, and a line drawn there by a shade that nobody sees."""
    folders = alone[0], otherwise[0]
    one, other = map(tables, folders)
    assert one == other and len(one) > 12
    one, other = (re.sub(SECONDS, "", (folder / "figures/demo/report.html").read_text("utf-8")) for folder in folders)
    assert re.sub(PICTURE, "", one) == re.sub(PICTURE, "", other) and len(re.findall(PICTURE, one)) >= 4
    pictures = [sorted((folder / "figures/demo").glob("*.png")) for folder in folders]
    assert [path.name for path in pictures[0]] == [path.name for path in pictures[1]] and len(pictures[0]) >= 4
    assert not list(filter(None, (compare_images(*map(str, pair), tol=0.5) for pair in zip(*pictures, strict=True))))
