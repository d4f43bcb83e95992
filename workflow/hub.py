"""What a run takes from the hub: its revision, whether it can be had, its size, and the fetching, once before all jobs.

A revision that a file leaves open (null) is resolved once per run, kept in artifacts/<run>/revisions.json and pinned
(lib/params.py), so it takes part in what is fresh like a written one. Nothing here is touched by local sources.
"""

import json
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lib import params
from lib.paths import ROOT, UserError, first_line, is_path
from workflow.files import write_json
from workflow.pipeline import Run

# Weights as safetensors, configuration, tokenizer and template: nothing that would have to be unpickled or executed.
WEIGHTS = ["*.safetensors", "*.safetensors.index.json"]
TEXTS = ["*.json", "*.jinja", "*.txt", "*.model"]
IGNORED = ["consolidated*", "original/*", "*/*.safetensors"]  # the same weights again
FILLED = 0.95  # of a disk's free bytes, at most


class OutOfReach(UserError):
    """The hub can't be reached, and what is wanted of it is not on this machine."""


def remote(spec: params.Model | params.Dataset) -> bool:
    """Whether what is read is a repository of the hub: not local files, nor a single GGUF file (weights.py)."""
    source = spec.source
    if getattr(spec, "gguf", None) or getattr(spec, "folder", None):
        return False
    return isinstance(source, str) and source.count("/") == 1 and not is_path(source)


def answers() -> bool:
    """Whether the hub says anything, within seconds: its own client would try for minutes, again for each name."""
    place = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    try:
        urllib.request.urlopen(urllib.request.Request(place, method="HEAD"), timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False
    return True


def pin(run: Run) -> None:
    """Pin the revisions that files leave open: as resolved before, else the newest. UserError where that fails. A
    replay asks nothing of the hub."""
    path = ROOT / run.folder / "revisions.json"
    known = resolved(path)
    params.REVISIONS.clear()
    revisions = {}
    for kind, load in params.LOADERS.items():
        for name in () if run.replayed else run.values[f"{kind}s"]:
            spec = load(name)
            if remote(spec) and not spec.revision:
                revisions[spec.source] = known.get(spec.source) or resolve(kind, spec.source)
    params.REVISIONS.update(revisions)
    if revisions.keys() - known.keys():
        write_json(path, known | revisions)


def resolved(path: Path) -> dict[str, str]:
    """The revisions of a run's file; none where it is not there, or is not what was written."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(known, dict):
        return {}
    return {source: revision for source, revision in known.items() if isinstance(revision, str)}


def resolve(kind: str, source: str, revision: str | None = None) -> str:
    """The commit that a revision (by default the newest) is. Raises UserError that says why it can't be had."""
    from huggingface_hub import HfApi
    from huggingface_hub.utils import logging

    logging.set_verbosity_error()  # what goes wrong is said here, once
    api = HfApi()
    try:
        info = (api.model_info if kind == "model" else api.dataset_info)(source, revision=revision)
    except Exception as error:
        text = explain(error, kind, source, revision)
        raise (OutOfReach if "can't be reached" in text else UserError)(text) from error
    return str(info.sha)


def explain(error: Exception, kind: str, source: str, revision: str | None = None) -> str:
    """One line for what the hub (or the way there) answered, and what to do about it."""
    from huggingface_hub import errors

    what = f"{kind} '{source}'"
    if isinstance(error, errors.GatedRepoError):
        return f"{what} is gated: accept its licence on its page on the hub, then `hf auth login` (or set HF_TOKEN)"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{what} has no revision '{revision}'; `revision: null` takes the newest"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"there is no {what} on the hub, or it is not open to you: check its spelling, or `hf auth login`"
    no_way = any(kind.__name__ == "TransportError" for kind in type(error).__mro__)  # of httpx, or of httpx2
    offline = no_way or isinstance(error, (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, OSError))
    if offline and not isinstance(error, errors.HfHubHTTPError):
        return f"{what} is not on this machine and the hub can't be reached: connect, or name a folder as its `source`"
    return f"{what} can't be had from the hub: {first_line(error)}"


def download(spec: params.Model, patterns: list[str], **options: Any) -> Any:
    """The folder that holds these files of a model, fetched where they are not there yet."""
    from huggingface_hub import snapshot_download

    options |= {"revision": spec.revision, "allow_patterns": patterns, "ignore_patterns": IGNORED}
    try:
        return snapshot_download(spec.source, **options)
    except Exception as error:
        raise UserError(explain(error, "model", spec.source, spec.revision)) from error


def texts(spec: params.Model) -> str:
    """The folder with a model's configuration, tokenizer and template, which alone are fetched. Raises UserError where
    they can't be had."""
    if cached(spec):  # without a network, what was fetched before will do
        return str(download(spec, TEXTS, local_files_only=True))
    resolve("model", spec.source, spec.revision)  # fails at once where the rest would try again and again
    return str(download(spec, TEXTS))


def missing(spec: params.Model) -> int:
    """Bytes of a model's files that are still to be fetched. Raises UserError where it can't be had."""
    try:
        resolve("model", spec.source, spec.revision)  # fails at once where the rest would try again and again
    except UserError:
        if cached(spec):  # without a network, what was fetched before will do
            return 0
        raise
    files = download(spec, TEXTS + WEIGHTS, dry_run=True)
    return sum(file.file_size for file in files if file.will_download)


def file_size(spec: params.Model) -> int:
    """Bytes of a model's GGUF file on the hub. Raises UserError where it can't be had, or is another file there."""
    from huggingface_hub import HfApi

    resolve("model", spec.source, spec.revision)
    try:
        found = HfApi().get_paths_info(spec.source, [str(spec.gguf)], revision=spec.revision)
    except Exception as error:
        raise UserError(explain(error, "model", spec.source, spec.revision)) from error
    if not found:
        raise UserError(f"model '{spec.source}' holds no file '{spec.gguf}' on the hub")
    if found[0].lfs and found[0].lfs.sha256 != spec.sha256:
        raise UserError(f"{spec.gguf} in '{spec.source}' has sha256 {found[0].lfs.sha256}, expected {spec.sha256}")
    return int(found[0].size)


def download_file(spec: params.Model) -> Path:
    """The GGUF file of a model, fetched into the hub's cache."""
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(spec.source, str(spec.gguf), revision=spec.revision))
    except Exception as error:
        raise UserError(explain(error, "model", spec.source, spec.revision)) from error


