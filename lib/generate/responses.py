"""Responses of a model to questions: a row each, with the probability of every token (columns: lib.schemas)."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import TemplateError

from lib.generate import models, p_true
from lib.generate.decoding import Batch, batches, rounds
from lib.generate.models import LanguageModel
from lib.generate.room import by_halves
from lib.generate.token_logits import encode_again, logprobs, read
from lib.params import Demonstration, Generation, Verification, load_dataset
from lib.project import UserError, nearest
from lib.streams import stream_seed
from lib.tasks import answers, datasets, prompts
from lib.tasks.datasets import Example, hash_words


@dataclass(frozen=True)
class Request:
    """An example as the model is asked it."""

    example: Example
    prompt: str
    prompt_ids: list[int]
    seed: int  # of the response's random stream


def prompt_text(lm: LanguageModel, question: str, demonstration: Demonstration) -> str:
    """The solving prompt as the model reads it (`fig:prompt_example`)."""
    return models.render(lm, prompts.question_messages(question, lm.spec.system_prompt, demonstration))


def request(lm: LanguageModel, dataset: str, example: Example, settings: Generation) -> Request:
    text = prompt_text(lm, example.question, settings.demonstration)
    seed = stream_seed(settings.seed, lm.name, dataset, example.example_id)
    return Request(example, text, models.encode(lm, text), seed)


def shared_tokens(lm: LanguageModel, requests: Sequence[Request], settings: Generation) -> int:
    """How many tokens all prompts begin with, where it pays to encode these once: after few worked examples."""
    if settings.demonstration != "few":
        return 0
    beginning = prompt_beginning(lm, settings.demonstration)
    return len(os.path.commonprefix([beginning, *(request.prompt_ids for request in requests)]))


def prompt_beginning(lm: LanguageModel, demonstration: Demonstration) -> list[int]:
    """Token ids that every prompt begins with: of two questions that begin differently, so that it does not hang on
    which are asked together."""
    return list(os.path.commonprefix([models.encode(lm, prompt_text(lm, text, demonstration)) for text in ("0", "A")]))


def respond(lm: LanguageModel, dataset: str, examples: Sequence[Example], settings: Generation,
            alive: Callable[[LanguageModel, Batch], list[dict[str, Any]]] | None = None) -> pd.DataFrame:  # fmt: skip
    """Responses of a model to examples: a generations frame, in the order of `examples`. What `alive` makes of each
    batch while its cache is alive, a dictionary per row, becomes further columns."""
    requests = [request(lm, dataset, example, settings) for example in examples]
    shared = shared_tokens(lm, requests, settings)
    rows: dict[int, dict[str, Any]] = {}
    for group, limited in grouped(lm, requests, settings):

        def answered(part: list[int], limited: Generation = limited) -> None:
            part = [i for i in part if i not in rows]  # else it is half of a batch of which some rows had ended
            if not part:
                return
            ids, seeds = [requests[i].prompt_ids for i in part], [requests[i].seed for i in part]
            names = [requests[i].example.example_id for i in part]
            for done, batch in rounds(lm, ids, seeds, limited, shared, names=names):
                further = alive(lm, batch) if alive else [{} for _ in done]
                batch.free()
                for place, i in enumerate(part[j] for j in done):
                    rows[i] = row(lm, requests[i], batch, place, settings) | further[place]

        by_halves(group, answered, f"model '{lm.name}'")
    return frame_of(lm, dataset, [rows[i] for i in range(len(examples))])


def frame_of(lm: LanguageModel, dataset: str, rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """The generations frame of rows that are known by their example alone."""
    frame = pd.DataFrame(rows)
    frame.insert(0, "model", lm.name)
    frame.insert(1, "dataset", dataset)
    return frame


def room(lm: LanguageModel, asked: Request, settings: Generation) -> int:
    """New tokens that a prompt leaves room for: `max_new_tokens`, or fewer where the context ends before, which holds
    prompt, response and the in-situ query. Raises UserError where there is none."""
    if lm.context is None:
        return settings.max_new_tokens
    left = lm.context - len(asked.prompt_ids) - len(p_true.query(lm))
    if left < 1:
        raise UserError(f"model '{lm.name}': the prompt of example {asked.example.example_id} ({len(asked.prompt_ids)} "
                        f"tokens) leaves no room for a response in its context of {lm.context}")  # fmt: skip
    return min(settings.max_new_tokens, left)


def askable(lm: LanguageModel, examples: Sequence[Example], settings: Generation,
            beginnings: Sequence[Demonstration]) -> list[Demonstration]:  # fmt: skip
    """Those beginnings of the prompt that the model's template can write and its context can hold with a response."""
    found = []
    for beginning in beginnings:
        asked = settings.model_copy(update={"demonstration": beginning})
        with suppress(UserError, TemplateError):  # a template may know no turn of the assistant's
            for example in examples:
                room(lm, request(lm, "", example, asked), asked)
            found.append(beginning)
    return found


