"""The embedded default: its questions, tokenizers and checkpoints are what demo/README.md says."""

import json
import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo import corpus, solutions, tokenizer, train
from lib.paths import ROOT

LEVELS = list(corpus.LEVELS)


@given(
    st.integers(0, 10**9),
    st.sampled_from(LEVELS),
    st.sampled_from([corpus.LEVELS, corpus.SHIPPED]),
    st.booleans(),
)
def test_solutions_are_right_and_corrupted_ones_wrong(seed, level, kind, held_out):
    problem = corpus.draw(Random(seed), kind[level], held_out)
    for step in problem.steps:
        assert corpus.apply(step.x, step.op, step.y) == step.z > 0
    assert solutions.solution(problem).endswith(f"#### {problem.answer}")
    stated = {int(number) for number in re.findall(r"\d+", problem.question)}
    assert stated == {operand for operand in problem.operands if type(operand) is int}
    assert solutions.corrupt(Random(seed), problem).answer != problem.answer


def test_the_shipped_questions_are_reserved_and_written_by_the_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(train, "HERE", tmp_path)
    (tmp_path / "questions").mkdir()
    train.questions(seed=0)
    for level in LEVELS:
        shipped = (ROOT / "demo" / "questions" / f"demo-{level}.jsonl").read_text()
        assert (tmp_path / "questions" / f"demo-{level}.jsonl").read_text() == shipped
        assert len({json.loads(line)["question"] for line in shipped.splitlines()}) == 500


@pytest.mark.slow
def test_the_tokenizer_comes_out_the_same_and_splits_digits(lm):
    trained = tokenizer.train(lm.name, 0)
    assert trained.get_vocab() == lm.tokenizer.get_vocab()
    assert trained.chat_template == lm.tokenizer.chat_template
    assert len(lm.tokenizer("1234567", add_special_tokens=False).input_ids) == 7
