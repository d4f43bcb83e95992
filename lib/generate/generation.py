"""Responses of a model to questions: one row each, with the probability of every token (columns:
lib.stored_columns).

An engine returns token ids: transformers, or a file of existing responses, which vLLM may write in
an environment of its own. One teacher-forced pass over these tokens (lib.generate.teacher_forcing)
computes all other columns.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib.errors import UserError, nearest
from lib.generate import p_true
from lib.generate.engines.file_engine import FileEngine
from lib.generate.engines.vllm_launch import draw_with_vllm
from lib.generate.sampling import TransformersEngine
from lib.generate.teacher_forcing import score_responses
from lib.models.loading import LanguageModel, apply_chat_template, encode
from lib.parameter_schemas import Model
from lib.params import Demonstration, Engine, Generation, load_dataset_config
from lib.paths import relative_path
from lib.random_streams import stream_seed
from lib.responses.rows import Request, response_row
from lib.tasks import answers, datasets, prompts
from lib.tasks.datasets import Example

Sampler = TransformersEngine | FileEngine  # each returns token ids for requests

# ---- requests


def with_model_limits(spec: Model, settings: Generation) -> Generation:
    """Return the run's settings, with the `max_new_tokens` of the model's file if it has one
    (thinking models do)."""
    return settings.model_copy(
        update={"max_new_tokens": spec.max_new_tokens or settings.max_new_tokens}
    )


def solving_prompt(lm: LanguageModel, question: str, demonstration: Demonstration) -> str:
    """Return the prompt that asks for a solution, as the model reads it (`fig:prompt_example`)."""
    return apply_chat_template(
        lm, prompts.question_messages(question, lm.spec.system_prompt, demonstration)
    )


def shared_prompt_ids(lm: LanguageModel, demonstration: Demonstration) -> list[int]:
    """Return the token ids that every prompt begins with.

    They come from two questions that begin differently, so they do not depend on the questions of a
    batch.
    """
    return list(
        os.path.commonprefix(
            [encode(lm, solving_prompt(lm, text, demonstration)) for text in ("0", "A")]
        )
    )


def build_requests(
    lm: LanguageModel, dataset: str, examples: Sequence[Example], settings: Generation
) -> list[Request]:
    """Return a request for each example, of `max_new_tokens`, or of fewer where the context ends
    first.

    Raise UserError if a prompt leaves no space for a response.
    """
    texts = [solving_prompt(lm, example.question, settings.demonstration) for example in examples]
    ids = [encode(lm, text) for text in texts]
    few = settings.demonstration == "few"  # only then is it worth encoding the beginning once
    shared = len(os.path.commonprefix([shared_prompt_ids(lm, "few"), *ids])) if few else 0
    requests = []
    for example, text, prompt in zip(examples, texts, ids, strict=True):
        if (room := p_true.room_for_response(lm, prompt)) < 1:
            where = f"model '{lm.name}': the prompt of example {example.example_id} ({len(prompt)} tokens)"
            raise UserError(f"{where} leaves no room for a response in its context of {lm.context}")
        seed = stream_seed(settings.seed, lm.name, dataset, example.example_id)
        requests.append(
            Request(example, text, prompt, seed, min(settings.max_new_tokens, room), shared)
        )
    return requests


# ---- responses


def choose_engine(
    lm: LanguageModel,
    dataset: str,
    settings: Generation,
    engine: Engine,
    examples: Sequence[Example],
    scratch: Path,
) -> Sampler:
    """Return the engine for a pair's responses: the response file that the model's config names,
    else `engine`.

    vLLM samples all `examples` of the run together, into a file in the folder `scratch`.
    """
    if lm.spec.responses:
        return FileEngine(lm, dataset, examples)
    if engine == "transformers":
        return TransformersEngine(lm, settings.max_batch_tokens)
    path, facts = draw_with_vllm(lm, build_requests(lm, dataset, examples, settings), scratch)
    spec = lm.spec.model_copy(update={"responses": relative_path(path)})
    drawn = FileEngine(replace(lm, spec=spec), dataset, examples)
    drawn.facts |= facts
    return drawn


def generate_responses(
    lm: LanguageModel,
    dataset: str,
    examples: Sequence[Example],
    settings: Generation,
    engine: Sampler | None = None,
) -> pd.DataFrame:
    """Return a model's responses to examples: a generations frame in their order, with the columns
    of in-situ P(True).

    Parameters
    ----------
    dataset : name of the dataset, part of the key of each random stream
    engine : source of the token ids; by default transformers
    """
    requests = build_requests(lm, dataset, examples, settings)
    responses = (engine or TransformersEngine(lm, settings.max_batch_tokens)).sample(requests)
    scores = score_responses(lm, requests, responses, settings)
    rows = [
        {
            "model": lm.name,
            "dataset": dataset,
            "finish_reason": "stop" if ids[-1] in lm.eos else "length",
        }
        | response_row(request, ids, of_row | {"eos": int(ids[-1] in lm.eos)}, settings.save_texts)
        for request, ids, of_row in zip(requests, responses, scores, strict=True)
    ]
    return pd.DataFrame(rows)


def count_cut_by_context(lm: LanguageModel, frame: pd.DataFrame) -> int:
    """Return how many responses of a generations frame were cut because they fill the context, with
    prompt and query.

    The server of imported ones may have cut others.
    """
    filled = frame.prompt_tokens + frame.token_ids.map(len) + len(p_true.query_ids(lm))
    return int(((frame.finish_reason == "length") & (filled >= (lm.context or np.inf))).sum())


# ---- texts


def token_table(lm: LanguageModel, response: Any) -> pd.DataFrame:
    """Return a generations row token by token: text, part of the response, probability (raw and
    when sampling)."""
    part = np.full(len(response.token_ids), "", dtype="<U8")
    part[: response.thinking_end] = "thinking"
    part[response.answer_start : response.answer_end] = "answer"  # empty if both are -1
    part[len(part) - response.eos :] = "end"
    columns = {
        "token": [repr(text) for text in answers.token_texts(lm.tokenizer, response.token_ids)],
        "id": response.token_ids,
        "part": part,
        "probability": np.exp(response.token_logprobs).round(6),
        "when sampling": np.exp(response.token_logprobs_sampling).round(6),
    }
    return pd.DataFrame(columns)


def example_dialogue(lm: LanguageModel, parameters: dict[str, Any]) -> dict[str, str]:
    """Return the prompt, text and standard prompt for our own example question.

    The figures of a run that saves no texts of other people's questions show it. `parameters` are
    those of its responses.
    """
    asked = Generation.of(parameters | {"save_texts": True})
    row = generate_responses(
        lm, "ours", [Example("ours", "evaluation", prompts.EXAMPLE, "7")], asked
    ).iloc[0]
    standard = p_true.standard_prompt(lm, row.question, row.text)
    return {"prompt": row.prompt, "text": row.text, "standard_prompt": standard}


def restore_texts(
    lm: LanguageModel, frame: pd.DataFrame, dataset: str, parameters: dict[str, Any]
) -> pd.DataFrame:
    """Return a generations frame with its questions, prompts and texts.

    If the run saved none (`save_texts` in the `parameters` of its manifest), restore the questions
    from the dataset and the texts from the token ids. Raise UserError if the dataset lacks a row,
    or 01b imported the responses.
    """
    if "demonstration" not in parameters:
        raise UserError(
            f"responses of '{lm.name}' to '{dataset}' were imported, without prompts: run 01_generate"
        )
    if parameters.get("save_texts", True):
        return frame
    known = {
        example.example_id: example.question
        for example in datasets.load_examples(load_dataset_config(dataset))
    }
    if absent := sorted(set(frame.example_id) - known.keys()):
        raise UserError(
            f"dataset '{dataset}' has no row '{absent[0]}' to ask again; {nearest(absent[0], known)}"
        )
    asked = [known[name] for name in frame.example_id]
    prompted = [solving_prompt(lm, question, parameters["demonstration"]) for question in asked]
    bodies = [row.token_ids[: len(row.token_ids) - row.eos] for row in frame.itertuples()]
    texts = ["".join(answers.token_texts(lm.tokenizer, body)) for body in bodies]
    return frame.assign(question=asked, prompt=prompted, text=texts)
