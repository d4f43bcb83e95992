"""P(True): the model asked whether its own answer is right, in a fresh prompt and in place (`fig:prompt_comparison`).

Standard: question and proposed answer in a new conversation, encoded whole. In situ: the query appended to the model's
own trajectory, right after the response's last token; on the cache that generation leaves behind only the query is
encoded. Kept are the logits of every spelling of the options and the log-partition, so which options count is decided
when reading (lib.score).
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import pandas as pd
import torch

from lib import store
from lib.generate import models
from lib.generate.decoding import Batch, batches, forgets
from lib.generate.models import LanguageModel
from lib.generate.room import by_halves
from lib.params import Verification
from lib.project import UserError
from lib.tasks import answers, options, prompts

WORDS = ("A", "B", "True", "False")  # what the options may be called; the prompt asks for A or B
MARKS = 4  # characters by which a vocabulary marks a space, the inside or the end of a word
KEPT = ["in_situ_logits", "in_situ_logz", "in_situ_seconds"]  # columns taken in 01, while the cache is alive
Verdict = dict[str, Any]  # logits of the spellings, logz, seconds


def spellings(lm: LanguageModel) -> dict[str, int]:
    """{spelling (`A`, ` A`): id} for those of WORDS that are single tokens, which count and which not. UserError: the
    options that the prompt asks for, A and B, can't be compared (`balance_spellings`)."""
    found = in_place(lm.tokenizer, query(lm)[-1], WORDS)
    try:
        options.balance_spellings(found, "/".join(WORDS[:2]))
    except UserError as problem:
        raise UserError(f"model '{lm.name}': {problem}") from None
    return found


@lru_cache(maxsize=8)
def in_place(tokenizer: Any, before: int, words: tuple[str, ...]) -> dict[str, int]:
    """{spelling: id} of the tokens that write one of `words`, bare or after a space, where they follow the token
    `before`. Looked up in the vocabulary: where every text is opened with a space (Metaspace), encoding a bare `A`
    finds `\u2581A`, and never `A`.
    """
    by_text: dict[str, int] = {}
    for token, index in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
        if any(word in token and len(token) <= len(word) + MARKS for word in words):
            by_text.setdefault(answers.token_texts(tokenizer, [before, index])[-1], index)
    wanted = [form + word for word in words for form in options.FORMS]
    return {spelling: by_text[spelling] for spelling in wanted if spelling in by_text}


def counted(lm: LanguageModel) -> dict[str, str]:
    """Which spellings of a model P(True) counts, for each pair of options that can be compared (for manifests)."""
    found, said = spellings(lm), {}
    for pair in ("/".join(WORDS[:2]), "/".join(WORDS[2:])):
        with suppress(UserError):
            said[pair] = options.describe_spellings(found, pair)
    return said


def standard_prompt(lm: LanguageModel, question: str, text: str, settings: Verification) -> str:
    """The fresh prompt about a response's `text`, of which the thinking is left out unless `verify_thinking`.

    `standard_prompt` template: up to where the assistant starts, a thinking block that the template opens closed empty
    (A or B in the middle of a thought means nothing). `as_drawn`: up to the query's last character, as in the figure.
    """
    proposed = text if settings.verify_thinking else text[answers.answer_start_char(text, lm.spec.thinking) :]
    messages = prompts.verification_messages(question, proposed.strip(), lm.spec.system_prompt)
    prompt = models.render(lm, messages, thinking=False)
    if settings.standard_prompt == "as_drawn":
        return prompt[: prompt.rindex(prompts.QUERY) + len(prompts.QUERY)]
    bare = prompt.rstrip()
    return bare + f"\n\n{answers.CLOSING_TAG}\n\n" if bare.endswith("<think>") else prompt


def query(lm: LanguageModel) -> list[int]:
    """Token ids of the query as it continues a response: a tokenizer that opens every text with a space (Metaspace)
    must not put one between the two."""
    ids = models.encode(lm, prompts.QUERY)
    return ids[1:] if lm.tokenizer.convert_ids_to_tokens(ids[0]) == "\u2581" else ids


def trajectory(lm: LanguageModel, row: Any) -> list[int]:
    """Token ids of the in-situ prompt of a generations row: prompt, response without its end token, query."""
    response = row.token_ids[: len(row.token_ids) - row.eos]
    return [*models.encode(lm, row.prompt), *response, *query(lm)]


def read_verdicts(lm: LanguageModel, logits: torch.Tensor, started: float, names: Sequence[str]) -> list[Verdict]:
    """What is kept of logits (rows, V): those of the options, the log-partition, the row's share of the seconds.
    Raises UserError where they are not finite, with the row's name."""
    raw = logits.float()
    of_options, logz = raw[:, list(spellings(lm).values())].cpu().numpy(), raw.double().logsumexp(-1).tolist()
    models.check_finite(lm, logz, names)
    share = (time.perf_counter() - started) / len(raw)
    return [{"logits": z, "logz": partition, "seconds": share} for z, partition in zip(of_options, logz, strict=True)]


