"""Tables against the paper cell by cell, where its LaTeX is at hand; escaping, notes, HTML; pdflatex."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from types import SimpleNamespace

import pandas as pd
import pytest
from latex import PAPER, paper, parse, printed, specification

from lib.paper import footnotes, reference, tables
from lib.paper.booktabs import Cell, Table
from lib.paper.latex import COMMANDS, MACROS, escape
from lib.score import metrics
from lib.score.estimators import ESTIMATORS

HOSTILE = r"a_b & <c> 100% #1 $x$ {y} \z ~ ^ | "


# ---- against the paper, where test_published.py does not look


@paper
def test_result_estimation_single_pass_columns():
    results = reference.printed_numbers("result_estimation")
    multi = [e.name for e in ESTIMATORS.values() if e.group == "multi_pass"]
    table = tables.result_estimation(results[~results.estimator.isin(multi)])
    here, there = parse(table.latex), parse(printed("result_estimation")[0])
    assert specification(table.latex) == "llc|cccccccc"

    def plain(row):
        return [re.sub(r"\\textbf\{(.*)\}", r"\1", cell).replace("{c|}", "{c}") for cell in row]

    rows = [row for row in there if isinstance(row, list)]
    assert [plain(row) for row in here if isinstance(row, list)] == [
        plain(row[: 7 if "multicolumn" in row[3] else 11]) for row in rows
    ]


@paper
def test_commands_are_the_papers():
    text = re.sub(r"%\n|\n|  +", "", PAPER.read_text(encoding="utf-8"))
    for command, (count, meaning) in COMMANDS.items():
        assert rf"\newcommand{{{command}}}[{count}]{{{meaning}}}" in text


def test_the_selected_rate_is_one_row():
    """Of equal errors the lower rate's, and every cell of its row is bold, whatever the other metrics say."""
    rates = [(0.1, 0.2, 0.5), (0.15, 0.1, 0.9), (0.2, 0.1, 0.1)]
    rows = [
        ("m", "d", "c_bald", metric, value, rate)
        for rate, ece, mce in rates
        for metric, value in (("ece", ece), ("mce", mce), ("brier", 0.3))
    ]
    results = pd.DataFrame(rows, columns=["model", "dataset", "estimator", "metric", "value", "rate"])
    assert bold(tables.dropout_grid_search(results)) == [[False] * 4, [True] * 4, [False] * 4]


@paper
def test_macros_are_the_papers():
    text = PAPER.read_text(encoding="utf-8")
    for macro, meaning in MACROS.items():
        assert rf"\newcommand{{{macro}}}{{{meaning}}}" in text


# ---- results made here


def results(models=("m",), datasets=("d",), names=("seq_avg", "seq_joint"), start=0.1):
    rows = []
    for model in models:
        for dataset in datasets:
            rows.append((model, dataset, "", "acc", 0.5, ""))
            for number, name in enumerate(names):
                for metric in ("ece", "mce", "brier", "auroc"):
                    rows.append((model, dataset, name, metric, start + number / 100, ""))
    return pd.DataFrame(rows, columns=["model", "dataset", "estimator", "metric", "value", "reason"])


def bold(table):
    """Of the last label and the cells of each row."""
    labels = [key[-1] for key in table.cells.index]
    return [[isinstance(label, Cell) and label.bold, *(cell.bold for cell in row)]
            for label, row in zip(labels, table.cells.to_numpy(), strict=True)]  # fmt: skip


def test_bold_goes_by_the_unrounded_value():
    frame = results(names=("seq_avg", "seq_joint", "ans_avg"))
    frame.loc[frame.metric == "ece", "value"] = [0.0530004, 0.0530001, 0.0530002]
    table = tables.result_estimation(frame)
    assert bold(table) == [[False] * 4 + [True] + [False] * 3]
    assert table.latex.count("0.053") == 3 and table.latex.count(r"\textbf{0.053}") == 1
    frame.loc[frame.metric == "ece", "value"] = 0.05  # equal to the last bit: all of them
    assert sum(bold(tables.result_estimation(frame))[0]) == 3


