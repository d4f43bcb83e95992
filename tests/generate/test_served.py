"""A model that only a server has: its requests, and the demo models behind llama.cpp's server against their weights."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from served import completion, faulty, like_vllm, llama_cpp

from lib import params, store
from lib.calibrate.calibrated import CALIBRATORS, score
from lib.generate import generation, models, p_true, served
from lib.generate.imported_responses import ImportedResponses, response_token_ids
from lib.generate.response_files import Response
from lib.generate.served import read_verification
from lib.parameter_schemas import Model
from lib.paths import ROOT, UserError
from lib.score.confidence import confidence_frame, option_log_odds
from lib.score.interpretation import interpret_responses
from lib.tasks import datasets, prompts
from workflow import ask
from workflow.pipeline import Run

SETTINGS = params.Generation(demonstration="none", max_new_tokens=256)
DATASET = "demo-easy"


def served_spec(model, folder):
    """What its file says of a demo model, known from a server alone."""
    decoding = params.load_model_config(model).model_dump(include={"temperature", "top_p", "top_k", "thinking"})
    return Model(label="Served", responses=f"{folder}/", system_prompt=False, **decoding)


def some_examples(count):
    return datasets.select_examples(datasets.load_examples(params.load_dataset_config(DATASET)), count, 0, DATASET)


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Runs `requests` and `ask` for one model, of which nothing is known but this."""

    def prepare(spec, count):
        monkeypatch.setattr(params, "load_model_config", lambda _: spec)
        values = params.load_profile("demo").model_copy(update={"limit": count, "example": ""}).model_dump()
        run = Run("demo", values | {"models": ["served"], "datasets": [DATASET]})

        def command(verb, **options):
            return ask.main(
                run, SimpleNamespace(**{"verb": verb, "model_name": "", "datasets": [], "concurrent": 4} | options)
            )

        return command

    return prepare


def test_requests_are_the_papers_prompt_and_the_files_decoding(tmp_path, commands):
    """As a reader of OpenAI's documentation would check them, for a file in a folder that is still empty."""
    spec = Model(
        label="S", responses=f"{tmp_path}/", temperature=0.7, top_p=0.9, top_k=20, thinking=True, max_new_tokens=99
    )
    assert commands(spec, 3)("requests", model_name="org/name") == 0
    (path,) = tmp_path.iterdir()
    assert path.name == f"{DATASET}.requests.jsonl"
    lines, asked = list(map(json.loads, path.read_text().splitlines())), some_examples(3)
    assert [line["custom_id"] for line in lines] == [example.example_id for example in asked]
    for line, example in zip(lines, asked, strict=True):
        body = line["body"]
        assert (line["method"], line["url"], body["model"]) == ("POST", "/v1/chat/completions", "org/name")
        assert body["messages"] == prompts.question_messages(example.question, True, "none")
        told = {name: body[name] for name in ("temperature", "top_p", "top_k", "min_p", "max_tokens")}
        assert told == {"temperature": 0.7, "top_p": 0.9, "top_k": 20, "min_p": 0.0, "max_tokens": 99}
        assert body["logprobs"] is True and body["top_logprobs"] == 20 and 0 <= body["seed"] < 2**31
        assert body["chat_template_kwargs"] == {"enable_thinking": True}


def test_a_folder_of_git_does_not_take_the_questions_of_others(monkeypatch):
    spec = Model(label="S", responses="docs/served/")
    monkeypatch.setattr(params, "load_model_config", lambda _: spec)
    of_others = Run("demo", params.load_profile("demo").model_dump() | {"models": ["served"], "datasets": ["gsm8k"]})
    with pytest.raises(
        UserError,
        match="git does not ignore docs/served, and the questions of 'gsm8k' belong to others",
    ):
        ask.main(of_others, SimpleNamespace(verb="requests", model_name="", datasets=[]))
    assert not (ROOT / "docs" / "served").exists()


def test_answers_to_other_requests_are_not_mixed(tmp_path, commands):
    """Decoding that changed after the first answers; a larger number of questions is asked beside the others."""
    spec = Model(label="S", responses=f"{tmp_path}/", system_prompt=False)
    command = commands(spec, 2)
    with faulty(lambda server, number, body: completion(body)) as server:
        command("requests")
        command("ask", url=server.url)
        assert len(server.asked) == 4
        command = commands(spec, 3)
        command("requests")
        command("ask", url=f"{server.url}/v1/")
        assert len(server.asked) == 6 + 4 + 6  # both forms of the first four, too: they had answers
    with pytest.raises(UserError, match="answers 'easy-.*' with another 'temperature': move it away"):
        commands(spec.model_copy(update={"temperature": 0.2}), 3)("requests")


