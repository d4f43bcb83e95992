"""The hub, pretended: what it may answer and what the user is told; revisions that are left open;
room on the disk; GGUF files on their way to the jobs."""

import hashlib
import os
import socket
import time
from contextlib import nullcontext
from types import SimpleNamespace

import httpx2
import huggingface_hub
import pytest
import tiny_gguf
import yaml
from huggingface_hub import errors
from huggingface_hub.utils import filter_repo_objects
from small_project import write
from test_fresh import run_of

from lib import params
from lib.errors import UserError
from lib.models import loading
from lib.tasks import dataset_sources
from workflow import check, hub
from workflow.engine import job_key
from workflow.engine.jobs_of_run import Run
from workflow.run import list_jobs, prepare_models

SHA = "0123456789abcdef0123456789abcdef01234567"
GGUF = {"gguf": "small.gguf", "sha256": hashlib.sha256(b"weights").hexdigest()}
HERE = GGUF | {"source": "./there"}
FILES = ("config.json", "model-1.safetensors", "model-2.safetensors")
UNWANTED = (
    "consolidated.safetensors",
    "modeling_tiny.py",
    "pytorch_model.bin",
    "training_args.pt",
    "small.gguf",
)
UNREACHABLE = "the hub can't be reached: connect, or name a folder as its `source`"
# which the small project, whose models are none, leaves out
REFUSE_UNUSABLE = check.refuse_unusable


class Hub:
    """A pretended hub with one repository, the folder `there`; what was fetched of it is linked in
    another, its cache. `error`: what it answers instead."""

    def __init__(self, root, monkeypatch):
        self.folder, self.cache = root / "there", root / "cache"
        self.error, self.newest, self.asked, self.fetched = None, SHA, [], []
        self.cache.mkdir()
        for name in FILES + UNWANTED:
            write(self.folder / name, "weights")
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda: self)
        monkeypatch.setattr(huggingface_hub, "snapshot_download", self.snapshot_download)

    # without one it might be waited for, for ever
    def repo_info(self, source, repo_type, revision, timeout):
        self.asked.append(source)
        if self.error:
            raise self.error
        return SimpleNamespace(sha=revision or self.newest)

    def snapshot_download(
        self, source, revision, local_files_only=False, dry_run=False, **patterns
    ):
        names = filter_repo_objects(os.listdir(self.folder), **patterns)
        files = [self.folder / name for name in names]
        missing = [path for path in files if not (self.cache / path.name).exists()]
        if dry_run:
            downloads = []
            for path in files:
                size = path.stat().st_size
                downloads.append(SimpleNamespace(file_size=size, will_download=path in missing))
            return downloads
        if local_files_only and (missing or not files):
            raise errors.LocalEntryNotFoundError("not cached")
        for path in missing:
            self.fetched.append((source, revision, path.name))
            (self.cache / path.name).symlink_to(path)
        return str(self.cache)


@pytest.fixture
def pretended_hub(inside, monkeypatch) -> Hub:
    """The hub of the small project, whose model is a repository."""
    pretended = Hub(inside.root, monkeypatch)
    monkeypatch.setattr(httpx2, "head", lambda url, timeout: pretended.asked.append(url))
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", "")
    describe()
    return pretended


def describe(**lines):
    """The model of the small project by these lines of its file."""
    write(
        params.PARAMS / "models/tiny.yaml",
        yaml.safe_dump({"label": "Tiny", "source": "someone/tiny"} | lines),
    )
    return params.load_model_config("tiny")


def http(kind, code):
    response = httpx2.Response(code, request=httpx2.Request("GET", "https://hub.invalid/api"))
    return kind(f"{code} from the hub\nand more", response=response)


# ---- what is fetched


@pytest.mark.parametrize(
    "lines, place, fetched",
    [
        ({"revision": SHA}, "", FILES),
        (GGUF | {"revision": "abc"}, "there", ["small.gguf"]),
        (HERE, "there", []),
        (GGUF, "models", []),
    ],
)
def test_what_jobs_need_is_fetched_once_from_where_it_is(
    inside, pretended_hub, lines, place, fetched
):
    """Without a network what was fetched before will do. The jobs find a GGUF file by a link."""
    if place == "models":
        pretended_hub.folder.rename(inside.root / place)
    spec = describe(**lines)
    for error in (None, httpx2.ConnectError("no network")):
        pretended_hub.error = error
        hub.fetch(["tiny"])
    assert sorted(pretended_hub.fetched) == [
        ("someone/tiny", lines.get("revision"), name) for name in fetched
    ]
    assert not place or (spec.place / "small.gguf").samefile(inside.root / place / "small.gguf")


