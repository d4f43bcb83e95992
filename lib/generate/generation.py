"""Responses of a model to questions: a row each, with the probability of every token (columns: lib.schemas).

An engine gives token ids: transformers here, vLLM in an environment of its own, or a file of responses that somebody
already has. One teacher-forced pass over these (scoring) says all else.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import TemplateError

from lib.configs import Model
from lib.generate import p_true
from lib.generate.imported_responses import FileEngine
from lib.generate.models import LanguageModel, apply_chat_template, encode
from lib.generate.sampling import Request, TransformersEngine
from lib.generate.scoring import response_row, score_responses
from lib.generate.vllm_engine import VLLMEngine
from lib.params import Demonstration, Engine, Generation, Verification, load_dataset_config
from lib.paths import UserError, nearest
from lib.random_streams import stream_seed
from lib.tasks import answers, datasets, prompts
from lib.tasks.datasets import Example

ResponseEngine = TransformersEngine | VLLMEngine | FileEngine  # each answers requests by token ids

# ---- requests


def with_model_limits(spec: Model, settings: Generation) -> Generation:
    """The run's settings, with the `max_new_tokens` of the model's file where that says one (thinking models do)."""
    if spec.max_new_tokens is None:
        return settings
    return settings.model_copy(update={"max_new_tokens": spec.max_new_tokens})


def solving_prompt(lm: LanguageModel, question: str, demonstration: Demonstration) -> str:
    """The prompt that asks for a solution, as the model reads it (`fig:prompt_example`)."""
    return apply_chat_template(lm, prompts.question_messages(question, lm.spec.system_prompt, demonstration))


def shared_prompt_ids(lm: LanguageModel, demonstration: Demonstration) -> list[int]:
    """Token ids that every prompt begins with: of two questions that begin differently, so that it does not hang on
    which are asked together."""
    return list(os.path.commonprefix([encode(lm, solving_prompt(lm, text, demonstration)) for text in ("0", "A")]))


def build_requests(lm: LanguageModel, dataset: str, examples: Sequence[Example], settings: Generation) -> list[Request]:
    """Examples as the model is asked them. Raises UserError where a prompt leaves no room for a response."""
    texts = [solving_prompt(lm, example.question, settings.demonstration) for example in examples]
    ids = [encode(lm, text) for text in texts]
    few = settings.demonstration == "few"  # only then it pays to encode the beginning once
    shared = len(os.path.commonprefix([shared_prompt_ids(lm, "few"), *ids])) if few else 0
    return [
        Request(
            example=example,
            prompt=text,
            prompt_ids=prompt,
            seed=stream_seed(settings.seed, lm.name, dataset, example.example_id),
            max_new_tokens=count_new_tokens(lm, example.example_id, len(prompt), settings),
            shared_tokens=shared,
        )
        for example, text, prompt in zip(examples, texts, ids, strict=True)
    ]


def count_new_tokens(lm: LanguageModel, example_id: str, prompt_tokens: int, settings: Generation) -> int:
    """New tokens that a prompt leaves room for: `max_new_tokens`, or fewer where the context ends before, which holds
    prompt, response and the in-situ query. Raises UserError where there is none."""
    if lm.context is None:
        return settings.max_new_tokens
    left = lm.context - prompt_tokens - len(p_true.query_ids(lm))
    if left < 1:
        raise UserError(
            f"model '{lm.name}': the prompt of example {example_id} ({prompt_tokens} tokens) leaves no room for a "
            f"response in its context of {lm.context}"
        )
    return min(settings.max_new_tokens, left)


def supported_demonstrations(
    lm: LanguageModel, examples: Sequence[Example], settings: Generation, demonstrations: Sequence[Demonstration]
) -> list[Demonstration]:
    """Those beginnings of the prompt that the model's template can write and its context can hold with a response."""
    found = []
    for demonstration in demonstrations:
        with suppress(UserError, TemplateError):  # a template may know no turn of the assistant's
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
    scratch: Callable[[], Path],
    from_file: bool = True,
) -> ResponseEngine:
    """The engine of a pair's responses: the file that the model's own file names, else what `engine` says.

    Parameters
    ----------
    examples : all that will be asked, for vLLM draws them at once
    scratch : names the folder where unfinished work lies
    from_file : False where the model is asked in another way than whoever wrote the file of responses
    """
    if from_file and lm.spec.responses:
        return FileEngine(lm, dataset, examples)
    if engine == "vllm":
        return VLLMEngine(lm, build_requests(lm, dataset, examples, settings), scratch)
    return TransformersEngine(lm, settings.max_batch_tokens)


def generate_responses(
    lm: LanguageModel,
    dataset: str,
    examples: Sequence[Example],
    settings: Generation,
    engine: ResponseEngine | None = None,
) -> pd.DataFrame:
    """Responses of a model to examples: a generations frame in their order, with the columns of P(True) in situ.

    Parameters
    ----------
    dataset : its name, which random streams hang on
    engine : what gives the token ids; transformers where none is given
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


def count_cut_by_context(frame: pd.DataFrame, settings: Generation) -> int:
    """How many responses of a generations frame ended because the context did, before `max_new_tokens`."""
    return int(((frame.finish_reason == "length") & (frame.token_ids.map(len) < settings.max_new_tokens)).sum())


def in_dataset_order(frame: pd.DataFrame, examples: Sequence[Example]) -> pd.DataFrame:
    """A frame's rows in the order of `examples`, whatever the order in which they were made."""
    places = {example.example_id: place for place, example in enumerate(examples)}
    return frame.sort_values("example_id", key=lambda names: names.map(places), ignore_index=True)


# ---- texts


def token_table(lm: LanguageModel, response: Any) -> pd.DataFrame:
    """A generations row token by token: text, probability (own and when sampling), what it is part of."""
    places = np.arange(len(response.token_ids))
    parts = {
        "end": places == len(places) - response.eos,
        "thinking": places < response.thinking_end,
        "answer": (response.answer_start <= places) & (places < response.answer_end),  # none where both are -1
    }
    return pd.DataFrame(
        {
            "token": [repr(text) for text in answers.token_texts(lm.tokenizer, response.token_ids)],
            "id": response.token_ids,
            "part": np.select(list(parts.values()), list(parts), ""),
            "probability": np.exp(response.token_logprobs).round(6),
            "when sampling": np.exp(response.token_logprobs_sampling).round(6),
        }
    )


def example_dialogue(lm: LanguageModel, parameters: dict[str, Any], settings: Verification) -> dict[str, str]:
    """Prompt, text and standard prompt of one exchange on a question of ours, for the figures of a run that keeps no
    texts of others' questions; `parameters` are those under which its responses were drawn."""
    asked = Generation.of(parameters | {"save_texts": True})
    row = generate_responses(lm, "ours", [Example("ours", "evaluation", prompts.EXAMPLE, "7")], asked).iloc[0]
    standard = p_true.standard_prompt(lm, row.question, row.text, settings)
    return {"prompt": row.prompt, "text": row.text, "standard_prompt": standard}


def restore_texts(
    lm: LanguageModel, generations: pd.DataFrame, dataset: str, parameters: dict[str, Any]
) -> pd.DataFrame:
    """A generations frame with its questions, prompts and texts.

    A run that kept none (`save_texts`, among the `parameters` of its manifest) has them found again: questions in the
    dataset, texts in the token ids.

    Raises
    ------
    UserError
        The dataset does not have a row, or 01b imported the responses.
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
