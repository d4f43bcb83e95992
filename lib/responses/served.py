"""A model that only a server has: what it is asked, as files of an OpenAI batch, and P(True) from
its answers.

    <dataset>.requests.jsonl            the paper's prompt, with the model file's decoding; custom_id: the example_id
    <dataset>.verify.requests.jsonl     standard P(True), once responses are there; custom_id: example_id#verify
    <dataset>.in_situ.requests.jsonl    P(True) in situ: the assistant's own message goes on with the query; #in_situ

vLLM, SGLang and providers send such files; `./run_all.sh ask` sends them to any other server.
Answers lie beside them as `.responses.jsonl`.

The mass of an option is that of its spellings among the most probable tokens, which the server
lists. An option outside the list is bounded by the least probability listed and by what the listed
ones leave of 1, and such rows are counted. Whether the server let the model go on with its own
message is seen by the tokens of the prompt: those beside the question's and the response's are the
query's. Rows with another number of tokens stay empty.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lib import stored_columns
from lib.errors import UserError
from lib.files import parse_json, read_bytes, write_text
from lib.parameter_schemas import Model
from lib.params import Generation
from lib.paths import relative_path
from lib.random_streams import stream_seed
from lib.responses.formats import Response, read_response_file
from lib.responses.imported import IMPOSSIBLE, ImportedResponses
from lib.responses.response_lines import LISTED
from lib.store import KEYS
from lib.tasks import prompts
from lib.tasks.answers import answer_start_char
from lib.tasks.datasets import Example
from lib.tasks.thinking import is_opening

VERIFICATIONS = ("verify", "in_situ")  # the forms of P(True), as files and custom_ids name them
CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
PROBES = ("with the query", "without the query")  # whose prompts tell the tokens of the query
# vLLM, SGLang; llama.cpp does so itself
CONTINUE = {"continue_final_message": True, "add_generation_prompt": False}
SIDES = [[form + word for form in prompts.FORMS] for word in "AB"]  # the spellings of both options
ROUNDING = float(np.finfo(np.float32).eps)  # of a sum of probabilities as servers compute them
# share of in-situ prompts of another length, above which the server did something else
MOST_DIFFERING = 0.1
BatchRequest = dict[str, Any]
Verdicts = Mapping[str, Response]  # by example_id


def exchange_files(spec: Model, dataset: str, form: str = "") -> tuple[Path, Path]:
    """Return the files of a dataset's requests and responses; `form`: one of VERIFICATIONS."""
    responses = spec.responses_to(dataset)
    if responses is None:
        raise UserError(
            f"'{spec.label}' names no `responses`: set the folder for requests and answers in its file"
        )
    stem = responses.parent / (f"{dataset}.{form}" if form else dataset)
    return Path(f"{stem}.requests.jsonl"), Path(f"{stem}.responses.jsonl") if form else responses


def make_request(custom_id: str, body: BatchRequest) -> BatchRequest:
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": COMPLETION if "prompt" in body else CHAT,
        "body": body,
    }


def question_requests(
    spec: Model,
    model_name: str,
    names: tuple[str, str],
    examples: Sequence[Example],
    settings: Generation,
) -> list[BatchRequest]:
    """Return the request for each question. `names`: of model and dataset, the keys of its seed."""
    template = {"enable_thinking": spec.thinking} | (
        {"date_string": spec.date_string} if spec.date_string else {}
    )
    shared = {
        "model": model_name,
        "max_tokens": spec.max_new_tokens or settings.max_new_tokens,
        **spec.model_dump(include={"temperature", "top_p", "top_k", "min_p"}),
        "logprobs": True,
        "top_logprobs": LISTED,
        "chat_template_kwargs": template,
    }
    requests = []
    for name, _, question, _ in examples:
        messages = prompts.question_messages(question, spec.system_prompt, settings.demonstration)
        seed = stream_seed(settings.seed, *names, name) % 2**31  # llama.cpp takes 32 bits
        requests.append(make_request(name, shared | {"messages": messages, "seed": seed}))
    return requests


