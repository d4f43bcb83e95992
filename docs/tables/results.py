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

PAGE, PICTURES = ROOT / "docs" / "results.md", ROOT / "docs" / "results"
RUN, PAPER = "replay-small", "published"
TOO_LONG = {"tab_selective"}  # some seventy rows, which the report has
Outputs = dict[str, dict]

# ---- tables


class Cells(HTMLParser):
    """The rows of a table's head and body, as Markdown; a cell over several columns is repeated in
    the head."""

    def __init__(self, table: str):
        super().__init__()
        self.head: list[list[str]] = []
        self.body: list[list[str]] = []
        self.rows, self.span, self.text = self.head, 1, ""
        self.feed(table)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tbody":
            self.rows = self.body
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.text, self.span = "", int(dict(attrs).get("colspan") or 1)
        elif tag == "b":
            self.text += "**"

    def handle_endtag(self, tag: str) -> None:
        if tag == "b":
            self.text += "**"
        elif tag in ("td", "th"):
            text = " ".join(self.text.split()).replace("|", "\\|").replace("****", "")
            is_block = self.rows is self.body and self.span > 1
            row = [f"**{text}**", *[""] * (self.span - 1)] if is_block else [text] * self.span
            self.rows[-1] += row

    def handle_data(self, data: str) -> None:
        self.text += data


def as_markdown(page: str) -> str:
    """A table of the report as Markdown, or several below one another, each with its caption in
    front."""
    for estimator in ESTIMATORS.values():  # formulas of names, as words
        page = page.replace(as_html(estimator.label), estimator.plain)
    page = re.sub(r"<math.*?</math>", formula_as_text, page, flags=re.S)
    found = []
    for caption, table in re.findall(r"(<p>.*?</p>)?\s*(<table.*?</table>)", page, flags=re.S):
        cells = Cells(table)
        head = [
            " ".join(filter(None, dict.fromkeys(column)))
            for column in zip(*cells.head, strict=True)
        ]
        lines = [head, ["---", *["---:"] * (len(head) - 1)], *cells.body]
        text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        found.append(f"{html.unescape(re.sub('<.*?>', '', caption))}\n\n{text}".strip())
    return "\n\n".join(found)


def formula_as_text(formula: re.Match) -> str:
    """The letters of a formula, with _ before what is below the line."""
    marked = re.sub(r"(<msub>.*?</m\w+>)", r"\1_", formula[0], count=0, flags=re.S)
    return html.escape(html.unescape(re.sub("<.*?>", "", marked)))


def estimators_as_markdown() -> str:
    """`tab:estimators`, whose formulas GitHub sets."""
    lines = ["| estimator | definition |", "|---|---|"]
    for one in ESTIMATORS.values():
        if formula := one.definition:
            for macro, meaning in MACROS.items():
                formula = formula.replace(macro, meaning)
            formula = formula.replace("|", r"\vert ").replace(r"\bm", r"\boldsymbol")
            lines.append(f"| {one.plain} | {formula} |")
    return "\n".join(lines)


# ---- sentences, a finding each


def values(
    outputs: Outputs, table: str, metric: str, estimator: str = ""
) -> dict[tuple[str, str, str], float]:
    """The numbers of a table by model, dataset and variant."""
    rows = outputs["rep_numbers"]["application/json"]
    of_table = [row for row in rows if (row["table"], row["metric"]) == (table, metric)]
    return {(row["model"], row["dataset"], row["variant"]): row["value"] for row in of_table
            if row["estimator"] == estimator}  # fmt: skip


def count_lower(one: dict, other: dict) -> str:
    """On how many of their pairs the first is lower."""
    pairs = [(one[key], other[key]) for key in one if key in other]
    return f"{sum(a < b for a, b in pairs)} of {len(pairs)} pairs"


def average(found: dict) -> str:
    return format_3dp(mean(found.values()))


def pooled(outputs: Outputs) -> dict[str, dict]:
    """The mean differences over pairs, by name."""
    return {row["difference"]: row for row in outputs["rep_pooled"]["application/json"]}


