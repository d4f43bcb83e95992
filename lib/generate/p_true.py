"""P(True): the model asked whether its own answer is right, in a fresh prompt and in situ (`fig:prompt_comparison`).

Standard: question and proposed answer in a new conversation, encoded whole. In situ: the query appended to the model's
own trajectory, right after the response's last token, so that only the query has to be encoded. Kept are the logits of
every spelling of the options and the log-partition. Which options count is decided when they are read (lib.score).
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import pandas as pd
import torch
from transformers import DynamicCache

from lib import store
from lib.generate.batching import batch_by_length, retry_in_halves_on_oom
from lib.generate.models import LanguageModel, apply_chat_template, check_finite_logits, encode
from lib.params import Verification
from lib.paths import UserError
from lib.tasks import answers, prompts

OPTION_WORDS = ("A", "B", "True", "False")  # what the options may be called; the prompt asks for A or B
MARK_CHARACTERS = 4  # characters by which a vocabulary marks a space, the inside or the end of a word
IN_SITU_COLUMNS = ["in_situ_logits", "in_situ_logz", "in_situ_seconds"]  # columns that 01 takes
OptionLogits = dict[str, Any]  # logits of the spellings, logz, seconds


def option_tokens(lm: LanguageModel) -> dict[str, int]:
    """{spelling (`A`, ` A`): id} for those of OPTION_WORDS that are single tokens, which count and which not.

    Raises
    ------
    UserError
        The options that the prompt asks for, A and B, can't be compared (`balance_spellings`).
    """
    found = option_token_ids(lm.tokenizer, query_ids(lm)[-1], OPTION_WORDS)
    try:
        prompts.balance_spellings(found, "/".join(OPTION_WORDS[:2]))
    except UserError as problem:
        raise UserError(f"model '{lm.name}': {problem}") from None
    return found


@lru_cache(maxsize=8)
def option_token_ids(tokenizer: Any, before: int, words: tuple[str, ...]) -> dict[str, int]:
    """{spelling: id} of the tokens that write one of `words`, bare or after a space, where they follow the token
    `before`. Looked up in the vocabulary: where every text is opened with a space (Metaspace), encoding a bare `A`
    finds `\\u2581A`, and never `A`.
    """
    by_text: dict[str, int] = {}
    for token, index in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
        if any(word in token and len(token) <= len(word) + MARK_CHARACTERS for word in words):
            by_text.setdefault(answers.token_texts(tokenizer, [before, index])[-1], index)
    wanted = [form + word for word in words for form in prompts.FORMS]
    return {spelling: by_text[spelling] for spelling in wanted if spelling in by_text}


def balanced_spellings(lm: LanguageModel) -> dict[str, str]:
    """Which spellings of a model P(True) counts, for each pair of options that can be compared (for manifests)."""
    found, said = option_tokens(lm), {}
    for pair in ("/".join(OPTION_WORDS[:2]), "/".join(OPTION_WORDS[2:])):
        with suppress(UserError):
            said[pair] = prompts.describe_spellings(found, pair)
    return said


def standard_prompt(lm: LanguageModel, question: str, text: str, settings: Verification) -> str:
    """The fresh prompt about a response's `text`, of which the thinking is left out unless `ptrue_includes_thinking`.

    `standard_prompt` template: up to where the assistant starts, a thinking block that the template opens closed empty
    (A or B in the middle of a thought means nothing). `as_drawn`: up to the query's last character, as in the figure.
    """
    proposed = text if settings.ptrue_includes_thinking else text[answers.answer_start_char(text, lm.spec.thinking) :]
    messages = prompts.verification_messages(question, proposed.strip(), lm.spec.system_prompt)
    prompt = apply_chat_template(lm, messages, thinking=False)
    if settings.standard_prompt == "as_drawn":
        return prompt[: prompt.rindex(prompts.QUERY) + len(prompts.QUERY)]
    bare = prompt.rstrip()
    return bare + f"\n\n{answers.CLOSING_TAG}\n\n" if bare.endswith("<think>") else prompt


def query_ids(lm: LanguageModel) -> list[int]:
    """Token ids of the query as it continues a response: a tokenizer that opens every text with a space (Metaspace)
    must not put one between the two."""
    ids = encode(lm, prompts.QUERY)
    return ids[1:] if lm.tokenizer.convert_ids_to_tokens(ids[0]) == "\u2581" else ids


def trajectory_ids(lm: LanguageModel, row: Any) -> list[int]:
    """Token ids of a generations row: prompt, and response without its end token."""
    return [*encode(lm, row.prompt), *row.token_ids[: len(row.token_ids) - row.eos]]


def seconds_when_idle(lm: LanguageModel) -> float:
    """The clock (seconds), once the device has done all work that is queued."""
    if lm.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def option_logits(lm: LanguageModel, logits: torch.Tensor) -> list[OptionLogits]:
    """What is kept of logits (n, V) that predict an option: those of the spellings, and the log-partition."""
    raw = logits.float()
    of_options = raw[:, list(option_tokens(lm).values())].cpu().numpy()
    logz = raw.double().logsumexp(-1).tolist()
    return [{"logits": values, "logz": partition} for values, partition in zip(of_options, logz, strict=True)]


def in_situ_columns(verdict: OptionLogits) -> dict[str, Any]:
    return {f"in_situ_{name}": value for name, value in verdict.items()}


def encode_and_ask(
    lm: LanguageModel, sequences: Sequence[list[int]], names: Sequence[str], max_batch_tokens: int = 32768
) -> list[OptionLogits]:
    """Option logits after each sequence of token ids, every token of it encoded.

    Padding stands on the right, where causal attention never looks: no row sees nothing, as a row of padding on the
    left does, of which some kernels make a NaN.

    Parameters
    ----------
    sequences : token ids by row
    names : of the rows, for messages
    max_batch_tokens : encoded at once

    Raises
    ------
    UserError
        A row's logits are not finite.
    """
    verdicts: dict[int, OptionLogits] = {}

    def ask(part: list[int]) -> list[OptionLogits]:
        return ask_batch(lm, [sequences[i] for i in part], [names[i] for i in part])

    for group in batch_by_length([len(ids) for ids in sequences], max_batch_tokens):
        verdicts |= zip(group, retry_in_halves_on_oom(ask, group, f"model '{lm.name}'"), strict=True)
    return [verdicts[i] for i in range(len(sequences))]


@torch.inference_mode()
def ask_batch(lm: LanguageModel, sequences: Sequence[list[int]], names: Sequence[str]) -> list[OptionLogits]:
    """The same of one batch; each row has its share of the seconds."""
    started = seconds_when_idle(lm)
    rows = [torch.tensor(ids) for ids in sequences]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(lm.device)
    last = torch.tensor([[len(row) - 1] for row in rows]).to(lm.device)
    verdicts = option_logits(lm, lm.model(padded, logits_to_keep=last, use_cache=False).logits[:, 0])
    check_finite_logits(lm, [verdict["logz"] for verdict in verdicts], names)
    seconds = (seconds_when_idle(lm) - started) / len(rows)
    return [verdict | {"seconds": seconds} for verdict in verdicts]


@torch.inference_mode()
def ask_in_situ_on_cache(lm: LanguageModel, row: Any) -> tuple[OptionLogits, float]:
    """Option logits after a generations row whose trajectory is in a cache, as generation leaves it behind: only the
    query is encoded. And the seconds that encoding the trajectory took before."""
    cache, started = DynamicCache(config=lm.model.config), seconds_when_idle(lm)
    lm.model(torch.tensor([trajectory_ids(lm, row)], device=lm.device), past_key_values=cache, logits_to_keep=1)
    ready = seconds_when_idle(lm)
    query = torch.tensor([query_ids(lm)], device=lm.device)
    (verdict,) = option_logits(lm, lm.model(query, past_key_values=cache, logits_to_keep=1).logits[:, -1])
    return verdict | {"seconds": seconds_when_idle(lm) - ready}, ready - started


def read_in_situ(run: str, pair: str, generations: str) -> tuple[pd.DataFrame | None, str]:
    """The in-situ verdicts that 01 took, if they are of these generations (their sha256) and of this query; and a line
    that says which."""
    try:
        path = store.find_frame(run, "in_situ", pair)
    except UserError:
        return None, "the trajectories are encoded again: 01_generate left no verdicts"
    facts = store.read_manifest(path)
    if (facts["generations"], facts["query"]) != (generations, prompts.QUERY):
        return None, "the trajectories are encoded again: the verdicts kept are of other generations or another query"
    return store.read_frame(path), "taken by 01_generate, at the end of each trajectory"


def verify_responses(
    lm: LanguageModel,
    frame: pd.DataFrame,
    settings: Verification,
    max_batch_tokens: int = 32768,
    save_texts: bool = True,
) -> pd.DataFrame:
    """Both verifications of a generations frame, a row each (columns: lib.schemas).

    In-situ verdicts that the frame holds (IN_SITU_COLUMNS, of as many spellings) are taken over, else the trajectories
    are encoded again; `live` says which. The fresh prompts are left out unless `save_texts`.
    """
    rows, spellings, query = list(frame.itertuples(index=False)), list(option_tokens(lm)), query_ids(lm)
    texts = [standard_prompt(lm, row.question, row.text, settings) for row in rows]
    ids, names = [encode(lm, text) for text in texts], frame.example_id.tolist()
    asked = frame[store.KEYS].assign(
        spellings=[spellings] * len(frame),
        standard_prompt=texts if save_texts else None,
        standard_tokens=[len(i) for i in ids],
        in_situ_tokens=len(query),
    )
    standard = pd.DataFrame(encode_and_ask(lm, ids, names, max_batch_tokens), index=frame.index).add_prefix("standard_")
    if set(IN_SITU_COLUMNS) <= set(frame) and frame.in_situ_logits.map(len).eq(len(spellings)).all():
        return pd.concat([asked, standard.assign(live=True), frame[IN_SITU_COLUMNS]], axis=1)
    verdicts = encode_and_ask(lm, [trajectory_ids(lm, row) + query for row in rows], names, max_batch_tokens)
    in_situ = pd.DataFrame(verdicts, index=frame.index).add_prefix("in_situ_")
    return pd.concat([asked, standard, in_situ], axis=1).assign(live=False)
