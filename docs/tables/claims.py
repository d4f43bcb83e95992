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
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        code = path.read_text(encoding="utf-8")
        for names in re.findall(r'show_claims\(\\"([^\\]+)\\"', code):
            for name in [names] if names.startswith("Finding ") else names.split():
                found.setdefault(name, []).append(path.stem.partition("_")[0])
    return found


def table_of_claims() -> str:
    """Each claim of the paper: its function, its sentence, and the notebooks that show its
    verdict."""
    notebooks, lines = shown_in(), ["| claim | in the paper | notebook |", "|---|---|---|"]
    for claim in CLAIMS:
        where = sorted(
            {
                *notebooks.get(claim.name, []),
                *notebooks.get(claim.group, []) * claim.group.startswith("Finding"),
                "08",
            }
        )
        module = claim.count_cases.__module__.replace(".", "/")
        lines.append(
            f"| [`{claim.name}`](../{module}.py) | {claim.group}: {claim.quote} | {', '.join(where)} |"
        )
    return "\n".join(lines)


def renewed(text: str) -> str:
    return replace_table(text, BEGIN, table_of_claims())


if __name__ == "__main__":
    page = ROOT / "docs" / "code-map.md"
    page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
