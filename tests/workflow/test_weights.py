"""GGUF files on their way to a checkpoint: where they are had from, what is refused, and that it is done once."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import huggingface_hub
import pytest
import test_hub
import tiny_gguf
from huggingface_hub import errors
from small_project import ROOT, write

from lib import params
from lib.generate import gguf_file
from lib.paths import UserError
from workflow import weights


@pytest.fixture
def here(inside, monkeypatch):
    """The small project with a model that is a GGUF file, which lies in models/; no hub is reached."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    file = tiny_gguf.write(inside.root.parent / "small.gguf", tiny_gguf.weights_of(tiny_gguf.network()))
    served, models = inside.root / "models" / "small.gguf", inside.root / "artifacts/.models"
    served.parent.mkdir()
    shutil.copy(file, served)
    sha256, said = tiny_gguf.sha256(file), []
    text = f"label: Small\nsource: someone/small-GGUF\ngguf: small.gguf\nsha256: {sha256}\n"
    write(inside.root / "params/models/small.yaml", text)

    def obtain(**changed):
        spec = params.load_model_config("small").model_copy(update=changed)
        return weights.obtain_file("small", spec, said.append)

    def kept() -> set[str]:
        return {path.name for path in models.glob("*") if not path.name.endswith(".lock")}

    facts = dict(file=file, served=served, sha256=sha256, place=models / sha256, kept=kept, said=said, obtain=obtain)
    return SimpleNamespace(project=inside, **facts)


def test_from_a_file_to_a_checkpoint_once(here):
    """By one of two starts, though a conversion was killed before; the next does nothing."""
    write(gguf_file.partial_folder_of(here.place) / "config.json", "{")
    with ThreadPoolExecutor(2) as starts:
        list(starts.map(lambda _: weights.fetch(["small"], here.said.append), range(2)))
    assert all(line.startswith("converting small (") and here.sha256[:12] in line for line in here.said)
    assert here.kept() == {here.sha256}, "nothing of the way there is left"
    texts = [path.read_text() for path in here.place.iterdir() if path.suffix != ".safetensors"]
    assert not any(place in text for text in texts for place in (str(here.project.root), str(ROOT), "/tmp"))
    here.served.unlink()
    here.said.clear()
    weights.fetch(["small"], here.said.append)
    assert not here.said


class Hub(test_hub.Hub):
    """A hub that has the file, its size and (as `said`) its checksum."""

    def __init__(self, monkeypatch, file, said="", error=None):
        super().__init__(monkeypatch, error)
        self.file, self.said = file, said or tiny_gguf.sha256(file)
        monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda source, name, revision=None: str(self.file))

    def get_paths_info(self, source, paths, revision=None):
        self.asked.append((source, *paths, revision))
        lfs = SimpleNamespace(sha256=self.said)
        return [SimpleNamespace(size=self.file.stat().st_size, lfs=lfs)] if paths == ["small.gguf"] else []


def test_it_is_fetched_from_the_hub(here, monkeypatch):
    here.served.unlink()
    hub = Hub(monkeypatch, here.file)
    assert here.obtain(revision="abc") == here.file
    assert hub.asked[1:] == [("someone/small-GGUF", "small.gguf", "abc")]
    (line,) = here.said
    assert line.startswith("fetching small: ") and line.endswith(" GB from someone/small-GGUF")


@pytest.mark.parametrize(
    "changed, answer, line",
    [
        (
            {},
            {"error": errors.OfflineModeIsEnabled("x")},
            r"can't be reached.*; or put it at models/small.gguf \(sha256 SUM\)$",
        ),
        ({}, {"said": "f" * 64}, f"of sha256 {'f' * 64}; or put it at .*SUM\\)$"),
        ({"gguf": "smaller.gguf"}, {}, "has no file 'smaller.gguf' on the hub"),
    ],
)
def test_where_the_hub_has_it_not(here, monkeypatch, changed, answer, line):
    here.served.unlink()
    Hub(monkeypatch, here.file, **answer)
    with pytest.raises(UserError, match=line.replace("SUM", here.sha256)):
        here.obtain(**changed)
    assert not here.said and not here.kept()


def test_a_folder_that_holds_the_file(here, monkeypatch):
    Hub(monkeypatch, here.file, error=RuntimeError("asked"))
    folder = str(here.file.parent)
    assert here.obtain(source=folder) == here.file and not here.kept()
    with pytest.raises(UserError, match="no file smal.gguf in .*; did you mean 'small.gguf'"):
        here.obtain(source=folder, gguf="smal.gguf")
    here.file.write_bytes(b"other bytes")
    with pytest.raises(UserError, match=f"expected {here.sha256}"):
        here.obtain(source=folder)


def test_a_full_disk_is_said_before(here, monkeypatch):
    monkeypatch.setattr(weights.hub, "free_bytes", lambda place: 1000)
    with pytest.raises(UserError, match="^the conversion of small.gguf needs .* GB: the disk .* has 0.0 GB free"):
        here.obtain()


def test_a_conversion_that_is_killed_says_so(here, monkeypatch):
    monkeypatch.setattr(weights.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=-9))
    with pytest.raises(UserError, match="was killed by signal 9, most likely for lack of memory"):
        weights.fetch(["small"], print)


def test_what_check_says(here, monkeypatch):
    def said() -> list[str]:
        return [" ".join(line) for line in weights.describe_weights(params.load_model_config("small"))]

    Hub(monkeypatch, here.file)
    here.served.unlink()
    monkeypatch.setattr(weights.hub, "free_bytes", lambda place: 1000)
    found, room = said()
    assert found.startswith("note small.gguf of someone/small-GGUF, ")
    assert " GB on the hub, is not converted yet" in found
    assert room.startswith("wrong the conversion of small.gguf needs")
    here.place.mkdir(parents=True)
    assert said() == [f"ok small.gguf is converted, in artifacts/.models/{here.sha256[:12]}.../"]
