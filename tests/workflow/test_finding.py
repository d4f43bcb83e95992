"""One command per finding: its claims are judged on what it needs, and no more is made."""

from workflow import run


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
