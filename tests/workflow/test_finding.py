"""One command per finding: what it needs is made and no more, and its claims are judged on just that."""

from workflow import finding, run
from workflow.rules import needed


def test_what_it_needs_is_made_and_no_more():
    made = {number: [row.number for row in needed(names)] for number, names in finding.NEEDS.items()}
    assert (made["2"], made["3"]) == (["01", "03", "04"], ["01", "03"])
    assert finding.frame_kinds("3") == {"generations", "in_situ", "verification"}


def test_a_finding_from_shipped_signals(capsys):
    assert run.main(["finding", "3", "replay"]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[0].startswith("replay: 0 of 0 jobs ran, ")
    assert "   paper  holds: 12 of 15 pairs" in lines and "   here   holds: 5 of 6 pairs" in lines
    assert any(line.split() == ["tiny-llama", "demo-easy", "0.246", "0.177", "no"] for line in lines)
    assert "Finding 3 on the paper's numbers: of 4 claims 3 can be judged, 3 of them hold" in lines
    assert lines[-1] == "see: notebooks/03_ptrue_insitu.ipynb"
    assert "report.html" not in text
