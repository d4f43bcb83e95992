"""The report: one self-contained page with a run's findings, tables and figures next to the paper's.

It uses only what 08_tables and 09_beyond export; `outputs` are their data by target. The page loads nothing,
contains no date, and its template escapes all text of users.
"""

import base64
import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from lib.files import write_atomically
from lib.paper.booktabs import CAPTIONS
from lib.paper.cells import CHANCE_MARK, HEADLINE, format_3dp
from lib.paper.numbers_of_paper import paper_facts
from lib.paper.report_contents import EXPECTED_CAPTURE_RATE, NOT_COMPARABLE
from lib.paper.verdicts import FINDINGS, QUANTIFIERS, VERDICT_WORDS
from lib.paths import show_hidden
from workflow.pipeline import command_of

EXHIBITS = {  # tables and figures of each finding, the most important first
    "Finding 1": ("tab_result_estimation", "fig_main_analysis", "tab_result_estimation_full", "tab_bin_ablation"),
    "Finding 2": ("tab_dropout_grid_search",),
    "Finding 3": ("tab_insitu_ptrue", "fig_prompt_comparison"),
    "Finding 4": ("tab_result_calibration", "fig_calibration_analysis", "tab_calibration_transfer_summary",
                  "tab_result_calibration_full", "tab_result_isotonic", "tab_calibration_transfer_full"),
}  # fmt: skip
TEMPLATE = Path(__file__).with_name("report.html.jinja")
NUMBER = re.compile(r'<span data-key="([^"]*)">(.*?)</span>')  # as lib.paper.booktabs writes it
VALUE = re.compile(r"\d*\.\d+")  # the first of a cell; its interval follows
SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def report_page(parameters: Mapping[str, Any], outputs: Mapping[str, dict]) -> str:
    """Return the page as HTML."""
    findings, ablation, choices, notes, numbers, overview = (
        outputs.get(f"rep_{name}", {}).get("application/json", [])
        for name in ("findings", "ablation", "sensitivity", "notes", "numbers", "overview")
    )
    comparable = Counter(row["verdict"] for row in numbers if not row["verdict"].startswith(NOT_COMPARABLE))
    foreign = {row["verdict"].removeprefix(NOT_COMPARABLE) for row in numbers} - set(comparable)
    sections = {name: exhibit_section(name, outputs[name], numbers) for name in CAPTIONS if name in outputs}
    tokens = "".join(outputs.get("rep_tokens", {}).get("text/html", ""))
    sides = [side for side in ("paper", "here") if any(side in finding for finding in findings)]
    flips = [row for row in choices if row["flips"]]
    template = TEMPLATE.read_text(encoding="utf-8")
    env = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    shown = env.from_string(template).render(
        script=script_digest(template),
        run=(run := parameters.get("run", "lab")),
        command=command_of(run),
        title=parameters.get("title", "").strip().rstrip("."),
        pairs=(pairs := group_by_pair(overview)),
        said=summarize(pairs),
        answer=sections.pop("fig_overview", None),
        groups=group_claims(findings, sides, sections),
        quantifiers={word: meaning for word, (meaning, _) in QUANTIFIERS.items()},
        twice=paper_facts()["twice"] if findings else (),
        sides=sides,
        counts=count_verdicts(findings, sides),
        others=[part for name, part in sections.items() if not any(name in shown for shown in EXHIBITS.values())],
        there={*sections} | ({"rep_ablation"} if ablation else set()),
        held=comparable,
        foreign=sorted(foreign),
        expected=EXPECTED_CAPTURE_RATE,
        robust="rep_sensitivity" in outputs,
        flips=flips,
        flips_by_choice=Counter(row["choice"] for row in flips),
        choices=list(dict.fromkeys(row["choice"] for row in choices)),
        ablation=ablation,
        notes=[row["note"] for row in notes],
        number=format_value,
        short=format_3dp,
        mark=CHANCE_MARK,
        tokens=Markup(tokens),  # noqa: S704  escaped in lib.paper.response_views
    )
    return show_hidden(shown)


def group_by_pair(overview: list[dict]) -> list[list[dict]]:
    """Return the rows of each pair, in the order of the run; a row is a score."""
    return [list(rows) for _, rows in groupby(overview, lambda row: (row["model"], row["dataset"]))]


