"""README, the pages in docs/ and notebooks: commands that are understood, links that lead
somewhere, lines that run."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lib.errors import UserError
from lib.paths import ROOT
from workflow import cli

PAGES = sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/*.md"))


@pytest.mark.parametrize("page", ["docs/code-map.md", "docs/extending.md"])
def test_the_lines_of_a_page_run(page, tmp_path):
    """In any folder, and print what stands beside them."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), flags=re.S)
    (lines,) = (block for block in blocks if "artifacts/" not in block)  # the others read a run
    env = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", lines]
    output = subprocess.check_output(command, cwd=tmp_path, text=True, env=env)
    assert output.splitlines() == re.findall(r"^print.*  # (.*)$", lines, flags=re.M)


def test_every_command_is_understood(tmp_path, monkeypatch):
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    shutil.copytree(ROOT / "params", tmp_path / "params")
    for folder in ("", "models", "datasets"):  # a user's own
        (tmp_path / "params" / folder / "mine.yaml").touch()
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    words = {"PROFILE": "demo", "[PROFILE]": "demo", "NAME": "mine", "FOLDER": str(tmp_path)}
    words |= dict.fromkeys(["scores.csv", "FILE"], str(ROOT / "demo" / "scores.csv"))
    for name in ("questions.csv", "mine.csv"):  # files of a user
        words[name] = str(tmp_path / name)
        (tmp_path / name).touch()
    words["ADDRESS"] = "http://localhost:8000/v1"
    command = re.compile(r"(?m)(?:^|`)\./run_all\.sh([^`\n]*?)(?:  #.*)?(?:`|$)")  # up to a comment
    count = 0
    for page in PAGES:
        for text in command.findall(page.read_text(encoding="utf-8")):
            count += 1
            typed = [words.get(word, word) for word in text.split()]
            try:
                assert cli.parse_and_check(typed).verb
            except UserError as problem:
                pytest.fail(f"{page.name}: {text}: {problem}")
    assert count > 70


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page", [*PAGES, *(ROOT / "notebooks").glob("*.ipynb")], ids=lambda path: path.name
)
def test_every_link_leads_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\((?!http)([^)]+)\)", text):
        path, _, anchor = target.partition("#")
        place = (page.parent / path) if path else page
        assert place.exists(), target
        if anchor and place.suffix == ".md":
            assert anchor in anchors(place), target
