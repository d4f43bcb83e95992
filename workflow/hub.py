"""The Hugging Face Hub: revisions, access and downloads, once before all jobs.

An open revision (null) is resolved once per run, saved in artifacts/<run>/resolved.yaml and pinned (lib/params.py).
So a new revision makes outputs stale, as a written one does. `--force 01` resolves it again. Local sources do not use
this module.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from lib import params
from lib.files import read_yaml, write_atomically
from lib.paths import ROOT, UserError, first_line, is_path
from workflow.pipeline import Run

IGNORED = ["consolidated*", "original/*", "*/*.safetensors"]  # copies of the same weights
ANSWER_SECONDS = 5  # to wait for an answer


def names_repository(source: object) -> bool:
    return isinstance(source, str) and source.count("/") == 1 and not is_path(source)


def is_on_hub(spec: params.Model | params.Dataset) -> bool:
    """Whether the source is a repository on the hub: neither local files nor one GGUF file (downloads.py)."""
    return names_repository(spec.source) and not (getattr(spec, "gguf", None) or getattr(spec, "folder", None))


# ---- a hub that does not answer ----------------------------------------------------------------------------


def hub_answers() -> bool:
    """Whether the hub answers within seconds: its own client would retry for minutes per name, or wait for ever."""
    import httpx2  # the library of the hub's client

    try:
        httpx2.head(os.environ.get("HF_ENDPOINT") or "https://huggingface.co", timeout=ANSWER_SECONDS)
    except (httpx2.HTTPError, httpx2.InvalidURL):
        return False
    return True


def specs_of(run: Run) -> list[tuple[str, Any]]:
    """Return each model and dataset of a run, with its kind; none for a replay, which uses no hub."""
    kinds = () if run.replayed else params.LOADERS.items()
    return [(kind, load(name)) for kind, load in kinds for name in run.values[f"{kind}s"]]


def go_offline_if_silent(run: Run) -> bool:
    """Switch the hub's client, before its import, to offline mode if the run may need the hub and it does not answer.
    Return whether."""
    may_need = any(names_repository(spec.source) for _, spec in specs_of(run))
    if os.environ.get("HF_HUB_OFFLINE") == "1" or not may_need or hub_answers():
        return False
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    return True


# ---- revisions ---------------------------------------------------------------------------------------------


def read_resolved(run: Run) -> dict:
    """Return the commits that an earlier start of the run resolved, by source."""
    name = f"{run.folder}/resolved.yaml"
    found = read_yaml(ROOT / name) if (ROOT / name).exists() else {}
    return found if isinstance(found, dict) else {}


def pin_revisions(run: Run, anew: bool = False) -> None:
    """Pin open revisions: as resolved before unless `anew`, else the newest. Offline, `anew` is not possible. No file
    changes.

    Raise UserError if a revision cannot be resolved.
    """
    known = {} if anew and os.environ.get("HF_HUB_OFFLINE") != "1" else read_resolved(run)
    params.REVISIONS.clear()
    for kind, spec in specs_of(run):
        if is_on_hub(spec) and not spec.revision:
            params.REVISIONS[spec.source] = known.get(spec.source) or resolve_revision(kind, spec.source)


def save_revisions(run: Run) -> None:
    """Save the pinned revisions for the jobs and later starts, once the run is not refused any more."""
    known = read_resolved(run)
    if known | params.REVISIONS != known:
        text = yaml.safe_dump(known | params.REVISIONS)
        write_atomically(ROOT / run.folder / "resolved.yaml", lambda scratch: scratch.write_text(text, "utf-8"))


def resolve_revision(kind: str, source: str, revision: str | None = None) -> str:
    """Return the commit of a revision (by default the newest). Raise UserError immediately if there is no access."""
    from huggingface_hub import HfApi
    from huggingface_hub.utils import logging

    logging.set_verbosity_error()  # the UserError reports the problem once
    ask = HfApi().model_info if kind == "model" else HfApi().dataset_info
    with explain_hub_errors(source, revision):
        return str(ask(source, revision=revision, timeout=ANSWER_SECONDS).sha)


def download(spec: params.Model, patterns: list[str], **options: Any) -> Any:
    """Return the folder with these files of a model's repository, after downloading those that are missing."""
    from huggingface_hub import snapshot_download

    options |= {"revision": spec.revision, "allow_patterns": patterns, "ignore_patterns": IGNORED}
    with explain_hub_errors(spec.source, spec.revision):
        return snapshot_download(spec.source, **options)


@contextmanager
def explain_hub_errors(source: str, revision: str | None) -> Iterator[None]:
    """Turn any error of the hub into a UserError with its remedy."""
    import httpx2
    from huggingface_hub import errors

    far = "is not on this machine and the hub can't be reached: connect, or name a folder as its `source`"
    try:
        yield
    except Exception as error:  # of its client, or of a library that the client uses
        failed = f"can't be downloaded from the hub: {first_line(error)}"
        remedies: dict[Any, str] = {  # the first that fits
            errors.GatedRepoError: "is gated: accept its license on its page, then `hf auth login` (or set HF_TOKEN)",
            errors.RevisionNotFoundError: f"has no revision '{revision}'; `revision: null` takes the newest",
            errors.RepositoryNotFoundError: "is not there, or needs access: check its spelling, or `hf auth login`",
            errors.HfHubHTTPError: failed,
            (OSError, httpx2.TransportError): far,
        }
        said = next((said for kind, said in remedies.items() if isinstance(error, kind)), failed)
        raise UserError(f"repository '{source}' {said}") from error
