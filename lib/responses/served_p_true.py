"""P(True) of a model that only a server has, from its answers, and all that 01b stores.

Whether the server let the model go on with its own message is seen by the tokens of the prompt:
those beside the question's and the response's are the query's. Rows with another number of tokens
stay empty. Rows with an option that the server does not list (lib.responses.served_verdict) are
counted.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from lib import params, store, stored_columns
from lib.responses.formats import read_response_file
from lib.responses.imported import ImportedResponses
from lib.responses.served_verdict import SPELLINGS, OptionVerdict
from lib.responses.server_requests import (
    PROBES,
    VERIFICATIONS,
    RequestFile,
    check_same_requests,
    exchange_files,
    verification_requests,
)
from lib.tasks import dataset_sources, datasets

# share of in-situ prompts of another length, above which the server did something else
MOST_DIFFERING = 0.1
# remarks
UNANSWERED = "were not answered"
NO_OPTION = "list no option, or think"
NOT_CONTINUED = "were not continued, by the tokens of their prompts"
BOUNDED = "do not list one of the options, which those listed bound"
Verdicts = Mapping[str, OptionVerdict]  # by example_id


class ServedVerification(NamedTuple):
    """What a server tells of P(True): a verification frame, the tokens of each form's prompts, and
    what is to be said.

    `tokens`: by form, the number of `rows`, the tokens of their prompts, and how many of these were
    `cached`, which the server did not encode; None where it does not tell.
    """

    frame: pd.DataFrame
    tokens: dict[str, dict[str, int | None]]
    remarks: list[str]


def read_verification(imported: ImportedResponses, model: str) -> ServedVerification:
    """Read the answers in both forms. Raise UserError for a line that can't be read, or about
    another response."""
    answers = {form: read_verdicts(imported, form) for form in VERIFICATIONS}
    query = count_query(answers["in_situ"])
    usable = {}
    tokens = {}
    remarks = []
    for form, verdicts in answers.items():
        usable[form], counts = select_usable_verdicts(imported, form, verdicts, query)
        tokens[form] = sum_tokens(usable[form])
        for what, count in counts.items():
            if count:
                remarks.append(f"{form}: {count} of {len(imported.examples)} {what}")
    if not any(answers.values()):
        remarks = ["its server was not asked, see docs/extending.md"]
    return ServedVerification(verification_frame(imported, model, usable, query), tokens, remarks)


def read_verdicts(imported: ImportedResponses, form: str) -> Verdicts:
    """Return the answers in one form. Raise UserError if they are about other responses than
    these."""
    path, answers = exchange_files(imported.spec, imported.dataset, form)
    if not answers.exists():
        return {}
    questions = RequestFile(exchange_files(imported.spec, imported.dataset)[0])
    RequestFile(path)  # without it nothing would tell which responses the verdicts are about
    requests = verification_requests(
        form, imported.spec, questions, imported.examples, imported.responses
    )
    check_same_requests(requests, path, answers)
    verdicts = {}
    for name, response in read_response_file(answers, imported.dataset).items():
        if not response.empty:
            verdicts[name.removesuffix(f"#{form}")] = OptionVerdict(response)
    return verdicts


def count_query(verdicts: Verdicts) -> int:
    """Return the tokens of the query, by those of a prompt with and without it; 0 if a server does
    not tell."""
    if not verdicts.keys() >= {*PROBES}:
        return 0
    with_query, without = (verdicts[name].response.prompt_tokens for name in PROBES)
    return with_query - without if without else 0


def select_usable_verdicts(
    imported: ImportedResponses, form: str, verdicts: Verdicts, query: int
) -> tuple[Verdicts, dict[str, int]]:
    """Return the verdicts of one form that count, and how many responses a remark holds for.

    In situ, the prompt must go on with the query after the response. None counts if a tenth does
    not.
    """
    counts = dict.fromkeys([UNANSWERED, NO_OPTION, NOT_CONTINUED, BOUNDED], 0)
    usable = {}
    for name, response in imported.responses.items():
        if response.empty:
            continue
        verdict = verdicts.get(name)
        before = response.prompt_tokens + len(response.text_pieces)
        if verdict is None:
            counts[UNANSWERED] += 1
        elif verdict.options_listed == 0:
            counts[NO_OPTION] += 1
        elif form == "in_situ" and not 0 < query == verdict.response.prompt_tokens - before:
            counts[NOT_CONTINUED] += 1
        else:
            usable[name] = verdict
    if counts[NOT_CONTINUED] > MOST_DIFFERING * (counts[NOT_CONTINUED] + len(usable)):
        counts[NOT_CONTINUED] += len(usable)
        usable = {}
    counts[BOUNDED] = len([name for name in usable if usable[name].options_listed == 1])
    return usable, counts


def sum_tokens(verdicts: Verdicts) -> dict[str, int | None]:
    """Return the number of verdicts, and the tokens of their prompts as ServedVerification has
    them."""
    prompt = 0
    cached: int | None = 0
    for verdict in verdicts.values():
        prompt += verdict.response.prompt_tokens
        if cached is not None and verdict.response.cached_tokens is not None:
            cached += verdict.response.cached_tokens
        else:
            cached = None
    return {"rows": len(verdicts), "prompt": prompt, "cached": cached}


def verification_frame(
    imported: ImportedResponses, model: str, verdicts: dict[str, Verdicts], query: int
) -> pd.DataFrame:
    """Return a row per response with a verdict in either form."""
    rows = []
    for example in imported.examples:
        standard = verdicts["verify"].get(example.example_id)
        in_situ = verdicts["in_situ"].get(example.example_id)
        if standard or in_situ:
            row = {
                "model": model,
                "dataset": imported.dataset,
                "split": example.split,
                "example_id": example.example_id,
                "spellings": SPELLINGS,
                "standard_prompt": None,
            }
            encoded = standard.response.prompt_tokens if standard else 0
            row |= verdict_columns("standard", standard, encoded)
            row |= verdict_columns("in_situ", in_situ, query if in_situ else 0)
            rows.append(row)
    if not rows:
        return stored_columns.empty_frame("verification")
    counts = {"standard_tokens": "Int64", "in_situ_tokens": "Int64"}
    return pd.DataFrame(rows).astype(counts)


def verdict_columns(form: str, verdict: OptionVerdict | None, tokens: int) -> dict[str, Any]:
    """Return the columns of one form; NaN without a verdict. `tokens` encoded, 0 if unknown."""
    logits = verdict.option_logprobs() if verdict else [float("nan")] * len(SPELLINGS)
    return {f"{form}_tokens": tokens or None, f"{form}_logits": logits, f"{form}_logz": 0.0}


# ---- what 01b stores


def import_pair(
    run: str,
    model: str,
    dataset: str,
    *,
    limit: int = 0,
    seed: int = 0,
    save_texts: bool = True,
    example: str = "",
) -> tuple[ImportedResponses, pd.DataFrame, ServedVerification]:
    """Read a model's responses and verdicts, and store the pair's generations and verification.

    Parameters
    ----------
    run : the frames are stored below artifacts/<run>/
    model, dataset : names of their files
    limit : questions per split, in random order by the seed; 0: all
    save_texts : whether questions and responses are stored as text
    example : id of the row that comes first

    Returns
    -------
    what was read, and the frames as stored: generations and verification

    Raises
    ------
    UserError
        A line cannot be read, as `ImportedResponses.read` and `read_verification` say. Nothing is
        stored then.
    """
    spec = params.load_model_config(model)
    data = params.load_dataset_config(dataset)
    examples = datasets.select_examples(
        datasets.load_examples(data), limit, seed, dataset, always_first=example
    )
    imported = ImportedResponses.read(spec, dataset, examples)
    verification = read_verification(imported, model)
    generations = imported.to_frame(model, save_texts)
    path = store.frame_path(run, "generations", f"{model}__{dataset}")
    store.write_frame(
        generations,
        path,
        limit=limit,
        model=spec.model_dump(),
        data=dataset_sources.describe_source(data),
        parameters={"save_texts": save_texts},
        drawn=imported.facts,
    )
    store.write_frame(
        verification.frame,
        store.frame_path(run, "verification", path.stem),
        inputs=store.file_checksums([path]),
        remarks=verification.remarks,
        tokens=verification.tokens,
    )
    return imported, generations, verification
