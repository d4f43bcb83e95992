import pytest

from lib import store


@pytest.fixture
def artifacts(tmp_path, monkeypatch):
    """The folder of all runs, in place of the project's."""
    monkeypatch.setattr(store, "ARTIFACTS", tmp_path)
    monkeypatch.setattr(store, "SHIPPED", tmp_path / "shipped" / "demo")
    return tmp_path
