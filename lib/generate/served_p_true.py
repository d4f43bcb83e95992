"""P(True) of a model that only a server has: its answers to the requests of lib.generate.batch_requests.

A server lists the most probable tokens of a position. The mass of an option is that of its spellings in the list. An
option outside the list is bounded by the last one listed, and such rows are counted. Whether a server let the model go
on with its own message is seen by the tokens of the prompt: those beside the question's and the response's are the
query's. Rows with another number of tokens stay empty.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from lib import stored_columns
from lib.generate import batch_requests
from lib.generate.batch_requests import PROBES, VERIFICATIONS, served_files
from lib.generate.imported_responses import IMPOSSIBLE, ImportedResponses
from lib.generate.response_files import Response, read_response_file
from lib.store import KEYS
from lib.tasks.prompts import FORMS, balance_spellings

MOST_DIFFERING = 0.1  # share of in-situ prompts of another length, above which the server did something else
Verdicts = Mapping[str, Response]  # by example_id


class ServedVerification(NamedTuple):
    """What a server tells of P(True): a verification frame, the tokens of each form's prompts, and what is to be said.

    `tokens`: by form, the number of `rows`, the tokens of their prompts, and of these `cached` and `encoded` ones; None
    where the server does not tell.
    """

    frame: pd.DataFrame
    tokens: dict[str, dict[str, int | None]]
    remarks: list[str]


def read_verification(imported: ImportedResponses, model: str) -> ServedVerification:
    """Read the answers in both forms. Raise UserError for a line that can't be read, or about another response."""
    found = {form: read_verdicts(imported, form) for form in VERIFICATIONS}
    if not any(found.values()):
        unasked = ["its server was not asked, see docs/extending.md"]
        return ServedVerification(stored_columns.empty_frame("verification"), {}, unasked)
    probes = [found["in_situ"].get(name, Response(name)).prompt_tokens for name in PROBES]
    query = probes[0] - probes[1] if all(probes) else 0
    kept, remarks = {}, []
    for form, verdicts in found.items():
        asked = [name for name, response in imported.responses.items() if not response.empty]
        told = {name: verdicts[f"{name}#{form}"] for name in asked if f"{name}#{form}" in verdicts}
        listing = {name: one for name, one in told.items() if count_options(one)}
        kept[form] = keep_continued(imported, listing, query) if form == "in_situ" else listing
        counts = {
            "were not answered": len(asked) - len(told),
            "list no option, or think": len(told) - len(listing),
            "were not continued, by the tokens of their prompts": len(listing) - len(kept[form]),
            "do not list one of the options, which the least one listed bounds": sum(
                count_options(one) == 1 for one in kept[form].values()
            ),
        }
        remarks += [f"{form}: {n} of {len(imported.examples)} {what}" for what, n in counts.items() if n]
    tokens = {form: count_tokens(list(verdicts.values())) for form, verdicts in kept.items()}
    return ServedVerification(verification_frame(imported, model, kept, query), tokens, remarks)


def read_verdicts(imported: ImportedResponses, form: str) -> Verdicts:
    """Return the answers in one form by custom_id. Raise UserError if they are about other responses than these."""
    spec, dataset = imported.spec, imported.dataset
    requests, path = served_files(spec, dataset, form)
    if not path.exists():
        return {}
    asked = batch_requests.read_requests(served_files(spec, dataset)[0])
    batch_requests.check_answered(batch_requests.verification_requests(imported, asked)[form], requests, path)
    return {name: one for name, one in read_response_file(path, dataset).items() if not one.empty}


def count_options(verdict: Response) -> int:
    """Return how many of the two options are listed; 0 where the model thinks."""
    thinks = verdict.thought or "<think>" in verdict.text
    return 0 if thinks else sum(any(form + word in verdict.listed for form in FORMS) for word in "AB")


def keep_continued(imported: ImportedResponses, verdicts: Verdicts, query: int) -> Verdicts:
    """Return the verdicts whose prompt goes on with the query after the response; none if a tenth does not."""
    responses = {name: imported.responses[name] for name in verdicts}
    before = {name: one.prompt_tokens + len(one.pieces) - one.ended for name, one in responses.items()}
    kept = {name: one for name, one in verdicts.items() if query and one.prompt_tokens == before[name] + query}
    return kept if len(verdicts) - len(kept) <= MOST_DIFFERING * len(verdicts) else {}


def count_tokens(verdicts: Sequence[Response]) -> dict[str, int | None]:
    """Return the number of verdicts, and the tokens of their prompts as ServedVerification has them."""
    prompt, told = sum(one.prompt_tokens for one in verdicts), [one.cached_tokens for one in verdicts]
    cached = None if None in told else sum(filter(None, told))
    return {
        "rows": len(told),
        "prompt": prompt,
        "cached": cached,
        "encoded": None if cached is None else prompt - cached,
    }


def verification_frame(
    imported: ImportedResponses, model: str, kept: Mapping[str, Verdicts], query: int
) -> pd.DataFrame:
    """Return a row per response with a verdict, and the forms of the options that are listed for both."""
    listed = {text for verdicts in kept.values() for one in verdicts.values() for text in one.listed}
    sides = balance_spellings(listed | set("AB"))
    rows = []
    for name, split, *_ in imported.examples:
        standard, in_situ = (kept[form].get(name) for form in VERIFICATIONS)
        if standard or in_situ:
            rows.append(dict(zip(KEYS, (model, imported.dataset, split, name), strict=True)) | {
                "standard_tokens": standard.prompt_tokens if standard else None,
                "standard_logits": option_logprobs(standard, sides),
                "in_situ_tokens": query if in_situ else None,
                "in_situ_logits": option_logprobs(in_situ, sides),
                "spellings": sum(sides, []),
            })  # fmt: skip
    if not rows:
        return stored_columns.empty_frame("verification")
    frame = pd.DataFrame(rows).assign(standard_logz=0.0, in_situ_logz=0.0, standard_prompt=None)
    return frame.astype({"standard_tokens": "Int64", "in_situ_tokens": "Int64"})


def option_logprobs(verdict: Response | None, sides: Sequence[list[str]]) -> list[float]:
    """Return the log-probability of each spelling of both options; NaN without a verdict.

    One that is not listed is impossible. If all of an option are not, the first has the least that is listed.
    """
    values = []
    for side in sides:
        told = [verdict.listed.get(spelling, IMPOSSIBLE) if verdict else np.nan for spelling in side]
        if verdict and not verdict.listed.keys() & set(side):
            told[0] = min(verdict.listed.values())
        values += told
    return values