def verification_requests(
    imported: ImportedResponses, asked: dict[str, BatchRequest]
) -> dict[str, list[BatchRequest]]:
    """Return the requests for both forms of P(True) of every response; `asked`: those for the
    questions, by example_id.

    The standard prompt asks a model that thinks to answer at once. In situ, templates drop the
    thinking from an assistant's message. So a model that thinks is asked by text: `ask` puts the
    server's own rendering of the messages before the prompt.
    """
    spec, first = imported.spec, next(iter(asked.values()))["body"]
    template, standard, in_situ = first.get("chat_template_kwargs", {}), [], []
    for name, _, question, _ in imported.examples:
        response = imported.responses[name]
        if not response.empty and name in asked:
            proposed = response.text[answer_start_char(response.text, spec.thinking) :].strip()
            verifying = prompts.verification_messages(question, proposed, spec.system_prompt)
            at_once = template | {"enable_thinking": False}
            standard.append(
                one_token(f"{name}#verify", first, messages=verifying, chat_template_kwargs=at_once)
            )
            before, answered = asked[name]["body"]["messages"], response.text + prompts.QUERY
            own = CONTINUE | {"messages": [*before, {"role": "assistant", "content": answered}]}
            shown = (
                {"prompt": answered, "messages": before, "logprobs": LISTED}
                if spec.thinking
                else own
            )
            in_situ.append(
                one_token(f"{name}#in_situ", first, chat_template_kwargs=template, **shown)
            )
    for name, query in zip(PROBES, (prompts.QUERY, ""), strict=True):
        probe = prompts.chat_messages(f"#### 7{query}", system=False)
        in_situ.append(one_token(f"{name}#in_situ", first, messages=probe))
    return {"verify": standard, "in_situ": in_situ}


def one_token(custom_id: str, first: BatchRequest, **asked: Any) -> BatchRequest:
    """Return the request for the next token alone. `first`: the request for a question; `asked`:
    what comes before."""
    body = {
        "model": first["model"],
        "max_tokens": 1,
        "temperature": 0.0,
        "logprobs": True,
        "top_logprobs": LISTED,
    }
    return make_request(custom_id, body | asked)


# ---- files


def read_requests(path: Path) -> dict[str, BatchRequest]:
    """Return the requests of a file by custom_id. Raise UserError for a line that is none."""
    where, lines = relative_path(path), enumerate(read_bytes(path).splitlines(), 1)
    requests = [parse_json(line, where, number) for number, line in lines]
    try:
        return {
            str(request["custom_id"]): request | {"body": dict(request["body"])}
            for request in requests
        }
    except (LookupError, TypeError):
        raise UserError(
            f"{where} has a line that is no request: remove the file and write it again"
        ) from None


def check_answered(requests: Sequence[BatchRequest], path: Path, answers: Path) -> None:
    """Raise UserError if the file `answers` is there, and its requests in the file `path` are other
    than these."""
    sent = read_requests(path) if path.exists() and answers.exists() else {}
    for request in requests:
        new, old = request["body"], sent.get(request["custom_id"], request)["body"]
        if changed := [
            key
            for key in new.keys() & old.keys() - {"model", "top_logprobs"}
            if new[key] != old[key]
        ]:
            about = f"'{request['custom_id']}' with another '{min(changed)}'"
            raise UserError(f"{relative_path(answers)} answers {about}: move it away to ask again")


def write_requests(path: Path, requests: Sequence[BatchRequest], answers: Path) -> None:
    """Write a file of requests. Raise UserError if `answers` are there to a question that was asked
    otherwise."""
    check_answered(requests, path, answers)
    text = "".join(json.dumps(request, ensure_ascii=False) + "\n" for request in requests)
    write_text(path, text)


# ---- the verdicts


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
    found = {form: read_verdicts(imported, form) for form in VERIFICATIONS}
    asked = [name for name, response in imported.responses.items() if not response.empty]
    kept, remarks = dict[str, Verdicts](), list[str]()
    for form, verdicts in found.items():
        told = {name: verdicts[name] for name in asked if name in verdicts}
        listing = {name: one for name, one in told.items() if count_options(one)}
        kept[form] = (
            keep_continued(imported, listing, count_query(found)) if form == "in_situ" else listing
        )
        bounded = [one for one in kept[form].values() if count_options(one) == 1]
        counts = {
            "were not answered": len(asked) - len(told),
            "list no option, or think": len(told) - len(listing),
            "were not continued, by the tokens of their prompts": len(listing) - len(kept[form]),
            "do not list one of the options, which those listed bound": len(bounded),
        }
        remarks += [
            f"{form}: {n} of {len(imported.examples)} {what}" for what, n in counts.items() if n
        ]
    tokens = {form: sum_tokens(list(verdicts.values())) for form, verdicts in kept.items()}
    said = remarks if any(found.values()) else ["its server was not asked, see docs/extending.md"]
    return ServedVerification(
        verification_frame(imported, model, kept, count_query(found)), tokens, said
    )


