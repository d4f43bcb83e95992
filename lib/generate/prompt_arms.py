"""The same questions after the paper's example and after none (04b); lib.analysis.prompt_ablation
compares the answers.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lib import store
from lib.generate import generation, stored_responses
from lib.generate.engines.vllm_launch import Drawing, draw_with_vllm, open_drawn
from lib.models.loading import LanguageModel, outline_language_model
from lib.params import AblationStep, Demonstration, load_model_config
from lib.random_streams import stream_seed
from lib.row_cache import RowCache, measured_facts
from lib.tasks.datasets import Example

# prompts of 04b, asked again unless it is the run's own
ARMS: tuple[Demonstration, ...] = ("one", "none")


def choose_ablation_rows(generations: pd.DataFrame, rows: int, seed: int = 0) -> pd.DataFrame:
    """Return a sample of one pair's evaluation rows, in their own order: the first of a random
    order of the dataset's questions, the same for every model.
    """
    evaluation = store.evaluation_rows(generations)
    rank = [stream_seed(seed, row.dataset, row.example_id) for row in evaluation.itertuples()]
    first = np.argsort(rank)[:rows]
    return evaluation.iloc[np.sort(first)]


def read_chosen_rows(
    run: str, lm: LanguageModel, dataset: str, settings: AblationStep
) -> pd.DataFrame:
    """Return the stored responses whose questions are asked again, with their texts."""
    path = store.find_frame(run, "generations", f"{lm.name}__{dataset}")
    rows = choose_ablation_rows(store.read_frame(path), settings.ablation_limit, settings.seed)
    parameters = store.read_manifest(path)["parameters"]
    return stored_responses.restore_texts(lm, rows, dataset, parameters)


class Arm(NamedTuple):
    """The answers after one other prompt."""

    responses: pd.DataFrame
    drawn: dict[str, Any]  # facts on the engine
    caches: list[RowCache]


def generate_arms_ahead(run: str, model: str, dataset: str, settings: AblationStep) -> None:
    """Let vLLM draw the responses after each other prompt in one start, if the settings name it,
    while no network is on the GPU. `ask_pair` finds them.
    """
    if settings.engine != "vllm":
        return
    lm = outline_language_model(model, load_model_config(model))
    examples = as_examples(read_chosen_rows(run, lm, dataset, settings))
    drawings = []
    for of_arm in settings_of_arms(settings).values():
        facts = describe_arm_rows(run, lm, dataset, of_arm)
        drawn = open_drawn(run, "ablation", lm, dataset, facts)
        requests = generation.build_requests(lm, dataset, examples, of_arm)
        drawings.append(Drawing(requests, drawn.folder))
    draw_with_vllm(lm, drawings)


def settings_of_arms(settings: AblationStep) -> dict[Demonstration, AblationStep]:
    """Return the settings of each other prompt, by its demonstration."""
    of_arms = {}
    for demonstration in ARMS:
        if demonstration != settings.demonstration:
            of_arms[demonstration] = settings.model_copy(update={"demonstration": demonstration})
    return of_arms


def as_examples(rows: pd.DataFrame) -> list[Example]:
    """Return the questions of stored responses."""
    questions = rows[list(Example._fields)]
    return [Example(*row) for row in questions.itertuples(index=False)]


def describe_arm_rows(
    run: str, lm: LanguageModel, dataset: str, settings: AblationStep
) -> dict[str, Any]:
    """Return all that every row after one prompt depends on."""
    pair = f"{lm.name}__{dataset}"
    responses = store.read_manifest(store.find_frame(run, "generations", pair))
    return generation.describe_generation(lm, settings) | {
        "pair": [lm.name, dataset],
        "data": responses["data"],
        "engine": settings.engine,
    }


def ask_pair(
    run: str,
    lm: LanguageModel,
    dataset: str,
    settings: AblationStep,
    combine: Callable[..., pd.DataFrame],
) -> pd.DataFrame:
    """Ask a model the same questions with each other prompt, and store all answers.

    Rows that an earlier process has finished are not made again (lib.row_cache).

    Parameters
    ----------
    run : name of the run, whose folder holds the frame `ablation`
    combine : makes one frame of the run's own rows, its demonstration, and the answers after the
        others (lib.analysis.prompt_ablation.combine_arms)

    Returns
    -------
    The ablation frame, with the run's own answers first.
    """
    pair = f"{lm.name}__{dataset}"
    rows = read_chosen_rows(run, lm, dataset, settings)
    examples = as_examples(rows)
    arms = {}
    for demonstration, of_arm in settings_of_arms(settings).items():
        arms[demonstration] = ask_arm(run, lm, dataset, examples, of_arm)
    answered = {demonstration: arm.responses for demonstration, arm in arms.items()}
    frame = combine(rows, settings.demonstration, answered)
    facts = generation.describe_generation(lm, settings) | {
        "pair": [lm.name, dataset],
        "inputs": store.file_checksums([store.find_frame(run, "generations", pair)]),
        "drawn": {demonstration: arm.drawn for demonstration, arm in arms.items()},
    }
    caches = []
    for arm in arms.values():
        caches += arm.caches
    path = store.frame_path(run, "ablation", pair)
    store.write_frame(frame, path, **facts, **measured_facts(*caches))
    for cache in caches:
        cache.clear()
    return frame


def ask_arm(
    run: str, lm: LanguageModel, dataset: str, examples: Sequence[Example], settings: AblationStep
) -> Arm:
    """Ask the questions with the demonstration of the settings, or read what is finished."""
    facts = describe_arm_rows(run, lm, dataset, settings)
    pair = f"{lm.name}__{dataset}"
    cache = RowCache(run, "ablation", pair, facts, settings.rows_per_shard)
    drawn = open_drawn(run, "ablation", lm, dataset, facts)
    # a file of responses answers one prompt only
    without_file = replace(lm, spec=lm.spec.model_copy(update={"responses": None}))
    engine = generation.choose_engine(
        without_file, dataset, settings, settings.engine, examples, drawn.folder
    )

    def respond(part: Sequence[Example]) -> pd.DataFrame:
        return generation.generate_responses(without_file, dataset, part, settings, engine)

    return Arm(cache.map(respond, examples), engine.facts, [cache, drawn])