def test_order_and_labels_are_those_given():
    frame = results(models=("x", "y"), datasets=("d", "e"))
    table = tables.result_estimation(frame, {"y": "Y!", "x": "X!"}, {"e": "E!", "d": "D!"})
    assert list(table.cells.index) == [("Y!", "E!"), ("Y!", "D!"), ("X!", "E!"), ("X!", "D!")]
    shown = [line.split("  ")[:2] for line in str(table).splitlines()[2:]]
    assert shown == [["Y!", "E!"], ["", "D!"], ["X!", "E!"], ["", "D!"]]
    assert table.latex.count(r"\midrule") == 2


@pytest.mark.parametrize("count", [1, 6])
def test_each_model_is_a_block(count):
    latex = tables.result_estimation(results(models=[f"m{i}" for i in range(count)], datasets=("d", "e"))).latex
    assert latex.count(r"\multirow{2}{*}{m") == count and latex.count(r"\midrule") == count


def test_what_is_missing_says_why():
    frame = results(models=("x", "y"))
    frame["value"] = frame["value"].astype("Float64")
    lost = (frame.model == "x") & (frame.metric == "mce")
    frame.loc[lost, ["value", "reason"]] = [pd.NA, "one class only"]
    table = tables.result_estimation(frame[~((frame.model == "y") & (frame.metric == "acc"))], notes=["Demo models."])
    assert "nan" not in table.latex.lower() and "NA" not in table.latex
    assert table.latex.count("-- &") + table.latex.count(r"-- \\") == 3
    assert list(table.notes) == ["Demo models.", "--: one class only, not computed."]
    assert "one class only" in table._repr_html_()


def test_fewer_rows_are_said():
    """P(True) or c_BALD on some rows only: never beside the others without a word."""
    frame = results(names=("seq_avg", "c_bald", "p_true"))
    uneven = frame.assign(n=frame.estimator.map({"c_bald": 50}).fillna(200).astype(int))
    assert tables.result_estimation(frame.assign(n=200)).notes == ["n = 200 evaluation rows of each model and dataset."]
    (model,), (dataset,) = frame.model.unique(), frame.dataset.unique()
    notes = tables.result_estimation(uneven, {model: "Mine"}, {dataset: "Data"}).notes
    assert notes[1:] == ["c_BALD on Mine on Data: 50 of 200 rows."]


def test_a_multi_pass_estimator_brings_its_columns():
    table = tables.result_estimation(results(names=("seq_avg", "c_bald", "p_true")))
    assert specification(table.latex) == "llc|cc|cccc"
    assert r"\multicolumn{2}{c|}{\textsc{Seq Avg}} & \multicolumn{2}{c}{$\ptrue$}" in table.latex
    assert r"\providecommand{\ptrue}" in table.latex


def test_settings_number_formats():
    model = SimpleNamespace(label="m", temperature=1, top_p=0.95, top_k=-1, min_p=0.05, system_prompt=False)
    table = tables.inference_settings([model], ["Demo models."])
    assert "Demo models." in table.latex and "Demo models." in table._repr_html_()
    rows = parse(table.latex)
    assert [row[1] for row in rows if isinstance(row, list)] == ["m", "1.0", "0.95", "-1", "0.05", "No"]


def test_notes():
    shares = {
        "model": ["x", "y"],
        "dataset": ["d", "d"],
        "rows": [100, 300],
        "unparsed": [0.1, 0.02],
        "cut": [0, 0],
    }
    assert footnotes.notes("Demo models", pd.DataFrame(shares)) == [
        "Demo models.",
        "No parsable answer: 4.0% of 400 responses (at most 10.0%, x on d).",
        "Cut by length: 0.0% of 400 responses.",
    ]
    assert footnotes.notes() == []


