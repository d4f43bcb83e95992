"""P(True) of a model that only a server has: its answers to the requests of lib.generate.batch_requests.

A server lists the most probable tokens of a position. The mass of an option is that of its spellings in the list. An
option outside the list is bounded by the last one listed, and such rows are counted. Whether a server let the model go
on with its own message is seen by the tokens of the prompt: those beside the question's and the response's are the
query's. Rows with another number of tokens stay empty.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
from pydantic import Field

from lib import stored_columns
from lib.files import parse_json, read_bytes
from lib.generate.batch_requests import (
    VERIFICATIONS,
    WITH_QUERY,
    WITHOUT_QUERY,
    read_requests,
    served_file,
    verification_requests,
)
from lib.generate.imported_responses import IMPOSSIBLE, ImportedResponses
from lib.generate.response_files import LoggedToken
from lib.parameter_types import validate
from lib.paths import UserError, relative_path
from lib.store import KEYS
from lib.tasks.prompts import FORMS

SIDES = [[form + word for form in FORMS] for word in "AB"]  # the spellings of each option that are looked for
MOST_DIFFERING = 0.1  # share of in-situ prompts of another length, above which the server did something else


class Listed(LoggedToken):
    """A token, and the most probable ones at its place; tokens of the prompt, and of these from the server's cache."""

    top_logprobs: list[LoggedToken] = Field(min_length=1)
    prompt_tokens: int
    cached_tokens: int | None = None  # None where the server does not tell

    @property
    def by_text(self) -> dict[str, float]:
        """Log-probability (nats) of each text that is listed: the largest of several tokens with this text."""
        return {text_of(one): one.logprob for one in sorted(self.top_logprobs, key=lambda one: one.logprob)}

    @property
    def options(self) -> int:
        """How many of the two options are listed; 0 where thinking begins."""
        return sum(bool(set(side) & self.by_text.keys()) for side in SIDES) * ("<think>" not in self.token)


def text_of(token: LoggedToken) -> str:
    return bytes(token.bytes).decode(errors="replace") if token.bytes else token.token


def parse_verdict(data: bytes, file: str, number: int) -> tuple[str, Listed | None]:
    """Return custom_id and verdict of a line of answers; None for a failed one. Raise UserError for any other line."""
    line, where = parse_json(data, file, number), f"{file}, line {number}"
    try:
        if line.get("error") or line["response"]["status_code"] != 200:
            return str(line["custom_id"]), None
        body = line["response"]["body"]
        logprobs, usage = body["choices"][0]["logprobs"], body["usage"]
        if "top_logprobs" in logprobs:  # the arrays of /v1/completions
            tops = [{"token": token, "logprob": value} for token, value in logprobs["top_logprobs"][0].items()]
            token = {"token": logprobs["tokens"][0], "logprob": logprobs["token_logprobs"][0], "top_logprobs": tops}
        else:
            token = dict(logprobs["content"][0])
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        counted = {"prompt_tokens": usage["prompt_tokens"], "cached_tokens": cached}
        return str(line["custom_id"]), validate(Listed, token | counted, where)
    except (LookupError, TypeError, AttributeError):
        remedy = "it must list `top_logprobs`, and tell `usage`"
        raise UserError(f"{where} is not the answer to a request for one token: {remedy}") from None


def read_verdicts(path: Path) -> dict[str, Listed]:
    """Return the verdicts of a file by custom_id. Raise UserError, with the line number, for a question twice."""
    found: dict[str, Listed] = {}
    where = relative_path(path)
    for number, data in enumerate(read_bytes(path, where).split(b"\n") if path.exists() else [], 1):
        name, verdict = parse_verdict(data, where, number) if data.strip() else ("", None)
        if verdict and found.setdefault(name, verdict) is not verdict:
            raise UserError(f"{where}, line {number}: '{name}' has been answered before")
    return found


def read_form(imported: ImportedResponses, form: str) -> dict[str, Listed]:
    """Return the verdicts in one form by custom_id. Raise UserError if they are about other responses than these."""
    asked, answers, first = (
        served_file(imported.spec, imported.dataset, *kind)
        for kind in (("requests", form), ("responses", form), ("requests",))
    )
    if verdicts := read_verdicts(answers):
        sent, wanted = read_requests(asked), verification_requests(imported, read_requests(first))[form]
        for name, body in ((one["custom_id"], one["body"]) for one in wanted if one["custom_id"] in verdicts):
            if any(body.get(key) != sent[name]["body"].get(key) for key in ("messages", "prompt")):
                raise UserError(
                    f"{relative_path(answers)}: '{name}' is about another response: move it away, ask again"
                )
    return verdicts


# ---- the verdicts on a pair's responses


