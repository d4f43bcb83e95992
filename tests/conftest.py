"""What several test files share: the demo models, and the published material that may lie beside the project."""

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest

from lib import params
from lib.generate import models
from lib.project import ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the published datasets, tokenizers and paper (../shared) are not on this machine")
    return folder


@pytest.fixture(scope="session", params=["tiny-llama", "tiny-qwen"])
def lm(request):
    """Each demo model in turn."""
    import torch

    torch.set_num_threads(1)
    return models.load(request.param, params.load_model(request.param))
