"""`python docs/tables/results.py` writes docs/results.md and docs/results/*.png from `replay small`
and `published`.

Run both first. Only what they export is read, as by the report.
"""

import base64
import html
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lib.paper.booktabs import CAPTIONS, MACROS, as_html
from lib.paper.cells import format_3dp, format_overview
from lib.paper.verdicts import FINDINGS, count_kinds
from lib.score.estimators import ESTIMATORS
from workflow.output.report import (
    EXHIBITS,
    first_sentences,
    format_mean,
    group_by_pair,
    read_exported,
)

PAGE = ROOT / "docs" / "results.md"
PICTURES = ROOT / "docs" / "results"
RUN = "replay-small"
PAPER = "published"
TOO_LONG = {"tab_selective"}  # some seventy rows, which the report has
Outputs = dict[str, dict]  # what a run exports, by target
Values = dict[tuple[str, str, str], float]  # by model, dataset and variant

# ---- tables


class Cells(HTMLParser):
    """The rows of a table's head and body, as Markdown; a cell over several columns is repeated in
    the head."""

    def __init__(self, table: str):
        super().__init__()
        self.head: list[list[str]] = []
        self.body: list[list[str]] = []
        self.rows = self.head  # where a new row goes
        self.span = 1  # columns of the cell that is read
        self.text = ""  # of this cell
        self.feed(table)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tbody":
            self.rows = self.body
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.text = ""
            self.span = int(dict(attrs).get("colspan") or 1)
        elif tag == "b":
            self.text += "**"

    def handle_endtag(self, tag: str) -> None:
        if tag == "b":
            self.text += "**"
        elif tag in ("td", "th"):
            text = " ".join(self.text.split()).replace("|", "\\|").replace("****", "")
            cells = [text] * self.span
            if self.rows is self.body and self.span > 1:  # the name of a block of rows
                cells = [""] * self.span
                cells[0] = f"**{text}**"
            self.rows[-1] += cells

    def handle_data(self, data: str) -> None:
        self.text += data


def as_markdown(page: str) -> str:
    """A table of the report as Markdown, or several below one another, each with its caption in
    front."""
    for estimator in ESTIMATORS.values():  # formulas of names, as words
        page = page.replace(as_html(estimator.label), estimator.plain)
    page = re.sub(r"<math.*?</math>", formula_as_text, page, flags=re.S)
    tables = []
    for caption, table in re.findall(r"(<p>.*?</p>)?\s*(<table.*?</table>)", page, flags=re.S):
        cells = Cells(table)
        head = []
        for column in zip(*cells.head, strict=True):
            words = filter(None, dict.fromkeys(column))
            head.append(" ".join(words))
        caption = html.unescape(re.sub("<.*?>", "", caption))
        tables.append(f"{caption}\n\n{as_table(head, cells.body)}".strip())
    return "\n\n".join(tables)


def as_table(head: list[str], body: list[list[str]]) -> str:
    """A table in Markdown; the first column is set left, the others right."""
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *body])


def formula_as_text(formula: re.Match) -> str:
    """The letters of a formula, with _ before what is below the line."""
    marked = re.sub(r"(<msub>.*?</m\w+>)", r"\1_", formula[0], count=0, flags=re.S)
    return html.escape(html.unescape(re.sub("<.*?>", "", marked)))


def estimators_as_markdown() -> str:
    """`tab:estimators`, whose formulas GitHub sets."""
    lines = ["| estimator | definition |", "|---|---|"]
    for estimator in ESTIMATORS.values():
        formula = estimator.definition
        if formula:
            for macro, meaning in MACROS.items():
                formula = formula.replace(macro, meaning)
            formula = formula.replace("|", r"\vert ").replace(r"\bm", r"\boldsymbol")
            lines.append(f"| {estimator.plain} | {formula} |")
    return "\n".join(lines)


# ---- sentences, a finding each


def values(outputs: Outputs, table: str, metric: str, estimator: str = "") -> Values:
    """The numbers of a table by model, dataset and variant."""
    numbers = {}
    for row in outputs["rep_numbers"]["application/json"]:
        if (row["table"], row["metric"], row["estimator"]) == (table, metric, estimator):
            numbers[row["model"], row["dataset"], row["variant"]] = row["value"]
    return numbers


def count_lower(some: Values, others: Values) -> str:
    """On how many of their pairs the first numbers are lower."""
    shared = some.keys() & others.keys()
    lower = [key for key in shared if some[key] < others[key]]
    return f"{len(lower)} of {len(shared)} pairs"


