"""The report: one self-contained page with a run's findings, tables and figures next to the paper's.

It uses only what 08_tables and 09_beyond export; `outputs` are their data by target. The page loads nothing,
contains no date, and its template escapes all text of users. Its content security policy states the checksum of its one
script.
"""

import html
import json
import re
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from lib.files import write_atomically
from lib.paper.booktabs import CAPTIONS
from lib.paper.cells import CHANCE_MARK, HEADLINE, format_3dp
from lib.paper.claims import QUANTIFIERS
from lib.paper.numbers_of_paper import paper_facts
from lib.paper.report_contents import EXPECTED_CAPTURE_RATE, NOT_COMPARABLE
from lib.paper.verdicts import FAILS, FINDINGS, NOT_JUDGED, VERDICTS, count_kinds
from lib.paths import show_hidden
from workflow.pipeline import command_of
from workflow.rules import FINDINGS_TABLE

FOLDER = Path(__file__).parent
EXHIBITS = {name: finding["exhibits"] for name, finding in FINDINGS_TABLE.items()}
# rep_... of the outputs
LISTS = ("findings", "ablation", "sensitivity", "notes", "numbers", "overview", "pooled", "splits")
NUMBER = re.compile(r'<span data-key="([^"]*)">(.*?)</span>')  # as lib.paper.booktabs writes it
VALUE = re.compile(r"\d*\.\d+")  # the first of a cell; its interval follows


def report_page(parameters: Mapping[str, Any], outputs: Mapping[str, dict]) -> str:
    """Return the page as HTML."""
    shown = {name: outputs.get(f"rep_{name}", {}).get("application/json", []) for name in LISTS}
    shown["numbers"] = [row | {"id": number_anchor(row["table"], row["key"])} for row in shown["numbers"]]
    claims, verdicts = shown["findings"], [row["verdict"] for row in shown["numbers"]]
    sides = [side for side in ("paper", "here") if any(side in claim for claim in claims)]
    options = {"trim_blocks": True, "lstrip_blocks": True, "undefined": jinja2.StrictUndefined}
    env = jinja2.Environment(autoescape=True, loader=jinja2.FileSystemLoader(FOLDER), **options)
    env.filters |= {
        "count_kinds": count_kinds,
        "decimals": format_3dp,
        "link_numbers": link_numbers,
        "signed": lambda value: format_3dp(value, "+"),
    }
    page = env.get_template("report.html.jinja").render(
        shown,
        run=(run := parameters.get("run", "lab")),
        command=command_of(run),
        title=parameters.get("title", "").strip().rstrip("."),
        pairs=group_by_pair(shown["overview"]),
        said=summarize(shown["overview"]),
        mean_of={row["difference"]: row for row in shown["pooled"]},
        kinds=VERDICTS,
        sides=sides,
        groups=group_claims(claims, sides),
        headlines=FINDINGS,
        quantifiers={word: meaning for word, (meaning, _) in QUANTIFIERS.items()},
        twice=paper_facts()["twice"] if claims else (),
        outputs=outputs,
        captions=CAPTIONS,
        exhibits=EXHIBITS,
        compared=[verdict for verdict in verdicts if not verdict.startswith(NOT_COMPARABLE)],
        foreign=sorted({verdict.partition(NOT_COMPARABLE)[2] for verdict in verdicts} - {""}),
        expected=EXPECTED_CAPTURE_RATE,
        mark=CHANCE_MARK,
        tokens=Markup("".join(outputs.get("rep_tokens", {}).get("text/html", ""))),  # noqa: S704  escaped in lib.paper
    )
    return show_hidden(page)


def group_by_pair(overview: list[dict]) -> list[list[dict]]:
    """Return the rows of each pair, in the order of the run; a row is a score."""
    return [list(rows) for _, rows in groupby(overview, lambda row: (row["model"], row["dataset"]))]


def summarize(overview: list[dict]) -> dict[str, Any]:
    """Return what the first sentences say: models, datasets, numbers of questions, and on how many pairs what holds."""
    frame = pd.DataFrame(overview, columns=["model", "dataset", "score", "n", "value", "calibrated"])
    names = list(HEADLINE.values())
    values = frame.pivot(index=["model", "dataset"], columns="score", values="value").reindex(columns=names)
    seq, ans, isotonic = (values[name].astype(float) for name in names[:3])
    sizes = frame.groupby(["model", "dataset"]).n.max()
    return {
        "models": list(frame.model.unique()),
        "datasets": list(frame.dataset.unique()),
        "rows": " to ".join(f"{n:,}" for n in sorted({sizes.min(), sizes.max()})),
        "seq": (seq < ans).sum(),
        "isotonic": (isotonic < ans).sum(),
        "chance": ((frame.score == names[2]) & (frame.calibrated == True)).sum(),  # noqa: E712  it may be None
    }


def read_exported(folder: Path) -> tuple[dict, dict[str, dict]]:
    """Return the parameters of 08_tables and the outputs of all notebooks by target, from the files of a run."""
    exported = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    outputs = {target: data for one in exported.values() for target, data in one["outputs"].items()}
    return exported.get("08_tables", {}).get("parameters", {}), outputs


def write_report(exported: Path, path: Path) -> None:
    """Write the report of what the notebooks of a run export."""
    page = report_page(*read_exported(exported))
    write_atomically(path, lambda scratch: scratch.write_text(page, encoding="utf-8"))


def group_claims(claims: list[dict], sides: list[str]) -> dict[str, list[dict]]:
    """Return the claims by group, the paper's boxed findings first.

    Of each, `differs` says whether its verdicts in the paper and in the run differ; without a run, whether it fails in
    the paper.
    """
    groups: dict[str, list[dict]] = {name: [] for name in FINDINGS}
    for claim in claims:
        judged = {claim[side] for side in sides} - {NOT_JUDGED}
        differs = len(judged) > 1 or sides == ["paper"] and judged == {FAILS}
        groups.setdefault(claim["group"], []).append(claim | {"differs": differs})
    return {name: rows for name, rows in groups.items() if rows}


def number_anchor(table: str, about: str) -> str:
    """Return the id of a number's row."""
    return re.sub(r"[^\w.-]", "_", f"{table}--{about}")


def link_numbers(table: str, name: str, rows: list[dict]) -> Markup:
    """Return the table's HTML with links from its numbers to their rows; CHANCE_MARK follows what chance could give."""
    marks = {row["id"]: CHANCE_MARK if row.get("calibrated") else "" for row in rows}

    def link(number: re.Match) -> str:
        target = number_anchor(name, html.unescape(number[1]))
        if target not in marks:
            return number[2]
        text = VALUE.sub(lambda value: value[0] + marks[target], number[2], count=1)
        return f'<a href="#{target}">{text}</a>'

    return Markup(NUMBER.sub(link, table))  # noqa: S704  escaped in lib.paper.booktabs
