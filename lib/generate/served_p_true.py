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
    asked = [name for name, response in imported.responses.items() if not response.empty]
    kept, remarks = {}, list[str]()
    for form, verdicts in found.items():
        told = {name: verdicts[name] for name in asked if name in verdicts}
        listing = {name: one for name, one in told.items() if count_options(one)}
        kept[form] = keep_continued(imported, listing, count_query(found)) if form == "in_situ" else listing
        bounded = [one for one in kept[form].values() if count_options(one) == 1]
        counts = {
            "were not answered": len(asked) - len(told),
            "list no option, or think": len(told) - len(listing),
            "were not continued, by the tokens of their prompts": len(listing) - len(kept[form]),
            "do not list one of the options, which the least one listed bounds": len(bounded),
        }
        remarks += [f"{form}: {n} of {len(imported.examples)} {what}" for what, n in counts.items() if n]
    tokens = {form: count_tokens(list(verdicts.values())) for form, verdicts in kept.items()}
    said = remarks if any(found.values()) else ["its server was not asked, see docs/extending.md"]
    return ServedVerification(verification_frame(imported, model, kept, count_query(found)), tokens, said)


def read_verdicts(imported: ImportedResponses, form: str) -> Verdicts:
    """Return the answers in one form. Raise UserError if they are about other responses than these."""
    spec, dataset = imported.spec, imported.dataset
    requests, path = served_files(spec, dataset, form)
    if not path.exists():
        return {}
    asked = batch_requests.read_requests(served_files(spec, dataset)[0])
    batch_requests.check_answered(batch_requests.verification_requests(imported, asked)[form], requests, path)
    answers = read_response_file(path, dataset)
    return {name.removesuffix(f"#{form}"): one for name, one in answers.items() if not one.empty}


def count_options(verdict: Response) -> int:
    """Return how many of the two options are listed; 0 where the model thinks."""
    thinks = verdict.thought or "<think>" in verdict.text
    return 0 if thinks else sum(any(form + word in verdict.listed for form in FORMS) for word in "AB")


def count_query(found: Mapping[str, Verdicts]) -> int:
    """Return the tokens of the query, by those of a prompt with and without it; 0 if a server does not tell."""
    with_query, without = (found["in_situ"].get(name, Response(name)).prompt_tokens for name in PROBES)
    return with_query - without if without else 0


def keep_continued(imported: ImportedResponses, verdicts: Verdicts, query: int) -> Verdicts:
    """Return the verdicts whose prompt goes on with the query after the response; none if a tenth does not."""
    responses = {name: imported.responses[name] for name in verdicts}
    before = {name: one.prompt_tokens + len(one.pieces) - one.ended for name, one in responses.items()}
    kept = {name: one for name, one in verdicts.items() if query > 0 and one.prompt_tokens == before[name] + query}
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
    true, false = balance_spellings(listed | set("AB"))
    told = set().union(*kept.values())
    keys = [(model, imported.dataset, one.split, one.example_id) for one in imported.examples if one.example_id in told]
    frame = pd.DataFrame(keys, columns=KEYS).assign(spellings=[true + false] * len(keys), standard_prompt=None)
    for column, form in zip(("standard", "in_situ"), VERIFICATIONS, strict=True):
        verdicts = [kept[form].get(name) for name in frame.example_id]
        tokens = [one and (query if form == "in_situ" else one.prompt_tokens) for one in verdicts]
        frame[f"{column}_tokens"] = pd.array(tokens, "Int64")
        frame[f"{column}_logits"] = [option_logprobs(one, true) + option_logprobs(one, false) for one in verdicts]
        frame[f"{column}_logz"] = 0.0
    return frame if len(frame) else stored_columns.empty_frame("verification")


def option_logprobs(verdict: Response | None, spellings: list[str]) -> list[float]:
    """Return the log-probability of each spelling of an option; NaN without a verdict.

    One that is not listed is impossible. If none is, the first has the least that is listed.
    """
    if verdict is None:
        return [np.nan] * len(spellings)
    least = IMPOSSIBLE if verdict.listed.keys() & set(spellings) else min(verdict.listed.values())
    return [verdict.listed.get(spelling, IMPOSSIBLE if place else least) for place, spelling in enumerate(spellings)]
