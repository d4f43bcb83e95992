"""docs/small-models.md and README say of the real models what their shipped signals give."""

import io
import re

import matplotlib.image
import numpy as np

from docs.tables import small_models
from lib.paths import ROOT

README = small_models.README.read_text(encoding="utf-8")
RENEW = "python docs/tables/small_models.py renews it"


def test_the_tables_are_those_of_the_shipped_signals():
    page = small_models.PAGE.read_text(encoding="utf-8")
    assert page.count(small_models.END) == len(small_models.TABLES)
    assert small_models.renewed(page) == page and small_models.renewed_readme(README) == README, RENEW


def test_the_caption_of_readmes_picture_is_of_the_shipped_signals():
    picture = small_models.PICTURE.relative_to(ROOT)
    caption = re.search(r"\n\*.*?\*\n", README.partition(f"({picture})")[2], flags=re.S)[0]
    rows = ("ECE Ans Avg", small_models.ISOTONIC["ece"])
    shown = [small_models.results()[row][small_models.PICTURED] for row in rows]
    assert re.findall(r"(?<!\w)\.\d+", caption) == shown


def test_readmes_picture_is_drawn_from_the_shipped_signals():
    """But for letters and edges, which other processors may smooth otherwise."""
    images = small_models.picture(), small_models.PICTURE.read_bytes()
    drawn, stored = (matplotlib.image.imread(io.BytesIO(image)) for image in images)
    assert drawn.shape == stored.shape and np.abs(drawn - stored).mean() < 0.01, RENEW
