"""A model that only a server has: its requests, and the demo models behind llama.cpp's server
against their weights."""

import gc
import json
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_gguf
from served import DATASET, TOPS, Served, batch_line, completion, of_questions, right

from lib import params, store
from lib.calibrate.one_response import CALIBRATORS, score
from lib.errors import UserError
from lib.generate import generation, p_true
from lib.generate.engines.file_engine import response_token_ids
from lib.models import loading
from lib.paths import ROOT
from lib.responses import served_p_true
from lib.responses.formats import Response
from lib.score.confidence import confidence_frame, option_log_odds
from lib.score.interpretation import interpret_responses
from lib.tasks import prompts
from workflow.serving import batch_files

KEYS = [*store.KEYS, "estimator"]


def test_requests_are_the_papers_prompt_and_the_files_decoding(tmp_path):
    """As a reader of OpenAI's documentation would check them, for a file in a folder that is still
    empty. What is off is not sent."""
    decoding = {"temperature": 0.7, "top_p": 0.9, "top_k": 20}
    model = Served(tmp_path, 3, **decoding, thinking=True, max_new_tokens=99, system_prompt=True)
    model.write_requests("org/name")
    (path,) = tmp_path.iterdir()
    assert path.name == f"{DATASET}.requests.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line, example in zip(lines, model.examples, strict=True):
        body = line.pop("body")
        assert line == {
            "custom_id": example.example_id,
            "method": "POST",
            "url": "/v1/chat/completions",
        }
        assert 0 <= body.pop("seed") < 2**31
        assert body == decoding | {
            "messages": prompts.question_messages(example.question, True, "none"),
            "model": "org/name",
            "max_tokens": 99,
            "logprobs": True,
            "top_logprobs": 1,
            "chat_template_kwargs": {"enable_thinking": True, "thinking": True},
        }


def test_a_plain_model_is_sent_seven_fields_and_one_token_requests_list_twenty(tmp_path):
    model = Served(tmp_path, 1)
    requests, _ = model.ask_fake(right)
    fields = {"model", "messages", "max_tokens", "temperature", "logprobs", "top_logprobs"}
    questions = of_questions(requests)
    assert len(questions) == 2
    for request in questions:
        assert request.body.keys() == fields | {"seed"}
        assert request.body["top_logprobs"] == 1
    for name in model.requests("verify"):
        body = model.requests("verify")[name]["body"]
        assert body.keys() == fields
        assert (body["max_tokens"], body["temperature"], body["top_logprobs"]) == (1, 0.0, 20)


def test_a_model_whose_template_takes_no_system_message_is_never_sent_one(tmp_path):
    """Neither with a question, nor with its check, nor to count the tokens of the query."""
    requests, _ = Served(tmp_path, 2, system_prompt=False).ask_fake(right)
    roles = set()
    for request in requests:
        roles.update(message["role"] for message in request.body["messages"])
    assert roles == {"user", "assistant"}


def test_request_of_the_models_file_is_merged_into_every_body(tmp_path):
    """Null removes a field, one inside another is added to it, and a request for one token stays
    one, whatever the limit is called."""
    changes = {"seed": None, "max_tokens": None, "max_completion_tokens": 1024}
    changes["provider"] = {"only": ["a"]}
    model = Served(tmp_path, 2, request=changes, thinking=True)
    model.write_requests()
    for request in model.requests().values():
        body = request["body"]
        assert "seed" not in body and "max_tokens" not in body
        assert (body["max_completion_tokens"], body["provider"]) == (1024, {"only": ["a"]})
    model.respond("Seven. </think> #### 7")
    model.write_requests()
    for form in served_p_true.VERIFICATIONS:
        for request in model.requests(form).values():
            assert request["body"]["max_completion_tokens"] == 1
            assert "max_tokens" not in request["body"]
            assert request["body"]["provider"] == {"only": ["a"]}