@pytest.mark.parametrize(
    "lines, error, message",
    [
        (
            {},
            http(errors.GatedRepoError, 403),
            "repository 'someone/tiny' is gated: accept its license",
        ),
        (
            {"revision": SHA},
            http(errors.RevisionNotFoundError, 404),
            f"has no revision '{SHA}'; `revision: null` takes",
        ),
        ({}, httpx2.ConnectError("[Errno -2] Name or service not known"), UNREACHABLE),
        (
            {},
            http(errors.HfHubHTTPError, 500),
            "can't be downloaded from the hub: 500 from the hub",
        ),
        (GGUF, errors.OfflineModeIsEnabled("x"), UNREACHABLE),
        (GGUF | {"gguf": "smal.gguf"}, None, "has no file 'smal.gguf' on the hub"),
        (
            HERE | {"gguf": "smal.gguf"},
            RuntimeError("asked"),
            "in ./there; did you mean 'small.gguf'",
        ),
        (
            HERE | {"sha256": "a" * 64},
            RuntimeError("asked"),
            f"expected {'a' * 64}: it is not used",
        ),
    ],
)
def test_what_cannot_be_had_is_one_helpful_line(pretended_hub, lines, error, message):
    spec = describe(**lines)
    pretended_hub.error = error
    with pytest.raises(UserError, match="^[^\n]*$") as caught:
        hub.fetch(["tiny"])
    assert message in str(caught.value)
    assert not pretended_hub.fetched
    assert not (spec.gguf and spec.place.exists())


def test_weights_are_fetched_where_the_disk_has_room(pretended_hub, monkeypatch, capsys):
    """For what is not in the cache."""
    for name, size in zip(FILES, (0, 3_000_000_000, 5_000_000_000), strict=True):
        os.truncate(pretended_hub.folder / name, size)
    (pretended_hub.cache / FILES[-1]).touch()
    for free, line in ((1e9, "needs 3 GB: the disk has 1.0 GB free; .*HF_HOME"), (4e9, "")):
        monkeypatch.setattr(
            hub.shutil, "disk_usage", lambda place, free=free: SimpleNamespace(free=free)
        )
        with pytest.raises(UserError, match=line) if line else nullcontext():
            hub.fetch(["tiny"])
        assert bool(pretended_hub.fetched) != bool(line)
    assert (
        capsys.readouterr().out
        == "fetching tiny: 3.0 GB of the repository someone/tiny on the hub\n"
    )


@pytest.mark.parametrize(
    "fields, line",
    [
        ({"chat_template": None}, "its tokenizer has no chat template"),
        ({"eos_token_id": 9999}, "its end token 9999 is none of"),
        ({"eos_token_id": None}, "the file names no end token"),
    ],
)
def test_a_gguf_file_is_looked_at_once_it_is_fetched_before_the_first_job(
    pretended_hub, monkeypatch, fields, line
):
    """Its tokenizer, template and end tokens, before a tensor is read."""
    monkeypatch.setattr(check, "refuse_unusable", REFUSE_UNUSABLE)
    monkeypatch.setattr(
        loading, "load_network", lambda *words, **more: pytest.fail("tensors are read")
    )
    file = tiny_gguf.write(pretended_hub.folder / "small.gguf", **fields)
    describe(
        gguf=file.name, sha256=hashlib.sha256(file.read_bytes()).hexdigest(), system_prompt=False
    )
    run = Run(
        "demo", params.Profile(models=["tiny"], datasets=["easy"]).model_dump() | {"datasets": []}
    )
    ((level, text),) = check.about_model(run, "tiny", {})
    assert level == "note" and "it is looked at once it is fetched, before the first job" in text
    with pytest.raises(UserError, match=f"^model 'tiny': [^\n]*{line}"):
        prepare_models(run, [], ["tiny"])
    assert [name for *_, name in pretended_hub.fetched] == ["small.gguf"]


