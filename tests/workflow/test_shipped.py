"""Shipped signals against the list of their checksums: a difference is one line, before anything is read."""

import pytest
from small_project import write

from lib.files import sha256
from lib.paths import UserError
from workflow import plan, run

DEMO = "artifacts/shipped/demo"


@pytest.fixture
def folder(inside):
    """Shipped signals of the small project, and their list."""
    place = inside.root / DEMO
    for name in ("generations/tiny__easy.parquet", "generations/tiny__easy.json", "ablation/tiny__easy.parquet"):
        write(place / name, f"what {name} holds")
    lines = [f"{sha256(path)}  {path.relative_to(place)}\n" for path in place.glob("*/*")]
    (place / plan.LIST).write_text("".join(lines))
    plan.check_shipped_files("demo")
    return place


def test_a_difference_is_named_with_its_cure(folder):
    list_ = folder / "SHA256SUMS"

    def refused(line: str) -> None:
        with pytest.raises(UserError, match=line):
            plan.check_shipped_files("demo")

    (folder / "ablation/tiny__easy.parquet").unlink()
    refused(f"tiny__easy.parquet is not as SHA256SUMS lists it: `git checkout -- {DEMO}` restores")
    list_.write_bytes(b"\xff\n" * 9)
    refused("git checkout")


def test_every_run_asks_first(folder, inside, capsys):
    (folder / "ablation/tiny__easy.parquet").write_text("another")
    for words in (["replay"], ["demo"], ["check", "demo"]):
        assert run.main(words) == 2
        (line,) = "".join(capsys.readouterr()).splitlines()
        assert line.startswith(f"run_all.sh: {DEMO}/ablation/tiny__easy.parquet is not as SHA256SUMS lists it")


def test_what_is_not_shipped_is_neither_replayed_nor_verified(inside, capsys):
    for words in (["replay"], ["verify"]):
        assert run.main(words) == 2
        said = "artifacts/shipped/demo/generations/tiny__easy.parquet is not shipped: ./run_all.sh demo computes it"
        assert capsys.readouterr().err == f"run_all.sh: {said}\n"