# ---- against the weights


class TheSame:
    """An engine that takes the texts of imported responses."""

    def __init__(self, lm, imported):
        self.lm, self.responses = lm, imported.responses

    def sample(self, asked):
        told = [self.responses[request.example.example_id] for request in asked]
        texts = [Response(one.example_id, text=one.text, finish_reason=one.finish_reason) for one in told]
        return [response_token_ids(self.lm, one) for one in texts]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["tiny-llama", "tiny-qwen"])
def test_a_served_model_gives_the_numbers_of_its_weights(tmp_path, commands, model):
    """Asked by `requests` and `ask` alone, of llama.cpp's server; the weights read the same tokens in one pass."""
    pytest.importorskip("xllamacpp")
    spec, asked = served_spec(model, tmp_path), some_examples(4)
    command = commands(spec, 4)
    with llama_cpp(model, tmp_path) as url:
        for _ in "questions", "verification":
            command("requests")
            command("ask", url=url)
    imported = ImportedResponses.read(spec, DATASET, asked)
    told = read_verification(imported, model)
    found, verified = imported.to_frame(model), told.frame
    lm = models.load_language_model(model, Model(label="x", source=f"demo/models/{model}", dtype="float32",
                                                 system_prompt=False, thinking=spec.thinking))  # fmt: skip
    own = generation.generate_responses(lm, DATASET, asked, SETTINGS, TheSame(lm, imported))
    assert own.prompt_tokens.tolist() == found.prompt_tokens.tolist()
    for a, b in zip(own.token_logprobs, found.token_logprobs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    theirs = p_true.verify_responses(lm, own)
    keys = [*store.KEYS, "estimator"]
    scores = [confidence_frame(interpret_responses(one), two) for one, two in ((own, theirs), (found, verified))]
    a, b = (frame.sort_values(keys, ignore_index=True) for frame in scores)
    assert a[[*keys, "correct"]].equals(b[[*keys, "correct"]]) and set(a.estimator) >= {"p_true", "p_true_insitu"}
    single = ~a.estimator.isin(["p_true", "p_true_insitu"])
    np.testing.assert_allclose(a.confidence[single], b.confidence[single], atol=1e-4)
    np.testing.assert_allclose(a.confidence[~single], b.confidence[~single], atol=1e-3)
    assert told.remarks == [] and verified.in_situ_tokens.tolist() == theirs.in_situ_tokens.tolist()
    assert verified.standard_tokens.tolist() == theirs.standard_tokens.tolist()
    encoded = {form: counts["prompt"] - counts["cached"] for form, counts in told.tokens.items()}
    assert encoded["in_situ"] == 8 * theirs.in_situ_tokens[0] < encoded["verify"]


# ---- P(True) that a server can not give, or gives in part


def verdict_line(name, tops, prompt=90, written="A", **usage):
    content = [
        {"token": written, "logprob": -0.1, "top_logprobs": [{"token": t, "logprob": v} for t, v in tops.items()]}
    ]
    choice = {"message": {"content": written}, "logprobs": {"content": content}, "finish_reason": "length"}
    body = {"choices": [choice], "usage": {"prompt_tokens": prompt} | usage}
    return {"custom_id": name, "response": {"status_code": 200, "body": body}, "error": None}


@pytest.fixture
def answered(tmp_path, commands):
    """Twenty responses of a token of 9 each, and a function that reads verdicts on them."""
    spec = Model(label="S", responses=f"{tmp_path}/", system_prompt=False)
    command, asked = commands(spec, 10), some_examples(10)
    command("requests")

    first = served.read_requests(served.exchange_files(spec, DATASET)[0]).values()

    def respond(text):
        bodies = [completion(one["body"], text) | {"usage": {"prompt_tokens": 40}} for one in first]
        lines = [{"custom_id": one["custom_id"], "response": {"body": body, "status_code": 200}, "error": None}
                 for one, body in zip(first, bodies, strict=True)]  # fmt: skip
        write_lines(spec.responses_to(DATASET), lines)

    respond("#### 7")
    command("requests")
    imported = ImportedResponses.read(spec, DATASET, asked)

    def read(**lines):
        for form, some in lines.items():
            write_lines(served.exchange_files(spec, DATASET, form)[1], some)
        return read_verification(imported, "m")

    return SimpleNamespace(
        read=read,
        names=[one.example_id for one in asked],
        imported=imported,
        spec=spec,
        command=command,
        respond=respond,
    )


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


BOTH = {"A": -0.4, " A": -3.0, "B": -1.5, " B": -4.0, "the": -5.0}
PROBES = [verdict_line(f"{name}#in_situ", BOTH, size) for name, size in zip(served.PROBES, (50, 20), strict=True)]


def test_an_option_is_the_mass_of_its_spellings_or_bounded(answered):
    tops = [BOTH] * 18 + [{"A": -0.01, "the": -6.0}, {"the": -0.1, "a": -2.0}]
    lines = [verdict_line(f"{name}#verify", top) for name, top in zip(answered.names, tops, strict=True)]
    found = answered.read(verify=reversed(lines))  # out of order
    assert found.remarks == [
        "verify: 1 of 20 list no option, or think",
        "verify: 1 of 20 do not list one of the options, which the least one listed bounds",
        "in_situ: 20 of 20 were not answered",
    ]
    frame = found.frame.set_index("example_id")
    odds = option_log_odds(frame.reset_index()).set_index("example_id")
    assert len(frame) == 19 and odds.in_situ_margin.isna().all()
    masses = np.exp(-0.4) + np.exp(-3.0), np.exp(-1.5) + np.exp(-4.0)
    assert odds.standard_margin[answered.names[0]] == pytest.approx(np.log(masses[0] / masses[1]), abs=1e-6)
    assert odds.standard_mass[answered.names[0]] == pytest.approx(sum(masses), abs=1e-6)
    assert odds.standard_margin[answered.names[18]] == pytest.approx(-0.01 + 6.0, abs=1e-6)
    scores = confidence_frame(interpret_responses(answered.imported.to_frame("m")), frame.reset_index())
    assert scores.groupby("estimator").size()["p_true"] == 19 and "p_true_insitu" not in set(scores.estimator)


@pytest.mark.parametrize("other, kept", [(0, 20), (2, 18), (3, 0)])
def test_a_message_that_was_not_continued_is_seen_by_its_tokens(answered, other, kept):
    """40 tokens of the question, 2 of the response, and 30 of the query; a server that caches tells so."""
    sizes = [75] * other + [72] * (20 - other)
    lines = [verdict_line(f"{name}#in_situ", BOTH, size, prompt_tokens_details={"cached_tokens": 41})
             for name, size in zip(answered.names, sizes, strict=True)]  # fmt: skip
    found = answered.read(in_situ=[*PROBES, *lines])
    assert len(found.frame) == found.tokens["in_situ"]["rows"] == kept
    empty = f"in_situ: {20 - kept} of 20 were not continued, by the tokens of their prompts"
    assert (empty in found.remarks) == (kept < 20)
    path = answered.spec.responses_to("d").parent / "verification" / "m__d.parquet"
    frame = store.read_frame(store.write_frame(found.frame, path))
    assert len(frame) == kept
    if kept:
        assert set(frame.in_situ_tokens) == {30} and found.tokens["in_situ"]["cached"] == 41 * kept


def test_a_server_that_was_not_asked_leaves_p_true_empty(answered):
    found = answered.read()
    assert found.remarks == ["its server was not asked, see docs/extending.md"]
    assert option_log_odds(found.frame).standard_mass.isna().all()
    scores = confidence_frame(interpret_responses(answered.imported.to_frame("m")), found.frame)
    assert set(scores.estimator) == {"seq_avg", "seq_joint", "ans_avg", "ans_joint"}


def test_a_model_that_thinks_first_has_no_verdict(answered):
    lines = [verdict_line(f"{name}#verify", BOTH, written="<think>") for name in answered.names]
    found = answered.read(verify=lines)
    assert found.remarks[0] == "verify: 20 of 20 list no option, or think" and found.frame.empty


def test_a_server_that_counts_no_tokens_has_the_standard_form_alone(answered):
    told = {
        form: [verdict_line(f"{name}#{form}", BOTH, 0) for name in answered.names] for form in ("verify", "in_situ")
    }
    found = answered.read(**told)
    assert found.remarks == ["in_situ: 20 of 20 were not continued, by the tokens of their prompts"]
    assert len(found.frame) == 20 and found.frame[["standard_tokens", "in_situ_tokens"]].isna().all(axis=None)


def test_a_model_that_thinks_is_asked_in_situ_by_the_text_of_its_template(tmp_path, commands):
    """As vLLM renders it, and answers in arrays: question, response with its thinking, and query, nothing else."""
    spec = Model(label="S", responses=f"{tmp_path}/", system_prompt=False, thinking=True)
    command, asked = commands(spec, 2), some_examples(2)
    with faulty(like_vllm) as server:
        for _ in "questions", "verification":
            command("requests")
            command("ask", url=server.url)
        sent = [body["prompt"] for body in server.asked if "prompt" in body and not body["add_special_tokens"]]
    questions = [prompts.question_messages(one.question, False, "none")[0]["content"] for one in asked]
    written = "Seven. </think> #### 7" + prompts.QUERY
    assert sorted(sent) == sorted(f"{' '.join(question.split())} {written}" for question in questions)
    found = read_verification(ImportedResponses.read(spec, DATASET, asked), "m")
    assert found.remarks == [] and found.tokens["in_situ"]["cached"] is None
    assert set(found.frame.in_situ_tokens) == {len(prompts.QUERY.split())}
    odds = option_log_odds(found.frame)
    assert odds.in_situ_margin.to_numpy() == pytest.approx([-0.2 + 1.8] * 4, abs=1e-6)
    assert odds.standard_margin.to_numpy() == pytest.approx([-0.2 + 1.8] * 4, abs=1e-6)


REFUSED = {
    "no message": ({"custom_id": "a#verify", "response": {"body": {"choices": [{}]}}}, "line 2: its 'response' is not"),
    "no object": ([], "line 2 must be an object"),
    "a number above 0": (verdict_line("a#verify", {"A": 0.7}), "line 2: 'listed.0.logprob' is 0.7"),
    "twice": (verdict_line("0#verify", BOTH), "line 2: '0#verify' has been answered before"),
}  # fmt: skip


@pytest.mark.parametrize("line, said", REFUSED.values(), ids=REFUSED.keys())
def test_a_line_that_is_no_verdict_is_refused_with_its_number(answered, line, said):
    with pytest.raises(UserError, match=said):
        answered.read(verify=[verdict_line("0#verify", BOTH), line])


def test_verdicts_on_other_responses_are_refused(answered):
    lines = [verdict_line(f"{name}#verify", BOTH) for name in answered.names]
    answered.read(verify=lines)
    answered.respond("#### 8")
    again = ImportedResponses.read(answered.spec, DATASET, some_examples(10))
    with pytest.raises(UserError, match="answers '.*#verify' with another 'messages': move it away to ask again"):
        read_verification(again, "m")
    with pytest.raises(UserError, match="answers '.*#verify' with another 'messages'"):
        answered.command("requests")


# ---- a calibrated number


@pytest.mark.parametrize("form", [dict, json.dumps, lambda body: json.dumps(body).encode()])
def test_a_response_gets_the_number_that_the_file_says(form):
    """By hand: the estimator on the tokens, and the line through the two nearest knots of the isotonic map."""
    body = completion({"max_tokens": 9}, "That is #### 7")
    for token, value in zip(body["choices"][0]["logprobs"]["content"], (-0.1, -0.3, -0.05, -0.2), strict=True):
        token["logprob"] = value
    for estimator, raw in ("seq_avg", np.exp([-0.1, -0.3, -0.05, -0.2]).mean()), ("ans_avg", np.exp(-0.2)):
        name = f"qwen2.5-coder-1.5b__gsm8k__{estimator}__isotonic"
        learned = json.loads((CALIBRATORS / f"{name}.json").read_text())
        knots = learned["attributes"]
        found = score(form(body), name)
        assert found.raw == pytest.approx(raw)
        assert found.calibrated == pytest.approx(np.interp(raw, knots["x_"], knots["y_"]))
        assert found.fitted_on["n"] == 300 and found.fitted_on["ece_calibrated"] < found.fitted_on["ece"]
        assert "on GSMHard" in found.fitted_on["elsewhere"]


def test_what_can_not_be_scored_is_one_line():
    body = completion({"max_tokens": 9})
    with pytest.raises(UserError, match="there is no calibrator 'qwen'; did you mean|there is"):
        score(body, "qwen")
    body["choices"][0]["logprobs"] = None
    with pytest.raises(UserError, match="has no log-probabilities"):
        score(body, "qwen2.5-coder-1.5b__gsm8k__seq_avg__isotonic")


def test_the_shipped_calibrators_are_those_of_the_shipped_signals():
    from docs.tables import calibrators

    made = {path: path.read_bytes() for path in CALIBRATORS.glob("*.json")}
    assert len(made) == 12 and sum(map(len, made.values())) < 20_000
    calibrators.main()
    assert {path: path.read_bytes() for path in CALIBRATORS.glob("*.json")} == made
