"""The same run under everything that must not matter: cores, batches, shards, folder, link, locale,
time zone, and two kills.

Every step on the disk is tried on the small project, in
tests/blackbox/test_killed_at_every_step.py, and the death of each of a run's processes in
tests/workflow/test_runs.py.
"""

import re

import pytest
from clone import SMALL, copy_of_project, counts, edit, kill, run, start, tables, until
from matplotlib.testing.compare import compare_images

pytestmark = pytest.mark.slow

OTHERWISE = {"rows_per_shard": 5, "max_batch_tokens": 2500, "max_dropout_tokens": 700}
ELSEWHERE = {
    "TZ": "Asia/Kathmandu",
    "LC_ALL": "tr_TR.UTF-8",
    "LANG": "tr_TR.UTF-8",
    "COLUMNS": "40",
}
POINTS = ("shards/01_*/*.parquet", "shards/04_*/*.parquet")
PICTURE = r"base64,[A-Za-z0-9+/=]+"
SECONDS = r'(?s)<h2 id="rep_costs">.*?</table>'  # what no two runs share


def test_what_a_user_reads_is_the_same(alone, tmp_path):
    """As of a run on one core that nobody stops, after one on two cores, with everything else
    otherwise, too, called through a link and killed once there is a file at each of the points: no
    shard is made twice, and reports differ in nothing but the shade of pixels. For batches of
    another size move a probability by 1e-7, and a line drawn there by a shade that nobody sees."""
    there, link = copy_of_project(tmp_path / "a folder, far & away"), tmp_path / "link"
    edit(there / "params" / "demo.yaml", **(SMALL | OTHERWISE))
    link.symlink_to(there)
    before, said = {}, ""
    for point in POINTS:
        process = start(link, "demo", "--cores", "2", **ELSEWHERE)
        until(lambda point=point: any(there.glob(f"artifacts/demo/{point}")), 600, process)
        kill(process)
        said += process.communicate(timeout=600)[0]
        now = {
            path: path.stat().st_mtime_ns
            for path in there.glob("artifacts/demo/shards/*/*.parquet")
        }
        assert all(now.get(path, then) == then for path, then in before.items()), (
            "a finished shard was made again"
        )
        before = now
    said += run(link, "demo", "--cores", "2", **ELSEWHERE)
    made = sum(map(int, re.findall(r"01_generate \S+ \S+ +shard \d/\d: (\d+) rows", said)))
    # what was said of the first and the last may be lost with their processes
    assert 15 <= made <= 2 * SMALL["limit"]
    assert "Traceback" not in said and counts(run(there))[0] == 0

    one, other = tables(alone[0]), tables(there)
    assert one == other and len(one) > 12
    one, other = (
        re.sub(SECONDS, "", (at / "figures/demo/report.html").read_text("utf-8"))
        for at in (alone[0], there)
    )
    assert (
        re.sub(PICTURE, "", one) == re.sub(PICTURE, "", other)
        and len(re.findall(PICTURE, one)) >= 4
    )
    pictures = [sorted((folder / "figures/demo").glob("*.png")) for folder in (alone[0], there)]
    assert [path.name for path in pictures[0]] == [path.name for path in pictures[1]] and len(
        pictures[0]
    ) >= 4
    assert not list(
        filter(
            None, (compare_images(*map(str, pair), tol=0.5) for pair in zip(*pictures, strict=True))
        )
    )
