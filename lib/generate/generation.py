"""Responses of a model to questions: one row each, with the probability of every token (columns: lib.stored_columns).

An engine returns token ids: transformers, vLLM in a separate environment, or a file of existing responses. One
teacher-forced pass over these tokens (lib.generate.teacher_forcing) computes all other columns.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import TemplateError

from lib.generate import p_true
from lib.generate.imported_responses import FileEngine
from lib.generate.models import LanguageModel, apply_chat_template, encode
from lib.generate.response_files import Response
from lib.generate.sampling import Request, TransformersEngine
from lib.generate.teacher_forcing import response_row, score_responses
from lib.generate.vllm_engine import VLLMEngine
from lib.models_and_datasets import Model
from lib.params import Demonstration, Engine, Generation, load_dataset_config
from lib.paths import UserError, nearest
from lib.random_streams import stream_seed
from lib.tasks import answers, datasets, prompts
from lib.tasks.datasets import Example

ResponseEngine = TransformersEngine | VLLMEngine | FileEngine  # each returns token ids for requests

# ---- requests


def with_model_limits(spec: Model, settings: Generation) -> Generation:
    """Return the run's settings, with the `max_new_tokens` of the model's file if it has one (thinking models do)."""
    return settings.model_copy(update={"max_new_tokens": spec.max_new_tokens or settings.max_new_tokens})


def solving_prompt(lm: LanguageModel, question: str, demonstration: Demonstration) -> str:
    """Return the prompt that asks for a solution, as the model reads it (`fig:prompt_example`)."""
    return apply_chat_template(lm, prompts.question_messages(question, lm.spec.system_prompt, demonstration))


def shared_prompt_ids(lm: LanguageModel, demonstration: Demonstration) -> list[int]:
    """Return the token ids that every prompt begins with.

    They come from two questions that begin differently, so they do not depend on the questions of a batch.
    """
    return list(os.path.commonprefix([encode(lm, solving_prompt(lm, text, demonstration)) for text in ("0", "A")]))


def build_requests(lm: LanguageModel, dataset: str, examples: Sequence[Example], settings: Generation) -> list[Request]:
    """Return a request for each example. Raise UserError if a prompt leaves no space for a response."""
    texts = [solving_prompt(lm, example.question, settings.demonstration) for example in examples]
    ids = [encode(lm, text) for text in texts]
    few = settings.demonstration == "few"  # only then is it worth encoding the beginning once
    shared = len(os.path.commonprefix([shared_prompt_ids(lm, "few"), *ids])) if few else 0
    seeds = [stream_seed(settings.seed, lm.name, dataset, example.example_id) for example in examples]
    limits = [count_new_tokens(lm, *asked, settings) for asked in zip(examples, ids, strict=True)]
    return [Request(*asked, shared) for asked in zip(examples, texts, ids, seeds, limits, strict=True)]


def count_new_tokens(lm: LanguageModel, example: Example, prompt: list[int], settings: Generation) -> int:
    """Return the number of new tokens for a prompt: `max_new_tokens`, or fewer if the context ends first.

    Prompt, response and in-situ query must fit in the context. Raise UserError if no token is left.
    """
    if lm.context is None:
        return settings.max_new_tokens
    left = lm.context - len(prompt) - len(p_true.query_ids(lm))
    if left < 1:
        raise UserError(
            f"model '{lm.name}': the prompt of example {example.example_id} ({len(prompt)} tokens) leaves no room for "
            f"a response in its context of {lm.context}"
        )
    return min(settings.max_new_tokens, left)


def supported_demonstrations(
    lm: LanguageModel, examples: Sequence[Example], settings: Generation, demonstrations: Sequence[Demonstration]
) -> list[Demonstration]:
    """Return the demonstrations that the model's template can render and that leave space for a response in its
    context."""
    found = []
    for demonstration in demonstrations:
        with suppress(UserError, TemplateError):  # a template may not support assistant turns
            build_requests(lm, "", examples, settings.model_copy(update={"demonstration": demonstration}))
            found.append(demonstration)
    return found


# ---- responses


def choose_engine(
    lm: LanguageModel,
    dataset: str,
    settings: Generation,
    engine: Engine,
    examples: Sequence[Example],
    scratch: Path,
    from_file: bool = True,
) -> ResponseEngine:
    """Return the engine for a pair's responses: the response file that the model's config names, else `engine`.

    Parameters
    ----------
    examples : all examples of the run, because vLLM samples them together
    scratch : folder for unfinished work
    from_file : False if the prompt differs from the one behind the response file
    """
    if from_file and lm.spec.responses:
        return FileEngine(lm, dataset, examples, build_requests(lm, dataset, examples, settings))
    if engine == "vllm":
        return VLLMEngine(lm, build_requests(lm, dataset, examples, settings), scratch)
    return TransformersEngine(lm, settings.max_batch_tokens)


def given_responses(engine: ResponseEngine) -> Mapping[str, Response]:
    """Return the responses of a file by example_id, wherever they stand in it; none of an engine that samples."""
    given = engine.responses if isinstance(engine, FileEngine) else {}
    return {name: replace(response, where="") for name, response in given.items()}


def generate_responses(
    lm: LanguageModel,
    dataset: str,
    examples: Sequence[Example],
    settings: Generation,
    engine: ResponseEngine | None = None,
) -> pd.DataFrame:
    """Return a model's responses to examples: a generations frame in their order, with the columns of in-situ P(True).

    Parameters
    ----------
    dataset : name of the dataset, part of the key of each random stream
    engine : source of the token ids; by default transformers
    """
    requests = build_requests(lm, dataset, examples, settings)
    responses = (engine or TransformersEngine(lm, settings.max_batch_tokens)).sample(requests)
    scores = score_responses(lm, requests, responses, settings)
    rows = [
        {"model": lm.name, "dataset": dataset, "finish_reason": "stop" if ids[-1] in lm.eos else "length"}
        | response_row(request, ids, of_row | {"eos": int(ids[-1] in lm.eos)}, lm.spec.thinking, settings.save_texts)
        for request, ids, of_row in zip(requests, responses, scores, strict=True)
    ]
    return pd.DataFrame(rows)


def count_cut_by_context(lm: LanguageModel, frame: pd.DataFrame, settings: Generation) -> int:
    """Return how many responses of a generations frame were cut by the context, before `max_new_tokens`.

    With prompt and query they fill it. A shorter one was cut by the server that it was imported from.
    """
    length = frame.token_ids.map(len)
    full = frame.prompt_tokens + length + len(p_true.query_ids(lm)) >= (lm.context or np.inf)
    return int(((frame.finish_reason == "length") & (length < settings.max_new_tokens) & full).sum())


def in_dataset_order(frame: pd.DataFrame, examples: Sequence[Example]) -> pd.DataFrame:
    """Return a frame's rows in the order of `examples`."""
    places = {example.example_id: place for place, example in enumerate(examples)}
    return frame.sort_values("example_id", key=lambda names: names.map(places), ignore_index=True)


