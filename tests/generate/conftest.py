"""The models of each architecture."""

import architectures
import pytest

SLOW = pytest.param("tiny-qwen", marks=pytest.mark.slow)


@pytest.fixture(scope="session", params=["tiny-llama", "gpt2", "mistral", "gemma2", SLOW])
def any_lm(request):
    """A model of each architecture in turn."""
    return architectures.load(request.param)
