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
from lib.parameter_schemas import Dataset, Model, is_on_hub
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
FAILED = "can't be downloaded from the hub: {reason}"
# what is said of a repository after an error of the hub's client, by the nearest of its classes
HUB_ERRORS = {
    "GatedRepoError": "is gated: accept its license on its page, "
    "then `hf auth login` (or set HF_TOKEN)",
    "RevisionNotFoundError": "has no revision '{revision}'; `revision: null` takes the newest",
    "RepositoryNotFoundError": "is not there, or needs access: "
    "check its spelling, or `hf auth login`",
    "HfHubHTTPError": FAILED,
    "OSError": UNREACHABLE,
    "TransportError": UNREACHABLE,
    "Exception": FAILED,
}


def specs_of(run: Run) -> list[tuple[str, Model | Dataset]]:
    """Return each model and dataset of a run, with its kind; none for a replay, which uses no
    hub."""
    if run.replayed:
        return []
    specs: list[tuple[str, Model | Dataset]] = []
    for kind, load in params.LOADERS.items():
        specs += [(kind, load(name)) for name in run.values[f"{kind}s"]]
    return specs


def go_offline_if_silent(run: Run) -> bool:
    """Switch the hub's client, before its import, to offline mode if the run may need the hub and
    it does not answer. Return whether. The client would retry for minutes per name, or wait for
    ever."""
    import httpx2  # the library of the hub's client

    may_need = any(spec.repository for _, spec in specs_of(run))
    if is_offline() or not may_need:
        return False
    address = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    try:
        httpx2.head(address, timeout=ANSWER_SECONDS)
    except (httpx2.HTTPError, httpx2.InvalidURL):
        os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
        return True
    return False


def is_offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE") == "1"


# ---- revisions


def read_resolved(run: Run) -> dict[str, str]:
    """Return the commits that an earlier start of the run resolved, by source."""
    path = ROOT / run.folder / "resolved.yaml"
    if not path.exists():
        return {}
    return read_yaml(path) or {}


def pin_revisions(run: Run, anew: bool = False) -> None:
    """Pin open revisions: as resolved before unless `anew`, else the newest. Offline, `anew` is not
    possible. No file changes.

    Raise UserError if a revision cannot be resolved.
    """
    known = {} if anew and not is_offline() else read_resolved(run)
    params.REVISIONS.clear()
    for kind, spec in specs_of(run):
        source = spec.source
        if isinstance(source, str) and is_on_hub(spec) and not spec.revision:
            params.REVISIONS[source] = known.get(source) or resolve_revision(kind, source)


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
        facts = HfApi().repo_info(source, repo_type=kind, revision=revision, timeout=ANSWER_SECONDS)
    return facts.sha or ""


@contextmanager
def explain_hub_errors(source: str, revision: str | None) -> Iterator[None]:
    """Turn any error of the hub's client, or of a library that it uses, into a UserError with its
    remedy."""
    try:
        yield
    except Exception as error:
        names = [kind.__name__ for kind in type(error).__mro__]
        nearest_name = next(name for name in names if name in HUB_ERRORS)
        remedy = HUB_ERRORS[nearest_name].format(revision=revision, reason=first_line(error))
        raise UserError(f"repository '{source}' {remedy}") from error


# ---- weights


def download(spec: Model, *patterns: str, **options: Any) -> Any:
    """Return the folder with these files of a model's repository, by default all that a job needs,
    after downloading those that are missing."""
    from huggingface_hub import snapshot_download

    if not patterns:
        patterns = (spec.gguf,) if spec.gguf else WEIGHTS + TEXTS
    with explain_hub_errors(spec.source, spec.revision):
        return snapshot_download(
            spec.source,
            revision=spec.revision,
            allow_patterns=list(patterns),
            ignore_patterns=IGNORED,
            **options,
        )


def find_gguf(spec: Model) -> Path | None:
    """Return the GGUF file in the folder `source`, in models/ or in the hub's cache; None if it is
    in none of them.

    Raise UserError if it is not the one of the sha256.
    """
    name = str(spec.gguf)
    file = local_path(spec.source) / name
    places = [file, ROOT / "models" / file.name]
    with suppress(UserError):
        places.append(Path(download(spec, local_files_only=True)) / name)
    for place in places:
        if place.is_file():
            sha256 = checksum(str(place))
            if sha256 != spec.sha256:
                raise UserError(
                    f"{name} has sha256 {sha256}, expected {spec.sha256}: it is not used"
                )
            return place
    return None


def is_elsewhere(spec: Model) -> bool:
    """Whether a model is a GGUF file that is not on this machine."""
    return bool(spec.gguf) and not find_gguf(spec)


def find_config(spec: Model) -> tuple[str, dict[str, str]]:
    """Return the folder with a model's configuration and tokenizer, and the name of the GGUF file
    that holds them.

    From the hub only these are downloaded. A GGUF file must be here.
    """
    from lib.models import checkpoints

    file = find_gguf(spec) if spec.gguf else None
    if file:
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
        names = [path.name for path in local_path(spec.source).glob("*.gguf")]
        suggestion = nearest(str(spec.gguf), names)
        raise UserError(f"no file {spec.gguf} in {spec.source}; {suggestion}")
    if not spec.gguf and is_downloaded(spec):
        return 0
    resolve_revision("model", spec.source, spec.revision)
    files = download(spec, dry_run=True)
    if not files:
        name = spec.gguf or WEIGHTS[0]
        raise UserError(f"repository '{spec.source}' has no file '{name}' on the hub")
    return sum(file.file_size for file in files if file.will_download)


def is_downloaded(spec: Model) -> bool:
    """Whether a model's safetensors, and all that goes with them, are in the hub's cache."""
    with suppress(UserError):
        return any(Path(download(spec, local_files_only=True)).glob(WEIGHTS[0]))
    return False


def check_room(wanted: int) -> None:
    """Raise UserError if this many bytes of weights do not fit on the disk of the hub's cache."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(HF_HUB_CACHE).expanduser()
    while not folder.is_dir():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if wanted > USABLE_SHARE * free:
        raise UserError(
            f"the download of weights needs {wanted / 1e9:.3g} GB: "
            f"the disk has {free / 1e9:.1f} GB free; "
            "free some, or set HF_HOME to a folder on a larger disk"
        )


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
                f"fetching {name}: {missing[name] / 1e9:.1f} GB "
                f"of the repository {spec.source} on the hub"
            )
            download(spec)
        file = find_gguf(spec) if spec.gguf else None
        if file:
            link = partial(Path.symlink_to, target=file.resolve())
            write_atomically(spec.place / file.name, link)
