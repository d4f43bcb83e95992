"""GSM8K, GSMHard, SVAMP and files of one's own as one record type, with explicit splits.

A dataset's `format` says how a row is read and how it finds its split; its `source` is a name on the hub, or
names local files (JSON lines or a JSON list): one per split (`calibration`, `evaluation`) or one for `all`.

gsm8k    {question, answer}: the reference is the number after `####`; train calibrates, test evaluates.
gsmhard  {input, target}: published as one part; rows are ordered by sha256 of "seed|row", the first
         `calibration` of them calibrate and the rest evaluate, alike on every machine and library version.
svamp    {ID, Body, Question, Answer}: Body and Question are joined by one space, as published (358 bodies
         lack a full stop); the split is the hub's, or of `split_ids`, a file {train: [ids], test: [ids]}.
jsonl    {question, answer, split?, id?}: the answer is a number, or a text that ends in `#### number`.

References are spelt canonically (`-9867630`, `0.0000005`); an id that a row lacks is made of split and row.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lib.project import ROOT, UserError, nearest
from lib.tasks import answers

if TYPE_CHECKING:
    from lib.params import Dataset

CALIBRATION, EVALUATION = "calibration", "evaluation"
PARTS = {"train": CALIBRATION, "test": EVALUATION, CALIBRATION: CALIBRATION, EVALUATION: EVALUATION}


class Example(NamedTuple):
    example_id: str
    split: str
    question: str
    reference: str  # the right answer, a canonical number


@dataclass(frozen=True)
class Row:
    """A row as published; a field that it lacks, or a text that is none, is the user's error."""

    part: str  # train, test, all, ...
    index: int  # place there, from 0
    where: str  # how a message names it
    fields: dict[str, Any]

    def field(self, name: str) -> Any:
        if name not in self.fields:
            raise UserError(f"{self.where}: no field '{name}'; {nearest(name, self.fields)}")
        return self.fields[name]

    def text(self, *names: str) -> str:
        for name in names:
            if not isinstance(self.field(name), str):
                raise UserError(f"{self.where}: '{name}' is {self.fields[name]!r:.40}, not a text")
        return " ".join(self.fields[name].strip() for name in names).strip()


def load(dataset: "Dataset") -> list[Example]:
    """All examples, the calibration split first, as many of each split as the dataset's file expects."""
    read, place = FORMATS[dataset.format]
    examples: dict[str, Example] = {}
    for row, split in place(dataset, list(_rows(dataset))):
        name, question, answer = read(row)
        name = f"{split}-{row.index}" if name is None else str(name)
        if name in examples or not question:
            raise UserError(f"{row.where}: {f'the id {name!r} again' if question else 'an empty question'}")
        examples[name] = Example(name, split, question, reference(answer, row.where))
    count = Counter(example.split for example in examples.values())
    found = f"{count[CALIBRATION]} calibration and {count[EVALUATION]} evaluation questions"
    expected = f"{dataset.calibration} calibration and {dataset.evaluation} evaluation questions"
    if found != expected:
        raise UserError(f"dataset '{dataset.label}': expected {expected}, found {found}")
    return sorted(examples.values(), key=lambda example: example.split)


def provenance(dataset: "Dataset") -> dict[str, str]:
    """What is read, for the manifest: the hub's name and resolved revision, or the sha256 of every file."""
    if isinstance(dataset.source, str):
        return {"source": dataset.source, "revision": _hub(dataset)[1]}
    files = filter(None, [*dataset.source.values(), dataset.split_ids])
    return {str(name): hashlib.sha256(_file(name)[1]).hexdigest() for name in files}


def reference(answer: Any, where: str) -> str:
    """The canonical number of a published answer: a number, a text that is one, or the one after `####`."""
    text = answer if isinstance(answer, str) else repr(answer)
    span = answers.find_answer(text) if answers.MARK in text else (0, len(text))
    number = answers.parse_number(text[slice(*span)]) if span else None
    if number is None:
        raise UserError(f"{where}: no number in the answer {text[-40:]!r}")
    return answers.canonical(number)


def _rows(dataset: "Dataset") -> Iterator[Row]:
    if isinstance(dataset.source, str):
        for part, records in _hub(dataset)[0].items():
            if part in PARTS or dataset.format == "gsmhard":  # others, such as `validation`, are left alone
                for n, record in enumerate(records):
                    yield Row(part, n, f"{dataset.source}, {part}, row {n}", dict(record))
    else:
        for part, name in dataset.source.items():
            for n, (where, record) in enumerate(_records(name)):
                yield Row(part, n, where, record)


