"""The hub, pretended: what it may answer and what the user is told; revisions that are left open; room on the disk;
GGUF files on their way to the jobs."""

import hashlib
import socket
import time
from fnmatch import fnmatch
from types import SimpleNamespace

import httpx2
import huggingface_hub
import pytest
import tiny_gguf
import yaml
from huggingface_hub import errors
from small_project import PAIR, write

from lib import params
from lib.generate import models
from lib.paths import UserError
from workflow import check, hub, keys
from workflow.pipeline import Run
from workflow.run import list_jobs

OF_HUB = "label: Tiny\nsource: someone/tiny\n"
SHA = "0123456789abcdef0123456789abcdef01234567"


def http(kind, code):
    response = httpx2.Response(code, request=httpx2.Request("GET", "https://hub.invalid/api"))
    return kind(f"{code} from the hub\nand more", response=response)


ANSWERS = [
    (http(errors.GatedRepoError, 403), "is gated: accept its license"),
    (http(errors.RevisionNotFoundError, 404), f"has no revision '{SHA}'; `revision: null` takes the newest"),
    (httpx2.ConnectError("[Errno -2] Name or service not known"), "the hub can't be reached"),  # of the hub
    (http(errors.HfHubHTTPError, 500), "can't be downloaded from the hub: 500 from the hub"),
]


class Hub:
    """A pretended hub: answers with a commit, or raises; counts how often it was asked. `files`: names, sizes, and
    whether they are to be downloaded. What was fetched lies in `folder`."""

    def __init__(self, monkeypatch, error=None, files=(), folder="/cache"):
        self.error, self.files, self.folder, self.asked, self.fetched, self.newest = error, files, folder, [], [], SHA
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda: self)
        monkeypatch.setattr(huggingface_hub, "snapshot_download", self.snapshot_download)

    def repo_info(self, source, repo_type, revision=None, timeout=None):
        self.asked.append(source)
        if self.error:
            raise self.error
        return SimpleNamespace(sha=revision or self.newest)

    def snapshot_download(self, source, *, allow_patterns, local_files_only=False, dry_run=False, revision=None, **_):
        if local_files_only and (source, allow_patterns, revision) not in self.fetched:
            raise errors.LocalEntryNotFoundError("not cached")
        if dry_run:
            names = [row for row in self.files if any(fnmatch(row[0], pattern) for pattern in allow_patterns)]
            return [SimpleNamespace(file_size=size, will_download=new) for _, size, new in names]
        self.fetched.append((source, allow_patterns, revision))
        return str(self.folder)


@pytest.fixture
def remote(inside):
    write(inside.root / "params/models/tiny.yaml", OF_HUB)
    return inside


def run_of(**values):
    return Run("demo", {"models": ["tiny"], "datasets": ["easy"], "seed": 0, "limit": 0, **values}, 2, 0)


@pytest.mark.parametrize("error, said", ANSWERS, ids=[type(error).__name__ for error, _ in ANSWERS])
def test_what_the_hub_answers_is_one_helpful_line(monkeypatch, error, said):
    Hub(monkeypatch, error)
    with pytest.raises(UserError, match="^[^\n]*$") as caught:
        hub.resolve_revision("model", "someone/tiny", SHA)
    assert said in str(caught.value) and "someone/tiny" in str(caught.value)


@pytest.mark.parametrize("source", ["weights/tiny", "weights/tinny", "a/b/c", "{root}/mine/x", "~/x", "weights/loop"])
def test_a_folder_is_no_repository_of_the_hub_though_it_is_missing(inside, monkeypatch, source):
    asked = Hub(monkeypatch, RuntimeError("asked"))
    (inside.root / "weights/loop").symlink_to("loop")
    write(inside.root / "params/models/tiny.yaml", f"label: Tiny\nsource: {source.format(root=inside.root)}\n")
    hub.pin_revisions(run_of())
    hub.fetch(["tiny"])
    assert not asked.asked and not (inside.root / "artifacts/demo/resolved.yaml").exists()
    if source != "weights/tiny":
        with pytest.raises(UserError, match="^model folder '.*' does not exist"):
            hub.find_config(params.load_model_config("tiny"))


