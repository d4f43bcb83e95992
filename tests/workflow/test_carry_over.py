"""A run of the version before is carried over whole, though the command is killed on the way."""

import shutil
from pathlib import Path

import pytest
from small_project import ROOT

from lib import params
from workflow import carry_over, fingerprint, reference_data

ARCHIVE = Path(__file__).resolve().parents[1] / "blackbox" / "earlier.tar.xz"
RUN = "earlier"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A project with the files of the version before, one of whose frames was set aside."""
    shutil.unpack_archive(ARCHIVE, tmp_path, filter="data")
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    run = tmp_path / "artifacts" / RUN
    record = run / "jobs/01_generate__tiny-llama__demo-easy.json"
    aside = run / "stale" / carry_over.read_json(record)["key"] / "artifacts" / RUN / "jobs"
    aside.mkdir(parents=True)
    shutil.copy(record, aside)
    for module in (carry_over, fingerprint, reference_data):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(carry_over, "ARTIFACTS", tmp_path / "artifacts")
    monkeypatch.setattr(params, "PARAMS", ROOT / "params")
    return tmp_path


def texts(root):
    """Every file of the run but its frames, by its path."""
    paths = (root / "artifacts" / RUN).rglob("*.json")
    return {path.relative_to(root).as_posix(): path.read_text() for path in paths}


def test_a_killed_command_is_gone_on_with_at_every_step(root, monkeypatch):
    write, steps, before = carry_over.write_json, [], texts(root)
    copy = shutil.copytree(root, root.with_name("copy"), symlinks=True)

    def carried(last: int) -> int:
        """The command, killed when it is about to write for the last time."""

        def written(path, content):
            steps.append(path)
            if len(steps) == last:
                raise KeyboardInterrupt
            write(path, content)

        steps.clear()
        monkeypatch.setattr(carry_over, "write_json", written)
        return carry_over.main([RUN])

    assert carried(last=-1) == 0
    whole, number = texts(root), len(steps)
    assert number > 10 and {name for name in before.keys() - whole.keys() if "/stale/" in name}
    assert [any('"parameter keep_texts"' in text for text in found.values()) for found in (before, whole)] == [1, 0]
    for step in range(1, number + 1):
        shutil.rmtree(root)
        shutil.copytree(copy, root, symlinks=True)
        with pytest.raises(KeyboardInterrupt):
            carried(step)
        assert carried(last=-1) == 0 and texts(root) == whole, step
