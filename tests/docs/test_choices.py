"""docs/configuration.md against the parameters: every choice is listed, with its default."""

import re

import pytest

from docs.benchmarks import choices
from lib import params
from lib.params import PARAMS, Profile
from lib.paths import ROOT

# What says where and how much is run, not what comes out: no choices.
PLUMBING = {"title", "models", "datasets", "limit", "on_code_change", "cpu", "rows_per_shard", "max_batch_tokens",
            "max_dropout_tokens", "dropout_limit", "save_texts", "example"}  # fmt: skip
TEXT = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)` \| ([^|]*) \| ([^|]+) \| ([^|]+) \|$", TEXT, flags=re.M)


def words(value) -> str:
    """A default as the table writes it."""
    if value is None:
        return "all"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return " ".join(words(part) for part in value) if value else "all"
    if isinstance(value, float) and value < 1 and value != 0.5:
        return f"{value:.2f}".removeprefix("0")
    return str(value) or "the first"


def test_every_choice_is_listed_and_nothing_else():
    listed = [name for name, *_ in ROWS]
    assert len(listed) == len(set(listed)) and set(listed) == set(Profile.model_fields) - PLUMBING


@pytest.mark.parametrize("name, default", [row[:2] for row in ROWS])
def test_its_default_is_the_one_that_stands_there(name, default):
    value = Profile.model_fields[name].get_default(call_default_factory=True)
    demo = params.load_profile("demo")
    shown, _, of_demo = default.partition(" (")
    if name == "calibration_sizes":
        assert shown == f"{value[0]} to {value[-1]}"
        assert of_demo == f"{demo.calibration_sizes[0]} to {demo.calibration_sizes[-1]})"
        return
    assert shown == words(value)
    if of_demo:
        assert of_demo.rstrip(")").replace(", ", " ") == words(getattr(demo, name))


@pytest.mark.parametrize("page", ["configuration.md", "hardware.md"])
def test_files_that_it_names_are_there(page):
    for name in re.findall(r"`([\w/-]+\.(?:yaml|py))`", (ROOT / "docs" / page).read_text(encoding="utf-8")):
        assert (ROOT / name).exists() or (PARAMS / "models" / name).exists() or (PARAMS / name).exists(), name


@pytest.mark.slow
def test_the_effects_that_stand_there_are_those_of_the_demo():
    """Every figure with its kind, as the benchmark makes it from the shipped signals."""
    shown = {
        name: re.findall(r"(?:(\w+): )?((?:(?:accuracy|raw|calibrated) \.\d{3}(?:, )?)+)", effect)
        for name, _, _, effect in ROWS
    }
    found = choices.effects().astype({"value": str})
    for name, stated in shown.items():
        for value, figures in stated:
            rows = found[(found.choice == name) & (found.value.isin([value]) if value else found.value.notna())]
            assert len(rows) == 1, (name, value)
            for kind in ("accuracy", "raw", "calibrated"):
                said = re.search(rf"{kind} (\.\d+)", figures)
                expected = pytest.approx(float(said[1]) if said else 0, abs=0.00051)
                assert rows[kind].iloc[0] == expected, (name, value, kind)
    assert sum(map(len, shown.values())) >= 11
