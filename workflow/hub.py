"""The Hugging Face Hub, once before all jobs: revisions, access, and the weights that are not on
this machine.

An open revision (null) is resolved once per run, saved in artifacts/<run>/resolved.yaml and pinned
(lib/params.py). So a new revision makes outputs stale, as a written one does. `--force 01` resolves
it again.

A model's file names a folder, a repository on the hub, or a GGUF file in either. A GGUF file may
also lie in models/. It must have the sha256 of the model's file. A link in
artifacts/.models/<sha256>/ leads the jobs to it.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from lib import params
from lib.errors import UserError, first_line, nearest
from lib.files import read_yaml, write_atomically, write_text
from lib.parameter_schemas import Model, is_on_hub
from lib.paths import ROOT, local_path
from workflow.engine.fingerprint import checksum
from workflow.engine.jobs_of_run import Run
from workflow.engine.progress import say

# Weights as safetensors, configuration, tokenizer and template: nothing that must be unpickled or
# executed.
WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
TEXTS = ("*.json", "*.jinja", "*.txt", "*.model")
IGNORED = ["consolidated*", "original/*", "*/*.safetensors"]  # copies of the same weights
ANSWER_SECONDS = 5  # to wait for an answer
USABLE_SHARE = 0.95  # of a disk's free bytes

UNREACHABLE = (
    "is not on this machine and the hub can't be reached: connect, or name a folder as its `source`"
)
FAILED = "can't be downloaded from the hub: {said}"
# what is said of a repository after an error of the hub's client, by the nearest of its classes
HUB_ERRORS = {
    "GatedRepoError": "is gated: accept its license on its page, then `hf auth login` (or set HF_TOKEN)",
    "RevisionNotFoundError": "has no revision '{revision}'; `revision: null` takes the newest",
    "RepositoryNotFoundError": "is not there, or needs access: check its spelling, or `hf auth login`",
    "HfHubHTTPError": FAILED,
    "OSError": UNREACHABLE,
    "TransportError": UNREACHABLE,
    "Exception": FAILED,
}


def specs_of(run: Run) -> list[tuple[str, Any]]:
    """Return each model and dataset of a run, with its kind; none for a replay, which uses no
    hub."""
    kinds = () if run.replayed else params.LOADERS.items()
    return [(kind, load(name)) for kind, load in kinds for name in run.values[f"{kind}s"]]


def go_offline_if_silent(run: Run) -> bool:
    """Switch the hub's client, before its import, to offline mode if the run may need the hub and
    it does not answer. Return whether. The client would retry for minutes per name, or wait for
    ever."""
    import httpx2  # the library of the hub's client

    may_need = any(spec.repository for _, spec in specs_of(run))
    if os.environ.get("HF_HUB_OFFLINE") == "1" or not may_need:
        return False
    try:
        httpx2.head(
            os.environ.get("HF_ENDPOINT") or "https://huggingface.co", timeout=ANSWER_SECONDS
        )
    except (httpx2.HTTPError, httpx2.InvalidURL):
        os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
        return True
    return False


# ---- revisions


def read_resolved(run: Run) -> dict[str, str]:
    """Return the commits that an earlier start of the run resolved, by source."""
    name = f"{run.folder}/resolved.yaml"
    return (read_yaml(ROOT / name) if (ROOT / name).exists() else None) or {}


def pin_revisions(run: Run, anew: bool = False) -> None:
    """Pin open revisions: as resolved before unless `anew`, else the newest. Offline, `anew` is not
    possible. No file changes.

    Raise UserError if a revision cannot be resolved.
    """
    known = {} if anew and os.environ.get("HF_HUB_OFFLINE") != "1" else read_resolved(run)
    params.REVISIONS.clear()
    for kind, spec in specs_of(run):
        if is_on_hub(spec) and not spec.revision:
            params.REVISIONS[spec.source] = known.get(spec.source) or resolve_revision(
                kind, spec.source
            )


def save_revisions(run: Run) -> None:
    """Save the pinned revisions for the jobs and later starts, once the run is not refused any
    more."""
    if params.REVISIONS:
        text = yaml.safe_dump(read_resolved(run) | params.REVISIONS)
        write_text(ROOT / run.folder / "resolved.yaml", text)


def resolve_revision(kind: str, source: str, revision: str | None = None) -> str:
    """Return the commit of a revision (by default the newest). Raise UserError immediately if there
    is no access."""
    from huggingface_hub import HfApi

    with explain_hub_errors(source, revision):
        return (
            HfApi().repo_info(source, repo_type=kind, revision=revision, timeout=ANSWER_SECONDS).sha
        )


@contextmanager
def explain_hub_errors(source: str, revision: str | None) -> Iterator[None]:
    """Turn any error of the hub's client, or of a library that it uses, into a UserError with its
    remedy."""
    try:
        yield
    except Exception as error:
        remedy = next(
            HUB_ERRORS[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in HUB_ERRORS
        )
        said = remedy.format(revision=revision, said=first_line(error))
        raise UserError(f"repository '{source}' {said}") from error


# ---- weights


def download(spec: Model, *patterns: str, **options: Any) -> Any:
    """Return the folder with these files of a model's repository, by default all that a job needs,
    after downloading those that are missing."""
    from huggingface_hub import snapshot_download

    wanted = patterns or ((spec.gguf,) if spec.gguf else WEIGHTS + TEXTS)
    options |= {
        "revision": spec.revision,
        "allow_patterns": list(wanted),
        "ignore_patterns": IGNORED,
    }
    with explain_hub_errors(spec.source, spec.revision):
        return snapshot_download(spec.source, **options)


def find_gguf(spec: Model) -> Path | None:
    """Return the GGUF file in the folder `source`, in models/ or in the hub's cache; None if it is
    in none of them.

    Raise UserError if it is not the one of the sha256.
    """
    file = local_path(spec.source) / str(spec.gguf)
    places = [file, ROOT / "models" / file.name]
    with suppress(UserError):
        places.append(Path(download(spec, local_files_only=True)) / str(spec.gguf))
    found = next(filter(Path.is_file, places), None)
    if found and (sha256 := checksum(str(found))) != spec.sha256:
        raise UserError(f"{spec.gguf} has sha256 {sha256}, expected {spec.sha256}: it is not used")
    return found


def is_elsewhere(spec: Model) -> bool:
    """Whether a model is a GGUF file that is not on this machine."""
    return bool(spec.gguf) and not find_gguf(spec)


def find_config(spec: Model) -> tuple[str, dict[str, str]]:
    """Return the folder with a model's configuration and tokenizer, and the name of the GGUF file
    that holds them.

    From the hub only these are downloaded. A GGUF file must be here.
    """
    from lib.models import checkpoints

    if spec.gguf:
        file = find_gguf(spec)
        return str(file.parent), {"gguf_file": file.name}
    if is_on_hub(spec):
        return download(spec, *TEXTS), {}
    folder = checkpoints.find_source(spec)
    if not list(Path(folder).glob("*.safetensors")):
        checkpoints.check_files(Path(folder))  # it may be the folder above a model's
        raise UserError(f"{spec.source} has no *.safetensors, the only weights that are loaded")
    return folder, {}


def count_missing_bytes(spec: Model) -> int:
    """Return the bytes of a model's files that are not downloaded yet. Raise UserError if they
    can't be had."""
    if not is_on_hub(spec) and not is_elsewhere(spec):
        return 0
    if not spec.repository:
        there = [path.name for path in local_path(spec.source).glob("*.gguf")]
        raise UserError(f"no file {spec.gguf} in {spec.source}; {nearest(str(spec.gguf), there)}")
    with suppress(UserError):
        # all are here
        if not spec.gguf and any(Path(download(spec, local_files_only=True)).glob(WEIGHTS[0])):
            return 0
    resolve_revision("model", spec.source, spec.revision)
    if not (files := download(spec, dry_run=True)):
        raise UserError(
            f"repository '{spec.source}' has no file '{spec.gguf or WEIGHTS[0]}' on the hub"
        )
    return sum(file.file_size for file in files if file.will_download)


