"""Repositories of the Hugging Face Hub: their revision, access, size and download, once before all jobs.

An open revision (null) is resolved once per run, saved in artifacts/<run>/revisions.json and pinned (lib/params.py).
So a new revision makes outputs stale, as a written one does. Local sources do not use this module.
"""

import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from lib import params
from lib.paths import ROOT, UserError, first_line, is_path
from workflow.files import read_json, write_json
from workflow.pipeline import Run

# Weights as safetensors, configuration, tokenizer and template: nothing that must be unpickled or executed.
WEIGHTS = ["*.safetensors", "*.safetensors.index.json"]
TEXTS = ["*.json", "*.jinja", "*.txt", "*.model"]
IGNORED = ["consolidated*", "original/*", "*/*.safetensors"]  # copies of the same weights
FILLED = 0.95  # largest share of a disk's free bytes to use
PATIENCE = 5  # seconds without an answer


def is_on_hub(spec: params.Model | params.Dataset) -> bool:
    """Whether the source is a repository on the hub: neither local files nor one GGUF file (weights.py)."""
    if getattr(spec, "gguf", None) or getattr(spec, "folder", None):
        return False
    return names_repository(spec.source)


def names_repository(source: object) -> bool:
    return isinstance(source, str) and source.count("/") == 1 and not is_path(source)


def may_download(spec: params.Model | params.Dataset) -> bool:
    """Whether the hub may be asked for a source: a repository, or a GGUF file that is yet to be fetched."""
    if getattr(spec, "gguf", None):
        return names_repository(spec.source) and not spec.place.is_dir()
    return is_on_hub(spec)


def is_reachable() -> bool:
    """Whether the hub answers within seconds: its own client would retry for minutes per name, or wait for ever."""
    place = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    try:
        urllib.request.urlopen(urllib.request.Request(place, method="HEAD"), timeout=PATIENCE).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False
    return True


def go_offline_if_silent(run: Run) -> bool:
    """Switch the hub's client, before its import, to offline mode if the run may need the hub and it does not answer.
    Return whether."""
    specs = [load(name) for kind, load in params.LOADERS.items() for name in run.values[f"{kind}s"]]
    offline = os.environ.get("HF_HUB_OFFLINE") == "1"
    if run.replayed or offline or not any(map(may_download, specs)) or is_reachable():
        return False
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    return True


@cache
def limit_waiting() -> None:
    """Let the hub's client wait for seconds at every step. Where its methods name no limit, it waits for ever."""
    from huggingface_hub import set_client_factory
    from huggingface_hub.utils._http import default_client_factory

    def limit(request: Any) -> None:
        for step, seconds in request.extensions["timeout"].items():
            request.extensions["timeout"][step] = PATIENCE if seconds is None else seconds

    def make_client() -> Any:
        client = default_client_factory()
        client.event_hooks = {"request": [*client.event_hooks["request"], limit]}
        return client

    set_client_factory(make_client)


def pin_revisions(run: Run) -> None:
    """Pin open revisions: as resolved before, else the newest. A replay does not use the hub. No file changes.

    Raise UserError if a revision cannot be resolved.
    """
    read = read_json(ROOT / run.folder / "revisions.json")
    known = {source: it for source, it in read.items() if isinstance(it, str)} if isinstance(read, dict) else {}
    params.REVISIONS.clear()
    specs = [(kind, load(name)) for kind, load in params.LOADERS.items() for name in run.values[f"{kind}s"]]
    unpinned = [
        (kind, spec.source) for kind, spec in specs if not run.replayed and is_on_hub(spec) and not spec.revision
    ]
    if {source for _, source in unpinned} - known.keys():
        go_offline_if_silent(run)
    revisions = {source: known.get(source) or resolve_revision(kind, source) for kind, source in unpinned}
    params.REVISIONS.update(revisions)


def save_revisions(run: Run) -> None:
    """Save the pinned revisions for the jobs and later starts, once the run is not refused any more."""
    path = ROOT / run.folder / "revisions.json"
    known = read_json(path)
    known = known if isinstance(known, dict) else {}
    if params.REVISIONS.keys() - known.keys():
        write_json(path, known | params.REVISIONS)


def resolve_revision(kind: str, source: str, revision: str | None = None) -> str:
    """Return the commit of a revision (by default the newest). Raise UserError immediately if there is no access."""
    from huggingface_hub import HfApi
    from huggingface_hub.utils import logging

    logging.set_verbosity_error()  # the UserError reports the problem once
    api = HfApi()
    with explain_hub_errors(kind, source, revision):
        return str((api.model_info if kind == "model" else api.dataset_info)(source, revision=revision).sha)


@contextmanager
def explain_hub_errors(kind: str, source: str, revision: str | None) -> Iterator[None]:
    """Turn any error of the hub into a UserError, silence for a while included."""
    limit_waiting()
    try:
        yield
    except Exception as error:  # of its client, or of a library that the client uses
        raise UserError(explain_error(error, kind, source, revision)) from error


