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
LINK = re.compile(r"\[([^\]]*executed[^\]]*|Its results)\]\((?:\.\./)?docs/results\.md\)")
SEVERAL_PAGES = ("01", "01b", "03", "04", "04b")  # one of each pair; the index lists them
URL = re.compile(r"https://github\.com/([\w-]+)/([\w.-]+?)(?:\.git)?/?")


def places() -> list[Path]:
    """The files that name the repository or its pages."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "notebooks").glob("*.ipynb"))]


def addressed(path: Path, text: str, url: str) -> str:
    """The text of a file with the address in place of the constant, and links to the pages."""
    match = URL.fullmatch(url)
    if not match:
        sys.exit(f"address: '{url}' is not of the form https://github.com/OWNER/NAME")
    owner, name = match.groups()
    page = f"https://{owner}.github.io/{name}/"
    if path.suffix == ".ipynb" and path.stem.split("_")[0] not in SEVERAL_PAGES:
        page += f"demo/{path.stem}.html"
    text = text.replace(CONSTANT, f"https://github.com/{owner}/{name}")
    return LINK.sub(rf"[\1]({page})", text)


if __name__ == "__main__":
    for place in places():
        text_ = addressed(place, place.read_text(encoding="utf-8"), *sys.argv[1:2])
        place.write_text(text_, encoding="utf-8")