def check_room(wanted: int) -> None:
    """Raise UserError if this many bytes of weights do not fit on the disk of the hub's cache."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(HF_HUB_CACHE).expanduser()
    free = shutil.disk_usage(next(filter(Path.is_dir, (folder, *folder.parents)))).free
    if wanted > USABLE_SHARE * free:
        lacks = f"the download of weights needs {wanted / 1e9:.3g} GB: the disk has {free / 1e9:.1f} GB free"
        raise UserError(f"{lacks}; free some, or set HF_HOME to a folder on a larger disk")


def fetch(names: list[str]) -> None:
    """Download the weights that jobs need, after checking the access, revision and disk space of
    all of them. Verify GGUF files, and link them to where the jobs find them."""
    specs = {name: params.load_model_config(name) for name in names}
    missing = {name: count_missing_bytes(spec) for name, spec in specs.items()}
    if any(missing.values()):
        check_room(sum(missing.values()))
    for name, spec in specs.items():
        if missing[name]:
            say(
                f"fetching {name}: {missing[name] / 1e9:.1f} GB of the repository {spec.source} on the hub"
            )
            download(spec)
        if file := spec.gguf and find_gguf(spec):
            write_atomically(
                spec.place / file.name, partial(Path.symlink_to, target=file.resolve())
            )
