"""A model that only a server has: its requests, and both demo models behind llama.cpp's server against their weights."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from served import completion, faulty, llama_cpp

from lib import params, store
from lib.calibrate.calibrated import CALIBRATORS, score
from lib.generate import batch_requests, generation, models, p_true
from lib.generate.imported_responses import ImportedResponses, response_token_ids
from lib.generate.response_files import Response
from lib.generate.served_p_true import ServedVerification, parse_verdict
from lib.parameter_types import Model
from lib.paths import ROOT, UserError
from lib.score.confidence import confidence_frame, option_log_odds
from lib.score.interpretation import interpret_responses
from lib.tasks import datasets, prompts
from workflow import ask, cli, requests, run
from workflow.pipeline import Run

SETTINGS = params.Generation(demonstration="none", max_new_tokens=256)
DATASET = "demo-easy"


def served_spec(model, folder):
    """What its file says of a demo model, known from a server alone."""
    decoding = params.load_model_config(model).model_dump(include={"temperature", "top_p", "top_k", "thinking"})
    return Model(label="Served", responses=f"{folder}/", system_prompt=False, **decoding)


def some_examples(count):
    return datasets.select_examples(datasets.load_examples(params.load_dataset_config(DATASET)), count, 0, DATASET)


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Runs `requests` and `ask` for one model, of which nothing is known but this."""

    def prepare(spec, count):
        monkeypatch.setattr(params, "load_model_config", lambda _: spec)
        values = params.load_profile("demo").model_copy(update={"limit": count, "example": ""}).model_dump()
        run = Run("demo", values | {"models": ["served"], "datasets": [DATASET]})

        def command(verb, **options):
            main = {"requests": requests.main, "ask": ask.main}[verb]
            return main(run, SimpleNamespace(**{"model_name": "", "datasets": [], "concurrent": 4} | options))

        return command

    return prepare
