"""The local files of a run's models and datasets: what a job reads beside its inputs, and where it
lies.

A key names them by public path, as no path of this machine may stand in a record.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lib import params
from lib.files import list_files
from lib.paths import local_path, number_equal_names, public_path
from workflow.engine.fingerprint import checksum

# of a model's folder: what nothing opens, as only safetensors are loaded
UNREAD = (".md", ".bin", ".pt", ".pth")


@dataclass(frozen=True)
class LocalFile:
    """A file, and how it is named without the folders above the place that a parameter file
    names."""

    path: Path
    public: str


def files_at(place: str) -> list[LocalFile]:
    """Return the file at a place that a parameter file names, or the files in that folder. None is
    hidden in it."""
    path = local_path(place)
    public = public_path(place)
    if os.path.isfile(path):  # is_file raises for a name too long
        return [LocalFile(path, Path(public).as_posix())]
    if not os.path.isdir(path):
        return []
    files = []
    for file in list_files(path):
        name = Path(public, file.relative_to(path)).as_posix()
        files.append(LocalFile(file, name))
    return files


def files_of_weights(spec: params.Model) -> list[LocalFile]:
    """Return the files that loading a model may read: weights, configuration, tokenizer, end
    tokens, template.

    A GGUF file is known by its sha256.
    """
    if spec.gguf or not spec.source:
        return []
    return [file for file in files_at(spec.source) if not file.public.endswith(UNREAD)]


def files_of_responses(spec: params.Model, dataset: str) -> list[LocalFile]:
    """Return the files of precomputed responses to a dataset, and of answers to both forms of
    P(True)."""
    responses = spec.responses_to(dataset)
    if responses is None:
        return []
    files = files_at(str(responses))
    for answers in sorted(responses.parent.glob(f"{dataset}.*.responses.jsonl")):
        files += files_at(str(answers))
    return files


def files_of_questions(spec: params.Dataset) -> list[LocalFile]:
    """Return the files of a dataset in the order of its file; two may have one public path."""
    places = list(spec.source.values()) if isinstance(spec.source, dict) else [spec.source]
    if spec.split_ids:
        places.append(spec.split_ids)
    files = []
    for place in places:
        files += files_at(place)
    return files


def checksums_of_weights(spec: params.Model) -> dict[str, str | None]:
    """Return the checksums of the files that loading a model may read, by public path."""
    return {file.public: checksum(str(file.path)) for file in files_of_weights(spec)}


def local_checksums(
    specs: Iterable[params.Model | params.Dataset], dataset: str
) -> dict[str, str | None]:
    """Return the checksums of all local files of models and datasets, by public path; equal ones
    are numbered.

    `dataset`: the name of the one to which responses count.
    """
    files = []
    for spec in specs:
        if isinstance(spec, params.Dataset):
            files += files_of_questions(spec)
        else:
            files += files_of_weights(spec)
            files += files_of_responses(spec, dataset)
    names = number_equal_names(file.public for file in files)
    sums = [checksum(str(file.path)) for file in files]
    return dict(zip(names, sums, strict=True))
