"""docs/small-models.md and README say of the real models what their shipped signals give."""

from docs.tables import small_models

README = small_models.README.read_text(encoding="utf-8")
RENEW = "python docs/tables/small_models.py renews it"


def test_the_tables_are_those_of_the_shipped_signals():
    page = small_models.PAGE.read_text(encoding="utf-8")
    assert page.count(small_models.END) == len(small_models.TABLES)
    assert small_models.renewed(page) == page and small_models.renewed_readme(README) == README, RENEW
