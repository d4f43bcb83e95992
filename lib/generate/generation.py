"""Responses of a model to questions: one row each, with the probability of every token (columns:
lib.stored_columns).

An engine returns token ids: transformers, or a file of existing responses, which vLLM may write in
an environment of its own. One teacher-forced pass over these tokens (lib.generate.teacher_forcing)
computes all other columns.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from lib import store
from lib.errors import UserError
from lib.generate import p_true
from lib.generate.engines.file_engine import FileEngine
from lib.generate.engines.vllm_launch import Drawing, draw_with_vllm, open_drawn
from lib.generate.sampling import TransformersEngine
from lib.generate.teacher_forcing import score_responses
from lib.models.loading import LanguageModel, apply_chat_template, encode, outline_language_model
from lib.parameter_schemas import Dataset
from lib.params import (
    Demonstration,
    Engine,
    Generation,
    GenerationStep,
    Selection,
    load_dataset_config,
    load_model_config,
)
from lib.paths import relative_path
from lib.random_streams import stream_seed
from lib.responses.rows import Request, response_row
from lib.row_cache import RowCache, measured_facts
from lib.tasks import dataset_sources, datasets, prompts
from lib.tasks.datasets import Example

Sampler = TransformersEngine | FileEngine  # each returns token ids for requests

# ---- requests


def tokens_at_most(lm: LanguageModel, settings: Generation) -> int:
    """Return the longest response: as the model's file says (thinking models do), else the run."""
    if lm.spec.max_new_tokens is not None:
        return lm.spec.max_new_tokens
    return settings.max_new_tokens


def solving_prompt(lm: LanguageModel, question: str, demonstration: Demonstration) -> str:
    """Return the prompt that asks for a solution, as the model reads it (`fig:prompt_example`)."""
    messages = prompts.question_messages(question, lm.spec.system_prompt, demonstration)
    return apply_chat_template(lm, messages)


def worked_examples(lm: LanguageModel) -> list[int]:
    """Return the token ids that every prompt with worked examples begins with.

    They come from two questions that begin differently, so they do not depend on the questions of a
    batch.
    """
    first = encode(lm, solving_prompt(lm, "0", "few"))
    second = encode(lm, solving_prompt(lm, "A", "few"))
    return list(os.path.commonprefix([first, second]))


def build_requests(
    lm: LanguageModel, dataset: str, examples: Sequence[Example], settings: Generation
) -> list[Request]:
    """Return a request for each example, of the longest response that is allowed, or of a shorter
    one where the context ends first.

    Raise UserError if a prompt leaves no space for a response.
    """
    texts = [solving_prompt(lm, example.question, settings.demonstration) for example in examples]
    ids = [encode(lm, text) for text in texts]
    shared = 0
    if settings.demonstration == "few":  # only then is it worth encoding the beginning once
        shared = len(os.path.commonprefix([worked_examples(lm), *ids]))
    requests = []
    for example, text, prompt_ids in zip(examples, texts, ids, strict=True):
        room = p_true.room_for_response(lm, prompt_ids)
        if room < 1:
            raise UserError(
                f"model '{lm.name}': the prompt of example {example.example_id} "
                f"({len(prompt_ids)} tokens) leaves no room for a response in its context of "
                f"{lm.context}"
            )
        seed = stream_seed(settings.seed, lm.name, dataset, example.example_id)
        longest = min(tokens_at_most(lm, settings), room)
        requests.append(Request(example, text, prompt_ids, seed, longest, shared))
    return requests


# ---- responses


def choose_engine(
    lm: LanguageModel,
    dataset: str,
    settings: Generation,
    engine: Engine,
    examples: Sequence[Example],
    drawn: Path,
) -> Sampler:
    """Return the engine for a pair's responses: the response file that the model's config names,
    else `engine`.

    vLLM draws those of all `examples` of the run that its file in the folder `drawn` lacks.
    """
    if lm.spec.responses:
        return FileEngine(lm, dataset, examples)
    if engine == "transformers":
        return TransformersEngine(lm, settings.max_batch_tokens)
    drawing = Drawing(build_requests(lm, dataset, examples, settings), drawn)
    draw_with_vllm(lm, [drawing])
    spec = lm.spec.model_copy(update={"responses": relative_path(drawing.file)})
    from_file = FileEngine(replace(lm, spec=spec), dataset, examples)
    from_file.facts |= drawing.describe()
    return from_file


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
    if engine is None:
        engine = TransformersEngine(lm, settings.max_batch_tokens)
    requests = build_requests(lm, dataset, examples, settings)
    responses = engine.sample(requests)
    scores = score_responses(lm, requests, responses, settings)
    rows = []
    for request, ids, columns in zip(requests, responses, scores, strict=True):
        ended = ids[-1] in lm.eos
        row = {"model": lm.name, "dataset": dataset, "finish_reason": "stop" if ended else "length"}
        columns["eos"] = int(ended)
        row |= response_row(request, ids, columns, settings.save_texts)
        rows.append(row)
    return pd.DataFrame(rows)


