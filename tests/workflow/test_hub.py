"""The hub, pretended: what it may answer and what the user is told; revisions that are left open; room on the disk."""

import socket
import time
from types import SimpleNamespace

import httpx2
import huggingface_hub
import pytest
from huggingface_hub import errors
from small_project import PAIR, write

from lib import params
from lib.paths import UserError
from workflow import hub, keys
from workflow.pipeline import Run
from workflow.run import list_jobs

OF_HUB = "label: Tiny\nsource: someone/tiny\n"
SHA = "0123456789abcdef0123456789abcdef01234567"


def http(kind, code):
    response = httpx2.Response(code, request=httpx2.Request("GET", "https://hub.invalid/api"))
    return kind(f"{code} from the hub\nand more", response=response)


ANSWERS = [
    (http(errors.GatedRepoError, 403), "is gated: accept its license"),
    (http(errors.RepositoryNotFoundError, 404), "check its spelling, or `hf auth login`"),
    (http(errors.RevisionNotFoundError, 404), f"has no revision '{SHA}'; `revision: null` takes the newest"),
    (errors.LocalEntryNotFoundError("no"), "the hub can't be reached"),
    (httpx2.ConnectError("[Errno -2] Name or service not known"), "the hub can't be reached"),  # of the hub
    (http(errors.HfHubHTTPError, 500), "can't be downloaded from the hub: 500 from the hub"),
]


class Hub:
    """A pretended hub: answers with a commit, or raises; counts how often it was asked."""

    def __init__(self, monkeypatch, error=None, files=()):
        self.error, self.files, self.asked, self.fetched, self.newest = error, files, [], [], SHA
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda: self)
        monkeypatch.setattr(huggingface_hub, "snapshot_download", self.snapshot_download)

    def repo_info(self, source, repo_type, revision=None, timeout=None):
        self.asked.append(source)
        if self.error:
            raise self.error
        return SimpleNamespace(sha=revision or self.newest)

    def snapshot_download(self, source, **options):
        if options.get("local_files_only"):
            raise errors.LocalEntryNotFoundError("not cached")
        if options.get("dry_run"):
            return [SimpleNamespace(file_size=size, will_download=new) for size, new in self.files]
        self.fetched.append((source, options["allow_patterns"]))
        return "/cache"


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


@pytest.mark.parametrize("source", ["weights/tiny", "weights/tinny", "lib/x", "./x", "a/b/c", "{root}/mine/x", "~/x",
                                    "weights/loop"])  # fmt: skip
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
    asked = Hub(monkeypatch, files=[(3_000_000_000, True), (5_000_000_000, False)])
    with monkeypatch.context() as patch:
        patch.setattr(hub.shutil, "disk_usage", lambda place: SimpleNamespace(free=1_000_000_000))
        with pytest.raises(UserError, match="needs 3 GB: the disk has 1.0 GB free; .*HF_HOME"):
            hub.fetch(["tiny"])
    assert not asked.fetched
    hub.fetch(["tiny"])
    said = "fetching tiny: 3.0 GB of the repository someone/tiny on the hub\n"
    assert capsys.readouterr().out == said, "but for what is in the cache"
    ((source, patterns),) = asked.fetched
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


def test_the_hub_of_ones_own_is_the_one_that_must_answer_if_a_run_needs_one(remote, monkeypatch):
    asked = []
    monkeypatch.setenv("HF_HUB_OFFLINE", "")
    monkeypatch.setattr(httpx2, "head", lambda url, timeout: asked.append(url))
    for endpoint in ("", "http://mirror:1"):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        assert not hub.go_offline_if_silent(run_of())
    assert asked == ["https://huggingface.co", "http://mirror:1"]
    write(remote.root / "params/models/tiny.yaml", "label: Tiny\nsource: weights/tiny\n")
    assert not hub.go_offline_if_silent(run_of()) and len(asked) == 2


# ---- a hub that is silent


@pytest.fixture
def silent(tmp_path):
    """A hub that accepts every connection and never answers, and no file in the cache: the environment for it."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        endpoint = f"http://127.0.0.1:{listening.getsockname()[1]}"
        yield {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": ""}


FAR = "repository 'someone/tiny' is not on this machine and the hub can't be reached: connect, or name a folder"


@pytest.mark.parametrize("words, more", [
    ("check", "revision: null"), ("", f"revision: {SHA}"), ("finding 1", "revision: null"),
    ("verify", f"gguf: tiny.gguf\nsha256: {'a' * 64}"),
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