def test_an_open_revision_is_resolved_once_and_is_part_of_the_key(remote, monkeypatch):
    asked = Hub(monkeypatch)
    before = keys.key_parts(run_of().jobs[0])["model tiny"]
    hub.pin_revisions(run_of())
    assert params.load_model_config("tiny").revision == SHA
    assert keys.key_parts(run_of().jobs[0])["model tiny"] == before | {"revision": SHA}
    assert not (remote.root / "artifacts/demo/resolved.yaml").exists(), "check saves nothing, nor a refused run"
    hub.save_revisions(run_of())
    hub.pin_revisions(run_of())
    assert asked.asked == ["someone/tiny"], "the second time it is known"
    assert (remote.root / "artifacts/demo/resolved.yaml").read_text() == f"someone/tiny: {SHA}\n"
    asked.newest = SHA[::-1]
    params.REVISIONS.clear()
    list_jobs(run_of(bins=10, title=""), [])
    assert params.load_model_config("tiny").revision == SHA, "--dry-run uses it, too"
    hub.pin_revisions(run_of(), anew=True)
    assert params.load_model_config("tiny").revision == SHA, "offline"
    monkeypatch.delenv("HF_HUB_OFFLINE")
    hub.pin_revisions(run_of(), anew=True)
    assert params.load_model_config("tiny").revision == asked.newest, "by --force 01"


def test_weights_are_fetched_once_before_the_jobs(remote, monkeypatch, capsys):
    """Where the disk has room for them."""
    asked = Hub(monkeypatch, files=[("a.safetensors", 3_000_000_000, True), ("b.safetensors", 5_000_000_000, False)])
    with monkeypatch.context() as patch:
        patch.setattr(hub.shutil, "disk_usage", lambda place: SimpleNamespace(free=1_000_000_000))
        with pytest.raises(UserError, match="needs 3 GB: the disk has 1.0 GB free; .*HF_HOME"):
            hub.fetch(["tiny"])
    assert not asked.fetched
    hub.fetch(["tiny"])
    said = "fetching tiny: 3.0 GB of the repository someone/tiny on the hub\n"
    assert capsys.readouterr().out == said, "but for what is in the cache"
    ((source, patterns, _),) = asked.fetched
    assert source == "someone/tiny" and "*.safetensors" in patterns
    assert not any(word in pattern for pattern in patterns for word in (".bin", ".pt", ".pkl", ".py", "*.*"))


def test_without_a_network_what_was_fetched_before_will_do(remote, monkeypatch, tmp_path):
    Hub(monkeypatch, httpx2.ConnectError("no network"))
    with pytest.raises(UserError, match="can't be reached"):
        hub.fetch(["tiny"])
    for name in ("config.json", "model.safetensors"):
        write(tmp_path / name, "{}")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **options: str(tmp_path))
    hub.fetch(["tiny"])


def test_the_hub_of_ones_own_is_asked_whether_it_answers_and_none_by_a_run_that_needs_none(remote, monkeypatch):
    asked = []
    monkeypatch.setattr(httpx2, "head", lambda url, timeout: asked.append(url))
    monkeypatch.setenv("HF_HUB_OFFLINE", "")
    for endpoint in ("", "http://mirror:1"):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        assert not hub.go_offline_if_silent(run_of())
    write(remote.root / "params/models/tiny.yaml", "label: Tiny\nsource: weights/tiny\n")
    assert not hub.go_offline_if_silent(run_of())
    assert asked == ["https://huggingface.co", "http://mirror:1"]


# ---- a hub that is silent


@pytest.fixture
def silent(tmp_path):
    """A hub that accepts every connection and never answers, and no file in the cache: the environment for it."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        endpoint = f"http://127.0.0.1:{listening.getsockname()[1]}"
        yield {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": ""}


FAR = "repository 'someone/tiny' is not on this machine and the hub can't be reached: connect, or name a folder"


@pytest.mark.parametrize("words, more", [
    ("check", "revision: null"), ("", f"revision: {SHA}"), ("verify", f"gguf: tiny.gguf\nsha256: {'a' * 64}"),
])  # fmt: skip
def test_a_silent_hub_is_one_line_within_seconds(project, silent, words, more):
    """Before any job; and so is a GGUF file, which is looked for on the hub."""
    write(project.root / f"artifacts/shipped/demo/generations/{PAIR}.parquet", "signals")
    write(project.root / "params/models/tiny.yaml", f"{OF_HUB}{more}\n")
    began = time.monotonic()
    code, text = project.run(*words.split(), **silent)
    assert code == 2 and time.monotonic() - began < 60, text
    (line,) = [line for line in text.splitlines() if FAR in line]
    if words == "check":
        assert text.startswith("note   hub: it does not answer; models and datasets must be in the local cache")
    assert words == "check" or text.splitlines()[-1] == line
    assert not list(project.root.glob("artifacts/demo/*.json"))


def test_a_hub_that_falls_silent_after_its_first_answer_is_waited_for_a_moment(silent, monkeypatch):
    monkeypatch.setattr(hub, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", silent["HF_ENDPOINT"])
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    began = time.monotonic()
    with pytest.raises(UserError, match="the hub can't be reached"):
        hub.resolve_revision("model", "someone/tiny")
    assert time.monotonic() - began < 20


# ---- GGUF files


@pytest.fixture
def file(inside, monkeypatch):
    """A GGUF file in models/, which a model of the small project names; no hub is reached."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    place = inside.root / "models" / "small.gguf"
    place.parent.mkdir()
    return tiny_gguf.write(place)


