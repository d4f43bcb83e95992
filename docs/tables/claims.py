"""`python docs/tables/claims.py` renews the table of claims in docs/code-map.md."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs.tables.replacing import replace_table
from lib.paper.verdicts import CLAIMS

BEGIN = "<!-- claims: python docs/tables/claims.py renews this table -->\n"


def shown_in() -> dict[str, list[str]]:
    """By claim and by finding, the notebooks that show its verdict."""
    notebooks: dict[str, list[str]] = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        number = path.stem.partition("_")[0]
        code = path.read_text(encoding="utf-8")
        for argument in re.findall(r'show_claims\(\\"([^\\]+)\\"', code):
            names = [argument] if argument.startswith("Finding ") else argument.split()
            for name in names:
                notebooks.setdefault(name, []).append(number)
    return notebooks


def table_of_claims() -> str:
    """Each claim of the paper: its function, its sentence, and the notebooks that show its
    verdict."""
    notebooks = shown_in()
    lines = ["| claim | in the paper | notebook |", "|---|---|---|"]
    for claim in CLAIMS:
        numbers = {"08", *notebooks.get(claim.name, [])}
        if claim.group.startswith("Finding"):
            numbers.update(notebooks.get(claim.group, []))
        module = claim.count_cases.__module__.replace(".", "/")
        link = f"[`{claim.name}`](../{module}.py)"
        sentence = f"{claim.group}: {claim.quote}"
        lines.append(f"| {link} | {sentence} | {', '.join(sorted(numbers))} |")
    return "\n".join(lines)


def renewed(text: str) -> str:
    return replace_table(text, BEGIN, table_of_claims())


if __name__ == "__main__":
    page = ROOT / "docs" / "code-map.md"
    page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
