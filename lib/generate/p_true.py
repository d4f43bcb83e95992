"""P(True): the model is asked whether its own answer is correct, in a new prompt and in situ
(`fig:prompt_comparison`).

Standard: question and proposed answer form a new conversation, encoded completely. In situ: the
query follows the model's own trajectory directly after its last token, so only the query has to be
encoded. We store the logits of every spelling of the options and the log-partition. lib.score
decides later which spellings count.
"""

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import pandas as pd
import torch
from torch.nn.utils.rnn import pad_sequence

from lib import store
from lib.errors import UserError
from lib.generate.sampling import encode_prefix
from lib.models.batching import map_by_length
from lib.models.loading import LanguageModel, apply_chat_template, check_finite_logits, encode
from lib.tasks import answers, prompts
from lib.tasks.thinking import find_open_family

OPTION_PAIRS = ("A/B", "True/False")  # possible names of the options; the prompt asks for A or B
MARK_CHARACTERS = 4  # length of a vocabulary's marks for a space, the inside or the end of a word
# that 01 measures
IN_SITU_COLUMNS = ["in_situ_logits", "in_situ_logz", "in_situ_seconds"]
OptionLogits = dict[str, Any]  # logits of the spellings, and logz; seconds where they are measured

# ---- the options


@lru_cache(maxsize=1)
def option_tokens(lm: LanguageModel) -> dict[str, int]:
    """Return {spelling (`A`, ` A`): id} of the options that are single tokens after the query,
    whether they count or not.

    They are found in the vocabulary. With Metaspace, which puts a space before every text, encoding
    a bare `A` returns `\\u2581A` and never `A`.
    """
    words = "/".join(OPTION_PAIRS).split("/")
    last_of_query = query_ids(lm)[-1]
    ids: dict[str, int] = {}  # by the text that a token writes after the query; the lowest id
    vocabulary = lm.tokenizer.get_vocab()
    for token in sorted(vocabulary, key=vocabulary.get):
        if any(may_spell(token, word) for word in words):
            texts = answers.token_texts(lm.tokenizer, [last_of_query, vocabulary[token]])
            ids.setdefault(texts[-1], vocabulary[token])
    spellings = {}
    for word in words:
        for form in prompts.FORMS:
            if form + word in ids:
                spellings[form + word] = ids[form + word]
    return spellings


def may_spell(token: str, word: str) -> bool:
    """Whether an entry of the vocabulary is the word with few other characters."""
    return word in token and len(token) <= len(word) + MARK_CHARACTERS


def balanced_spellings(lm: LanguageModel) -> dict[str, str]:
    """Return the spellings that P(True) counts, by pair of options that can be compared (for
    manifests).
    """
    spellings = {}
    for pair in OPTION_PAIRS:
        with suppress(UserError):
            spellings[pair] = prompts.describe_spellings(option_tokens(lm), pair)
    return spellings


def option_logits(lm: LanguageModel, logits: torch.Tensor) -> list[OptionLogits]:
    """Return the option spellings' logits and the log-partition of logits (n, V) that predict an
    option.
    """
    raw = logits.float()
    options = list(option_tokens(lm).values())
    of_options = raw[:, options].cpu().numpy()
    partitions = raw.double().logsumexp(-1).tolist()
    verdicts = []
    for values, partition in zip(of_options, partitions, strict=True):
        verdicts.append({"logits": values, "logz": partition})
    return verdicts


# ---- the prompts


def standard_prompt(lm: LanguageModel, question: str, text: str) -> str:
    """Return the new prompt about a response's `text` without its thinking, up to the assistant's
    turn.

    A thinking block opened by the template is closed, as A or B inside a thought means nothing.
    """
    start = answers.answer_start_char(text, lm.spec.thinking)
    proposed = text[start:].strip()
    messages = prompts.verification_messages(question, proposed, lm.spec.system_prompt)
    prompt = apply_chat_template(lm, messages, thinking=False)
    opened = find_open_family(prompt)
    return prompt.rstrip() + opened.at_once if opened else prompt


def query_ids(lm: LanguageModel) -> list[int]:
    """Return the token ids of the query after a response, without the space that Metaspace puts
    before every text.
    """
    ids = encode(lm, prompts.QUERY)
    if lm.tokenizer.convert_ids_to_tokens(ids[0]) == "\u2581":
        return ids[1:]
    return ids