def test_notes_stand_below_and_do_not_widen():
    table = tables.result_estimation(results(), notes=["word " * 60])
    body, below = table.latex.split(r"\bottomrule")
    lines = [line for line in below.split("\n") if "multicolumn" in line]
    assert "word" not in body and len(lines) > 1
    assert all(line.startswith(r"\multicolumn{7}{l}{\textit{") and len(line) < 110 for line in lines)


# ---- both languages


def test_escape():
    assert escape("a_b & <c>") == r"a\_b \& \textless{}c\textgreater{}"
    assert escape("50%\n#1 $ {} ~^\\") == r"50\% \#1 \$ \{\} \textasciitilde{}\textasciicircum{}\textbackslash{}"


class Grid(HTMLParser):
    """Rows of texts of an HTML table, with how many columns and rows each covers."""

    def __init__(self, html):
        super().__init__()
        self.rows, self.bold = [], 0
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.bold += tag == "b"
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            span = dict(attrs)
            self.rows[-1].append(["", int(span.get("colspan", 1)), int(span.get("rowspan", 1))])

    def handle_data(self, data):
        if data.strip() and self.rows and self.rows[-1]:
            self.rows[-1][-1][0] += data


def test_html_holds_the_same_cells():
    frame = results(models=("x", HOSTILE), datasets=("d", "e"))
    table = tables.result_estimation(frame, notes=["a < b & c"])
    grid = Grid(table._repr_html_().split("</table>")[0])
    expected = [[[one.cell.text, one.columns, one.rows] for one in row.cells] for row in (*table.head(), *table.body())]
    assert grid.rows == expected
    assert grid.bold == table.latex.count(r"\textbf")
    covered = sum(columns * rows for row in grid.rows for _, columns, rows in row)
    assert covered == len(table.alignment) * len(grid.rows)
    assert "<c>" not in table._repr_html_() and "a &lt; b &amp; c" in table._repr_html_()
    assert r"a\_b \& \textless{}c\textgreater{}" in table.latex


def test_mime_bundle():
    bundle = tables.estimators()._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/latex", "text/plain"}
    assert r"\ptrue" not in bundle["text/html"] and r"\yans" not in bundle["text/html"]
    assert r"\bm{" not in bundle["text/html"] and "_{&lt;i}" in bundle["text/html"]


def test_rules_in_html():
    index = pd.MultiIndex.from_tuples([("a", "b", "c"), ("a", "d", "e")], names=["x", "y", "z"])
    table = Table("l|llc", pd.DataFrame([[Cell("b")], [Cell("d")]], index, ["h"]))
    rows = table._repr_html_().split("<tbody>")[1].split("</tr>")
    assert "border-top:1px solid;" in rows[0].split("<td")[0]
    assert "border-top" not in rows[1].split("<td")[0] and rows[1].count("border-top:1px solid #8888") == 3
    assert "border-right" in rows[0].split("<td")[1]


DOCUMENT = r"""\documentclass{article}
\usepackage[margin=1cm]{geometry}
\usepackage{times}
\usepackage{amsmath,amssymb,bm,booktabs,multirow,graphicx}
\begin{document}
%s
\end{document}
"""


