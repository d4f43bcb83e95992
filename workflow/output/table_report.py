"""The report of a table of scores: one self-contained page of what 10_judge shows.

The page loads nothing, contains no date, and its template escapes all text of users.
"""

import json
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lib.errors import show_hidden
from lib.files import write_text
from lib.paper.booktabs import TABLE_CAPTIONS
from workflow.output.page_template import load_template

NOTEBOOK = "10_judge"


def table_report_page(parameters: dict[str, Any], outputs: dict[str, dict]) -> str:
    """Return the page as HTML, given the parameters of the notebook and its outputs by target."""
    exhibits = []
    for name, (short, long) in TABLE_CAPTIONS.items():
        picture = outputs[name].get("image/png", "")
        table = outputs[name].get("text/html", "")
        exhibits.append({
            "name": name,
            "short": short,
            "long": long,
            "picture": "".join(picture).replace("\n", ""),
            "table": Markup("".join(table)),  # noqa: S704  escaped in lib.paper.booktabs
        })  # fmt: skip
    page = load_template("table_report.html.jinja").render(
        run=parameters["run"],
        answers=outputs["rep_answer"]["application/json"],
        calibrators=outputs["rep_calibrators"]["application/json"],
        exhibits=exhibits,
    )
    return show_hidden(page)


def write_table_report(exported: Path, path: Path) -> None:
    """Write the report of what 10_judge exports."""
    content = json.loads((exported / f"{NOTEBOOK}.json").read_text(encoding="utf-8"))
    write_text(path, table_report_page(content["parameters"], content["outputs"]))