def explain_error(error: Exception, kind: str, source: str, revision: str | None = None) -> str:
    """Return one line with the hub's or the connection's error and its remedy."""
    from huggingface_hub import errors

    what = f"{kind} '{source}'"
    if isinstance(error, errors.GatedRepoError):
        return f"{what} is gated: accept its license on its page on the hub, then `hf auth login` (or set HF_TOKEN)"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{what} has no revision '{revision}'; `revision: null` takes the newest"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"there is no {what} on the hub, or you have no access: check its spelling, or `hf auth login`"
    no_way = any(kind.__name__ == "TransportError" for kind in type(error).__mro__)  # of httpx, or of httpx2
    offline = no_way or isinstance(error, (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, OSError))
    if offline and not isinstance(error, errors.HfHubHTTPError):
        return f"{what} is not on this machine and the hub can't be reached: connect, or name a folder as its `source`"
    return f"{what} can't be downloaded from the hub: {first_line(error)}"


# ---- files of a model --------------------------------------------------------------------------------------


def download(spec: params.Model, patterns: list[str], **options: Any) -> Any:
    """Return the folder with these files of a model, after downloading those that are missing."""
    from huggingface_hub import snapshot_download

    options |= {"revision": spec.revision, "allow_patterns": patterns, "ignore_patterns": IGNORED}
    with explain_hub_errors("model", spec.source, spec.revision):
        return snapshot_download(spec.source, **options)


def is_cached(spec: params.Model) -> bool:
    """Whether weights and configuration are in the local cache."""
    with suppress(UserError):
        folder = Path(download(spec, TEXTS + WEIGHTS, local_files_only=True))
        return (folder / "config.json").exists() and any(folder.glob("*.safetensors"))
    return False


def download_texts(spec: params.Model) -> str:
    """Return the folder with a model's configuration, tokenizer and template. Download them without the weights."""
    here = is_cached(spec)  # without a network, the cached files are used
    if not here:
        resolve_revision("model", spec.source, spec.revision)
    return str(download(spec, TEXTS, local_files_only=here))


def count_missing_bytes(spec: params.Model) -> int:
    """Return the bytes of a model's files that are not downloaded yet."""
    try:
        resolve_revision("model", spec.source, spec.revision)
    except UserError:
        if is_cached(spec):
            return 0
        raise
    files = download(spec, TEXTS + WEIGHTS, dry_run=True)
    return sum(file.file_size for file in files if file.will_download)


def file_size(spec: params.Model) -> int:
    """Return the bytes of a model's GGUF file on the hub. Raise UserError if it is missing or has another sha256."""
    from huggingface_hub import HfApi

    resolve_revision("model", spec.source, spec.revision)
    with explain_hub_errors("model", spec.source, spec.revision):
        found = HfApi().get_paths_info(spec.source, [str(spec.gguf)], revision=spec.revision)
    if not found:
        raise UserError(f"model '{spec.source}' has no file '{spec.gguf}' on the hub")
    if found[0].lfs and found[0].lfs.sha256 != spec.sha256:
        raise UserError(f"{spec.gguf} in '{spec.source}' is another file, of sha256 {found[0].lfs.sha256}")
    return int(found[0].size)


def download_file(spec: params.Model) -> Path:
    """Download a model's GGUF file into the hub's cache and return its path."""
    from huggingface_hub import hf_hub_download

    with explain_hub_errors("model", spec.source, spec.revision):
        return Path(hf_hub_download(spec.source, str(spec.gguf), revision=spec.revision))


def cached_file(spec: params.Model) -> Path | None:
    """Return a model's GGUF file in the hub's cache; None if it was not downloaded."""
    from huggingface_hub import try_to_load_from_cache

    if is_path(spec.source) or spec.source.count("/") != 1:
        return None
    found = try_to_load_from_cache(spec.source, str(spec.gguf), revision=spec.revision)
    return Path(found) if isinstance(found, str) else None


# ---- before all jobs ---------------------------------------------------------------------------------------


def free_bytes(place: Path) -> int:
    """Return the free bytes on the disk of a folder, which need not exist yet."""
    return shutil.disk_usage(next(folder for folder in (place, *place.parents) if folder.is_dir())).free


def lack_of_room(what: str, wanted: float, place: Path, remedy: str = "") -> str:
    """Return why this many bytes do not fit on the disk of a folder; empty if they do."""
    free = free_bytes(place)
    if wanted <= FILLED * free:
        return ""
    return f"{what} needs {wanted / 1e9:.3g} GB: the disk of {place} has {free / 1e9:.1f} GB free{remedy}"


def lack_of_cache_room(wanted: int) -> str:
    """Return why this many bytes of weights do not fit on the disk of the hub's cache; empty if they do."""
    from huggingface_hub.constants import HF_HUB_CACHE

    remedy = "; free some, or set HF_HOME to a folder on a larger disk"
    return lack_of_room("the download of weights", wanted, Path(HF_HUB_CACHE).expanduser(), remedy)


def check_dataset_files(run: Run) -> None:
    """Raise UserError if a dataset's local folder lacks a file or contains a different one."""
    for spec in map(params.load_dataset_config, run.values["datasets"]):
        if spec.folder:
            from lib.tasks import datasets

            datasets.use_local_files(spec)


def fetch(names: list[str], say: Callable[[str], None]) -> None:
    """Download the weights that jobs need, after checking the access, revision and disk space of all of them."""
    specs = {name: params.load_model_config(name) for name in names}
    sizes = {name: count_missing_bytes(spec) for name, spec in specs.items() if is_on_hub(spec)}
    wanted = sum(sizes.values())
    if wanted and (lack := lack_of_cache_room(wanted)):
        raise UserError(lack)
    for name, size in sizes.items():
        if size:
            say(f"fetching {name}: {size / 1e9:.1f} GB of the repository {specs[name].source} on the hub")
            download(specs[name], TEXTS + WEIGHTS)
