"""Shipped signals against the list of their checksums: a difference is one line, before anything is
read."""

import pytest
from small_project import write

from lib.files import sha256
from workflow import run, run_plan

DEMO = "artifacts/shipped/demo"


@pytest.mark.parametrize("name", ["ablation/tiny__easy.parquet", run_plan.LIST])
def test_a_difference_is_named_with_its_cure_before_any_run(inside, capsys, name):
    place = inside.root / DEMO
    for part in ("generations/tiny__easy.parquet", "ablation/tiny__easy.parquet"):
        write(place / part, f"what {part} holds")
    lines = ""
    for path in place.glob("*/*"):
        lines += f"{sha256(path)}  {path.relative_to(place)}\n"
    (place / run_plan.LIST).write_text(lines)
    run_plan.check_shipped_files("demo")
    (place / name).write_bytes(b"\xff\n" * 9)
    for words in (["replay"], ["demo"], ["check", "demo"]):
        assert run.main(words) == 2
        (line,) = "".join(capsys.readouterr()).splitlines()
        assert line.startswith(f"run_all.sh: {DEMO}/")
        assert f"`git checkout -- {DEMO}` restores" in line


def test_the_papers_own_numbers_are_of_no_model_and_keep_every_other_parameter():
    named = {"models": ["a"], "main_figure_model": "a", "transfer_datasets": ["d"]}
    others = {"bins": 10, "title": "T", "calibration_sizes": [5]}
    emptied = {"models": [], "main_figure_model": "", "transfer_datasets": []}
    assert run_plan.without_names(named | others) == emptied | others
