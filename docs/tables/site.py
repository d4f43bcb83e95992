"""`python docs/tables/site.py FOLDER` makes the pages that CI publishes, from a finished `demo` and
`replay small`.

They are both reports, every executed notebook of either run as HTML, and an index. `replay small`
stores no text of a question, and the questions of the demo are its own. A report answers to its
reader (lib/paper/explorer.js) without a server. Links of a notebook lead to pages beside it, and to
files of the repository once README has its address.
"""

import html
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNS = {
    "demo": "The demo: two tiny models",
    "replay-small": "Two real models, from their stored token probabilities",
}
CONVERT = ("jupyter", "nbconvert", "--to", "html", "--embed-images", "--log-level", "ERROR")
LINK = re.compile(r'<a href="(?:\.\./){3}([^"]+)"[^>]*>(.*?)</a>', re.S)
REPOSITORY = re.compile(r"git clone (https://github\.com/[\w.-]+/[\w.-]+)")
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Calibrated confidence: results</title>
<body style="font: 1rem/1.5 sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem">
<h1>From token probabilities to calibrated confidence: results</h1>
%s</body></html>
"""


def convert_notebooks(run: str, folder: Path) -> list[str]:
    """Convert the executed notebooks of a run to pages in a folder; return their names."""
    notebooks = sorted((ROOT / "artifacts" / run / "notebooks").glob("*.ipynb"))
    if not notebooks or not (ROOT / "figures" / run / "report.html").exists():
        sys.exit(
            f"site: run '{run}' is not finished: ./run_all.sh {run.replace('-', ' ')} makes it"
        )
    command = [sys.executable, "-m", *CONVERT, f"--output-dir={folder}"]
    subprocess.run([*command, *map(str, notebooks)], check=True)
    names = [path.stem for path in notebooks]
    for name in names:
        page = folder / f"{name}.html"
        text = lead_links_to_pages(page.read_text(encoding="utf-8"), names)
        page.write_text(text, encoding="utf-8")
    return names


def lead_links_to_pages(page: str, names: list[str]) -> str:
    """Return a page whose links to the project lead to the pages of these notebooks, to the index
    or to the repository; without its address, their words alone remain."""
    repository = REPOSITORY.search((ROOT / "README.md").read_text(encoding="utf-8"))

    def lead(link: re.Match) -> str:
        target, words = link.groups()
        notebook = Path(target).stem
        if target.startswith("notebooks/"):
            place = f"{notebook}.html" if notebook in names else "../index.html"
        elif repository:
            place = f"{repository[1]}/blob/main/{target}"
        else:
            return words
        return f'<a href="{place}">{words}</a>'

    return LINK.sub(lead, page)


def build(site: Path) -> None:
    """Write all pages to a folder."""
    parts = []
    for run, title in RUNS.items():
        folder = site / run
        folder.mkdir(parents=True, exist_ok=True)
        names = convert_notebooks(run, folder)
        shutil.copyfile(ROOT / "figures" / run / "report.html", folder / "report.html")
        links = []
        for name in map(html.escape, names):
            links.append(f'<li><a href="{run}/{name}.html">{name}</a></li>')
        report = f'<p><a href="{run}/report.html">Report</a>: choose a score and see whether it is '
        report += "calibrated; findings, tables and figures</p>"
        parts.append(f"<h2>{title}</h2>\n{report}\n<ul>{''.join(links)}</ul>\n")
    (site / "index.html").write_text(PAGE % "".join(parts), encoding="utf-8")


if __name__ == "__main__":
    build(Path(sys.argv[1]))
