"""One response followed through the notebooks: which one it is, and its numbers, by hand."""

import re

import nbformat
import numpy as np
import pandas as pd
import pytest
from synthetic import keyed, passed

from lib.analysis import multi_pass_statistics, token_statistics
from lib.params import EvaluationChoices
from lib.paths import ROOT, UserError


def chosen(example="", dataset="d", **other):
    """The id of the example that is followed, of four whose last calibrates."""
    frame = keyed(4, answer=[np.log([p]) for p in (0.9, 0.5, 0.8, 0.99)], correct=[True, False, False, False])
    frame["split"] = ["evaluation"] * 3 + ["calibration"]
    return token_statistics.choose_example(frame.assign(**other), example, "m", dataset).example_id


def test_the_named_row_or_else_the_most_confident_wrong_one():
    assert chosen() == "e2"
    assert chosen("e3") == "e2", "no calibration row"
    assert chosen("e1", dataset="other") == "e1", "in whatever dataset it stands"
    assert chosen(dataset="other") == "e2", "of all, where it has none of the dataset"
    assert chosen(correct=True) == "e0"
    assert chosen(answer=None, correct=False) == "e0", "of responses without an answer the first"
    with pytest.raises(UserError, match="^model 'm': no evaluation row has an answer, .*; choose last_number or zero$"):
        chosen(split="calibration")


def test_options_by_hand():
    """Masses .2 and .6 of a distribution: p = .25; of ` A` there is no ` B`, so it does not count."""
    verified = dict.fromkeys(["model", "dataset", "split", "example_id"], "x") | {"spellings": ["A", "B", " A"]}
    for way, tokens in (("standard", 9), ("in_situ", 3)):
        logits = np.log(np.array([0.2, 0.6, 0.1])) + 5
        verified |= {f"{way}_tokens": tokens, f"{way}_logits": logits, f"{way}_logz": 5.0}
    table = multi_pass_statistics.option_probabilities(pd.Series(verified))
    assert table.loc["standard", ["A", "B", "P(True)"]].tolist() == pytest.approx([0.2, 0.6, 0.25])
    assert table.tokens.to_dict() == {"standard": 9, "in situ": 3}


def test_disagreement_by_hand():
    table = multi_pass_statistics.bald_by_token(passed(), EvaluationChoices())
    assert table.predictive.tolist() == [0.5, 0.7] and table.conditional.tolist() == [0.3, 0.1]
    assert table.BALD.tolist() == pytest.approx([0.2, 0.6]) and table.phi.tolist() == pytest.approx([0.8, 0.4])


def test_links_of_a_notebook_lead_to_files():
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        links = re.findall(r"\]\(([^)]+)\)", nbformat.read(path, 4).cells[0].source)
        assert links and all((path.parent / link).resolve().is_file() for link in links), path
