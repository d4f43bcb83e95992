"""GGUF files on their way to the jobs: where they are had from, what is refused, and what `check` reads of them."""

import shutil
from types import SimpleNamespace

import huggingface_hub
import pytest
import test_hub
import tiny_gguf
from huggingface_hub import errors
from small_project import write

from lib import params
from lib.generate import models
from lib.paths import UserError
from workflow import model_checks, weights
from workflow.pipeline import Run


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


def test_a_verified_file_is_linked_for_the_jobs(here):
    """At each start; and no file of other bytes, though one was verified there before."""
    for _ in range(2):
        weights.fetch(["small"], here.said.append)
    link = here.place / "small.gguf"
    assert not here.said and here.kept() == {here.sha256} and [*here.place.iterdir()] == [link]
    assert link.samefile(here.served) and tiny_gguf.sha256(link) == here.sha256
    write(here.served, "other bytes")
    with pytest.raises(UserError, match=f"expected {here.sha256}: it is not used"):
        weights.fetch(["small"], here.said.append)


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
    here.served.unlink()
    Hub(monkeypatch, here.file)
    monkeypatch.setattr(weights.hub, "free_bytes", lambda place: 1000)
    with pytest.raises(UserError, match="^the download of weights needs .* GB: the disk .* has 0.0 GB free"):
        here.obtain()


def lines(spec) -> list[str]:
    return [" ".join(line) for line in weights.describe_weights(spec)]


def test_what_check_says(here, monkeypatch):
    Hub(monkeypatch, here.file)
    spec = params.load_model_config("small")
    assert not weights.is_elsewhere(spec)
    (found,) = lines(spec)
    assert found.startswith("ok small.gguf of someone/small-GGUF, ") and "of the right sha256" in found
    folder, named = model_checks.find_config(spec)
    assert models.is_small(models.outline_network(models.read_config(folder, **named)))
    here.served.unlink()
    monkeypatch.setattr(weights.hub, "free_bytes", lambda place: 1000)
    assert weights.is_elsewhere(spec)
    found, room = lines(spec)
    assert (
        found.startswith("note small.gguf of someone/small-GGUF, ") and " GB on the hub, is yet to be fetched" in found
    )
    assert "are looked at after that, before the first job" in found
    assert room.startswith("wrong the download of weights needs")


def check_here(here, **told) -> list[str]:
    """The lines of `check` that are wrong of the model, whose file is written anew."""
    here.served.unlink()
    tiny_gguf.write(here.served, tiny_gguf.weights_of(tiny_gguf.network()), **told)
    sha256 = tiny_gguf.sha256(here.served)
    text = f"label: Small\nsource: someone/small-GGUF\ngguf: small.gguf\nsha256: {sha256}\nsystem_prompt: false\n"
    write(here.project.root / "params/models/small.yaml", text)
    values = params.Profile(models=["small"], datasets=["easy"], max_new_tokens=4).model_dump()
    found = model_checks.explain_errors(model_checks.check_usable(Run("demo", values), "small", {}))
    return [text for level, text in found if level == "wrong"]


@pytest.mark.parametrize("told, line", [
    ({"template": None}, "its tokenizer has no chat template"), ({"end": 9999}, "its end token 9999 is none of"),
    ({"end": None}, "the file names no end token"),
])  # fmt: skip
def test_a_file_at_hand_is_looked_at_before_a_tensor_is_read(here, monkeypatch, told, line):
    """Its tokenizer, template and end tokens; and by the run as by `check`, before the first job."""
    monkeypatch.setattr(models, "load_network", lambda *words, **more: pytest.fail("tensors are read"))
    found = check_here(here, **told)
    assert line in found[0] and all("\n" not in text for text in found)
