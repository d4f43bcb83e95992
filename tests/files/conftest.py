import pytest

from lib import row_cache, store


@pytest.fixture
def artifacts(tmp_path, monkeypatch):
    """The folder of all runs, in place of the project's."""
    for module in (store, row_cache):
        monkeypatch.setattr(module, "ARTIFACTS", tmp_path)
    monkeypatch.setattr(store, "SHIPPED", tmp_path / "shipped" / "demo")
    return tmp_path
