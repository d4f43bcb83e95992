"""GGUF files on their way to a checkpoint: where they are had from, what is refused, and that it is done once."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import errors
from small_project import ROOT, write

sys.path.insert(0, str(ROOT / "tests"))

import tiny_gguf

from lib import params
from lib.generate import gguf_file
from lib.paths import UserError
from workflow import weights

SPEC = """
    label: Small
    source: someone/small-GGUF
    gguf: small.gguf
    sha256: {sha256}
"""


@pytest.fixture
def here(inside, monkeypatch):
    """The small project with a model that is a GGUF file, which lies in models/; no hub is reached."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    file = tiny_gguf.write(inside.root.parent / "small.gguf", tiny_gguf.random_weights())
    served = inside.root / "models" / "small.gguf"
    served.parent.mkdir()
    served.write_bytes(file.read_bytes())
    sha256, said = tiny_gguf.sha256(file), []
    write(inside.root / "params/models/small.yaml", SPEC.format(sha256=sha256))
    return SimpleNamespace(
        project=inside,
        file=file,
        served=served,
        sha256=sha256,
        models=inside.root / "artifacts/.models",
        said=said,
        spec=lambda **changed: params.load_model_config("small").model_copy(update=changed),
        obtain=lambda spec: weights.obtain_file("small", spec, said.append),
    )


def kept(models: Path) -> set[str]:
    """Everything below artifacts/.models but locks."""
    return {path.relative_to(models).as_posix() for path in models.rglob("*") if not path.name.endswith(".lock")}


# ---- from a file to a checkpoint ----------------------------------------------------------------------------


def test_from_a_file_to_a_checkpoint_once(here):
    """By one of two starts, though a conversion was killed before; the next does nothing."""
    place = here.models / here.sha256
    write(gguf_file.partial_folder_of(place) / "config.json", "{")
    with ThreadPoolExecutor(2) as starts:
        list(starts.map(lambda _: weights.fetch(["small"], here.said.append), range(2)))
    (converting,) = (line for line in here.said if line.startswith("converting small ("))
    assert here.sha256[:12] in converting and not any("fetching" in line for line in here.said)
    assert {name.split("/")[0] for name in kept(here.models)} == {here.sha256}, "nothing of the way there is left"
    names = {path.name for path in place.iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= names
    assert str(here.project.root) not in (place / "config.json").read_text()
    here.served.unlink()
    here.said.clear()
    weights.fetch(["small"], here.said.append)
    assert not here.said


# ---- where it is had from ----------------------------------------------------------------------------------


class Hub:
    """A hub that has the file, its size and (as `said`) its checksum."""

    def __init__(self, monkeypatch, file, said=None, error=None):
        self.file, self.said, self.error, self.asked = file, said or tiny_gguf.sha256(file), error, []
        self.cache = file.parent / "hub"
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

    def hf_hub_download(self, source, name, revision=None):
        self.cache.mkdir()
        path = self.cache / name
        path.write_bytes(self.file.read_bytes())
        return str(path)


def test_it_is_fetched_from_the_hub(here, monkeypatch):
    here.served.unlink()
    asked = Hub(monkeypatch, here.file)
    file = here.obtain(here.spec(revision="abc"))
    assert file.read_bytes() == here.file.read_bytes() and asked.asked == [("someone/small-GGUF", "small.gguf", "abc")]
    (line,) = here.said
    assert line.startswith("fetching small: ") and line.endswith(" GB from someone/small-GGUF")


@pytest.mark.parametrize("case", ["out of reach", "other bytes", "no such file"])
def test_where_the_hub_has_it_not(here, monkeypatch, case):
    here.served.unlink()
    error = errors.OfflineModeIsEnabled("offline") if case == "out of reach" else None
    Hub(monkeypatch, here.file, said="f" * 64 if case == "other bytes" else None, error=error)
    name = "smaller.gguf" if case == "no such file" else "small.gguf"
    would_serve = rf"; or put it at models/small.gguf \(sha256 {here.sha256}\)$"
    expected = {
        "out of reach": f"the hub can't be reached.*{would_serve}",
        "other bytes": f"has sha256 {'f' * 64}, expected",
        "no such file": "has no file 'smaller.gguf' on the hub",
    }[case]
    with pytest.raises(UserError, match=expected):
        here.obtain(here.spec(gguf=name))
    assert not here.said and kept(here.models) == set()


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


@pytest.mark.parametrize("place", ["hub", "folder"])
def test_a_full_disk_is_said_before(here, monkeypatch, place):
    if place == "hub":
        here.served.unlink()
    Hub(monkeypatch, here.file)
    monkeypatch.setattr(weights.hub, "free_bytes", lambda place: 1000)
    with pytest.raises(UserError, match="^the conversion of small.gguf needs .* GB: the disk .* has 0.0 GB free"):
        here.obtain(here.spec())
    assert kept(here.models) == set() and not here.said


@pytest.mark.slow
def test_a_conversion_that_fails_says_why_in_one_line(here, monkeypatch):
    other = tiny_gguf.write(here.file.with_name("other.gguf"), tiny_gguf.random_weights(), architecture="nothing-known")
    with (
        weights.locked(here.spec(), print) as lock,
        pytest.raises(UserError, match="^other.gguf can't be converted: [^\n]*nothing-known[^\n]*$"),
    ):
        weights.convert("small", here.spec(), other, lock, here.said.append)
    killed = SimpleNamespace(returncode=-9, stderr="")
    monkeypatch.setattr(weights.subprocess, "run", lambda *_, **__: killed)
    with pytest.raises(UserError, match="was killed by signal 9, most likely for lack of memory"):
        weights.convert("small", here.spec(), here.file, SimpleNamespace(fileno=lambda: 1), here.said.append)


# ---- check, and what hangs on it ---------------------------------------------------------------------------


def said(spec) -> list[str]:
    return [f"{level} {text}" for level, text in weights.describe_weights(spec)]


def test_what_check_says(here, monkeypatch):
    Hub(monkeypatch, here.file)
    monkeypatch.setattr(weights.hub, "free_bytes", lambda place: 50e9)
    assert (
        said(here.spec())[0].startswith("note small.gguf of someone/small-GGUF, ")
        and " on the hub" not in said(here.spec())[0]
    )
    here.served.unlink()
    (line,) = said(here.spec())
    assert line.startswith("note small.gguf of someone/small-GGUF, ")
    assert " GB on the hub, is not converted yet" in line
    monkeypatch.setattr(weights.hub, "free_bytes", lambda place: 1000)
    assert said(here.spec())[1].startswith("wrong the conversion of small.gguf needs")
    Hub(monkeypatch, here.file, error=errors.OfflineModeIsEnabled("offline"))
    with pytest.raises(UserError, match="can't be reached.*or put it at"):
        said(here.spec())
    here.spec().place.mkdir(parents=True)
    assert said(here.spec()) == [f"ok small.gguf is converted, in artifacts/.models/{here.sha256[:12]}.../"]
    assert not here.said, "nothing was fetched"