def average(numbers: Values) -> str:
    return format_3dp(mean(numbers.values()))


def pooled(outputs: Outputs) -> dict[str, dict]:
    """The mean differences over pairs, by name."""
    return {row["difference"]: row for row in outputs["rep_pooled"]["application/json"]}


def sentence_of_finding_1(outputs: Outputs) -> str:
    seq = values(outputs, "tab_result_estimation", "ece", "Seq Avg")
    ans = values(outputs, "tab_result_estimation", "ece", "Ans Avg")
    ranks = pooled(outputs)["Ans Avg minus Seq Avg"]
    return (
        f"Seq Avg has a lower ECE than Ans Avg on {count_lower(seq, ans)} (mean {average(seq)} "
        f"against {average(ans)}). The AUROC of Ans Avg minus that of Seq Avg is "
        f"{format_mean(ranks)}."
    )


def sentence_of_finding_2(outputs: Outputs) -> str:
    passes = values(outputs, "tab_result_estimation", "ece", "c_BALD")
    ans = values(outputs, "tab_result_estimation", "ece", "Ans Avg")
    grid = values(outputs, "tab_dropout_grid_search", "ece", "c_BALD")
    best: dict[tuple[str, str], str] = {}
    for model, dataset, rate in sorted(grid, key=grid.__getitem__, reverse=True):
        best[model, dataset] = rate  # the lowest comes last
    rates = ", ".join(sorted(set(best.values())))
    return (
        f"c_BALD has a lower ECE than Ans Avg on {count_lower(passes, ans)} (mean "
        f"{average(passes)} against {average(ans)}); the dropout rate of lowest ECE on the tuning "
        f"questions is one of {rates}."
    )


def sentence_of_finding_3(outputs: Outputs) -> str:
    in_situ = values(outputs, "tab_insitu_ptrue", "ece", "In-situ P(True)")
    standard = values(outputs, "tab_insitu_ptrue", "ece", "P(True)")
    saved = values(outputs, "tab_insitu_ptrue", "token_reduction_pct", "In-situ P(True)").values()
    change = pooled(outputs)["P(True), in situ minus fresh prompt"]
    return (
        "In situ, P(True) has a lower ECE than in a fresh prompt on "
        f"{count_lower(in_situ, standard)} (mean difference {format_mean(change)}), and needs "
        f"{min(saved):.0f}% to {max(saved):.0f}% fewer tokens."
    )


def sentence_of_finding_4(outputs: Outputs) -> str:
    change = pooled(outputs)["Ans Avg, isotonic minus raw"]
    shares = [row["constant_lower_ece"] for row in outputs["rep_splits"]["application/json"]]
    return (
        f"Isotonic regression lowers the ECE of Ans Avg on {change['lower']} of "
        f"{change['pairs']} pairs; on random re-splits a constant has a still lower one in "
        f"{min(shares):.0%} to {max(shares):.0%}. Calibrators of another model or dataset lower "
        "it, too, as any map to lower scores would."
    )


SENTENCES = {
    "Finding 1": sentence_of_finding_1,
    "Finding 2": sentence_of_finding_2,
    "Finding 3": sentence_of_finding_3,
    "Finding 4": sentence_of_finding_4,
}

# ---- the page


def picture(name: str) -> str:
    short, long = CAPTIONS[name]
    return f"![{short}](results/{name}.png)\n\n*{long.strip()}*"


def exhibit(name: str, here: Outputs, paper: Outputs) -> list[str]:
    """A figure or table of the run, and what the paper prints in its place."""
    if "image/png" in here[name]:
        return [picture(name)]
    short, long = CAPTIONS[name]
    parts = [f"#### {short}", f"`{name}`: {' '.join(long.split())}"]
    if name == "tab_estimators":
        return [*parts, estimators_as_markdown()]
    parts.append(as_markdown("".join(here[name]["text/html"])))
    if name in paper:
        printed = as_markdown("".join(paper[name]["text/html"]))
        summary = "<summary>The paper's printed numbers</summary>"
        parts.append(f"<details>{summary}\n\n{printed}\n\n</details>")
    return parts


def finding(name: str, here: Outputs, paper: Outputs) -> list[str]:
    claims = [claim for claim in here["rep_findings"]["application/json"] if claim["group"] == name]
    on_run = count_kinds(claim["here"] for claim in claims)
    on_paper = count_kinds(claim["paper"] for claim in claims)
    parts = [
        f"## {name}",
        f"> {FINDINGS[name]}",
        f"**{SENTENCES[name](here)}**",
        f"Its claims here: {on_run}. On the paper's printed numbers: {on_paper}.",
    ]
    for target in EXHIBITS[name]:
        if target in shown_names(here):
            parts += exhibit(target, here, paper)
    return parts