@pytest.mark.parametrize(
    "source, exists",
    [
        ("weights/tiny", True),
        ("~/weights/tiny", True),
        ("weights/tinny", False),
        ("a/b/c", False),
        ("~/x", False),
        ("/mine/x", False),
        ("weights/loop", False),
    ],
)
def test_a_folder_is_no_repository_of_the_hub_though_it_is_missing(
    inside, pretended_hub, monkeypatch, source, exists
):
    monkeypatch.setenv("HOME", str(inside.root))
    (inside.root / "weights/loop").symlink_to("loop")
    spec = describe(source=source)
    assert not hub.go_offline_if_silent(run_of())
    hub.pin_revisions(run_of())
    hub.fetch(["tiny"])
    assert not pretended_hub.asked and not params.REVISIONS
    if exists:
        assert hub.find_config(spec) == (str(inside.root / "weights/tiny"), {})
    else:
        with pytest.raises(UserError, match="^model folder '.*' does not exist"):
            hub.find_config(spec)


def test_an_open_revision_is_resolved_once_and_is_part_of_the_key(
    inside, pretended_hub, monkeypatch
):
    resolved = inside.root / "artifacts/demo/resolved.yaml"
    before = job_key.key_parts(run_of().jobs[0])["model tiny"]
    assert not hub.go_offline_if_silent(run_of())
    hub.pin_revisions(run_of())
    assert params.load_model_config("tiny").revision == SHA
    assert job_key.key_parts(run_of().jobs[0])["model tiny"] == before | {"revision": SHA}
    assert not resolved.exists(), "check saves nothing, nor a refused run"
    hub.save_revisions(run_of())
    hub.pin_revisions(run_of())
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror:1")
    assert not hub.go_offline_if_silent(run_of())
    addresses = ["https://huggingface.co", "someone/tiny", "http://mirror:1"]
    assert pretended_hub.asked == addresses, "a revision is asked for once"
    assert resolved.read_text() == f"someone/tiny: {SHA}\n"
    pretended_hub.newest = SHA[::-1]
    params.REVISIONS.clear()
    list_jobs(run_of(), [])
    assert params.load_model_config("tiny").revision == SHA, "--dry-run uses it, too"
    for offline, newest in (("1", SHA), ("", pretended_hub.newest)):
        monkeypatch.setenv("HF_HUB_OFFLINE", offline)
        hub.pin_revisions(run_of(), anew=True)  # by --force 01
        assert params.load_model_config("tiny").revision == newest


@pytest.mark.parametrize("source", ["squad", "someone/squad"])
def test_a_dataset_that_is_loaded_from_the_hub_is_pinned(inside, pretended_hub, source):
    """Also one whose name is a single word: the manifest states the commit, not that it was the
    newest."""
    describe(source="weights/tiny")
    write(
        params.PARAMS / "datasets/easy.yaml",
        f"label: Easy\nsource: {source}\ncalibration: 1\nevaluation: 1\n",
    )
    hub.pin_revisions(run_of())
    assert pretended_hub.asked == [source] and {source: SHA} == params.REVISIONS
    described = dataset_sources.describe_source(params.load_dataset_config("easy"))
    assert described == {"source": source, "revision": SHA}


@pytest.mark.parametrize(
    "words, more",
    [
        (["check"], "revision: null"),
        ([], f"revision: {SHA}"),
        ([], f"gguf: tiny.gguf\nsha256: {'a' * 64}"),
    ],
)
def test_a_silent_hub_is_one_line_within_seconds(project, words, more):
    """One that accepts every connection and never answers: before any job, and of a GGUF file,
    too. Here a second is waited for an answer."""
    project.replace("workflow/hub.py", "ANSWER_SECONDS = 5", "ANSWER_SECONDS = 1")
    write(project.root / "params/models/tiny.yaml", f"label: Tiny\nsource: someone/tiny\n{more}\n")
    if words:  # `check` looks for the real ones
        for library in ("torch", "transformers", "scipy", "sklearn"):
            (project.root / f"{library}.py").unlink()
    began = time.monotonic()
    cache = str(project.root / "cache")
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        endpoint = f"http://127.0.0.1:{listening.getsockname()[1]}"
        code, text = project.run(*words, HF_ENDPOINT=endpoint, HF_HOME=cache, HF_HUB_OFFLINE="")
    assert code == 2 and time.monotonic() - began < 40, text
    complaint = f"'someone/tiny' is not on this machine and {UNREACHABLE}"
    (line,) = [line for line in text.splitlines() if complaint in line]
    note = "note   hub: it does not answer; models and datasets must be in the local cache"
    assert text.startswith(note) if words else text.splitlines()[-1] == line
    assert not list(project.root.glob("artifacts/demo/*.json"))