def cached(spec: params.Model) -> bool:
    """Whether weights and configuration lie in the local cache."""
    try:
        folder = Path(download(spec, TEXTS + WEIGHTS, local_files_only=True))
    except UserError:
        return False
    return (folder / "config.json").exists() and bool(list(folder.glob("*.safetensors")))


def room() -> tuple[Path, int]:
    """Where the hub's cache lies, and the bytes free there."""
    from huggingface_hub.constants import HF_HUB_CACHE

    place = Path(HF_HUB_CACHE).expanduser()
    there = next(folder for folder in (place, *place.parents) if folder.is_dir())
    return place, shutil.disk_usage(there).free


def check_files(run: Run) -> None:
    """Raises UserError where the folder that is named for published questions lacks a file, or holds another."""
    for spec in map(params.load_dataset_config, run.values["datasets"]):
        if spec.folder:
            from lib.tasks import datasets

            datasets.use_local_files(spec)


def fetch(run: Run, names: list[str], say: Callable[[str], None]) -> None:
    """Fetch the weights that jobs will need, all checked before the first byte: access, revision, room on the disk."""
    specs = {name: params.load_model_config(name) for name in names}
    sizes = {name: missing(spec) for name, spec in specs.items() if remote(spec)}
    wanted = sum(sizes.values())
    if not wanted:
        return
    place, free = room()
    if wanted > FILLED * free:
        need = f"{wanted / 1e9:.0f} GB of weights do not fit on the disk of {place} ({free / 1e9:.0f} GB free)"
        raise UserError(f"{need}: free some, or set HF_HOME to a larger one")
    for name, size in sizes.items():
        if size:
            say(f"fetching {name}: {size / 1e9:.1f} GB of the repository {specs[name].source} on the hub")
            download(specs[name], TEXTS + WEIGHTS)
