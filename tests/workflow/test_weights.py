"""GGUF files on their way to the jobs: where they are had from, what is refused, and what `check` reads of them."""

import shutil
from types import SimpleNamespace

import pytest
import test_hub
import tiny_gguf
import yaml
from huggingface_hub import errors
from small_project import write

from lib import params
from lib.generate import checkpoints, models
from lib.paths import UserError
from workflow import check, hub
from workflow.pipeline import Run


@pytest.fixture
def here(inside, monkeypatch):
    """The small project with a model that is a GGUF file, which lies in models/; no hub is reached."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    file = tiny_gguf.write(inside.root.parent / "small.gguf", tiny_gguf.weights_of(tiny_gguf.network()))
    served, models = inside.root / "models" / "small.gguf", inside.root / "artifacts/.models"
    served.parent.mkdir()
    shutil.copy(file, served)
    sha256 = tiny_gguf.sha256(file)
    text = f"label: Small\nsource: someone/small-GGUF\ngguf: small.gguf\nsha256: {sha256}\n"
    write(inside.root / "params/models/small.yaml", text)

    def obtain(**changed):
        write(inside.root / "params/models/small.yaml", yaml.safe_dump(yaml.safe_load(text) | changed))
        hub.fetch(["small"])
        return (models / sha256 / "small.gguf").resolve()

    def kept() -> set[str]:
        return {path.name for path in models.glob("*") if not path.name.endswith(".lock")}

    facts = dict(file=file, served=served, sha256=sha256, place=models / sha256, kept=kept, obtain=obtain)
    return SimpleNamespace(project=inside, **facts)


def test_a_verified_file_is_linked_for_the_jobs(here):
    """At each start; and no file of other bytes, though one was verified there before."""
    for _ in range(2):
        hub.fetch(["small"])
    link = here.place / "small.gguf"
    assert here.kept() == {here.sha256} and [*here.place.iterdir()] == [link]
    assert link.samefile(here.served) and tiny_gguf.sha256(link) == here.sha256
    write(here.served, "other bytes")
    with pytest.raises(UserError, match=f"expected {here.sha256}: it is not used"):
        hub.fetch(["small"])


class Hub(test_hub.Hub):
    """A hub that has the file."""

    def __init__(self, monkeypatch, file, error=None):
        super().__init__(monkeypatch, error)
        self.file = file

    def snapshot_download(self, source, *, allow_patterns, revision, local_files_only=False, dry_run=False, **options):
        asked = (source, *allow_patterns, revision)
        if local_files_only and asked not in self.fetched:
            raise errors.LocalEntryNotFoundError("not cached")
        if dry_run:
            found = SimpleNamespace(file_size=self.file.stat().st_size, will_download=True)
            return [found] if allow_patterns == ["small.gguf"] else []
        self.fetched.append(asked)
        return str(self.file.parent)


@pytest.mark.parametrize("changed, error, line", [
    ({"revision": "abc"}, None, ""), ({"gguf": "smaller.gguf"}, None, "has no file 'smaller.gguf' on the hub"),
    ({}, errors.OfflineModeIsEnabled("x"), "can't be reached: connect, or name a folder as its `source`$"),
])  # fmt: skip
def test_it_is_fetched_from_the_hub_that_has_it(here, monkeypatch, changed, error, line):
    here.served.unlink()
    asked = Hub(monkeypatch, here.file, error)
    if line:
        with pytest.raises(UserError, match=line):
            here.obtain(**changed)
        assert not here.kept()
    else:
        assert here.obtain(**changed) == here.file
        assert set(asked.fetched) == {("someone/small-GGUF", "small.gguf", "abc")}


def test_a_folder_that_holds_the_file(here, monkeypatch):
    Hub(monkeypatch, here.file, error=RuntimeError("asked"))
    here.served.unlink()
    folder = str(here.file.parent)
    with pytest.raises(UserError, match="no file smal.gguf in .*; did you mean 'small.gguf'"):
        here.obtain(source=folder, gguf="smal.gguf")
    assert here.obtain(source=folder) == here.file
    here.file.write_bytes(b"other bytes")
    with pytest.raises(UserError, match=f"expected {here.sha256}"):
        here.obtain(source=folder)


def test_what_check_says(here, monkeypatch):
    Hub(monkeypatch, here.file)
    spec = params.load_model_config("small")
    folder, named = hub.find_config(spec)
    assert models.is_small(checkpoints.outline_network(checkpoints.read_config(folder, **named)))
    here.served.unlink()
    assert hub.is_elsewhere(spec)
    ((level, text),) = check.about_model(Run("demo", {"models": ["small"]}), "small", {})
    assert level == "note" and text.startswith("small.gguf of someone/small-GGUF, ") and "GB on the hub" in text
    assert text.endswith("it is looked at once it is fetched, before the first job")


def check_here(here, **told) -> list[str]:
    """The lines of `check` that are wrong of the model, whose file is written anew."""
    here.served.unlink()
    tiny_gguf.write(here.served, tiny_gguf.weights_of(tiny_gguf.network()), **told)
    sha256 = tiny_gguf.sha256(here.served)
    text = f"label: Small\nsource: someone/small-GGUF\ngguf: small.gguf\nsha256: {sha256}\nsystem_prompt: false\n"
    write(here.project.root / "params/models/small.yaml", text)
    values = params.Profile(models=["small"], datasets=["easy"], max_new_tokens=4).model_dump()
    found = check.explain_errors(check.about_model(Run("demo", values), "small", {}))
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