def room_for_response(lm: LanguageModel, prompt_ids: Sequence[int]) -> int:
    """Return how many tokens a response may have, as the context must hold prompt, response and
    query.
    """
    if lm.context is None:
        return sys.maxsize
    return lm.context - len(prompt_ids) - len(query_ids(lm))


def trajectory_ids(lm: LanguageModel, row: Any) -> list[int]:
    """Return the token ids of a generations row: prompt, and response without its end token."""
    body = row.token_ids[: len(row.token_ids) - row.eos]
    return [*encode(lm, row.prompt), *body]


# ---- the verdicts


def seconds_when_idle(lm: LanguageModel) -> float:
    """Return the time (seconds) once the device has finished all queued work."""
    if lm.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


@torch.inference_mode()
def encode_and_ask(
    lm: LanguageModel, sequences: Sequence[list[int]], max_batch_tokens: int = 32768
) -> list[OptionLogits]:
    """Return the option logits after each sequence of token ids, with every token encoded.

    In float32, rows of equal length are one batch, as in `score_responses`. Otherwise padding is on
    the right, which causal attention never sees. A row of padding on the left sees nothing, and
    some kernels return NaN for it.

    Parameters
    ----------
    sequences : token ids by row
    max_batch_tokens : tokens of a batch
    """

    def ask(batch: list[list[int]]) -> list[OptionLogits]:
        rows = [torch.tensor(ids) for ids in batch]
        padded = pad_sequence(rows, batch_first=True).to(lm.device)
        last = [[len(ids) - 1] for ids in batch]
        keep = torch.tensor(last).to(lm.device)
        output = lm.model(padded, logits_to_keep=keep, use_cache=False)
        return option_logits(lm, output.logits[:, 0])

    lengths = [len(ids) for ids in sequences]
    equal = lm.model.dtype == torch.float32
    what = f"model '{lm.name}'"
    return map_by_length(ask, sequences, lengths, max_batch_tokens, what, equal=equal)


@torch.inference_mode()
def ask_in_situ_on_cache(lm: LanguageModel, row: Any) -> tuple[OptionLogits, float]:
    """Return the option logits after a generations row, and the seconds for encoding its
    trajectory.

    The trajectory is in a cache, as after generation, so only the query is encoded.
    """
    started = seconds_when_idle(lm)
    cache = encode_prefix(lm, trajectory_ids(lm, row))
    ready = seconds_when_idle(lm)
    query = torch.tensor([query_ids(lm)], device=lm.device)
    output = lm.model(query, past_key_values=cache, logits_to_keep=1)
    (verdict,) = option_logits(lm, output.logits[:, -1])
    verdict["seconds"] = seconds_when_idle(lm) - ready
    return verdict, ready - started


def in_situ_columns(verdict: OptionLogits) -> dict[str, Any]:
    return {f"in_situ_{name}": value for name, value in verdict.items()}


def verify_responses(
    lm: LanguageModel, frame: pd.DataFrame, max_batch_tokens: int = 32768, save_texts: bool = True
) -> pd.DataFrame:
    """Return both verifications of a generations frame, one row each (columns: lib.stored_columns).

    Only the standard one is computed here; the frame contains the in-situ one (IN_SITU_COLUMNS).
    The standard prompts are omitted unless `save_texts`. Raise UserError if a row's logits are not
    finite.
    """
    texts = []
    for question, text in zip(frame.question, frame.text, strict=True):
        texts.append(standard_prompt(lm, question, text))
    ids = [encode(lm, text) for text in texts]
    started = seconds_when_idle(lm)
    verdicts = encode_and_ask(lm, ids, max_batch_tokens)
    seconds = seconds_when_idle(lm) - started
    partitions = [verdict["logz"] for verdict in verdicts]
    check_finite_logits(lm, partitions, frame.example_id.tolist())
    prompted = frame[store.KEYS].assign(
        spellings=[list(option_tokens(lm))] * len(frame),
        standard_prompt=texts if save_texts else None,
        standard_tokens=[len(prompt_ids) for prompt_ids in ids],
        in_situ_tokens=len(query_ids(lm)),
    )
    standard = pd.DataFrame(verdicts, frame.index)
    standard["seconds"] = seconds / len(frame)
    standard = standard.add_prefix("standard_")
    return pd.concat([prompted, standard, frame[IN_SITU_COLUMNS]], axis=1)