def read_verdicts(imported: ImportedResponses, form: str) -> Verdicts:
    """Return the answers in one form. Raise UserError if they are about other responses than
    these."""
    requests, path = exchange_files(imported.spec, imported.dataset, form)
    if not path.exists():
        return {}
    asked = read_requests(exchange_files(imported.spec, imported.dataset)[0])
    # without them nothing would tell which responses the verdicts are about
    read_requests(requests)
    check_answered(verification_requests(imported, asked)[form], requests, path)
    answers = read_response_file(path, imported.dataset)
    return {name.removesuffix(f"#{form}"): one for name, one in answers.items() if not one.empty}


def count_options(verdict: Response) -> int:
    """Return how many of the two options are listed; 0 where the model thinks."""
    thinks = verdict.thought or is_opening(verdict.text)
    return 0 if thinks else sum(bool(verdict.listed.keys() & set(side)) for side in SIDES)


def count_query(found: Mapping[str, Verdicts]) -> int:
    """Return the tokens of the query, by those of a prompt with and without it; 0 if a server does
    not tell."""
    with_query, without = (
        found["in_situ"].get(name, Response(name)).prompt_tokens for name in PROBES
    )
    return with_query - without if without else 0


def keep_continued(imported: ImportedResponses, verdicts: Verdicts, query: int) -> Verdicts:
    """Return the verdicts whose prompt goes on with the query after the response; none if a tenth
    does not."""
    responses = {name: imported.responses[name] for name in verdicts}
    before = {
        name: one.prompt_tokens + len(one.pieces) - one.ended for name, one in responses.items()
    }
    kept = {
        name: one
        for name, one in verdicts.items()
        if query > 0 and one.prompt_tokens == before[name] + query
    }
    return kept if len(verdicts) - len(kept) <= MOST_DIFFERING * len(verdicts) else {}


def sum_tokens(verdicts: Sequence[Response]) -> dict[str, int | None]:
    """Return the number of verdicts, and the tokens of their prompts as ServedVerification has
    them."""
    prompt, cached = (
        sum(one.prompt_tokens for one in verdicts),
        [one.cached_tokens for one in verdicts],
    )
    return {
        "rows": len(cached),
        "prompt": prompt,
        "cached": None if None in cached else sum(filter(None, cached)),
    }


def verification_frame(
    imported: ImportedResponses, model: str, kept: dict[str, Verdicts], query: int
) -> pd.DataFrame:
    """Return a row per response with a verdict in either form."""
    told = set().union(*kept.values())
    keys = [
        (model, imported.dataset, one.split, one.example_id)
        for one in imported.examples
        if one.example_id in told
    ]
    frame = pd.DataFrame(keys, columns=KEYS).assign(
        spellings=[sum(SIDES, [])] * len(keys), standard_prompt=None
    )
    for column, form in zip(("standard", "in_situ"), VERIFICATIONS, strict=True):
        verdicts = [kept[form].get(name) for name in frame.example_id]
        tokens = [one and (query if form == "in_situ" else one.prompt_tokens) for one in verdicts]
        frame[f"{column}_tokens"] = pd.array([count or None for count in tokens], "Int64")
        frame[f"{column}_logits"] = [
            sum((option_logprobs(one, side) for side in SIDES), []) for one in verdicts
        ]
        frame[f"{column}_logz"] = 0.0
    return frame if len(frame) else stored_columns.empty_frame("verification")


def option_logprobs(verdict: Response | None, spellings: list[str]) -> list[float]:
    """Return the log-probability of each spelling of an option; NaN without a verdict.

    One that is not listed is impossible. If none is, the first has the most that the listed tokens
    leave it.
    """
    if verdict is None:
        return [np.nan] * len(spellings)
    none_listed = verdict.listed.keys().isdisjoint(spellings)
    first = bound_unlisted(verdict.listed) if none_listed else IMPOSSIBLE
    return [
        verdict.listed.get(spelling, IMPOSSIBLE if place else first)
        for place, spelling in enumerate(spellings)
    ]


def bound_unlisted(listed: Mapping[str, float]) -> float:
    """Return the most that the log-probability of a token that is not listed may be (nats).

    It is no more probable than the least one listed, and than what these leave of 1. A rest below
    ROUNDING is none that can be told.
    """
    logprobs = np.array(list(listed.values()))
    rest = 1 - np.exp(logprobs).sum()
    return float(min(logprobs.min(), np.log(max(rest, ROUNDING))))