def test_models_share_no_folder_and_git_takes_no_questions_of_others(tmp_path, monkeypatch):
    model = Served("docs/served")
    batch_files.check_folders(model.run)  # the demo's questions belong to the project
    model.run.values["datasets"] = ["gsm8k"]
    of_others = "git does not ignore docs/served, and the questions of 'gsm8k' belong to"
    with pytest.raises(UserError, match=of_others):
        model.write_requests()
    published = params.load_dataset_config("gsm8k")
    without_files = published.model_copy(update={"files": {}})
    monkeypatch.setattr(batch_files.params, "load_dataset_config", lambda name: without_files)
    with pytest.raises(UserError, match=of_others):
        model.write_requests()
    assert not (ROOT / "docs" / "served").exists()
    monkeypatch.undo()
    both = Served(tmp_path).run
    both.values["models"] = ["served", "other"]
    both.specs["other"] = both.specs["served"]
    with pytest.raises(UserError, match="models 'served' and 'other' have the same `responses`"):
        batch_files.check_folders(both)


def test_answers_to_other_requests_are_not_mixed(tmp_path):
    """A larger number of questions is asked beside the others; decoding that changed, or a
    response, is not."""
    few, more = Served(tmp_path, 2), Served(tmp_path, 3)
    # four questions, both forms of each, and two prompts beside
    assert len(few.ask_fake(right)[0]) == 4 + 8 + 2
    assert len(more.ask_fake(right)[0]) == 2 + 4
    assert served_p_true.read_verification(few.imported(), "m").remarks == []
    for facts, name in (
        ({"temperature": 0.2}, "temperature"),
        ({"top_p": 0.9}, "top_p"),  # which was off, and so not sent
        ({"request": {"stop": ["x"]}}, "stop"),
    ):
        with pytest.raises(
            UserError, match=f"answers 'easy-.*' with another '{name}': move it away"
        ):
            Served(tmp_path, 3, **facts).write_requests()
    renamed = {"seed": None, "max_tokens": None, "max_completion_tokens": 256}
    Served(tmp_path, 3, request=renamed).write_requests()  # it changes no answer
    few.respond("#### 8")
    for read in (
        (lambda: served_p_true.read_verification(few.imported(), "m")),
        (lambda: few.write_requests()),
    ):
        with pytest.raises(
            UserError,
            match="answers '.*#verify' with another 'messages': move it away to ask again",
        ):
            read()


# ---- against the weights


def serve_with_llama_cpp(model, folder):
    """llama.cpp's server of a demo model in float32, with a cache in float32, and without flash
    attention."""
    import xllamacpp

    options = xllamacpp.CommonParams()
    options.model.path = str(tiny_gguf.write(folder / "model.gguf", model))
    options.hostnames, options.port = ["127.0.0.1"], 0
    options.n_ctx, options.n_parallel, options.cpuparams.n_threads = 4096, 4, 1
    options.cache_type_k = options.cache_type_v = xllamacpp.xllamacpp.ggml_type(0)
    options.flash_attn_type = xllamacpp.xllamacpp.llama_flash_attn_type(0)
    return xllamacpp.Server(options)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen"])
def test_a_served_model_gives_the_numbers_of_its_weights(tmp_path, name):
    """Asked by the command alone; the weights read the same texts in one pass."""
    pytest.importorskip("xllamacpp")
    spec = params.load_model_config(name)
    model = Served(
        tmp_path, 4, **spec.model_dump(include={"temperature", "top_p", "top_k", "thinking"})
    )
    server = serve_with_llama_cpp(name, tmp_path)
    outcome = model.ask(server.listening_address)
    assert not outcome.missing
    del server
    gc.collect()  # which ends it

    imported = model.imported()
    served_verdicts = served_p_true.read_verification(imported, name)
    served_frame = imported.to_frame(name)
    lm = loading.load_language_model(
        name, spec.model_copy(update={"dtype": "float32", "system_prompt": False})
    )

    def the_same(requests):
        responses = [imported.responses[request.example.example_id] for request in requests]
        token_ids = []
        for response in responses:
            without_tokens = Response(
                response.example_id, text=response.text, finish_reason=response.finish_reason
            )
            token_ids.append(response_token_ids(lm, without_tokens))
        return token_ids

    settings = params.Generation(demonstration="none", max_new_tokens=256)
    frame_of_weights = generation.generate_responses(
        lm, DATASET, model.examples, settings, SimpleNamespace(sample=the_same)
    )
    theirs = p_true.verify_responses(lm, frame_of_weights)
    assert frame_of_weights.prompt_tokens.tolist() == served_frame.prompt_tokens.tolist()
    for a, b in zip(frame_of_weights.token_logprobs, served_frame.token_logprobs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)

    def scores_of(responses, verification):
        scores = confidence_frame(interpret_responses(responses), verification)
        return scores.sort_values(KEYS, ignore_index=True)

    a = scores_of(frame_of_weights, theirs)
    b = scores_of(served_frame, served_verdicts.frame)
    assert a[[*KEYS, "correct"]].equals(b[[*KEYS, "correct"]])
    verdicts = ["p_true", "p_true_insitu"]
    assert set(a.estimator) >= set(verdicts)
    tolerance = np.where(a.estimator.isin(verdicts), 1e-3, 1e-4)
    assert (np.abs(a.confidence - b.confidence) < tolerance).all()
    for column in "in_situ_tokens", "standard_tokens":
        assert served_verdicts.frame[column].tolist() == theirs[column].tolist()
    assert served_verdicts.remarks == []
    encoded = {}
    for form, counts in served_verdicts.tokens.items():
        encoded[form] = counts["prompt"] - counts["cached"]
    assert encoded["in_situ"] == 8 * theirs.in_situ_tokens[0] < encoded["verify"]


