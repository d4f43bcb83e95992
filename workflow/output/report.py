"""The report: one self-contained page with a run's findings, tables and figures next to the
paper's.

It uses only what 08_tables and 09_beyond export; `outputs` are their data by target. The page loads
nothing, contains no date, and its template escapes all text of users. Its content security policy
states the checksum of its one script: the interactive part (lib.paper.explorer), and report.js.
"""

import html
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from lib.errors import show_hidden
from lib.files import write_text
from lib.paper.booktabs import CAPTIONS
from lib.paper.cells import CHANCE_MARK, format_3dp
from lib.paper.comparison_with_paper import EXPECTED_CAPTURE_RATE, NOT_COMPARABLE
from lib.paper.explorer import SCRIPT, explorer_markup, policy_hash
from lib.paper.numbers_of_paper import paper_facts
from lib.paper.verdicts import FAILS, FINDINGS, NOT_JUDGED, QUANTIFIERS, VERDICTS, count_kinds
from lib.run_names import RunName
from workflow.findings import EXHIBITS
from workflow.output.page_template import load_template
from workflow.output.paper_files import SECTIONS, TABLES

NUMBER = re.compile(r'<span data-key="([^"]*)">(.*?)</span>')  # as lib.paper.booktabs writes it
VALUE = re.compile(r"\d*\.\d+")  # the first of a cell; its interval follows
PAIR_OF_WORDS = re.compile(r"(?<=,) (?=[-+.\d]+\])|(?<=%) (?=lower|higher)")  # that stay together
PAGE_SCRIPT = SCRIPT + Path(__file__).with_name("report.js").read_text(encoding="utf-8")


def report_page(parameters: Mapping[str, Any], outputs: Mapping[str, dict]) -> str:
    """Return the page as HTML."""
    records: dict[str, Any] = {}
    for section in SECTIONS:
        records[section.name] = outputs.get(section.target, {}).get(section.form, [])
    if records["explorer"]:
        records["explorer"] = explorer_markup(records["explorer"])
    numbers = []
    for row in records["numbers"]:
        numbers.append(row | {"id": number_anchor(row["table"], row["key"])})
    records["numbers"] = numbers
    claims = records["findings"]
    judged = set().union(*claims)
    sides = [side for side in ("paper", "here") if side in judged]
    verdicts = [row["verdict"] for row in numbers]
    foreign = {verdict.partition(NOT_COMPARABLE)[2] for verdict in verdicts}
    run = parameters.get("run", "lab")
    template = load_template(
        "report.html.jinja", count_kinds=count_kinds, decimals=format_3dp, link_numbers=link_numbers
    )
    page = template.render(
        records,
        run=run,
        command=RunName.parse(run).command,
        title=parameters.get("title", "").strip().rstrip("."),
        pairs=group_by_pair(records["overview"]),
        sentences=first_sentences(records["overview"], records["pooled"], records["splits"]),
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
        foreign=sorted(foreign - {""}),
        expected=EXPECTED_CAPTURE_RATE,
        mark=CHANCE_MARK,
        script=Markup(PAGE_SCRIPT),  # noqa: S704  ours
        policy_hash=Markup(policy_hash(PAGE_SCRIPT)),  # noqa: S704
    )
    return show_hidden(page)


def group_by_pair(overview: list[dict]) -> list[list[dict]]:
    """Return the rows of each pair, in the order of the run; a row is a score."""
    pairs: dict[tuple[str, str], list[dict]] = {}
    for row in overview:
        pairs.setdefault((row["model"], row["dataset"]), []).append(row)
    return list(pairs.values())


def first_sentences(overview: list[dict], pooled: list[dict], splits: list[dict]) -> list[str]:
    """Return what a run says first: mean differences over its pairs with intervals, beside counts.

    The arguments are the records `rep_overview`, `rep_pooled` and `rep_splits` of 08_tables.
    """
    if not overview:
        return []
    frame = pd.DataFrame(overview)
    sizes = frame.groupby(["model", "dataset"]).n.max()
    extremes = sorted({sizes.min(), sizes.max()})
    questions = " to ".join(f"{size:,}" for size in extremes)
    pairs = f"{join_words(frame.model.unique())} on {join_words(frame.dataset.unique())}"
    sentences = [
        f"{pairs}, {questions} evaluation questions each.",
        "Means over pairs, with 95% intervals:",
    ]
    sentences += sentences_on_means(frame, pooled)
    if splits:
        shares = [round(100 * row["constant_lower_ece"]) for row in splits]
        sentences.append(
            "A constant has a lower ECE than isotonic regression in "
            f"{min(shares)} to {max(shares)}% of random re-splits, but ranks nothing."
        )
    verified = frame[frame.score == "P(True)"]
    if len(verified):
        spread = format_range(verified.spread)
        auroc = format_range(verified.auroc.astype(float))
        sentences.append(
            f"P(True) has a spread of {spread} among questions and an AUROC of {auroc}."
        )
    return sentences