def _hub(dataset: "Dataset") -> tuple[dict[str, Any], str]:
    """The hub's parts, and the commit they came from, which the addresses of the downloaded files name."""
    try:
        import datasets  # here, since it is slow to import and local files do without it

        parts = datasets.load_dataset(dataset.source, dataset.config, revision=dataset.revision)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"hub dataset '{dataset.source}' did not load: {reason:.200}") from error
    urls = [url for records in parts.values() for url in records.info.download_checksums or {}]
    commits = {url.partition("@")[2].partition("/")[0] for url in urls if url.startswith("hf:")}
    return dict(parts), ", ".join(sorted(commits)) or dataset.revision or "unknown"


def _file(name: str | Path) -> tuple[Path, bytes]:
    """A file's path and bytes; a relative name starts from the project's root."""
    path = ROOT / Path(name).expanduser()
    try:
        return path, path.read_bytes()
    except OSError as error:
        folder = next(parent for parent in path.parents if parent.is_dir())
        lost = path.relative_to(folder).parts[0]
        there = [found.name for found in folder.iterdir() if found.suffix == Path(lost).suffix]
        hint = error.strerror if path.exists() else f"in {folder}, {nearest(lost, there)}"
        raise UserError(f"no file {path}: {hint}") from error


def _json(data: bytes, path: Path, line: int = 1) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:  # a wrong encoding is a ValueError too
        line += getattr(error, "lineno", 1) - 1
        raise UserError(f"{path}, line {line}: not JSON ({getattr(error, 'msg', error)})") from error


def _records(name: str | Path) -> list[tuple[str, Any]]:
    """(where, record) of a file that holds one JSON list, or one JSON object per line."""
    path, data = _file(name)
    if data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        found = [(f"{path}, item {n}", record) for n, record in enumerate(_json(data, path), 1)]
    else:
        lines = enumerate(data.split(b"\n"), 1)
        found = [(f"{path}, line {n}", _json(line, path, n)) for n, line in lines if line.strip()]
    for where, record in found:
        if not isinstance(record, dict):
            raise UserError(f"{where}: {record!r:.40} is not an object with fields")
    return found


def _by_part(dataset: "Dataset", rows: list[Row]) -> Iterator[tuple[Row, str]]:
    """The split is the part, or the row's own field where one file holds all."""
    for row in rows:
        if row.part == "all" and "split" not in row.fields:
            raise UserError(f"{row.where}: no field 'split', which one file for `all` needs (or `split_ids`)")
        part = str(row.fields["split"] if row.part == "all" else row.part)
        if part not in PARTS:
            raise UserError(f"{row.where}: no split is called '{part}'; {nearest(part, PARTS)}")
        yield row, PARTS[part]


def _by_id(dataset: "Dataset", rows: list[Row]) -> Iterator[tuple[Row, str]]:
    """The part is the list of `split_ids` that has the row's ID; without lists, the published one."""
    if not dataset.split_ids:
        return _by_part(dataset, rows)
    path, data = _file(dataset.split_ids)
    lists = _json(data, path)
    if not isinstance(lists, dict) or not all(isinstance(ids, list) for ids in lists.values()):
        raise UserError(f"{path}: not of the form {{train: [ids], test: [ids]}}")
    parts = {str(name): part for part, ids in lists.items() for name in ids}
    for row in rows:
        if str(row.field("ID")) not in parts:
            raise UserError(f"{row.where}: the id '{row.fields['ID']}' is in no list of {path}")
    return _by_part(dataset, [replace(row, part=parts[str(row.fields["ID"])]) for row in rows])


def _shuffled(dataset: "Dataset", rows: list[Row]) -> Iterator[tuple[Row, str]]:
    """The first `calibration` rows in the order of sha256("seed|row") calibrate, the rest evaluate."""
    if dataset.seed is None or len({row.part for row in rows}) > 1:
        raise UserError(f"dataset '{dataset.label}': format gsmhard splits one file itself, by its `seed`")
    rows = sorted(rows, key=lambda row: hashlib.sha256(f"{dataset.seed}|{row.index}".encode()).digest())
    for n, row in enumerate(rows):
        yield row, CALIBRATION if n < dataset.calibration else EVALUATION


Read = Callable[[Row], tuple[Any, str, Any]]  # id (or None), question, answer
Place = Callable[["Dataset", list[Row]], Iterator[tuple[Row, str]]]
FORMATS: dict[str, tuple[Read, Place]] = {
    "gsm8k": (lambda row: (None, row.text("question"), row.field("answer")), _by_part),
    "gsmhard": (lambda row: (f"row-{row.index}", row.text("input"), row.field("target")), _shuffled),
    "svamp": (lambda row: (row.field("ID"), row.text("Body", "Question"), row.field("Answer")), _by_id),
    "jsonl": (lambda row: (row.fields.get("id"), row.text("question"), row.field("answer")), _by_part),
}


def limited(examples: list[Example], limit: int) -> list[Example]:
    """The first `limit` examples of each split; all of them when it is 0."""
    if not limit:
        return examples
    return [e for split in (CALIBRATION, EVALUATION) for e in [x for x in examples if x.split == split][:limit]]