def sentence_of_finding_1(outputs: Outputs) -> str:
    seq, ans = (
        values(outputs, "tab_result_estimation", "ece", name) for name in ("Seq Avg", "Ans Avg")
    )
    ranks = pooled(outputs)["Ans Avg minus Seq Avg"]
    return (f"Seq Avg has a lower ECE than Ans Avg on {count_lower(seq, ans)} (mean {average(seq)} against "
            f"{average(ans)}). The AUROC of Ans Avg minus that of Seq Avg is {format_mean(ranks)}.")  # fmt: skip


def sentence_of_finding_2(outputs: Outputs) -> str:
    passes, ans = (
        values(outputs, "tab_result_estimation", "ece", name) for name in ("c_BALD", "Ans Avg")
    )
    grid = values(outputs, "tab_dropout_grid_search", "ece", "c_BALD")
    best: dict[tuple[str, str], str] = {}
    for model, dataset, rate in sorted(grid, key=lambda key: grid[key], reverse=True):
        best[model, dataset] = rate  # the lowest comes last
    rates = ", ".join(sorted(set(best.values())))
    return (f"c_BALD has a lower ECE than Ans Avg on {count_lower(passes, ans)} (mean {average(passes)} against "
            f"{average(ans)}); the dropout rate of lowest ECE on the tuning questions is one of {rates}.")  # fmt: skip


def sentence_of_finding_3(outputs: Outputs) -> str:
    in_situ, standard = (
        values(outputs, "tab_insitu_ptrue", "ece", name) for name in ("In-situ P(True)", "P(True)")
    )
    saved = values(outputs, "tab_insitu_ptrue", "token_reduction_pct", "In-situ P(True)").values()
    change = pooled(outputs)["P(True), in situ minus fresh prompt"]
    return (f"In situ, P(True) has a lower ECE than in a fresh prompt on {count_lower(in_situ, standard)} (mean "
            f"difference {format_mean(change)}), and needs {min(saved):.0f}% to {max(saved):.0f}% fewer "
            "tokens.")  # fmt: skip


def sentence_of_finding_4(outputs: Outputs) -> str:
    change = pooled(outputs)["Ans Avg, isotonic minus raw"]
    shares = [row["constant_lower_ece"] for row in outputs["rep_splits"]["application/json"]]
    return (f"Isotonic regression lowers the ECE of Ans Avg on {change['lower']} of {change['pairs']} pairs; on random "
            f"re-splits a constant has a still lower one in {min(shares):.0%} to {max(shares):.0%}. Calibrators of "
            "another model or dataset lower it, too, as any map to lower scores would.")  # fmt: skip


SENTENCES = dict(
    zip(
        FINDINGS,
        (
            sentence_of_finding_1,
            sentence_of_finding_2,
            sentence_of_finding_3,
            sentence_of_finding_4,
        ),
        strict=True,
    )
)

# ---- the page


def picture(name: str) -> str:
    return f"![{CAPTIONS[name][0]}](results/{name}.png)\n\n*{CAPTIONS[name][1].strip()}*"


def exhibit(name: str, here: Outputs, paper: Outputs) -> list[str]:
    """A figure or table of the run, and what the paper prints in its place."""
    if "image/png" in here.get(name, {}):
        return [picture(name)]
    short, long = CAPTIONS[name]
    table = (
        estimators_as_markdown()
        if name == "tab_estimators"
        else as_markdown("".join(here[name]["text/html"]))
    )
    parts = [f"#### {short}", f"`{name}`: {' '.join(long.split())}", table]
    if name in paper and name != "tab_estimators":
        printed = as_markdown("".join(paper[name]["text/html"]))
        parts += [
            f"<details><summary>The paper's printed numbers</summary>\n\n{printed}\n\n</details>"
        ]
    return parts


def finding(name: str, here: Outputs, paper: Outputs) -> list[str]:
    claims = [claim for claim in here["rep_findings"]["application/json"] if claim["group"] == name]
    counts = {side: count_kinds(claim[side] for claim in claims) for side in ("here", "paper")}
    exhibits = [part for one in EXHIBITS[name] if one.startswith(("tab_", "fig_")) and one in shown_names(here)
                for part in exhibit(one, here, paper)]  # fmt: skip
    return [f"## {name}", f"> {FINDINGS[name]}", f"**{SENTENCES[name](here)}**",
            f"Its claims here: {counts['here']}. On the paper's printed numbers: {counts['paper']}.",
            *exhibits]  # fmt: skip


