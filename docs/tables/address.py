"""`python docs/tables/address.py https://github.com/OWNER/NAME` tells README and the notebooks
where the repository is.

It replaces URL-OF-THIS-REPOSITORY, and turns each link to executed notebooks, which leads to
docs/results.md until then, to the pages that CI publishes.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONSTANT = "URL-OF-THIS-REPOSITORY"
LINK = re.compile(r"\[([^\]]*executed[^\]]*)\]\((?:\.\./)?docs/results\.md\)")
URL = re.compile(r"https://github\.com/([\w-]+)/([\w.-]+?)(?:\.git)?/?")


def places() -> list[Path]:
    """The files that name the repository or its pages."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "notebooks").glob("*.ipynb"))]


def addressed(path: Path, text: str, url: str) -> str:
    """The text of a file with the address in place of the constant, and links to the pages."""
    if not (found := URL.fullmatch(url)):
        sys.exit(f"address: '{url}' is not of the form https://github.com/OWNER/NAME")
    owner, name = found.groups()
    # a notebook of a pair of model and dataset has several pages; the index lists them
    runs_once = path.suffix == ".ipynb" and path.stem.split("_")[0] not in (
        "01",
        "01b",
        "03",
        "04",
        "04b",
    )
    page = f"https://{owner}.github.io/{name}/" + (f"demo/{path.stem}.html" if runs_once else "")
    return LINK.sub(rf"[\1]({page})", text.replace(CONSTANT, f"https://github.com/{owner}/{name}"))


if __name__ == "__main__":
    for place in places():
        place.write_text(
            addressed(place, place.read_text(encoding="utf-8"), *sys.argv[1:2]), encoding="utf-8"
        )