def sentences_on_means(frame: pd.DataFrame, pooled: list[dict]) -> list[str]:
    """Return the sentences on mean differences, given the overview as a frame."""
    sentences = []
    mean_of = {row["difference"]: row for row in pooled}
    row = mean_of.get("Seq Avg minus Ans Avg")
    if row:
        sentences.append(
            f"the ECE of Seq Avg minus that of Ans Avg is {format_mean(row)}, "
            f"lower on {lower_of(row)}."
        )
    row = mean_of.get("Ans Avg minus Seq Avg")
    if row:
        higher = row["pairs"] - row["lower"]
        sentences.append(
            f"The AUROC of Ans Avg minus that of Seq Avg is {format_mean(row)}, "
            f"higher on {higher} of {row['pairs']}."
        )
    row = mean_of.get("Ans Avg, isotonic minus raw")
    if row:
        isotonic = frame[frame.score == "Ans Avg, isotonic"]
        by_chance = int((isotonic.calibrated == True).sum())  # noqa: E712  it may be None
        sentences.append(
            f"Isotonic regression changes the ECE of Ans Avg by {format_mean(row)}, "
            f"lower on {lower_of(row)}, and to what chance gives on {by_chance}."
        )
    return sentences


def format_range(values: pd.Series) -> str:
    return f"{format_3dp(values.min())} to {format_3dp(values.max())}"


def join_words(words: Iterable[str]) -> str:
    """Return words as in a sentence: "a, b and c"."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def format_mean(row: dict) -> str:
    """Return a mean difference with its interval, and the wider one if it decides less."""
    text = f"{format_3dp(row['value'], '+')} {format_interval(row['low'], row['high'])}"
    is_decided = row["low"] * row["high"] > 0
    is_decided_widely = row["wide_low"] * row["wide_high"] > 0
    if is_decided and not is_decided_widely:
        wide = format_interval(row["wide_low"], row["wide_high"])
        return f"{text} ({wide} if models and datasets are drawn, too: open)"
    return text


def format_interval(low: float, high: float) -> str:
    return f"[{format_3dp(low, '+')}, {format_3dp(high, '+')}]"


def lower_of(row: dict) -> str:
    return f"{row['lower']} of {row['pairs']}"


def read_exported(folder: Path) -> tuple[dict, dict[str, dict]]:
    """Return the parameters of 08_tables and the outputs of all notebooks by target, from the files
    of a run."""
    parameters: dict[str, Any] = {}
    outputs: dict[str, dict] = {}
    for path in sorted(folder.glob("*.json")):
        exported = json.loads(path.read_text(encoding="utf-8"))
        outputs |= exported["outputs"]
        if path.stem == TABLES:
            parameters = exported["parameters"]
    return parameters, outputs


def write_report(exported: Path, path: Path) -> None:
    """Write the report of what the notebooks of a run export."""
    page = report_page(*read_exported(exported))
    write_text(path, page)


def group_claims(claims: list[dict], sides: list[str]) -> dict[str, list[dict]]:
    """Return the claims by group, the paper's boxed findings first.

    Of each, `leads` says whether it is read first: the headline of its group, a claim that fails,
    and one whose verdicts in the paper and in the run differ.
    """
    groups: dict[str, list[dict]] = {name: [] for name in FINDINGS}
    for claim in claims:
        verdicts = {claim[side] for side in sides} - {NOT_JUDGED}
        of_group = groups.setdefault(claim["group"], [])
        leads = not of_group or len(verdicts) > 1 or FAILS in verdicts
        of_group.append(claim | {"leads": leads})
    return {name: rows for name, rows in groups.items() if rows}


def number_anchor(table: str, about: str) -> str:
    """Return the id of a number's row."""
    return re.sub(r"[^\w.-]", "_", f"{table}--{about}")


def link_numbers(table: str, name: str, rows: list[dict]) -> Markup:
    """Return the table's HTML with links from its numbers to their rows; CHANCE_MARK follows what
    chance could give. A long cell is broken before its interval, not within."""
    marks = {}
    for row in rows:
        marks[row["id"]] = CHANCE_MARK if row.get("calibrated") else ""

    def link(number: re.Match) -> str:
        target = number_anchor(name, html.unescape(number[1]))
        text = PAIR_OF_WORDS.sub("&nbsp;", number[2])
        if target not in marks:
            return text
        mark = marks[target]
        text = VALUE.sub(lambda value: value[0] + mark, text, count=1)
        return f'<a href="#{target}">{text}</a>'

    return Markup(NUMBER.sub(link, table))  # noqa: S704  escaped in lib.paper.booktabs