def summarize(pairs: list[list[dict]]) -> dict[str, Any]:
    """Return what the first sentence says: models, datasets, numbers of questions, and on how many pairs what holds."""
    by_score = [{row["score"]: row for row in rows} for rows in pairs]
    seq, ans, isotonic, constant = (
        [scores.get(name, {"value": None}) for scores in by_score] for name in HEADLINE.values()
    )

    def count_lower(these: list[dict], those: list[dict]) -> int:
        values = [(one["value"], other["value"]) for one, other in zip(these, those, strict=True)]
        return sum(None not in pair and pair[0] < pair[1] for pair in values)

    rows = sorted({max(row["n"] for row in rows) for rows in pairs})
    return {
        "models": list(dict.fromkeys(rows[0]["model"] for rows in pairs)),
        "datasets": list(dict.fromkeys(rows[0]["dataset"] for rows in pairs)),
        "rows": " to ".join(f"{n:,}" for n in dict.fromkeys([*rows[:1], *rows[-1:]])),
        "seq": count_lower(seq, ans),
        "isotonic": count_lower(isotonic, ans),
        "chance": sum(bool(one.get("calibrated")) for one in isotonic),
        "constant": count_lower(constant, isotonic),
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


def script_digest(template: str) -> str:
    """Return the checksum of the page's script; its content security policy allows no other script."""
    (script,) = SCRIPT.findall(template)
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def count_verdicts(findings: list[dict], sides: list[str]) -> dict[str, Counter]:
    """Count by side how many hold, do not hold and cannot be judged."""
    return {side: Counter(row[side] for row in findings) for side in sides}


def group_claims(claims: list[dict], sides: list[str], sections: Mapping[str, dict]) -> list[dict[str, Any]]:
    """Group the claims, the paper's boxed findings first, each with its tables and figures.

    A group counts how many claims hold. `differ` are those with different verdicts in the paper and in the run; without
    a run, those that do not hold in the paper.
    """
    groups = []
    for name in dict.fromkeys([*FINDINGS, *(claim["group"] for claim in claims)]):
        if rows := [claim for claim in claims if claim["group"] == name]:
            judged = [{row[side] for side in sides} - {VERDICT_WORDS[None]} for row in rows]
            open_ = [len(words) > 1 or (len(sides) == 1 and VERDICT_WORDS[False] in words) for words in judged]
            group = {"name": name, "id": re.sub(r"\W", "_", name.lower()), "headline": FINDINGS.get(name, "")}
            group["differ"] = [row for row, apart in zip(rows, open_, strict=True) if apart]
            group["alike"] = [row for row, apart in zip(rows, open_, strict=True) if not apart]
            group["exhibits"] = [sections[place] for place in EXHIBITS.get(name, ()) if place in sections]
            groups.append(group | {"counts": count_verdicts(rows, sides)})
    return groups


def exhibit_section(name: str, data: dict, numbers: list[dict]) -> dict[str, Any]:
    """Return one figure, or one table whose cells link to their numbers next to the paper's."""
    short, long = CAPTIONS[name]
    part: dict[str, Any] = {"id": name, "short": short, "long": long, "rows": [], "marked": False}
    if "image/png" in data:
        part["image"] = "".join(data["image/png"]).replace("\n", "")
    else:
        part["rows"] = [row | {"id": number_anchor(name, row["key"])} for row in numbers if row["table"] == name]
        part["beside"] = any(not row["verdict"].startswith(NOT_COMPARABLE) for row in part["rows"])
        table = link_numbers(name, "".join(data.get("text/html", "")), part["rows"])
        part["table"] = Markup(table)  # noqa: S704  escaped in lib.paper.booktabs
    return part


def number_anchor(table: str, about: str) -> str:
    """Return the id of a number's row."""
    return re.sub(r"[^\w.-]", "_", f"{table}--{about}")


def link_numbers(name: str, table: str, rows: list[dict]) -> str:
    """Return the table's HTML with links from its numbers to their rows; CHANCE_MARK follows what chance could give."""
    marks = {row["id"]: CHANCE_MARK if row.get("calibrated") else "" for row in rows}

    def link(number: re.Match) -> str:
        target = number_anchor(name, html.unescape(number[1]))
        if target not in marks:
            return number[2]
        text = VALUE.sub(lambda value: value[0] + marks[target], number[2], count=1)
        return f'<a href="#{target}">{text}</a>'

    return NUMBER.sub(link, table)


def format_value(value: Any) -> str:
    """Format a value: three decimals, yes or no, an empty string for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