def shown_names(here: Outputs) -> list[str]:
    """The tables and figures of the page, in the order of the report; listings are left to it."""
    names = []
    for name in CAPTIONS:
        is_shown = name in here and name not in TOO_LONG
        if is_shown and (name.startswith("tab_") or "image/png" in here[name]):
            names.append(name)
    return names


def answer(here: Outputs) -> list[str]:
    """The first figure, the sentences above it, and the tables of scores and of splits."""
    overview = here["rep_overview"]["application/json"]
    splits = here["rep_splits"]["application/json"]
    sentences = first_sentences(overview, here["rep_pooled"]["application/json"], splits)
    return [
        f"**{' '.join(sentences)}**",
        picture("fig_overview"),
        table_of_scores(group_by_pair(overview)),
        "ECE of each score, in parentheses its spread (standard deviation) and its DSC: what it "
        "tells about answers, in Brier score.",
        table_of_splits(splits),
        "Re-splits: the rows of both splits are divided at random 300 times. p: of equal accuracy "
        "in both. A calibrator, and a guarantee, hold if new questions are like the calibration "
        "questions.",
    ]


def table_of_scores(pairs: list[list[dict]]) -> str:
    """Each pair's accuracy, and the ECE, spread and DSC of its scores."""
    names = [row["score"] for row in pairs[0]]
    lines = []
    for rows in pairs:
        first = rows[0]
        line = [f"{first['model']} {first['dataset']}", format_3dp(first["accuracy"])]
        for row in rows:
            line.append(format_overview(row["value"], row["spread"], row["dsc"]))
        lines.append(line)
    return as_table(["pair", "accuracy", *names], lines)


def table_of_splits(splits: list[dict]) -> str:
    """Each pair's accuracies, and isotonic regression beside a constant on random re-splits."""
    head = [
        "pair",
        "accuracy, calibration",
        "evaluation",
        "p",
        "re-splits: constant has the lower ECE",
        "isotonic the lower Brier score",
    ]
    lines = []
    for row in splits:
        line = [f"{row['model']} {row['dataset']}"]
        for name in ("calibration", "evaluation", "p"):
            line.append(format_3dp(row[name]))
        line.append(f"{row['constant_lower_ece']:.0%}")
        line.append(f"{row['isotonic_lower_brier']:.0%}")
        lines.append(line)
    return as_table(head, lines)


def page(here: Outputs, paper: Outputs) -> str:
    """The page, from what both runs export."""
    parts = [
        "# Results of two real models",
        "What `./run_all.sh replay small` shows: the paper's tables and figures for two models "
        "that were run on a CPU, from their stored token probabilities. Below each table are the "
        "paper's printed numbers, from `./run_all.sh published`. They are of other models: compare "
        "which claims hold, not the numbers. The command leaves the executed notebooks in "
        "`artifacts/replay-small/notebooks/`. `python docs/tables/results.py` wrote this page.",
        *answer(here),
    ]
    for name in FINDINGS:
        parts += finding(name, here, paper)
    parts.append("## Further tables and figures")
    of_findings = {"fig_overview"}.union(*EXHIBITS.values())
    for name in shown_names(here):
        if name not in of_findings:
            parts += exhibit(name, here, paper)
    parts.append("## Notes")
    notes = [f"- {row['note']}" for row in here["rep_notes"]["application/json"]]
    parts.append("\n".join(notes))
    return "\n\n".join(parts) + "\n"


def pictures(here: Outputs) -> dict[str, bytes]:
    """The PNG of each figure, by file name."""
    images = {}
    for name in shown_names(here):
        if "image/png" in here[name]:
            images[f"{name}.png"] = base64.b64decode("".join(here[name]["image/png"]))
    return images


def read(run: str, root: Path = ROOT) -> Outputs:
    """What a run exports, by target."""
    return read_exported(root / "artifacts" / run / "exported")[1]


if __name__ == "__main__":
    here_ = read(RUN)
    PAGE.write_text(page(here_, read(PAPER)), encoding="utf-8")
    PICTURES.mkdir(exist_ok=True)
    for name_, image in pictures(here_).items():
        (PICTURES / name_).write_bytes(image)
