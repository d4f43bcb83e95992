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
TURKISH = {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"}
ELSEWHERE = TURKISH | {"TZ": "Asia/Kathmandu", "COLUMNS": "40"}
POINTS = ("shards/01_*/*.parquet", "shards/04_*/*.parquet")
PICTURE = r"base64,[A-Za-z0-9+/=]+"
SECONDS = r'(?s)<h2 id="rep_costs">.*?</table>'  # what no two runs share


def test_what_a_user_reads_is_the_same(alone, tmp_path):
    """As of a run on one core that nobody stops, after one on two cores, with everything else
    otherwise, too, called through a link and killed once there is a file at each of the points: no
    shard is made twice, and reports differ in nothing but the shade of pixels. For batches of
    another size move a probability by 1e-7, and a line drawn there by a shade that nobody sees."""
    first = alone[0]
    other = copy_of_project(tmp_path / "a folder, far & away")
    edit(other / "params" / "demo.yaml", **(SMALL | OTHERWISE))
    link = tmp_path / "link"
    link.symlink_to(other)
    shards: dict = {}
    output = ""
    for point in POINTS:
        process = start(link, "demo", "--cores", "2", **ELSEWHERE)
        until(lambda point=point: any(other.glob(f"artifacts/demo/{point}")), 600, process)
        kill(process)
        output += process.communicate(timeout=600)[0]
        for path, written in shards.items():
            if path.exists():
                assert path.stat().st_mtime_ns == written, "a finished shard was made again"
        shards = {}
        for path in other.glob("artifacts/demo/shards/*/*.parquet"):
            shards[path] = path.stat().st_mtime_ns
    output += run(link, "demo", "--cores", "2", **ELSEWHERE)
    rows = sum(map(int, re.findall(r"01_generate \S+ \S+ +shard \d/\d: (\d+) rows", output)))
    # what was said of the first and the last may be lost with their processes
    assert 15 <= rows <= 2 * SMALL["limit"]
    assert "Traceback" not in output
    assert counts(run(other))[0] == 0

    assert tables(first) == tables(other)
    assert len(tables(first)) > 12
    assert text_of_report(first) == text_of_report(other)
    pictures = list_pictures(first)
    assert len(pictures) >= 4
    assert [path.name for path in pictures] == [path.name for path in list_pictures(other)]
    for picture, other_picture in zip(pictures, list_pictures(other), strict=True):
        assert compare_images(str(picture), str(other_picture), tol=0.5) is None


def text_of_report(project):
    """The report without its pictures, of which it has some, and seconds."""
    page = (project / "figures/demo/report.html").read_text("utf-8")
    assert len(re.findall(PICTURE, page)) >= 4
    return re.sub(PICTURE, "", re.sub(SECONDS, "", page))


def list_pictures(project):
    return sorted((project / "figures/demo").glob("*.png"))
