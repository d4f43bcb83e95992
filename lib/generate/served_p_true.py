"""P(True) of a model that only a server has: its answers to the requests of lib.generate.batch_requests.

A server lists the most probable tokens of a position. The mass of an option is that of its spellings in the list. An
option outside the list is bounded by the last one listed, and such rows are counted. Whether a server let the model go
on with its own message is seen by the tokens of the prompt: those beside the question's and the response's are the
query's. Rows with another number of tokens stay empty.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from pydantic import Field

from lib import stored_columns
from lib.files import parse_json
from lib.generate import batch_requests
from lib.generate.batch_requests import VERIFICATIONS, served_file
from lib.generate.imported_responses import IMPOSSIBLE, ImportedResponses
from lib.generate.response_files import LoggedToken, Response, read_response_file
from lib.parameter_schemas import validate
from lib.paths import UserError, relative_path
from lib.store import KEYS
from lib.tasks.prompts import FORMS

SIDES = [[form + word for form in FORMS] for word in "AB"]  # the spellings of each option that are looked for
MOST_DIFFERING = 0.1  # share of in-situ prompts of another length, above which the server did something else


class VerificationAnswer(LoggedToken):
    """The answer to a request for one token, with the most probable ones at its place."""

    example_id: str  # with the form: `#verify`, `#in_situ`
    top_logprobs: list[LoggedToken] = Field(min_length=1)
    prompt_tokens: int
    cached_tokens: int | None = None  # of these, from the server's cache; None where it does not tell
    empty: bool = False

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


def parse_verdict(data: bytes, file: str, number: int, _: str = "") -> VerificationAnswer | Response:
    """Return the verdict of a line; an empty response for a failed request. Raise UserError for any other line."""
    line, where = parse_json(data, file, number), f"{file}, line {number}"
    try:
        name, response = str(line["custom_id"]), line["response"]
        if line.get("error") or response["status_code"] != 200:
            return Response(name)
        logprobs, usage = response["body"]["choices"][0]["logprobs"], response["body"]["usage"]
        if "top_logprobs" in logprobs:  # the arrays of /v1/completions
            tops = [{"token": token, "logprob": value} for token, value in logprobs["top_logprobs"][0].items()]
            token = {"token": logprobs["tokens"][0], "logprob": logprobs["token_logprobs"][0], "top_logprobs": tops}
        else:
            token = dict(logprobs["content"][0])
        told = (usage.get("prompt_tokens_details") or {}) | {"prompt_tokens": usage["prompt_tokens"]}
        return validate(VerificationAnswer, told | token | {"example_id": name}, where)
    except (LookupError, TypeError, AttributeError):
        remedy = "it must list `top_logprobs`, and tell `usage`"
        raise UserError(f"{where} is not the answer to a request for one token: {remedy}") from None


def read_verdicts(imported: ImportedResponses, form: str) -> dict[str, VerificationAnswer]:
    """Return the verdicts in one form by custom_id. Raise UserError if they are about other responses than these."""
    spec, dataset = imported.spec, imported.dataset
    if not (path := served_file(spec, dataset, "responses", form)).exists():
        return {}
    verdicts = read_response_file(path, dataset, parse_verdict)
    asked, sent = (batch_requests.read_requests(served_file(spec, dataset, "requests", kind)) for kind in ("", form))
    for request in batch_requests.verification_requests(imported, asked)[form]:
        name, body = request["custom_id"], sent.get(request["custom_id"], request)["body"]
        same = all(request["body"].get(key) == body.get(key) for key in ("messages", "prompt"))
        if name in verdicts and not same:
            raise UserError(f"{relative_path(path)}: '{name}' is about another response: move it away, ask again")
    return {name: one for name, one in verdicts.items() if not one.empty}


# ---- the verdicts on a pair's responses


@dataclass(frozen=True)
class ServedVerification:
    """The verdicts that can be used, by form and example_id, the tokens of the query, and what is to be said."""

    imported: ImportedResponses
    verdicts: Mapping[str, Mapping[str, VerificationAnswer]]
    query_tokens: int
    remarks: list[str]

    @classmethod
    def read(cls, imported: ImportedResponses) -> Self:
        """Read the answers in both forms. Raise UserError for a line that can't be read."""
        found, kept, remarks = {form: read_verdicts(imported, form) for form in VERIFICATIONS}, {}, []
        asked = [name for name, response in imported.responses.items() if not response.empty]
        if not any(found.values()):
            return cls(imported, found, 0, ["its server was not asked, see docs/extending.md"])
        probes = [found["in_situ"].pop(name, None) for name in batch_requests.PROBES]
        query = probes[0].prompt_tokens - probes[1].prompt_tokens if probes[0] and probes[1] else 0
        for form, verdicts in found.items():
            by_example = {name: verdicts[f"{name}#{form}"] for name in asked if f"{name}#{form}" in verdicts}
            told = {name: verdict for name, verdict in by_example.items() if verdict.options}
            kept[form] = keep_continued(imported, told, query) if form == "in_situ" else told
            counts = {
                "were not answered": len(asked) - len(by_example),
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


def keep_continued(
    imported: ImportedResponses, verdicts: Mapping[str, VerificationAnswer], query: int
) -> dict[str, VerificationAnswer]:
    """Return the verdicts whose prompt goes on with the query after the response; none if a tenth does not."""
    responses = {name: imported.responses[name] for name in verdicts}
    before = {name: one.prompt_tokens + len(one.pieces) - one.ended for name, one in responses.items()}
    kept = {name: one for name, one in verdicts.items() if query and one.prompt_tokens == before[name] + query}
    return kept if len(verdicts) - len(kept) <= MOST_DIFFERING * len(verdicts) else {}


def option_logprobs(verdict: VerificationAnswer | None, spellings: list[str]) -> list[float]:
    """Return the log-probability of each spelling; NaN without a verdict.

    One that is not listed is impossible. If all of an option are not, the first has the least that is listed.
    """
    if verdict is None:
        return [np.nan] * len(spellings)
    listed = verdict.by_text
    values = {spelling: listed.get(spelling, IMPOSSIBLE) for spelling in spellings}
    for side in (spellings[: len(spellings) // 2], spellings[len(spellings) // 2 :]):
        if not set(side) & listed.keys():
            values[side[0]] = min(listed.values())
    return list(values.values())