def everything():
    """Every table, with labels that LaTeX would trip over."""
    models, names = {"x": "tiny-llama", "y": HOSTILE}, [*ESTIMATORS]
    frame = results(models=models, datasets=("d", "e"), names=names)
    ablated = pd.concat([frame.assign(bins=n) for n in (10, 20)])
    rated = pd.concat([frame.assign(rate=rate) for rate in (0.1, 0.2)])
    settings = {"temperature": 0.6, "top_p": 1.0, "top_k": 20, "min_p": 0, "system_prompt": True}
    notes = footnotes.notes(f"Demo models {HOSTILE}")
    return {
        "estimators": tables.estimators(),
        "result_estimation": tables.result_estimation(frame, models, {"d": "D", "e": HOSTILE}, notes),
        "single_pass": tables.result_estimation(frame[frame.estimator.isin(["", *names[:4]])], notes=notes),
        "bin_ablation": tables.bin_ablation(ablated, models, notes=notes),
        "insitu_ptrue": tables.insitu_ptrue(frame, models, notes=notes),
        "dropout_grid_search": tables.dropout_grid_search(rated, models, notes=notes),
        "inference_settings": tables.inference_settings(SimpleNamespace(label=m, **settings) for m in models.values()),
    }


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_every_table_compiles(tmp_path):
    inputs = []
    for name, table in everything().items():
        (tmp_path / f"tab_{name}.tex").write_text(table.latex, encoding="utf-8")
        inputs.append(rf"\begin{{table}}\centering\resizebox{{\textwidth}}{{!}}{{\input{{tab_{name}}}}}\end{{table}}")
    (tmp_path / "all.tex").write_text(DOCUMENT % "\n".join(inputs), encoding="utf-8")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "all.pdf").exists()
    assert "Missing character" not in (tmp_path / "all.log").read_text(errors="replace")


def test_notes_say_how_rows_were_made():
    def facts(label, device="cpu", dtype="float32", revision=None):
        loaded = {"device": device, "dtype": dtype, "revision": revision, "source": f"x/{label}"}
        return label, {"loaded": loaded, "model": {"label": "as it was called then"}, "rows": 4}

    b, fast = facts("B", revision="0123456789abcdef"), facts("A", "H200", "bfloat16")
    lines = footnotes.made([facts("A"), facts("A"), b, fast])
    assert lines == ["Made on cpu, float32: A (x/A), B (x/B@0123456789ab).", "Made on H200, bfloat16: A (x/A)."]
    assert footnotes.notes("mine", how=lines) == ["mine.", *lines]


def masses(*pairs):
    """Rows of `verification_statistics.option_mass`: (model, dataset, estimator, median, share below .5, rows)."""
    records = [(model, dataset, name, metric, value, n) for model, dataset, name, median, low, n in pairs
               for metric, value in (("option_mass", median), ("option_mass_low", low))]  # fmt: skip
    return pd.DataFrame(records, columns=["model", "dataset", "estimator", "metric", "value", "n"]).assign(reason="")


def test_the_options_mass_stands_below_in_situ_verification():
    frame = masses(("m", "d", "p_true_insitu", 0.95, 0.1, 100), ("m", "e", "p_true_insitu", 0.4, 0.7, 300),
                   ("m", "d", "p_true", 1.0, 0.0, 100), ("m", "e", "p_true", 0.99, 0.0, 300))  # fmt: skip
    table = tables.insitu_ptrue(frame, {"m": "My-Model"}, {"d": "D", "e": "E"}, ["Mine."])
    in_situ, standard = (ESTIMATORS[name].plain for name in ("p_true_insitu", "p_true"))
    assert list(table.notes[-2:]) == [
        f"Probability of both options, {in_situ}: median 0.400 (My-Model on E) to 0.950; "
        "below .5 in 55.0% of 400 responses (at most 70.0%, My-Model on E).",
        f"Probability of both options, {standard}: median 0.990 (My-Model on E) to 1.000; "
        "below .5 in 0.0% of 400 responses.",
    ]
    assert "55.0\\%" in table.latex and "55.0%" in table._repr_html_()
    one = tables.insitu_ptrue(masses(("m", "d", "p_true", 0.3, 1.0, 7)), {"m": "My-Model"}, {"d": "D"})
    assert one.notes[-1].endswith("median 0.300; below .5 in 100.0% of 7 responses.")


def test_notes_say_how_many_rows():
    frame = results().assign(n=200)
    sizes = {name: 100 * place for place, name in enumerate(frame.dataset.unique(), 1)}
    notes = tables.result_estimation(frame.assign(n=frame.dataset.map(sizes))).notes
    said = ", ".join(f"{n} on {name}" for name, n in sizes.items())
    assert len(sizes) == 1 or notes == [f"n, evaluation rows: {said}."]
    rated = frame[frame.estimator == frame.estimator.iloc[-1]].assign(estimator="c_bald", rate=0.1, n=100)
    assert tables.dropout_grid_search(rated).notes == [
        "n = 100 tuning examples of the calibration split of each model and dataset."]  # fmt: skip


