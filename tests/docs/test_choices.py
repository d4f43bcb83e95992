"""docs/configuration.md against the parameters: every choice is listed, with its default."""

import re

import pytest

from docs.benchmarks import choices
from lib import params
from lib.params import Profile
from lib.paths import ROOT

# What says where and how much is run, not what comes out: no choices.
PLUMBING = {"title", "models", "datasets", "limit", "on_code_change", "cpu", "rows_per_shard", "max_batch_tokens",
            "max_dropout_tokens", "dropout_limit", "save_texts", "example"}  # fmt: skip
TEXT = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)` \| ([^|]*) \| ([^|]+) \| ([^|]+) \|$", TEXT, flags=re.M)


def words(value) -> str:
    """A default as the table writes it."""
    if isinstance(value, list):
        return " ".join(map(words, value)) or "all"
    if isinstance(value, float) and value != 0.5:
        return f"{value:.2f}".removeprefix("0")
    if isinstance(value, bool):
        return str(value).lower()
    return {None: "all", "": "the first"}.get(value, str(value))


def test_every_choice_is_listed_with_its_default():
    """And in brackets the demo's, where it is another."""
    assert sorted(name for name, *_ in ROWS) == sorted(set(Profile.model_fields) - PLUMBING)
    demo = params.load_profile("demo")
    for name, default, *_ in ROWS:
        values = [Profile.model_fields[name].get_default(call_default_factory=True), getattr(demo, name)]
        if name == "calibration_sizes":
            values = [f"{sizes[0]} to {sizes[-1]}" for sizes in values]
        stated = default.rstrip(")").replace(", ", " ").split(" (")
        assert stated == [words(value) for value in values][: len(stated)], name


@pytest.mark.slow
def test_the_effects_that_stand_there_are_those_of_the_demo():
    """Every figure with its kind, as the benchmark makes it from the shipped signals."""
    found = choices.effects().astype({"value": str})
    stated = []
    for name, *_, effect in ROWS:
        for value, figures in re.findall(r"(?:(\w+): )?((?:(?:accuracy|raw|calibrated) \.\d{3}(?:, )?)+)", effect):
            (row,) = found[(found.choice == name) & (found.value.isin([value]) | (not value))].to_dict("records")
            said = {"accuracy": 0, "raw": 0, "calibrated": 0}
            said |= {kind: float(figure) for kind, figure in re.findall(r"(\w+) (\.\d+)", figures)}
            assert {kind: row[kind] for kind in said} == pytest.approx(said, abs=0.00051), (name, value)
            stated.append(name)
    assert len(stated) >= 6
