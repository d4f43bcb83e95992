"""docs/results.md, the expected results of the artifact appendix, and the address of the pages."""

import re

from docs.tables import address, expected, results
from lib.paths import ROOT

PICTURE = re.compile(r"\]\(results/([\w.]+)\)")


def test_every_picture_is_there_and_shown():
    shown = PICTURE.findall(results.PAGE.read_text(encoding="utf-8"))
    files = list(results.PICTURES.iterdir())
    assert sorted(shown) == sorted(path.name for path in files) and len(files) >= 5
    assert sum(path.stat().st_size for path in files) < 1.5e6


def test_the_appendix_expects_what_the_shipped_runs_give():
    page = expected.PAGE.read_text(encoding="utf-8")
    assert expected.renewed(page) == page, "python docs/tables/expected.py renews it"


def test_one_command_tells_where_the_pages_are():
    """Of README and of each notebook, whose first lines lead to docs/results.md until then."""
    url = "https://github.com/someone/math.confidence"
    for path in address.places():
        text = path.read_text(encoding="utf-8")
        told = address.addressed(path, text, f"{url}.git")
        assert address.CONSTANT not in told
        if path.suffix == ".ipynb" or path.name == "README.md":
            assert len(address.LINK.findall(text)) >= 1, path.name
            moved = r"\[[^\]]*executed[^\]]*\]\(https://someone\.github\.io/math\.confidence/"
            assert re.search(moved, told) and not address.LINK.search(told)
    readme = ROOT / "README.md"
    assert f"git clone {url} " in address.addressed(readme, readme.read_text(encoding="utf-8"), url)
