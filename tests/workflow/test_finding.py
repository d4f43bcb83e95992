"""One command per finding: what it needs is made and no more, and its claims are judged on just that."""

import pytest

from lib.analysis import run_results
from lib.paper.claims import CLAIMS
from lib.paper.verdicts import judge_all
from lib.params import Reading
from workflow import finding, run
from workflow.pipeline import needed

MODELS, DATASETS = ["tiny-llama", "tiny-qwen"], ["demo-easy", "demo-medium", "demo-hard"]


def lacking(number: str, kinds: set[str]) -> list[str]:
    """The claims of a finding that lack a frame where only these kinds of the shipped signals are read."""
    some = [claim for claim in CLAIMS if claim.group == f"Finding {number}"]
    judged = judge_all(run_results.partial_results("replay", MODELS, DATASETS, Reading(), kinds), some)
    return [name for name, verdict in judged.items() if verdict.lacks]


@pytest.mark.slow
@pytest.mark.parametrize("number", finding.NEEDS)
def test_and_none_of_it_is_too_much(number):
    made = needed(finding.NEEDS[number])
    read = {word.split("/")[0] for row in made for word in row.reads}
    for row in made:
        own = {path.split("/")[0] if "{" in path else path.removesuffix(".parquet") for path in row.writes}
        lighter = finding.frame_kinds(number) - own
        told = row.name in read or row.name == "02_single_pass"  # read by another; or where the finding is told
        assert told or "generations" not in lighter or lacking(number, lighter), row.name


def test_a_finding_from_shipped_signals(capsys):
    assert run.main(["finding", "3", "replay"]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[0].startswith("replay: 0 of 0 jobs ran, ")
    assert "   paper  holds: 12 of 15 pairs" in lines and "   here   holds: 5 of 6 pairs" in lines
    assert any(line.split() == ["tiny-llama", "demo-easy", "0.246", "0.177", "no"] for line in lines)
    assert "Finding 3 on the paper's numbers: of 5 claims 4 can be judged, 4 of them hold" in lines
    assert lines[-1] == "see: notebooks/03_ptrue_insitu.ipynb"
    assert "report.html" not in text
