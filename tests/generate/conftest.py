"""Models that several files of this folder ask."""

import architectures
import pytest

PLAIN = ("tiny-llama", "gpt2", "sliding", "gemma2")
SLOW = (pytest.param(name, marks=pytest.mark.slow) for name in ("tiny-qwen", "mistral", "qwen2"))


@pytest.fixture(scope="session")
def llama():
    return architectures.load("tiny-llama")


@pytest.fixture(scope="session", params=[*PLAIN, *SLOW])
def any_lm(request):
    """A model of each architecture in turn."""
    return architectures.load(request.param)