def test_an_mce_of_next_to_no_rows_is_marked_on_screen_and_counted():
    scores = pd.DataFrame({"model": "m", "dataset": "d", "split": "evaluation", "estimator": "seq_avg",
                           "example_id": map(str, range(12)), "confidence": [0.95] * 8 + [0.15] * 4,
                           "correct": [True] * 12})  # fmt: skip
    few = tables.result_estimation(metrics.evaluate(scores))
    assert few.notes[-1] == "MCE from a bin of fewer than 5 rows: 1 of 1 (* on screen)."
    assert "0.850<sup>*</sup>" in few._repr_html_() and "sup" not in few.tabular
    more = tables.result_estimation(metrics.evaluate(pd.concat([scores, scores.assign(example_id="x")])))
    assert "fewer than 5" not in " ".join(more.notes) and "<sup>" not in more._repr_html_()


def narrow(notes):
    return Table("l", pd.DataFrame([[Cell("b")]], columns=["a"]), notes)


def test_notes_are_not_broken_at_hyphens():
    table = narrow(["word " * 7 + "Tiny-Qwen-Thinking"])
    assert "Tiny-Qwen-Thinking" in table.tabular


def test_frames_in_words_keep_the_order_of_the_run():
    cells = [(m, d, e, how, 0.1) for m in "ba" for d in ("easy", "medium", "hard")
             for e in ("ans_avg", "p_true") for how in ("", "isotonic", "platt")]  # fmt: skip
    frame = pd.DataFrame(cells, columns=["model", "dataset", "estimator", "method", "value"])
    said = tables.label_rows(frame, {"b": "B", "a": "A"}, {"easy": "Easy", "medium": "Medium", "hard": "Hard"})
    table = said.pivot(index=["model", "dataset"], columns=["estimator", "method"], values="value")
    assert list(table.index) == [(m, d) for m in "BA" for d in ("Easy", "Medium", "Hard")]
    assert list(table.columns) == [("Ans Avg", "raw"), ("Ans Avg", "isotonic"), ("Ans Avg", "temperature"),
                                   ("P(True)", "raw"), ("P(True)", "isotonic"), ("P(True)", "Platt")]  # fmt: skip
    assert list(tables.label_rows(frame.drop(columns="estimator"), None, None).method.unique()) == [
        "raw", "isotonic", "temperature"]  # fmt: skip


def test_a_new_label_stands_under_the_tables_too():
    """Rows were made under an older one, which their manifests keep."""
    (line,) = footnotes.how_made("shipped", {"tiny-llama": "Renamed"}, ["demo-easy"])
    assert line.startswith("Made on ") and ": Renamed (demo/models/tiny-llama" in line


@pytest.mark.parametrize("second, lines", [(20, 1), (21, 2)])
def test_a_note_under_a_narrow_table_has_forty_characters(second, lines):
    table = narrow(["x" * 19 + " " + "y" * second])
    assert table.latex.count("textit") == lines


def test_a_name_longer_than_a_line_breaks_at_its_hyphens():
    note = "Made on cpu: Small (someone/A-Name-That-Is-Longer-Than-A-Line-Can-Be@0123456789ab), in-situ"
    table = narrow([note])
    lines = [line.split(r"\textit{")[1].split("}}")[0] for line in table.latex.splitlines() if "textit" in line]
    assert all(line.endswith("-") for line in lines[:-1]) and "".join(lines).replace(" ", "") == note.replace(" ", "")
    other = narrow(["x" * 37 + " in-situ"])
    assert other.latex.count("in-situ") == 1, "a word that fits is left whole"