def describe(file, **changed) -> params.Model:
    """The model's file, which names a file by what it holds now, with some lines changed."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    lines = {"label": "Small", "source": "someone/small-GGUF", "gguf": "small.gguf", "sha256": digest}
    write(params.PARAMS / "models/small.yaml", yaml.safe_dump(lines | changed))
    return params.load_model_config("small")


def test_a_verified_file_is_linked_for_the_jobs_and_none_of_other_bytes(file):
    spec = describe(file)
    for _ in range(2):
        hub.fetch(["small"])
    (link,) = spec.place.iterdir()
    assert link.samefile(file) and spec.place.name == spec.sha256
    write(file, "other bytes")
    with pytest.raises(UserError, match=f"expected {spec.sha256}: it is not used"):
        hub.fetch(["small"])


@pytest.mark.parametrize("changed, error, line", [
    ({"revision": "abc"}, None, ""), ({"gguf": "smaller.gguf"}, None, "has no file 'smaller.gguf' on the hub"),
    ({}, errors.OfflineModeIsEnabled("x"), "can't be reached: connect, or name a folder as its `source`$"),
    ({"source": "{root}/there"}, RuntimeError("asked"), ""),
    ({"source": "{root}/there", "gguf": "smal.gguf"}, RuntimeError("asked"), "there; did you mean 'small.gguf'"),
    ({"source": "{root}/there", "sha256": "a" * 64}, RuntimeError("asked"), f"expected {'a' * 64}"),
])  # fmt: skip
def test_it_is_fetched_from_the_hub_or_the_folder_that_has_it(inside, file, monkeypatch, changed, error, line):
    there = inside.root / "there" / file.name
    there.parent.mkdir()
    file.rename(there)
    asked = Hub(monkeypatch, error, [(file.name, 1000, True)], there.parent)
    spec = describe(there, **{name: value.format(root=inside.root) for name, value in changed.items()})
    if line:
        with pytest.raises(UserError, match=line):
            hub.fetch(["small"])
        assert not spec.place.exists()
    else:
        hub.fetch(["small"])
        assert (spec.place / file.name).samefile(there)
        assert asked.fetched[:1] == ([] if error else [("someone/small-GGUF", ["small.gguf"], "abc")])


@pytest.mark.parametrize("told, line", [
    ({"chat_template": None}, "its tokenizer has no chat template"),
    ({"eos_token_id": 9999}, "its end token 9999 is none of"), ({"eos_token_id": None}, "the file names no end token"),
    (None, "it is looked at once it is fetched, before the first job"),
])  # fmt: skip
def test_a_file_at_hand_is_looked_at_before_a_tensor_is_read(file, monkeypatch, told, line):
    """Its tokenizer, template and end tokens; and by the run as by `check`, before the first job."""
    monkeypatch.setattr(models, "load_network", lambda *words, **more: pytest.fail("tensors are read"))
    Hub(monkeypatch, files=[(file.name, 1000, True)])
    tiny_gguf.write(file, **told or {})
    describe(file, system_prompt=False)
    if told is None:
        file.unlink()
    values = params.Profile(models=["small"], datasets=["easy"], max_new_tokens=4).model_dump()
    level, text = next(check.explain_errors(check.about_model(Run("demo", values), "small", {})))
    assert (level, line in text) == ("wrong" if told else "note", True) and "\n" not in text
