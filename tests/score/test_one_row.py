"""One response followed through the notebooks: which one it is, and its numbers, by hand."""

import re

import nbformat
import numpy as np
import pytest
from synthetic import keyed

from lib.analysis import running_example
from lib.paths import ROOT, UserError


def chosen(example="", dataset="d", **other):
    """The id of the example that is followed, of four whose last calibrates."""
    frame = keyed(4, answer=[np.log([p]) for p in (0.9, 0.5, 0.8, 0.99)], correct=[True, False, False, False])
    frame["split"] = ["evaluation"] * 3 + ["calibration"]
    return running_example.choose_example(frame.assign(**other), example, "m", dataset).example_id


def test_the_named_row_or_else_the_most_confident_wrong_one():
    assert chosen() == "e2"
    assert chosen("e3") == "e2", "no calibration row"
    assert chosen("e1", dataset="other") == "e1", "in whatever dataset it stands"
    assert chosen(dataset="other") == "e2", "of all, where it has none of the dataset"
    assert chosen(correct=True) == "e0"
    assert chosen(answer=None, correct=False) == "e0", "of responses without an answer the first"
    with pytest.raises(UserError, match="^model 'm': no evaluation row has an answer, .*; choose last_number or zero$"):
        chosen(split="calibration")


def test_links_of_a_notebook_lead_to_files():
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        links = re.findall(r"\]\(([^)]+)\)", nbformat.read(path, 4).cells[0].source)
        assert links and all((path.parent / link).resolve().is_file() for link in links), path