@torch.inference_mode()
def encoded(lm: LanguageModel, sequences: Sequence[list[int]], batch_tokens: int = 32768,
            names: Sequence[str] = ()) -> list[Verdict]:  # fmt: skip
    """The verdict after each sequence of token ids, every token of it encoded; `names` are theirs, for messages.

    Padding stands on the right, where causal attention never looks: no row sees nothing, as a row of padding on the
    left does, of which some kernels make a NaN.
    """
    names = list(names) or [str(i) for i in range(len(sequences))]
    by_index: dict[int, Verdict] = {}

    def read(part: list[int]) -> None:
        started = time.perf_counter()
        rows = [torch.tensor(sequences[i]) for i in part]
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(lm.device)
        last = torch.tensor([[len(row) - 1] for row in rows]).to(lm.device)
        logits = lm.model(padded, logits_to_keep=last, use_cache=False).logits[:, 0]
        by_index.update(zip(part, read_verdicts(lm, logits, started, [names[i] for i in part]), strict=True))

    for group in batches([len(ids) for ids in sequences], batch_tokens):
        by_halves(group, read, f"model '{lm.name}'")
    return [by_index[i] for i in range(len(sequences))]


@torch.inference_mode()
def live(lm: LanguageModel, batch: Batch) -> list[dict[str, Any]]:
    """In-situ verdicts of a batch on the cache that generation left (columns KEPT); the cache is left as it was.

    A cache that forgets (sliding windows) cannot be continued around masked tokens: the trajectory is encoded again.
    """
    bodies = [ids[:-1] if ids[-1] in lm.eos else ids for ids in batch.responses]
    if forgets(lm):
        heads = [ids[mask.bool()].tolist() for ids, mask in zip(batch.prompt_ids, batch.prompt_mask, strict=True)]
        after = encoded(lm, [head + body + query(lm) for head, body in zip(heads, bodies, strict=True)],
                        names=batch.names)  # fmt: skip
    else:
        after = continued(lm, batch, bodies)
    return [{f"in_situ_{name}": value for name, value in verdict.items()} for verdict in after]


def continued(lm: LanguageModel, batch: Batch, bodies: list[list[int]]) -> list[Verdict]:
    """Verdicts after responses (`bodies`, without end tokens) whose cache is continued by the query.

    The cache holds all but the last sampled token, and end and padding tokens of the rows that finished early: these
    are masked, and of a response cut by length the last token is fed first.
    """
    started, asked = time.perf_counter(), query(lm)
    held = int(batch.cache.get_seq_length()) - batch.prompt_ids.shape[1]  # steps of the response in the cache
    new = lm.tokenizer.pad({"input_ids": [body[held:] + asked for body in bodies]}, return_tensors="pt").to(lm.device)
    lengths = torch.tensor([len(body) for body in bodies], device=lm.device)
    response_mask = torch.arange(held, device=lm.device) < lengths[:, None]
    mask = torch.cat([batch.prompt_mask, response_mask, new.attention_mask], 1).long()
    positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -new.input_ids.shape[1] :]
    logits = lm.model(new.input_ids, attention_mask=mask, position_ids=positions, past_key_values=batch.cache,
                      logits_to_keep=1).logits[:, -1]  # fmt: skip
    batch.cache.crop(-new.input_ids.shape[1])  # the forward pass has lengthened it in place
    return read_verdicts(lm, logits, started, batch.names or list(map(str, range(len(bodies)))))


def kept(run: str, pair: str, generations: str) -> tuple[pd.DataFrame | None, str]:
    """The in-situ verdicts that 01 took, if they are of these generations (their sha256) and of this query; and a line
    that says which."""
    try:
        path = store.find_frame(run, "in_situ", pair)
    except UserError:
        return None, "the trajectories are encoded again: no verdicts were taken while the cache was alive"
    facts = store.read_manifest(path)
    if (facts["generations"], facts["query"]) != (generations, prompts.QUERY):
        return None, "the trajectories are encoded again: the verdicts kept are of other generations or another query"
    return store.read_frame(path), "taken on the live cache by 01_generate"


def verify(lm: LanguageModel, frame: pd.DataFrame, settings: Verification, batch_tokens: int = 32768,
           keep_texts: bool = True) -> pd.DataFrame:  # fmt: skip
    """Both verifications of a generations frame, a row each (columns: lib.schemas). In-situ verdicts that the frame
    holds (columns KEPT, of as many spellings) are taken over, else the trajectories are encoded again; `live` says
    which. The fresh prompts are left out unless `keep_texts`."""
    rows = list(frame.itertuples(index=False))
    texts = [standard_prompt(lm, row.question, row.text, settings) for row in rows]
    ids = [models.encode(lm, text) for text in texts]
    asked = frame[store.KEYS].assign(
        spellings=[list(spellings(lm))] * len(frame), standard_prompt=texts if keep_texts else None,
        standard_tokens=[len(i) for i in ids], in_situ_tokens=len(query(lm)))  # fmt: skip
    standard = pd.DataFrame(encoded(lm, ids, batch_tokens, frame.example_id), index=frame.index).add_prefix("standard_")
    if set(KEPT) <= set(frame) and frame.in_situ_logits.map(len).eq(len(spellings(lm))).all():
        return pd.concat([asked, standard.assign(live=True), frame[KEPT]], axis=1)
    verdicts = encoded(lm, [trajectory(lm, row) for row in rows], batch_tokens, frame.example_id)
    in_situ = pd.DataFrame(verdicts, index=frame.index).add_prefix("in_situ_")
    return pd.concat([asked, standard, in_situ], axis=1).assign(live=False)
