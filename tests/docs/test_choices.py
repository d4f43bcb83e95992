"""docs/configuration.md against the parameters: every choice is listed, with its default."""

import re

import pytest
import yaml

from docs.benchmarks import choices
from lib import params
from lib.params import Profile
from lib.paths import ROOT

# What says where and how much is run, not what comes out: no choices.
PLUMBING = {
    *("title", "models", "datasets", "limit", "dropout_limit", "example", "save_texts"),
    *("on_code_change", "cpu", "rows_per_shard", "max_batch_tokens", "max_dropout_tokens"),
}
TEXT = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)` \| ([^|]*) \| ([^|]+) \| ([^|]+) \|$", TEXT, flags=re.M)


def test_every_choice_is_listed_with_its_default():
    """And in brackets the demo's, where it is another."""
    listed = sorted(name for name, *_ in ROWS)
    assert listed == sorted(set(Profile.model_fields) - PLUMBING)
    demo_profile = params.load_profile("demo")
    for name, cell, *_ in ROWS:
        default = Profile.model_fields[name].get_default(call_default_factory=True)
        of_demo = getattr(demo_profile, name)
        words, _, words_of_demo = cell.rstrip(")").partition(" (")
        assert_stated(words, default, name)
        if words_of_demo:
            assert_stated(words_of_demo, of_demo, name)
        else:
            assert default in (of_demo, "", [], None), name


def assert_stated(words, value, name):
    """Words of the page are a value of a parameter."""
    if words in ("all", "the first"):
        assert not value, name
    elif " to " in words:
        assert words == f"{value[0]} to {value[-1]}", name
    else:
        stated = [yaml.safe_load(word) for word in re.split("[ ,]+", words)]
        assert stated == (value if isinstance(value, list) else [value]), name


@pytest.mark.slow
def test_the_effects_that_stand_there_are_those_of_the_demo():
    """Every figure with its kind, as the benchmark makes it from the shipped signals."""
    stated = {name: effect for name, *_, effect in ROWS if effect != "that table"}
    effects = choices.effects().query("choice in @stated").set_index(["choice", "value"])
    for (name, value), changes in effects.iterrows():
        kinds = []
        for kind, change in changes.items():
            if change > 5e-4:
                kinds.append(f"{kind} {change:.3f}".replace("0.", "."))
        text = ", ".join(kinds) or "none"
        assert re.search(rf"^{text}(:|$)|\b{value}: {text}(;|$)", stated[name]), name
    assert len(effects) == 9
