"""Stored responses, read again for the steps after 01: with the texts that a run may not have
saved, and token by token.
"""

from typing import Any

import numpy as np
import pandas as pd

from lib import row_order, store
from lib.errors import UserError, nearest
from lib.generate.generation import solving_prompt
from lib.models.loading import LanguageModel
from lib.params import Selection, load_dataset_config
from lib.tasks import answers, datasets


def read_responses(run: str, lm: LanguageModel, dataset: str, settings: Selection) -> pd.DataFrame:
    """Return the rows of a pair's stored responses that a step takes, with their texts."""
    path = store.find_frame(run, "generations", f"{lm.name}__{dataset}")
    rows = row_order.first_rows(
        store.read_frame(path), settings.limit, settings.seed, always_first=settings.example
    )
    return restore_texts(lm, rows, dataset, store.read_manifest(path)["parameters"])


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
            f"responses of '{lm.name}' to '{dataset}' were imported, without prompts: "
            "run 01_generate"
        )
    if parameters.get("save_texts", True):
        return frame
    by_id = {}
    for example in datasets.load_examples(load_dataset_config(dataset)):
        by_id[example.example_id] = example.question
    for example_id in sorted(frame.example_id):
        if example_id not in by_id:
            raise UserError(
                f"dataset '{dataset}' has no row '{example_id}' to ask again; "
                f"{nearest(example_id, by_id)}"
            )
    questions = [by_id[example_id] for example_id in frame.example_id]
    demonstration = parameters["demonstration"]
    texts = []
    for row in frame.itertuples():
        body = row.token_ids[: len(row.token_ids) - row.eos]
        texts.append("".join(answers.token_texts(lm.tokenizer, body)))
    return frame.assign(
        question=questions,
        prompt=[solving_prompt(lm, question, demonstration) for question in questions],
        text=texts,
    )


def token_table(lm: LanguageModel, response: Any) -> pd.DataFrame:
    """Return a generations row token by token: text, part of the response, probability (raw and
    when sampling).
    """
    count = len(response.token_ids)
    part = np.full(count, "", dtype="<U8")
    part[: response.thinking_end] = "thinking"
    part[response.answer_start : response.answer_end] = "answer"  # empty if both are -1
    part[count - response.eos :] = "end"
    columns = {
        "token": [repr(text) for text in answers.token_texts(lm.tokenizer, response.token_ids)],
        "id": response.token_ids,
        "part": part,
        "probability": np.exp(response.token_logprobs).round(6),
        "when sampling": np.exp(response.token_logprobs_sampling).round(6),
    }
    return pd.DataFrame(columns)
