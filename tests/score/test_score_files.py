"""A table of scores is read from four kinds of file, and refused in one line with its row."""

import gzip
import json

import pandas as pd
import pytest

from lib.errors import UserError
from lib.score import score_files
from lib.score.score_files import read_score_table

ROWS = [
    {"id": "b", "group": "q1", "correct": True, "stated": 0.9, "p": 0.5, "text": "Paris"},
    {"id": "a", "group": "q1", "correct": False, "stated": 1, "p": 0.25, "text": "Rome"},
    {"id": "c", "group": "q2", "correct": True, "stated": 0, "p": 0.125, "text": "Oslo"},
]


def write_table(folder, ending, rows=ROWS):
    path = folder / f"scores{ending}"
    frame = pd.DataFrame(rows)
    if ending == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif ending == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if ending == ".tsv" else ",")
    return path


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_kind_of_file_is_the_same_table(tmp_path, ending):
    """In the order of the ids; words are left out."""
    table = read_score_table(str(write_table(tmp_path, ending)))
    assert table.name == "scores"
    assert table.rows.id.tolist() == ["a", "b", "c"]
    assert table.rows.group.tolist() == ["q1", "q1", "q2"]
    assert table.rows.correct.tolist() == [False, True, True]
    assert table.scores.to_dict("list") == {"stated": [1, 0.9, 0], "p": [0.25, 0.5, 0.125]}
    assert table.left_out == ["text"]


def test_a_table_may_be_packed(tmp_path):
    path = write_table(tmp_path, ".csv")
    packed = tmp_path / "scores.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_score_table(str(packed)).scores.equals(read_score_table(str(path)).scores)


def test_without_ids_and_groups_a_row_is_its_number(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("p,correct\n" + "0.5,1\n0.25,0\n" * 6)
    table = read_score_table(str(path))
    assert table.rows.id.tolist() == [f"{number:02}" for number in range(1, 13)]
    assert table.rows.group.tolist() == table.rows.id.tolist()
    assert table.rows.correct.tolist() == [True, False] * 6


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "is not what its name says"),
        ("correct,p\n", "has no rows"),
        ("right,p\n1,.5\n", "has no column 'correct'"),
        ("correct,text\n1,a\n0,b\n", "has no column of confidence"),
        ("correct\n1\n0\n", "has no column of confidence"),
        ("correct,p\n1,.5\n0,1.01\n", "row 2: 'p' is 1.01; a confidence lies in [0, 1]"),
        ("correct,p\n1,.5\n0,-0.1\n", "row 2: 'p' is -0.1; a confidence lies in [0, 1]"),
        ("correct,p\n1,.5\n0,inf\n", "row 2: 'p' is inf; a confidence lies in [0, 1]"),
        ("correct,p\n1,.5\n0,nan\n", "row 2: 'p' is nan; a confidence lies in [0, 1]"),
        ("correct,p\n1,.5\n0,\n", "row 2: 'p' is missing"),
        ("correct,p\n1,.5\n0,high\n", "row 2: 'p' is 'high', and no number"),
        ("correct,p\n1,.5\n,.5\n", "row 2: 'correct' is missing: label the row"),
        ("correct,p\n1,.5\nmaybe,.5\n", "row 2: 'correct' is 'maybe': write true or false"),
        ("correct,p\n1,.5\n1,.5\n", "every answer is right, up to row 2"),
        ("correct,p\nfalse,.5\n0,.5\n", "every answer is wrong, up to row 2"),
        ("id,correct,p\na,1,.5\na,0,.5\n", "row 2: the id 'a' is that of row 1, too"),
        ("id,correct,p\na,1,.5\n,0,.5\n", "row 2: 'id' is missing"),
        ("group,correct,p\na,1,.5\n,0,.5\n", "row 2: 'group' is missing"),
        ("group,correct,p\na,1,.5\na,0,.5\n", "every row is of group 'a'"),
        ("correct,p,p\n1,.5,.5\n0,.5,.5\n", "is not what its name says"),
        ("correct,p\n1,.5,.5\n", "is not what its name says"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_row(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(UserError) as refusal:
        read_score_table(str(path))
    assert message in str(refusal.value)
    assert "bad.csv" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.jsonl", '{"correct": true, "p": 0.5}\n[1]\n', "row 2: it is no record"),
        ("a.jsonl", '{"correct": true, "p": 0.5}\n{"correct": false}\n', "row 2: 'p' is missing"),
        ("a.jsonl", '{"correct": true\n', "line 1: not JSON"),
        ("a.parquet", "no parquet", "is not what its name says"),
        ("a.xlsx", "x", "a table of scores is a .csv, .tsv, .jsonl or .parquet file"),
    ],
)
def test_other_kinds_are_refused_in_one_line(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        read_score_table(str(path))


def test_true_and_false_are_no_confidence(tmp_path):
    rows = [row | {"parsed": row["correct"]} for row in ROWS]
    for ending in (".jsonl", ".parquet", ".csv"):
        assert "parsed" in read_score_table(str(write_table(tmp_path, ending, rows))).left_out


def test_a_table_may_have_so_many_rows_and_no_more(monkeypatch):
    monkeypatch.setattr(score_files, "MOST_ROWS", 2)
    assert score_files.collect_columns("t.csv", [{"correct": 1}] * 2) == {"correct": [1, 1]}
    with pytest.raises(UserError, match="^t.csv has 3 rows: a table may have 2"):
        score_files.collect_columns("t.csv", [{"correct": 1}] * 3)
