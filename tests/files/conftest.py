import pytest

from lib import earlier_rows, row_cache, store


@pytest.fixture
def artifacts(tmp_path, monkeypatch):
    """The folder of all runs, in place of the project's."""
    for module in (store, row_cache, earlier_rows):
        monkeypatch.setattr(module, "ARTIFACTS", tmp_path)
    monkeypatch.setattr(store, "SHIPPED", tmp_path / "shipped" / "demo")
    return tmp_path
