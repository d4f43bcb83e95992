"""docs/calibrated_number.py, the file to copy, says what the project's own `score` says."""

import importlib.util
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from served import completion

from lib.calibrate import one_response
from lib.paths import ROOT

FILE = ROOT / "docs" / "calibrated_number.py"
SHIPPED = sorted(one_response.CALIBRATORS.glob("*__seq_avg__isotonic.json"))


@pytest.fixture(scope="module")
def copied():
    spec = importlib.util.spec_from_file_location("calibrated_number", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def respond(rng, end_token=None):
    """A chat completion with an answer, whose tokens have random log-probabilities."""
    body = completion("Three and four make 7: #### 7")
    tokens = body["choices"][0]["logprobs"]["content"]
    largest = rng.choice([0.001, 0.1, 2.0])  # sure, or not
    for token in tokens:
        token["logprob"] = -rng.uniform(0, largest)
    if end_token is not None:
        tokens.append({"token": end_token, "logprob": -3.0, "bytes": None, "top_logprobs": []})
    return body


@pytest.mark.parametrize("end_token", [None, "", "<|im_end|>"])
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_it_is_the_project_s_score(copied, path, end_token):
    rng = np.random.default_rng(0)
    for _ in range(20):
        body = respond(rng, end_token)
        ours = one_response.score(body, path)
        for response in body, json.dumps(body):
            raw, calibrated = copied.score(response, path, parsed=True)
            assert abs(raw - ours.raw) < 1e-12
            assert abs(calibrated - ours.calibrated) < 1e-12


def test_seq_joint_is_the_geometric_mean(copied):
    assert copied.seq_joint(np.log([0.5, 0.125])) == pytest.approx(0.25)
    assert copied.seq_avg(np.log([0.5, 0.125])) == pytest.approx(0.3125)


def test_between_two_points_it_is_on_their_line_and_beyond_the_last_it_is_the_last(copied):
    points = [0.2, 0.6], [0.1, 0.9]
    values = [copied.interpolate(x, *points) for x in (0.0, 0.2, 0.3, 0.6, 1.0)]
    assert values == pytest.approx([0.1, 0.1, 0.3, 0.9, 0.9])


def test_without_an_answer_it_is_0(copied):
    assert copied.score({"choices": []}, SHIPPED[0], parsed=False) == (0.0, 0.0)


def test_what_it_cannot_score_is_refused(copied):
    body = respond(np.random.default_rng(0))
    of_answers = SHIPPED[0].with_name(SHIPPED[0].name.replace("seq_avg", "ans_avg"))
    with pytest.raises(ValueError, match="not an isotonic calibrator of seq_avg"):
        copied.score(body, of_answers, parsed=True)
    body["choices"][0]["message"]["reasoning_content"] = "3 and 4"
    with pytest.raises(ValueError, match="needs the project's own"):
        copied.score(body, SHIPPED[0], parsed=True)
    body["choices"][0]["logprobs"] = None
    with pytest.raises(ValueError, match="logprobs=True"):
        copied.score(body, SHIPPED[0], parsed=True)


def test_it_runs_in_an_empty_folder_with_no_package_installed(tmp_path):
    shutil.copy(FILE, tmp_path)
    shutil.copy(SHIPPED[0], tmp_path / "calibrator.json")
    (tmp_path / "response.json").write_text(json.dumps(respond(np.random.default_rng(0))))
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "from calibrated_number import score\n"
        "print(score(open('response.json').read(), 'calibrator.json', parsed=True))"
    )
    command = [sys.executable, "-S", "-I", "-c", code]  # without site-packages
    printed = subprocess.check_output(command, cwd=tmp_path, text=True)
    ours = one_response.score((tmp_path / "response.json").read_text(), SHIPPED[0])
    assert eval(printed) == pytest.approx((ours.raw, ours.calibrated))
