"""The answer for a user's model in words: nothing is called best that rows do not decide, and the
lines of Python give the numbers that the page names."""

import json

import numpy as np
import pytest

from lib.analysis.model_answers import AfterCalibration, ChosenScore, ModelAnswer
from lib.analysis.run_thresholds import AnsweringThreshold, Estimate
from lib.calibrate.calibrator_files import calibrator_record
from lib.calibrate.calibrators import METHODS
from lib.calibrate.fit_methods import Fit
from lib.paper import model_sentences

AUROC = Estimate(0.812, 0.72, 0.889)
SIZES = {"choosing": 33, "calibrating": 100, "evaluated": 100, "right": 62, "unread": 0}


def ranking(**others):
    return ChosenScore("seq_avg", "auroc", AUROC, 0.5, **others)


@pytest.mark.parametrize("others, sentence", [
    ({"worse": ("ans_avg", "p_true")},
     "Seq Avg ranks right above wrong answers best, of all: AUROC .812 [.720, .889], where .5 is "
     "chance."),
    ({"worse": ("ans_avg",), "open_to": ("p_true",)},
     "Which score ranks right above wrong answers best cannot be told. The calibration questions "
     "choose Seq Avg: AUROC .812 [.720, .889], where .5 is chance; Ans Avg is worse; P(True) "
     "cannot be told from it."),
    ({"better": ("p_true",)},
     "P(True) does better than Seq Avg, which the calibration questions choose: AUROC .812 [.720, "
     ".889], where .5 is chance."),
])  # fmt: skip
def test_what_the_rows_decide_is_said_and_no_more(others, sentence):
    assert model_sentences.describe_choice(ranking(**others)) == sentence


@pytest.mark.parametrize(
    "chance, words",
    [
        (0.09, "where calibrated scores would have at most .090 by chance"),
        (0.2, "and calibrated scores would have up to .200 by chance too"),
    ],
)
def test_an_error_stands_beside_what_chance_gives(chance, words):
    choice = ChosenScore("p_true", "ece", Estimate(0.12, 0.08, 0.2), chance, worse=("ans_avg",))
    assert words in model_sentences.describe_choice(choice)
    made = AfterCalibration(Estimate(0.12, 0.08, 0.2), chance, 0.05)
    sentence = model_sentences.describe_calibrated("p_true", made)
    assert ("may be calibrated" in sentence) == (chance == 0.2)
    assert "a constant has .050, and ranks nothing" in sentence


NOTHING = Estimate(np.nan, np.nan, np.nan)


@pytest.mark.parametrize("made, words", [
    (AnsweringThreshold(0.8, 0.9, 0.95, 0.4, Estimate(0.9, 0.76, 0.97), "", None),
     ["Seq Avg of 0.95 or more at least 80% are right, with 90% confidence", "40% of the eval",
      "90% [76%, 97%] of them are right"]),
    (AnsweringThreshold(0.8, 0.9, 0.95, 0.0, NOTHING, "", None), ["No evaluation question has so"]),
    (AnsweringThreshold(0.8, 0.9, None, 0.0, NOTHING, "few", 452),
     ["No threshold of Seq Avg guarantees that 80%", "about 450 more calibration questions"]),
    (AnsweringThreshold(0.8, 0.9, None, 0.0, NOTHING, "few", 1), ["a few more calibration ques"]),
    (AnsweringThreshold(0.8, 0.9, None, 0.0, NOTHING, "few", None), ["at none are they right so"]),
])  # fmt: skip
def test_when_to_answer_has_its_guarantee_or_what_it_takes(made, words):
    sentence = model_sentences.describe_threshold("seq_avg", made)
    assert "nan" not in sentence
    for word in words:
        assert word in sentence


def answer(estimator="seq_avg", **more):
    choice = ChosenScore(estimator, "auroc", AUROC, 0.5)
    facts = {**SIZES, "shortage": "", "has_calibrator": True, "ranking": choice, **more}
    return ModelAnswer(pair=("mine", "sums"), **facts)


def test_the_lines_of_python_give_the_calibrated_number(tmp_path, capsys):
    """Run as they stand, with a response of 0.9 and 0.7 probability, whose mean is 0.8."""
    isotonic = METHODS["isotonic"].inputs["confidence"]().fit([0.7, 0.9], [False, True])
    fit = Fit(("mine", "sums"), "seq_avg", METHODS["isotonic"], "confidence", isotonic)
    file = tmp_path / "mine__sums__seq_avg__isotonic.json"
    file.write_text(json.dumps(calibrator_record(fit)))
    threshold = AnsweringThreshold(0.8, 0.9, 0.75, 0.4, Estimate(0.9, 0.76, 0.97), "", None)
    lines = model_sentences.list_code(answer(threshold=threshold), str(tmp_path))
    tokens = [{"token": "#### ", "logprob": np.log(0.9)}, {"token": "5", "logprob": np.log(0.7)}]
    choice = {"message": {"content": "#### 5"}, "logprobs": {"content": tokens}}
    choice |= {"finish_reason": "stop", "index": 0}
    names = {"response": {"choices": [choice], "model": "mine", "object": "chat.completion"}}
    for part in lines:
        exec(part.text, names)
    assert float(capsys.readouterr().out) == pytest.approx(0.5)
    assert names["is_answered"]
    assert lines[1].use == "Answer only where 80% are right"


def test_p_true_is_given_as_a_number():
    (lines,) = model_sentences.list_code(answer("p_true"), "artifacts/mine/calibrators")
    assert "score_confidence(confidence, calibrator)" in lines.text
    assert "mine__sums__p_true__isotonic.json" in lines.text


def test_a_calibrator_of_too_few_rows_is_not_offered():
    assert not model_sentences.list_code(answer(has_calibrator=False), "folder")


def test_without_an_evaluation_row_nothing_is_said():
    empty = ModelAnswer(("m", "d"), 33, 100, 0, 0, 0, "fewer than 30 questions (0)", True)
    assert not model_sentences.list_sentences(empty)
    assert model_sentences.list_code(empty, "folder"), "though all rows fit a calibrator"


def test_responses_without_an_answer_are_counted():
    few = ModelAnswer(("m", "d"), 33, 100, 100, 3, 21, "fewer than 10 right answers", False)
    (sentence,) = model_sentences.list_sentences(few)
    assert sentence.text == (
        "3 of 100 evaluation questions: 3% [1%, 9%]. 21 responses have no readable answer, and "
        "count as wrong."
    )