# ---- texts


def token_table(lm: LanguageModel, response: Any) -> pd.DataFrame:
    """Return a generations row token by token: text, part of the response, probability (raw and when sampling)."""
    part = np.full(len(response.token_ids), "", dtype="<U8")
    part[: response.thinking_end] = "thinking"
    part[response.answer_start : response.answer_end] = "answer"  # empty if both are -1
    part[len(part) - response.eos :] = "end"
    return pd.DataFrame(
        {
            "token": [repr(text) for text in answers.token_texts(lm.tokenizer, response.token_ids)],
            "id": response.token_ids,
            "part": part,
            "probability": np.exp(response.token_logprobs).round(6),
            "when sampling": np.exp(response.token_logprobs_sampling).round(6),
        }
    )


def example_dialogue(lm: LanguageModel, parameters: dict[str, Any]) -> dict[str, str]:
    """Return the prompt, text and standard prompt for our own example question.

    The figures of a run that saves no texts of other people's questions show it. `parameters` are those of its
    responses.
    """
    asked = Generation.of(parameters | {"save_texts": True})
    row = generate_responses(lm, "ours", [Example("ours", "evaluation", prompts.EXAMPLE, "7")], asked).iloc[0]
    standard = p_true.standard_prompt(lm, row.question, row.text)
    return {"prompt": row.prompt, "text": row.text, "standard_prompt": standard}


def restore_texts(
    lm: LanguageModel, generations: pd.DataFrame, dataset: str, parameters: dict[str, Any]
) -> pd.DataFrame:
    """Return a generations frame with its questions, prompts and texts.

    If the run saved none (`save_texts` in the `parameters` of its manifest), restore the questions from the dataset and
    the texts from the token ids.

    Raises
    ------
    UserError
        The dataset lacks a row, or 01b imported the responses.
    """
    if "demonstration" not in parameters:
        raise UserError(
            f"the responses to '{dataset}' were imported, without the prompt that led to them: run "
            f"01_generate for model '{lm.name}' first"
        )
    if parameters.get("save_texts", True):
        return generations
    known = {example.example_id: example.question for example in datasets.load_examples(load_dataset_config(dataset))}
    if absent := sorted(set(generations.example_id) - known.keys()):
        raise UserError(f"dataset '{dataset}' has no row '{absent[0]}' to ask again; {nearest(absent[0], known)}")
    asked = [known[name] for name in generations.example_id]
    bodies = [row.token_ids[: len(row.token_ids) - row.eos] for row in generations.itertuples()]
    return generations.assign(
        question=asked,
        prompt=[solving_prompt(lm, question, parameters["demonstration"]) for question in asked],
        text=["".join(answers.token_texts(lm.tokenizer, body)) for body in bodies],
    )