# ---- P(True) that a server can not give, or gives in part

BOTH = {"A": -0.4, " A": -3.0, "B": -1.5, " B": -4.0, "the": -5.0}


@pytest.fixture
def answered(tmp_path):
    """A model with twenty responses of two tokens to prompts of forty."""
    model = Served(tmp_path)
    model.write_requests()
    model.respond("#### 7")
    model.write_requests()
    return model


def verification_of(model, **verdicts):
    """What verdicts say: of each form a completion by name."""
    for form, bodies in verdicts.items():
        lines = [batch_line(f"{name}#{form}", body) for name, body in bodies.items()]
        model.answers(form).write_text("".join(reversed(lines)))
    return served_p_true.read_verification(model.imported(), "m")


def test_an_option_is_the_mass_of_its_spellings_or_bounded(answered, tmp_path):
    nothing = verification_of(answered)
    assert nothing.remarks == ["its server was not asked, see docs/extending.md"]
    path = tmp_path / "verification" / "m__d.parquet"
    assert store.read_frame(store.write_frame(nothing.frame, path)).empty
    bodies = [completion("A", BOTH)] * 14
    for tops in ({"A": -0.01, "the": -6.0}, {"A": -0.3}, {"A": -0.01, "the": -4.7}, {"A": 0.0}):
        bodies.append(completion("A", tops))  # B is not listed
    bodies.append(completion("A", {"the": -0.1}))
    bodies.append(completion("<think>", BOTH))
    verdicts = dict(zip(answered.names(), bodies, strict=True))
    verification = verification_of(answered, verify=verdicts)
    assert verification.remarks == [
        "verify: 2 of 20 list no option, or think",
        "verify: 4 of 20 do not list one of the options, which those listed bound",
        "in_situ: 20 of 20 were not answered",
    ]
    odds = option_log_odds(verification.frame)
    mass_of_a = np.exp([-0.4, -3.0]).sum()
    mass_of_b = np.exp([-1.5, -4.0]).sum()
    both_listed = np.log(mass_of_a / mass_of_b)
    one_listed = [
        -0.01 + 6.0,  # B is at most the least one listed
        -0.3 - np.log(1 - np.exp(-0.3)),  # or what they leave of 1
        -0.01 - np.log(1 - np.exp(-0.01) - np.exp(-4.7)),  # the same, though the least is there
        -np.log(2**-23),  # a float32's rounding
    ]
    margins = odds.standard_margin.tolist()
    assert margins[:14] == pytest.approx([both_listed] * 14, abs=1e-6)
    assert margins[14:] == pytest.approx(one_listed, abs=1e-6)
    assert odds.in_situ_margin.isna().all()
    assert odds.standard_mass[0] == pytest.approx(mass_of_a + mass_of_b, abs=1e-6)
    responses = interpret_responses(answered.imported().to_frame("m"))
    counts = confidence_frame(responses, verification.frame).groupby("estimator").size()
    assert counts["p_true"] == 18
    assert "p_true_insitu" not in counts


