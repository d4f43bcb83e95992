"""One self-contained page for the reviewer: findings, tables and figures of a run beside the paper.

Built from the outputs of the executed 08_tables and 09_robustness alone: `outputs` are their data by target. Nothing is
loaded from elsewhere, nothing dated, and every word of a user's is escaped by the template.
"""

import base64
import hashlib
import html
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from latex2mathml.converter import convert
from markupsafe import Markup

from lib.paper.claims import FINDINGS
from lib.paper.comparison import FOREIGN, INSIDE_EXPECTED, STANDS
from lib.paper.exhibits import captions
from lib.paper.microscope import Microscope
from lib.paper.reference import paper_facts
from lib.paper.verdicts import QUANTIFIERS, VERDICT_WORDS
from lib.paths import visible
from workflow.fingerprint import cells
from workflow.marked import marked

TEMPLATE = Path(__file__).with_name("report.html.jinja")
ABOUT = re.compile(r'(<td[^>]*?) data-key="([^"]*)"([^>]*>)(.*?)(</td>)', re.DOTALL)
DECLARED = re.compile(r'<span class="mathjax_process">(.*?)</span>', re.DOTALL)  # lib.paper.latex.mathjax writes it
FORMULA = re.compile(r"\$([^$]+)\$")
SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def page(nb: Any, outputs: dict[str, dict], places: Mapping[str, str] | None = None) -> str:
    """The page as HTML. `places`: the page and cell where each target is made, in a book that the page is part of."""
    given = nb.metadata.get("papermill", {}).get("parameters", {})
    findings, ablation, choices = (
        records(outputs, name) for name in ("rep_findings", "rep_ablation", "rep_sensitivity")
    )
    stable = {(row["table"], row["key"]): row["moves"] for row in records(outputs, "rep_stability")}
    numbers = [row | {"moves": stable.get((row["table"], row["key"]), STANDS)}
               for row in records(outputs, "rep_numbers")]  # fmt: skip
    views, costs = records(outputs, "rep_microscope"), records(outputs, "rep_costs")
    sections = [section(name, outputs[name], numbers) for name in captions() if name in outputs]
    there = {part["id"] for part in sections}
    if ablation:
        there.add("rep_ablation")
    sides = [side for side in ("paper", "here") if any(side in finding for finding in findings)]
    template = TEMPLATE.read_text(encoding="utf-8")
    env = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    shown = env.from_string(template).render(
        script=digest(template),
        run=given.get("run", "lab"),
        title=given.get("title", ""),
        groups=grouped(findings, sides),
        consistency=[finding for finding in findings if finding["kind"] == "consistency"],
        ours=[finding for finding in findings if finding["kind"] == "ours"],
        quantifiers={word: meaning for word, (meaning, _) in QUANTIFIERS.items()},
        twice=paper_facts()["twice"] if findings else (),
        sides=sides,
        counts=tally(claims(findings), sides),
        sections=sections,
        there=there,
        total=len(numbers),
        held=Counter(row["verdict"] for row in numbers if not row["verdict"].startswith(FOREIGN)),
        foreign=sorted({row["verdict"].removeprefix(FOREIGN) for row in numbers if row["verdict"].startswith(FOREIGN)}),
        expected=INSIDE_EXPECTED,
        tried=bool(stable),
        moving=sum(row["moves"] != STANDS for row in numbers),
        robust="rep_sensitivity" in outputs,
        flips=[row for row in choices if row.get("flips")],
        judged=len({row["choice"] for row in choices}),
        tried_choices=turned(choices).items(),
        ablation=ablation,
        costs=costs,
        number=number,
        places=places or {},
        microscope=Markup(Microscope(views).html(themed=True)) if views else "",  # noqa: S704  escaped there
    )
    return visible(shown)


def robustness_beside(folder: str | Path) -> dict[str, dict]:
    """The outputs of the executed 09_robustness of a folder, by target; none where it is not there."""
    path = Path(folder, "09_robustness.ipynb")
    return {name: data for _, name, data in marked(cells(str(path)))} if path.is_file() else {}


def digest(template: str) -> str:
    """The checksum by which the page's policy knows its one script, and lets no other run."""
    (script,) = SCRIPT.findall(template)
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def claims(findings: list[dict]) -> list[dict]:
    return [finding for finding in findings if finding["kind"] == "claim"]


def tally(findings: list[dict], sides: list[str]) -> dict[str, Counter]:
    """How many hold, do not, and cannot be judged, by side."""
    none = dict.fromkeys(VERDICT_WORDS.values(), 0)
    return {side: Counter(none | Counter(row[side] for row in findings)) for side in sides}


def grouped(findings: list[dict], sides: list[str]) -> list[dict[str, Any]]:
    """The claims by group, those that the paper sets in a box first, with how many of them hold."""
    names = [*FINDINGS, *dict.fromkeys(finding["group"] for finding in findings)]
    groups = []
    for name in dict.fromkeys(names):
        rows = [finding for finding in claims(findings) if finding["group"] == name]
        if rows:
            id_ = re.sub(r"\W", "_", name.lower())
            groups.append({"name": name, "id": id_, "headline": FINDINGS.get(name, ""), "rows": rows,
                           "counts": tally(rows, sides)})  # fmt: skip
    return groups


def turned(choices: list[dict]) -> dict[str, int]:
    """How many findings turn under each of the other choices, by its words."""
    counts = dict.fromkeys((row["words"] for row in choices), 0)
    for row in choices:
        counts[row["words"]] += bool(row["flips"])
    return counts


def records(outputs: dict[str, dict], name: str) -> list[dict]:
    """What a listing holds; nothing where the run has no such target."""
    return outputs.get(name, {}).get("application/json", [])


def section(name: str, data: dict, numbers: list[dict]) -> dict[str, Any]:
    """One table (its cells lead to their numbers beside the paper's) or figure."""
    short, long = captions()[name]
    part: dict[str, Any] = {"id": name, "short": short, "long": long, "rows": []}
    if name.startswith("fig_"):
        part["image"] = "".join(data["image/png"]).replace("\n", "")
    else:
        part["rows"] = [row | {"id": anchor(name, row["key"])} for row in numbers if row["table"] == name]
        part["beside"] = any(not row["verdict"].startswith(FOREIGN) for row in part["rows"])
        table = linked(name, "".join(data.get("text/html", "")), {row["id"] for row in part["rows"]})
        part["table"] = Markup(table)  # noqa: S704  escaped in lib.paper.booktabs
    return part


def anchor(table: str, about: str) -> str:
    """The id of a number's row."""
    return re.sub(r"[^\w.-]", "_", f"{table}--{about}")


def linked(name: str, table: str, ids: set[str]) -> str:
    """The table's HTML with a link around each number that has a row, and formulas as MathML in those cells alone that
    declare some: a dollar elsewhere is one."""

    def cell(match: re.Match) -> str:
        start, about, rest, body, end = match.groups()
        target = anchor(name, html.unescape(about))
        return f'{start}{rest}<a href="#{target}">{body}</a>{end}' if target in ids else f"{start}{rest}{body}{end}"

    def formulas(match: re.Match) -> str:
        return FORMULA.sub(lambda formula: convert(html.unescape(formula[1])), match[1])

    return DECLARED.sub(formulas, ABOUT.sub(cell, table))


def number(value: Any) -> str:
    """Three decimals; yes and no; an empty word for nothing."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, (int, float)):
        return "" if value is None else str(value)
    return str(value) if isinstance(value, int) else f"{value:.3f}"