@dataclass(frozen=True)
class ServedVerification:
    """The verdicts that can be used, by form and example_id, the tokens of the query, and what is to be said."""

    imported: ImportedResponses
    verdicts: Mapping[str, Mapping[str, Listed]]
    query_tokens: int
    remarks: list[str]

    @classmethod
    def read(cls, imported: ImportedResponses) -> Self:
        """Read the answers in both forms. Raise UserError for a line that can't be read."""
        found, kept, remarks = {form: read_form(imported, form) for form in VERIFICATIONS}, {}, []
        if not any(found.values()):
            return cls(imported, found, 0, ["its server was not asked, see docs/extending.md"])
        probes = [found["in_situ"].pop(name, None) for name in (WITH_QUERY, WITHOUT_QUERY)]
        query = probes[0].prompt_tokens - probes[1].prompt_tokens if probes[0] and probes[1] else 0
        for form, verdicts in found.items():
            by_example = {name.removesuffix(f"#{form}"): verdict for name, verdict in verdicts.items()}
            told = {name: verdict for name, verdict in by_example.items() if verdict.options}
            kept[form] = keep_continued(imported, told, query) if form == "in_situ" else told
            counts = {
                "were not answered": sum(not one.empty for one in imported.responses.values()) - len(by_example),
                "list no option, or think": len(by_example) - len(told),
                "were not continued, by the tokens of their prompts": len(told) - len(kept[form]),
                "do not list one of the options, which the least one listed bounds": sum(
                    verdict.options < len(SIDES) for verdict in kept[form].values()
                ),
            }
            remarks += [f"{form}: {n} of {len(imported.examples)} {what}" for what, n in counts.items() if n]
        return cls(imported, kept, query, remarks)

    def count_tokens(self) -> pd.DataFrame:
        """Return by form the rows, the tokens of their prompts, and how many the server took from its cache."""
        counts = [
            (form, 1, one.prompt_tokens, one.cached_tokens or 0)
            for form, verdicts in self.verdicts.items()
            for one in verdicts.values()
        ]
        table = pd.DataFrame(counts, columns=["form", "rows", "prompt", "cached"]).groupby("form", sort=False).sum()
        return table.assign(encoded=table.prompt - table.cached)

    def to_frame(self, model: str) -> pd.DataFrame:
        """Return a verification frame of the rows that have a verdict, with the forms that both options have."""
        listed = {text for rows in self.verdicts.values() for one in rows.values() for text in one.by_text}
        forms = [form for form in FORMS if {form + "A", form + "B"} <= listed] or FORMS
        spellings = [form + word for word in "AB" for form in forms]
        rows = []
        for example in self.imported.examples:
            standard, in_situ = (self.verdicts[form].get(example.example_id) for form in VERIFICATIONS)
            key = (model, self.imported.dataset, example.split, example.example_id)
            if standard or in_situ:
                rows.append(dict(zip(KEYS, key, strict=True)) | {
                    "standard_tokens": standard.prompt_tokens if standard else None,
                    "standard_logits": option_logprobs(standard, spellings),
                    "in_situ_tokens": self.query_tokens if in_situ else None,
                    "in_situ_logits": option_logprobs(in_situ, spellings),
                    "spellings": spellings,
                })  # fmt: skip
        if not rows:
            return stored_columns.empty_frame("verification")
        frame = pd.DataFrame(rows).assign(standard_logz=0.0, in_situ_logz=0.0, standard_prompt=None)
        return frame.astype({"standard_tokens": "Int64", "in_situ_tokens": "Int64"})


def keep_continued(imported: ImportedResponses, verdicts: Mapping[str, Listed], query: int) -> dict[str, Listed]:
    """Return the verdicts whose prompt goes on with the query after the response; none if a tenth does not."""
    kept = {}
    for name, verdict in verdicts.items():
        response = imported.responses[name]
        before = response.prompt_tokens + len(response.pieces) - response.ended
        if query and verdict.prompt_tokens == before + query:
            kept[name] = verdict
    return kept if len(verdicts) - len(kept) <= MOST_DIFFERING * len(verdicts) else {}


def option_logprobs(verdict: Listed | None, spellings: list[str]) -> list[float]:
    """Return the log-probability of each spelling; NaN without a verdict.

    One that is not listed is impossible. If all of an option are not, the first has the least that is listed.
    """
    if verdict is None:
        return [np.nan] * len(spellings)
    listed = verdict.by_text
    values = {spelling: listed.get(spelling, IMPOSSIBLE) for spelling in spellings}
    for first, side in zip((spellings[0], spellings[len(spellings) // 2]), SIDES, strict=True):
        if not set(side) & listed.keys():
            values[first] = min(listed.values())
    return list(values.values())