@pytest.mark.parametrize("sizes, continued", [
    ([72] * 20, 20), ([75] * 2 + [72] * 18, 18), ([75] * 3 + [72] * 17, 0), ([0] * 20, 0),
])  # fmt: skip
def test_a_message_that_was_not_continued_is_seen_by_its_tokens(
    answered, tmp_path, sizes, continued
):
    """40 tokens of the question, 2 of the response, and 30 of the query; a server may cache, or
    count no tokens."""
    in_situ = {}
    names = [*served_p_true.PROBES, *answered.names()]
    for name, size in zip(names, [50, 20, *sizes], strict=True):
        details = {"cached_tokens": 41}
        in_situ[name] = completion("A", BOTH, size, prompt_tokens_details=details)
    standard = dict.fromkeys(answered.names(), completion("A", BOTH, sizes[-1]))
    verification = verification_of(answered, verify=standard, in_situ=in_situ)
    lost = f"in_situ: {20 - continued} of 20 were not continued, by the tokens of their prompts"
    assert verification.remarks == ([lost] if continued < 20 else [])
    path = tmp_path / "verification" / "m__d.parquet"
    frame = store.read_frame(store.write_frame(verification.frame, path))
    tokens = frame.in_situ_tokens.fillna(0).tolist()
    assert tokens[: 20 - continued] == [0] * (20 - continued)
    assert tokens[20 - continued :] == [30] * continued
    assert frame.standard_tokens.fillna(0).tolist() == [sizes[-1]] * 20
    counts = {"rows": continued, "prompt": 72 * continued, "cached": 41 * continued}
    assert verification.tokens["in_situ"] == counts


def like_vllm(request):
    """What vLLM answers for a model that thinks: its tokens are words, and its template joins the
    messages."""
    body = request.body
    match request.path:
        case "/v1/chat/completions":
            return right(request, "Seven. </think> #### 7")
        case "/tokenize":
            text = " ".join(message["content"] for message in body["messages"])
            return {"tokens": text.split()}
        case "/detokenize":
            return {"prompt": " ".join(body["tokens"]) + " "}
        case "/v1/completions":
            arrays = {
                "tokens": ["A"],
                "token_logprobs": [-0.2],
                "top_logprobs": [TOPS],
                "text_offset": [],
            }
            usage = {"prompt_tokens": len(body["prompt"].split())}
            return {
                "choices": [{"text": "A", "logprobs": arrays, "finish_reason": "length"}],
                "usage": usage,
            }
    return 404, {}, b"{}"


def test_a_model_that_thinks_is_asked_in_situ_by_the_text_of_its_template(tmp_path):
    """As vLLM renders it, and answers in arrays: question, response with its thinking, and query,
    nothing else."""
    model = Served(tmp_path, 2, thinking=True)
    requests, outcome = model.ask_fake(like_vllm)
    assert not outcome.missing
    sent = [
        request.body["prompt"]
        for request in requests
        if request.path == "/v1/completions" and not request.body["add_special_tokens"]
    ]
    templates = [
        request.body.get("chat_template_kwargs")
        for request in requests
        if request.path == "/v1/chat/completions"
    ]
    at_once = {"enable_thinking": False, "thinking": False}
    assert templates.count(at_once) == 4, "the standard prompt is answered at once"
    written = "Seven. </think> #### 7" + prompts.QUERY
    expected = []
    for example in model.examples:
        (message,) = prompts.question_messages(example.question, False, "none")
        question = " ".join(message["content"].split())
        expected.append(f"{question} {written}")
    assert sorted(sent) == sorted(expected)
    verification = served_p_true.read_verification(model.imported(), "m")
    assert verification.remarks == []
    assert verification.tokens["in_situ"]["cached"] is None
    assert set(verification.frame.in_situ_tokens) == {len(prompts.QUERY.split())}
    margins = option_log_odds(verification.frame)[["in_situ_margin", "standard_margin"]]
    np.testing.assert_allclose(margins, -0.2 + 1.8, atol=1e-6)


# ---- a calibrated number