def shown_names(here: Outputs) -> list[str]:
    """The tables and figures of the page, in the order of the report; listings are left to it."""
    return [name for name in CAPTIONS if name in here and name not in TOO_LONG
            and (name.startswith("tab_") or "image/png" in here[name])]  # fmt: skip


def answer(here: Outputs) -> list[str]:
    """The first figure, the sentences above it, and the tables of scores and of splits."""
    overview = here["rep_overview"]["application/json"]
    pooled_rows = here["rep_pooled"]["application/json"]
    splits = here["rep_splits"]["application/json"]
    pairs = group_by_pair(overview)
    lines = [["pair", "accuracy", *(row["score"] for row in pairs[0])]]
    lines.append(["---", *["---:"] * (len(lines[0]) - 1)])
    for rows in pairs:
        scores = [format_overview(row["value"], row["spread"], row["dsc"]) for row in rows]
        pair = f"{rows[0]['model']} {rows[0]['dataset']}"
        lines.append([pair, format_3dp(rows[0]["accuracy"]), *scores])
    return [
        f"**{' '.join(first_sentences(overview, pooled_rows, splits))}**",
        picture("fig_overview"),
        as_table(lines),
        "ECE of each score, in parentheses its spread (standard deviation) and its DSC: what it tells "
        "about answers, in Brier score.",
        as_table(split_lines(splits)),
        "Re-splits: the rows of both splits are divided at random 300 times. p: of equal accuracy in "
        "both. A calibrator, and a guarantee, hold if new questions are like the calibration questions.",
    ]


def split_lines(splits: list[dict]) -> list[list[str]]:
    """Each pair's accuracies, and isotonic regression beside a constant on random re-splits."""
    head = ["pair", "accuracy, calibration", "evaluation", "p", "re-splits: constant has the lower ECE",
            "isotonic the lower Brier score"]  # fmt: skip
    lines = [head, ["---", *["---:"] * 5]]
    for row in splits:
        shares = [f"{row[name]:.0%}" for name in ("constant_lower_ece", "isotonic_lower_brier")]
        numbers = [format_3dp(row[name]) for name in ("calibration", "evaluation", "p")]
        lines.append([f"{row['model']} {row['dataset']}", *numbers, *shares])
    return lines


def as_table(lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(here: Outputs, paper: Outputs) -> str:
    """The page, from what both runs export."""
    others = [name for name in shown_names(here) if name != "fig_overview"]
    others = [name for name in others if not any(name in some for some in EXHIBITS.values())]
    parts = [
        "# Results of two real models",
        "What `./run_all.sh replay small` shows: the paper's tables and figures for two models that were run on a CPU, "
        "from their stored token probabilities. Below each table are the paper's printed numbers, from `./run_all.sh "
        "published`. They are of other models: compare which claims hold, not the numbers. The command leaves the "
        "executed notebooks in `artifacts/replay-small/notebooks/`. `python docs/tables/results.py` wrote this page.",
        *answer(here),
        *(part for name in FINDINGS for part in finding(name, here, paper)),
        "## Further tables and figures",
        *(part for name in others for part in exhibit(name, here, paper)),
        "## Notes",
        "\n".join(f"- {row['note']}" for row in here["rep_notes"]["application/json"]),
    ]
    return "\n\n".join(parts) + "\n"


def pictures(here: Outputs) -> dict[str, bytes]:
    """The PNG of each figure, by file name."""
    return {f"{name}.png": base64.b64decode("".join(here[name]["image/png"])) for name in shown_names(here)
            if "image/png" in here[name]}  # fmt: skip


def read(run: str, root: Path = ROOT) -> Outputs:
    """What a run exports, by target."""
    return read_exported(root / "artifacts" / run / "exported")[1]


if __name__ == "__main__":
    runs = read(RUN), read(PAPER)
    PAGE.write_text(page(*runs), encoding="utf-8")
    PICTURES.mkdir(exist_ok=True)
    for name_, image in pictures(runs[0]).items():
        (PICTURES / name_).write_bytes(image)
