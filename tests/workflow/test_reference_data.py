"""Shipped signals against the list of their checksums: a difference is one line, before anything is read."""

import shutil
import subprocess

import pytest
from small_project import write

from lib.paths import ROOT, UserError
from workflow import reference_data, run

DEMO = "artifacts/shipped/demo"


@pytest.fixture
def folder(inside):
    """Shipped signals of the small project, and their list."""
    place = inside.root / DEMO
    for name in ("generations/tiny__easy.parquet", "generations/tiny__easy.json", "ablation/tiny__easy.parquet"):
        write(place / name, f"what {name} holds")
    reference_data.write_checksums(place)
    reference_data.check_shipped_files("demo")
    return place


@pytest.mark.parametrize("name", ["generations/tiny__easy.json", "ablation/tiny__easy.parquet"])
@pytest.mark.parametrize("damage, what", [
    (lambda path: path.write_text("what"), "differs from the shipped file"),
    (lambda path: path.write_text(""), "differs from the shipped file"),
    (lambda path: path.unlink(), "was shipped and is missing"),
])  # fmt: skip
def test_a_difference_is_named_with_its_cure(folder, name, damage, what):
    damage(folder / name)
    with pytest.raises(UserError) as said:
        reference_data.check_shipped_files("demo")
    assert str(said.value) == f"{DEMO}/{name} {what}: `git checkout -- {DEMO}` restores it"


def test_a_file_more_and_a_damaged_list(folder):
    write(folder / "ablation/other__easy.parquet", "x")
    for content, said in (
        (None, "ablation/other__easy.parquet is not in .*SHA256SUMS: move it away"),
        (b"", "is not in"),
        (b"\xff\n" * 9, "git checkout"),
    ):
        if content is not None:
            (folder / "SHA256SUMS").write_bytes(content)
        with pytest.raises(UserError, match=said):
            reference_data.check_shipped_files("demo")


def test_every_run_asks_first(folder, inside, capsys):
    (folder / "ablation/tiny__easy.parquet").write_text("another")
    for words in (["replay"], ["demo"], ["check", "demo"]):
        assert run.main(words) == 2
        (line,) = "".join(capsys.readouterr()).splitlines()
        assert line.startswith(f"run_all.sh: {DEMO}/ablation/tiny__easy.parquet differs from the shipped")


def test_only_shipped_datasets_are_replayed_and_verified():
    said, three = [], ["demo-easy", "nothing", "demo-hard"]
    shipped = reference_data.shipped_datasets("demo", ["tiny-llama"], three, said.append)
    assert (shipped, said) == (["demo-easy", "demo-hard"], ["nothing: not shipped yet, left out"])
    with pytest.raises(UserError, match="no signals of nobody are shipped in artifacts/shipped/demo/: "):
        reference_data.shipped_datasets("demo", ["nobody"], ["demo-easy"], said.append)


def test_a_pair_that_is_not_finished_is_not_shipped(tmp_path, monkeypatch):
    monkeypatch.setattr(reference_data, "ARTIFACTS", tmp_path)
    with pytest.raises(UserError, match="run '' has no finished pair"):
        reference_data.finished_pairs()
    write(tmp_path / f"mine/{reference_data.REQUIRED[-1]}/tiny__easy.parquet", "")
    assert reference_data.finished_pairs("mine") == ["tiny__easy"]
    assert reference_data.finished_pairs("mine", "tiny__easy") == ["tiny__easy"]
    with pytest.raises(UserError, match="run 'other' has no finished pair"):
        reference_data.finished_pairs("other")
    with pytest.raises(UserError, match="no finished pair 'tiny__esy'; did you mean 'tiny__easy'"):
        reference_data.finished_pairs("mine", "tiny__esy")


@pytest.mark.skipif(not (ROOT / DEMO).exists(), reason="the shipped demo signals are not in this copy")
def test_the_demo_s_own_list_is_of_the_files_that_are_there():
    reference_data.check_shipped_files("demo")
    assert len((ROOT / DEMO / "SHA256SUMS").read_text().splitlines()) > 50
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=ROOT / DEMO, check=True)