def count_cut_by_context(lm: LanguageModel, frame: pd.DataFrame) -> int:
    """Return how many responses of a generations frame were cut because they fill the context, with
    prompt and query.

    The server of imported ones may have cut others.
    """
    if lm.context is None:
        return 0
    query = len(p_true.query_ids(lm))
    length = frame.prompt_tokens + frame.token_ids.map(len) + query
    cut = (frame.finish_reason == "length") & (length >= lm.context)
    return int(cut.sum())


# ---- a pair's responses (01)


def draw_pair(run: str, model: str, dataset: str, settings: GenerationStep) -> None:
    """Let vLLM draw the responses of a model to a dataset, if the settings name it, while no
    network is on the GPU. `generate_pair` finds them.
    """
    spec = load_model_config(model)
    if settings.engine != "vllm" or spec.responses:
        return
    lm = outline_language_model(model, spec)
    data = load_dataset_config(dataset)
    chosen = choose_examples(datasets.load_examples(data), dataset, settings)
    of_rows = describe_rows(describe_pair_inputs(lm, data, settings), data, settings)
    drawn = open_drawn(run, "generations", lm, dataset, of_rows)
    requests = build_requests(lm, dataset, chosen, settings)
    draw_with_vllm(lm, [Drawing(requests, drawn.folder)])


def choose_examples(
    examples: Sequence[Example], dataset: str, settings: Selection
) -> list[Example]:
    """Return those of a dataset's examples that a step takes, in a fixed random order."""
    return datasets.select_examples(
        examples, settings.limit, settings.seed, dataset, always_first=settings.example
    )


def describe_pair_inputs(
    lm: LanguageModel, data: Dataset, settings: GenerationStep
) -> dict[str, Any]:
    """Return the manifest's facts on model, settings and questions; the files are hashed."""
    return describe_generation(lm, settings) | {"data": dataset_sources.describe_source(data)}


def describe_rows(
    facts: Mapping[str, Any], data: Dataset, settings: GenerationStep
) -> dict[str, Any]:
    """Return all that every row of a pair depends on, given the facts of its manifest."""
    return dict(facts) | {"engine": settings.engine, "dataset": data.model_dump()}


def generate_pair(
    run: str, lm: LanguageModel, dataset: str, settings: GenerationStep
) -> pd.DataFrame:
    """Generate the responses of a model to a dataset, and store them with their in-situ P(True).

    Rows that an earlier process has finished are not made again (lib.row_cache).

    Parameters
    ----------
    run : name of the run, whose folder holds the frames `generations` and `in_situ`

    Returns
    -------
    The generations frame in the dataset's order, with the columns of in-situ P(True).
    """
    pair = f"{lm.name}__{dataset}"
    data = load_dataset_config(dataset)
    examples = datasets.load_examples(data)
    chosen = choose_examples(examples, dataset, settings)
    facts = describe_pair_inputs(lm, data, settings)
    of_rows = describe_rows(facts, data, settings)
    cache = RowCache(run, "generations", pair, of_rows, settings.rows_per_shard)
    drawn = open_drawn(run, "generations", lm, dataset, of_rows)
    engine = choose_engine(lm, dataset, settings, settings.engine, chosen, drawn.folder)

    def respond(part: Sequence[Example]) -> pd.DataFrame:
        return generate_responses(lm, dataset, part, settings, engine)

    selected = set(chosen)
    in_order = [example for example in examples if example in selected]
    frame = cache.map(respond, in_order, about=engine.responses)
    facts |= {"limit": settings.limit, "drawn": engine.facts} | measured_facts(cache)
    write_responses(run, pair, lm, frame, facts)
    cache.clear()
    drawn.clear()
    return frame


def describe_generation(lm: LanguageModel, settings: Generation) -> dict[str, Any]:
    """Return a manifest's facts on the model and on how its responses are generated."""
    parameters = settings.model_dump(include=set(Generation.model_fields))
    parameters["max_new_tokens"] = tokens_at_most(lm, settings)
    return {"model": lm.spec.model_dump(), "loaded": lm.facts, "parameters": parameters}


def write_responses(
    run: str, pair: str, lm: LanguageModel, frame: pd.DataFrame, facts: dict[str, Any]
) -> None:
    """Write the responses, and their in-situ P(True), which says to which responses it belongs."""
    path = store.frame_path(run, "generations", pair)
    responses = frame.drop(columns=p_true.IN_SITU_COLUMNS)
    cut = count_cut_by_context(lm, frame)
    store.write_frame(responses, path, **facts, context=lm.context, cut_by_context=cut)
    store.write_frame(
        frame[[*store.KEYS, *p_true.IN_SITU_COLUMNS]],
        store.frame_path(run, "in_situ", pair),
        generations=store.read_manifest(path)["sha256"],
        query=prompts.QUERY,
        options=p_true.balanced_spellings(lm),
    )


def answer_own_question(lm: LanguageModel, parameters: dict[str, Any]) -> dict[str, str]:
    """Return the prompt, text and standard prompt for our own example question.

    The figures of a run that saves no texts of other people's questions show it. `parameters` are
    those of its responses.
    """
    settings = Generation.of(parameters | {"save_texts": True})
    example = Example("ours", "evaluation", prompts.EXAMPLE, "7")
    row = generate_responses(lm, "ours", [example], settings).iloc[0]
    standard = p_true.standard_prompt(lm, row.question, row.text)
    return {"prompt": row.prompt, "text": row.text, "standard_prompt": standard}