def grouped(lm: LanguageModel, requests: Sequence[Request],
            settings: Generation) -> Iterator[tuple[list[int], Generation]]:  # fmt: skip
    """Indices of requests by batch, with the settings of that batch. Where the context ends before `max_new_tokens`,
    prompts of one room share a batch, so that what is cut does not depend on the other rows."""
    rooms = [room(lm, asked, settings) for asked in requests]
    for most in sorted(set(rooms), reverse=True):
        places = [i for i, left in enumerate(rooms) if left == most]
        for group in batches([len(requests[i].prompt_ids) for i in places], settings.batch_tokens, most):
            yield [places[i] for i in group], settings.model_copy(update={"max_new_tokens": most})


def cut_by_context(frame: pd.DataFrame, settings: Generation) -> int:
    """How many responses of a generations frame ended because the context did, before `max_new_tokens`."""
    return int(((frame.finish_reason == "length") & (frame.token_ids.map(len) < settings.max_new_tokens)).sum())


def row(lm: LanguageModel, asked: Request, batch: Batch, place: int, settings: Generation) -> dict[str, Any]:
    """One line of the generations frame (columns: lib.schemas), of the response at `place` in a batch."""
    ids, there = batch.responses[place], batch.kept[place]
    ended = bool(ids) and ids[-1] in lm.eos
    body = ids[:-1] if ended else ids
    located = answers.locate_answer(lm.tokenizer, body, lm.spec.thinking)
    positions = answer_positions(located, max(len(body), 1))  # of a response that ends at once, its end token
    lacking = [position for position in positions if position not in there]  # a last token that is no number, say
    kept = read(lm, there, ids, [position for position in positions if position in there], settings)
    kept |= encode_again(lm, asked.prompt_ids, ids, lacking, settings)
    logits = [kept[position] for position in positions]
    given = batch.logprobs[place, : len(ids)].cpu().numpy()
    if lm.head:  # without the rounding with which they may have been drawn
        unrounded = logprobs(lm, there, ids) | {at: float(z.logprob) for at, z in zip(positions, logits, strict=True)}
        given[list(unrounded)] = list(unrounded.values())
    texts = {"prompt": asked.prompt, "question": asked.example.question, "text": located.pop("text")}
    spare = answers.find_alternative_answers(texts["text"], lm.spec.thinking) | {"words": hash_words(texts["question"])}
    return (texts if settings.keep_texts else dict.fromkeys(texts)) | spare | {
        "split": asked.example.split, "example_id": asked.example.example_id,
        "reference": asked.example.reference, "prompt_tokens": len(asked.prompt_ids),
        "token_ids": np.array(ids, np.int32),
        "token_logprobs": given,
        "token_logprobs_sampling": batch.sampling[place, : len(ids)].cpu().numpy(), **located,
        "finish_reason": "stop" if ended else "length", "eos": int(ended), "seed": asked.seed,
        "kept_positions": np.array(positions, np.int32), "reencoded": len(lacking),
        "chosen_logit": np.array([float(z.chosen) for z in logits], np.float32),
        "top_logits": [z.top.cpu().numpy().astype(np.float32) for z in logits],
        "top_ids": [z.top_ids.cpu().numpy().astype(np.int32) for z in logits],
        "tail_curve": [z.tail_curve.cpu().numpy().astype(np.float32) for z in logits],
    }  # fmt: skip