def test_a_response_gets_the_number_that_the_file_says():
    """By hand: the estimator on the tokens, and the line through the two nearest knots of the
    isotonic map."""
    body = completion("That is #### 7")
    logprobs = [-0.1, -0.3, -0.05, -0.2]
    for token, value in zip(body["choices"][0]["logprobs"]["content"], logprobs, strict=True):
        token["logprob"] = value
    raw_scores = {"seq_avg": np.exp(logprobs).mean(), "ans_avg": np.exp(-0.2)}
    for estimator, raw in raw_scores.items():
        name = f"qwen2.5-coder-1.5b__gsm8k__{estimator}__isotonic"
        knots = json.loads((CALIBRATORS / f"{name}.json").read_text())["attributes"]
        for response in body, json.dumps(body), json.dumps(body).encode():
            scored = score(response, name)
            assert scored.raw == pytest.approx(raw)
            assert scored.calibrated == pytest.approx(np.interp(raw, knots["x_"], knots["y_"]))
            fitted_on = scored.fitted_on
            assert fitted_on["n"] == 290
            assert fitted_on["ece_calibrated"] < fitted_on["ece"]
            assert "on GSMHard" in fitted_on["elsewhere"]
    body["choices"][0]["logprobs"] = None
    for calibrator, message in (
        (name, "has no log-probabilities"),
        ("qwen", "there is no calibrator 'qwen'; "),
    ):
        with pytest.raises(UserError, match=message):
            score(body, calibrator)


def responses_api(completion):
    """The same as OpenAI's Responses API has it."""
    (choice,) = completion["choices"]
    text = choice["message"]["content"]
    part = {"type": "output_text", "text": text, "logprobs": choice["logprobs"]["content"]}
    message = {"type": "message", "role": "assistant", "content": [part]}
    return {"object": "response", "status": "completed", "output": [message]}


def test_a_response_of_the_responses_api_gets_the_same_number():
    """Cut by length, refused and withheld as well."""
    name = "qwen2.5-coder-1.5b__gsm8k__seq_avg__isotonic"
    body = responses_api(completion("That is #### 7"))
    same = score(completion("That is #### 7"), name)
    assert same.parsed
    for response in body, json.dumps(body), SimpleNamespace(model_dump=lambda: body):
        assert score(response, name) == same
    (message,) = body["output"]
    cut = {"incomplete_details": {"reason": "max_output_tokens"}, "status": "incomplete"}
    without = responses_api(completion("That is seven"))
    refusal = [{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}]
    reasons = [
        (without | cut, "cut by length"),
        (without, "no answer"),
        (body | {"output": refusal}, "refusal"),
        (body | {"output": [{"type": "function_call", "name": "f"}]}, "tool call"),
    ]
    for response, reason in reasons:
        scored = score(response, name)
        assert (scored.calibrated, scored.reason) == (0, reason)
    message["content"][0]["logprobs"] = []
    with pytest.raises(UserError, match="Responses API with `include:"):
        score(body, name)
    with pytest.raises(UserError, match="not one chat completion"):
        score(body | {"output": [{"type": "message"}]}, name)


def test_log_probabilities_that_are_all_zero_get_no_number():
    """Ten of them, by speculative decoding. Fewer are certain, as far as one can tell."""
    body = completion("a b c d e f g h #### 7")
    name = "qwen2.5-coder-1.5b__gsm8k__seq_avg__isotonic"
    content = body["choices"][0]["logprobs"]["content"]
    for token in content:
        token["logprob"] = 0.0
    with pytest.raises(UserError, match="the log-probabilities of all 10 tokens are 0: a server"):
        score(body, name)
    content[3]["logprob"] = -1e-4
    assert score(body, name).raw == pytest.approx(1 - 1e-5, abs=1e-6)
    body["choices"][0]["message"]["content"] = "a b c e f g h #### 7"
    del content[3]
    assert score(body, name).raw == 1


def test_the_shipped_calibrators_are_those_of_the_shipped_signals(tmp_path, monkeypatch):
    from docs.tables import calibrators

    monkeypatch.setattr(calibrators, "CALIBRATORS", tmp_path)
    calibrators.main()
    shipped = {path.name: path.read_bytes() for path in CALIBRATORS.glob("*.json")}
    fitted = {path.name: path.read_bytes() for path in tmp_path.glob("*.json")}
    assert fitted == shipped
    assert len(shipped) == 12
    assert sum(map(len, shipped.values())) < 20_000
