"""The report: one self-contained page with a run's findings, tables and figures next to the
paper's.

It uses only what 08_tables and 09_beyond export; `outputs` are their data by target. The page loads
nothing, contains no date, and its template escapes all text of users. Its content security policy
states the checksum of its one script.
"""

import html
import json
import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from lib.errors import show_hidden
from lib.files import write_text
from lib.paper.booktabs import CAPTIONS
from lib.paper.cells import CHANCE_MARK, format_3dp
from lib.paper.comparison_with_paper import EXPECTED_CAPTURE_RATE, NOT_COMPARABLE
from lib.paper.numbers_of_paper import paper_facts
from lib.paper.verdicts import FAILS, FINDINGS, NOT_JUDGED, QUANTIFIERS, VERDICTS, count_kinds
from lib.run_names import RunName
from workflow.findings import EXHIBITS
from workflow.output.paper_files import SECTIONS, TABLES

FOLDER = Path(__file__).parent
NUMBER = re.compile(r'<span data-key="([^"]*)">(.*?)</span>')  # as lib.paper.booktabs writes it
VALUE = re.compile(r"\d*\.\d+")  # the first of a cell; its interval follows


def report_page(parameters: Mapping[str, Any], outputs: Mapping[str, dict]) -> str:
    """Return the page as HTML."""
    shown = {
        section.name: outputs.get(section.target, {}).get(section.form, []) for section in SECTIONS
    }
    shown["tokens"] = Markup("".join(shown["tokens"]))  # noqa: S704  escaped in lib.paper
    shown["numbers"] = [
        row | {"id": number_anchor(row["table"], row["key"])} for row in shown["numbers"]
    ]
    claims, verdicts = shown["findings"], [row["verdict"] for row in shown["numbers"]]
    sides = [side for side in ("paper", "here") if any(side in claim for claim in claims)]
    options = {"trim_blocks": True, "lstrip_blocks": True, "undefined": jinja2.StrictUndefined}
    env = jinja2.Environment(autoescape=True, loader=jinja2.FileSystemLoader(FOLDER), **options)
    env.filters |= {
        "count_kinds": count_kinds,
        "decimals": format_3dp,
        "link_numbers": link_numbers,
    }
    page = env.get_template("report.html.jinja").render(
        shown,
        run=(run := parameters.get("run", "lab")),
        command=RunName.parse(run).command,
        title=parameters.get("title", "").strip().rstrip("."),
        pairs=group_by_pair(shown["overview"]),
        sentences=first_sentences(shown["overview"], shown["pooled"], shown["splits"]),
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
    )
    return show_hidden(page)


def group_by_pair(overview: list[dict]) -> list[list[dict]]:
    """Return the rows of each pair, in the order of the run; a row is a score."""
    return [list(rows) for _, rows in groupby(overview, lambda row: (row["model"], row["dataset"]))]


def first_sentences(overview: list[dict], pooled: list[dict], splits: list[dict]) -> list[str]:
    """Return what a run says first: mean differences over its pairs with intervals, beside counts.

    The arguments are the records `rep_overview`, `rep_pooled` and `rep_splits` of 08_tables.
    """
    if not overview:
        return []
    frame = pd.DataFrame(overview)
    sizes = frame.groupby(["model", "dataset"]).n.max()
    questions = " to ".join(f"{n:,}" for n in sorted({sizes.min(), sizes.max()}))
    who = f"{join_words(frame.model.unique())} on {join_words(frame.dataset.unique())}"
    mean_of = {row["difference"]: row for row in pooled}
    sentences = [
        f"{who}, {questions} evaluation questions each.",
        "Means over pairs, with 95% intervals:",
    ]
    if row := mean_of.get("Seq Avg minus Ans Avg"):
        sentences.append(
            f"the ECE of Seq Avg minus that of Ans Avg is {format_mean(row)}, lower on {lower_of(row)}."
        )
    if row := mean_of.get("Ans Avg minus Seq Avg"):
        higher = row["pairs"] - row["lower"]
        sentences.append(
            f"The AUROC of Ans Avg minus that of Seq Avg is {format_mean(row)}, higher on {higher} of {row['pairs']}."
        )
    if row := mean_of.get("Ans Avg, isotonic minus raw"):
        isotonic = frame[frame.score == "Ans Avg, isotonic"]
        by_chance = int((isotonic.calibrated == True).sum())  # noqa: E712  it may be None
        sentences.append(
            f"Isotonic regression changes the ECE of Ans Avg by {format_mean(row)}, lower on {lower_of(row)}, and to "
            f"what chance gives on {by_chance}."
        )
    if splits:
        shares = [round(100 * row["constant_lower_ece"]) for row in splits]
        sentences.append(
            f"A constant has a lower ECE than isotonic regression in {min(shares)} to {max(shares)}% of random "
            "re-splits, but ranks nothing."
        )
    verified = frame[frame.score == "P(True)"]
    if len(verified):
        spread, auroc = verified.spread, verified.auroc.astype(float)
        sentences.append(
            f"P(True) has a spread of {format_3dp(spread.min())} to {format_3dp(spread.max())} among questions and an "
            f"AUROC of {format_3dp(auroc.min())} to {format_3dp(auroc.max())}."
        )
    return sentences


def join_words(words: Iterable[str]) -> str:
    """Return words as in a sentence: "a, b and c"."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def format_mean(row: dict) -> str:
    """Return a mean difference with its interval, and the wider one if it decides less."""
    text = f"{format_3dp(row['value'], '+')} [{format_3dp(row['low'], '+')}, {format_3dp(row['high'], '+')}]"
    decided, decided_widely = row["low"] * row["high"] > 0, row["wide_low"] * row["wide_high"] > 0
    if decided and not decided_widely:
        wide = f"[{format_3dp(row['wide_low'], '+')}, {format_3dp(row['wide_high'], '+')}]"
        return f"{text} ({wide} if models and datasets are drawn, too: open)"
    return text


def lower_of(row: dict) -> str:
    return f"{row['lower']} of {row['pairs']}"


def read_exported(folder: Path) -> tuple[dict, dict[str, dict]]:
    """Return the parameters of 08_tables and the outputs of all notebooks by target, from the files
    of a run."""
    exported = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.json"))
    }
    outputs = {target: data for one in exported.values() for target, data in one["outputs"].items()}
    return exported.get(TABLES, {}).get("parameters", {}), outputs


def write_report(exported: Path, path: Path) -> None:
    """Write the report of what the notebooks of a run export."""
    page = report_page(*read_exported(exported))
    write_text(path, page)


def group_claims(claims: list[dict], sides: list[str]) -> dict[str, list[dict]]:
    """Return the claims by group, the paper's boxed findings first.

    Of each, `differs` says whether its verdicts in the paper and in the run differ; without a run,
    whether it fails in the paper.
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
    """Return the table's HTML with links from its numbers to their rows; CHANCE_MARK follows what
    chance could give."""
    marks = {row["id"]: CHANCE_MARK if row.get("calibrated") else "" for row in rows}

    def link(number: re.Match) -> str:
        target = number_anchor(name, html.unescape(number[1]))
        if target not in marks:
            return number[2]
        text = VALUE.sub(lambda value: value[0] + marks[target], number[2], count=1)
        return f'<a href="#{target}">{text}</a>'

    return Markup(NUMBER.sub(link, table))  # noqa: S704  escaped in lib.paper.booktabs