def answer_positions(located: dict[str, Any], length: int) -> list[int]:
    """Every token that some answer-span policy may choose: the answer's, the last number's, the last one."""
    positions = {length - 1}
    for name in ("answer", "last_number"):
        start, end = located[f"{name}_start"], located[f"{name}_end"]
        if start >= 0:
            positions |= set(range(start, end))
    return sorted(positions)


def token_table(lm: LanguageModel, response: Any) -> pd.DataFrame:
    """A generations row token by token: text, probability (own and when sampling), what it is part of."""
    texts = answers.token_texts(lm.tokenizer, response.token_ids)
    part = np.full(len(texts), "", dtype=object)
    part[response.answer_start : response.answer_end] = "answer"  # -1 and -1, hence none, where there is no answer
    part[: response.thinking_end] = "thinking"
    if response.eos:
        part[-1] = "end"
    return pd.DataFrame({"token": [repr(text) for text in texts], "id": response.token_ids, "part": part,
                         "probability": np.exp(response.token_logprobs).round(6),
                         "when sampling": np.exp(response.token_logprobs_sampling).round(6)})  # fmt: skip


def in_order(frame: pd.DataFrame, examples: Sequence[Example]) -> pd.DataFrame:
    """A frame's rows in the order of `examples`, whatever the order in which they were made."""
    places = {example.example_id: place for place, example in enumerate(examples)}
    return frame.sort_values("example_id", key=lambda names: names.map(places), ignore_index=True)


def exchange(lm: LanguageModel, parameters: dict[str, Any], settings: Verification) -> dict[str, str]:
    """Prompt, text and standard prompt of one exchange on a question of ours, for the figures of a run that keeps no
    texts of others' questions; `parameters` are those under which its responses were drawn."""
    asked = Generation.of(parameters | {"keep_texts": True})
    row = respond(lm, "ours", [Example("ours", "evaluation", prompts.EXAMPLE, "7")], asked).iloc[0]
    return {"prompt": row.prompt, "text": row.text,
            "standard_prompt": p_true.standard_prompt(lm, row.question, row.text, settings)}  # fmt: skip


def with_texts(lm: LanguageModel, generations: pd.DataFrame, dataset: str, parameters: dict[str, Any]) -> pd.DataFrame:
    """A generations frame with its questions, prompts and texts. A run that kept none (`keep_texts`, among the
    `parameters` of its manifest) has them found again: questions in the dataset, texts in the token ids. Raises
    UserError for a row that the dataset does not have, and for responses that 01b imported."""
    if "demonstration" not in parameters:
        raise UserError(f"the responses to '{dataset}' were imported, without the prompt that led to them: run "
                        f"01_generate for model '{lm.name}' first")  # fmt: skip
    if parameters.get("keep_texts", True):
        return generations
    questions = {example.example_id: example.question for example in datasets.load_examples(load_dataset(dataset))}
    absent = [name for name in generations.example_id if name not in questions]
    if absent:
        raise UserError(f"dataset '{dataset}' has no row '{absent[0]}' to ask again; {nearest(absent[0], questions)}")
    asked = [questions[name] for name in generations.example_id]
    bodies = [row.token_ids[: len(row.token_ids) - row.eos] for row in generations.itertuples()]
    return generations.assign(
        question=asked,
        prompt=[prompt_text(lm, question, parameters["demonstration"]) for question in asked],
        text=["".join(answers.token_texts(lm.tokenizer, body)) for body in bodies],
    )
