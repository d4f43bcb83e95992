"""P(True): in situ against a plain re-encode and a continued cache, prompts as in the figure, tokens saved."""

import re

import architectures
import numpy as np
import pandas as pd
import pytest
import torch
from architectures import SETTINGS, examples, respond
from realmodels import FOLDERS
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers import models as tokenizer_models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from lib import params, store
from lib.generate import checkpoint, generation, models, p_true
from lib.generate.models import LanguageModel
from lib.params import Generation, Verification
from lib.paths import UserError
from lib.score import confidence, estimators
from lib.tasks import prompts

CAKE = (
    "Mary is baking a cake. The recipe calls for 6 cups of flour, 8 cups of sugar, and 7 cups of salt. She "
    "already put in 5 cups of flour. How many more cups of sugar than cups of salt does she need to add now?"
)
SOLVED = (
    "To solve this problem, let's break it down step by step:\n1. The recipe calls for 8 cups of sugar and 7 "
    "cups of salt.\n2. Difference = 8 - 7 = 1.\n\n#### 1"
)


SLOW = (pytest.param(name, marks=pytest.mark.slow) for name in ("tiny-qwen", "mistral"))


@pytest.fixture(scope="module", params=["tiny-llama", "gpt2", *SLOW])
def any_lm(request):
    return architectures.load(request.param)


def prompt_ids(lm):
    """Six prompts of unequal lengths, of two difficulties."""
    asked = [*examples("demo-easy", 3), *examples("demo-hard", 3)]
    texts = [generation.solving_prompt(lm, e.question, "one" if i == 1 else "none") for i, e in enumerate(asked)]
    return [models.encode(lm, text) for text in texts]


def drawn(lm, most):
    """A generations frame of unequal prompts and of responses of at most so many tokens."""
    settings = SETTINGS.model_copy(update={"max_new_tokens": most})
    asked = [*examples("demo-easy", 3), *examples("demo-hard", 3)]
    return generation.generate_responses(lm, "demo-mixed", asked, settings)


@torch.inference_mode()
def plain(lm, ids):
    """Option logits and log-partition after unpadded token ids, by one forward pass without a cache."""
    logits = lm.model(torch.tensor([ids])).logits[0, -1]
    return logits[list(p_true.option_tokens(lm).values())].numpy(), float(logits.double().logsumexp(-1))


def assert_plain(lm, frame):
    """In-situ verdicts of 01, and those on a cache that is continued, are those of a plain forward pass."""
    query = models.encode(lm, prompts.QUERY)
    for row in frame.itertuples():
        body = [t for t in row.token_ids if t not in lm.eos]
        logits, logz = plain(lm, models.encode(lm, row.prompt) + body + query)
        np.testing.assert_allclose(row.in_situ_logits, logits, atol=1e-4)
        assert abs(row.in_situ_logz - logz) < 1e-4
        verdict, before = p_true.ask_in_situ_on_cache(lm, row)
        np.testing.assert_allclose(verdict["logits"], logits, atol=1e-4)
        assert abs(verdict["logz"] - logz) < 1e-4 and verdict["seconds"] > 0 < before


def test_no_row_is_blind_where_tokens_are_fixed(any_lm, monkeypatch):
    """Every query of attention sees a key: a kernel may make a NaN of one that sees none."""
    blind, attention = [], torch.nn.functional.scaled_dot_product_attention

    def spied(*states, attn_mask=None, **more):
        if attn_mask is not None:
            seen = attn_mask if attn_mask.dtype == torch.bool else attn_mask > torch.finfo(attn_mask.dtype).min / 2
            blind.append(int((~seen.any(-1)).sum()))
        return attention(*states, attn_mask=attn_mask, **more)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spied)
    p_true.encode_and_ask(any_lm, prompt_ids(any_lm))
    assert not sum(blind)


def test_logits_that_are_not_finite_are_refused_with_the_row(any_lm):
    """In 01, and in both verdicts of 03: never a token V, never a NaN."""
    asked, frame = examples("demo-easy", 3), respond(any_lm, 3, "demo-easy")

    def spoil(module, inputs, logits):
        return logits.index_fill(0, torch.tensor(0), torch.nan)

    refused = r"model '.*': the logits of row \S+ are not finite \(1 of . rows; float32, sdpa attention\)"
    with any_lm.model.get_output_embeddings().register_forward_hook(spoil):
        for work in (
            lambda: generation.generate_responses(any_lm, "demo-easy", asked, SETTINGS),
            lambda: p_true.verify_responses(any_lm, frame, Verification()),
        ):
            with pytest.raises(UserError, match=refused) as problem:
                work()
            assert any(f"row {e.example_id} are" in str(problem.value) for e in asked)


def test_in_situ_is_a_full_encode_and_a_continued_cache(any_lm):
    """Unequal prompts, rows that finish early, a row that ends with the batch, rows cut by length."""
    lengths = sorted(map(len, drawn(any_lm, 100).token_ids))
    assert lengths[0] < lengths[-1], "some row must finish early"
    for most in (lengths[len(lengths) // 2], 1):
        frame = drawn(any_lm, most)
        assert most == 1 or set(frame.eos) == {0, 1}, "some ended, some cut"
        assert_plain(any_lm, frame)


def test_a_thinking_block_is_part_of_the_trajectory():
    lm = architectures.load("tiny-qwen")
    frame = drawn(lm, 200)
    assert frame.text.str.contains("</think>").any()
    assert_plain(lm, frame)


def test_the_standard_prompt_is_asked_whole(any_lm):
    frame = respond(any_lm, 5, "demo-easy", max_new_tokens=30)
    query = len(models.encode(any_lm, prompts.QUERY))
    for row in p_true.verify_responses(any_lm, frame, Verification(), max_batch_tokens=500).itertuples():
        ids = models.encode(any_lm, row.standard_prompt)
        logits, logz = plain(any_lm, ids)
        np.testing.assert_allclose(row.standard_logits, logits, atol=1e-5)
        assert abs(row.standard_logz - logz) < 1e-5
        assert (row.standard_tokens, row.in_situ_tokens) == (len(ids), query)


# ---- the prompts


@pytest.fixture(params=FOLDERS.values())
def real(request, shared):
    """A real tokenizer with its chat template, without a model."""
    tokenizer = AutoTokenizer.from_pretrained(shared / "tokenizers" / request.param)
    checkpoint.set_padding(tokenizer)
    thinking = request.param in ("Qwen3-8B", "DeepSeek-R1-Distill-Llama-8B")
    spec = params.load_model_config("tiny-llama").model_copy(
        update={"thinking": thinking, "system_prompt": True, "date_string": "26 Jul 2024"}
    )
    return LanguageModel(request.param, spec, None, tokenizer, [], {})


def figures(shared):
    """(system, user) contents in the paper's figures, by name, line wraps and indentation undone."""
    text = (shared / "paper" / "paper.tex").read_text(encoding="utf-8")
    listings = re.findall(r"\\begin\{lstlisting\}\[style=promptstyle\]\n(.*?)\\end\{lstlisting\}", text, re.S)
    found = {}
    for listing in listings:
        turns = re.split(r"<\|start_header_id\|>(\w+)<\|end_header_id\|>", listing)[1:]
        name = "standard" if "Proposed answer" in listing else "in situ" if "proposed answer" in listing else "solve"
        found[name] = {role: " ".join(words.split()) for role, words in zip(turns[::2], turns[1::2], strict=True)}
    return found


def words(text):
    return " ".join(text.split())


def test_a_few_demonstrations_are_a_conversation():
    roles = [message["role"] for message in prompts.question_messages(CAKE, demonstration="few")]
    assert roles == ["system", *["user", "assistant"] * len(prompts.WORKED), "user"]


def test_prompts_are_the_figures(real, shared):
    drawn = figures(shared)
    solve, verify = prompts.question_messages(CAKE), prompts.verification_messages(CAKE, SOLVED)
    assert words(solve[0]["content"]) == drawn["solve"]["system"] == words(verify[0]["content"])
    assert words(solve[1]["content"]) == drawn["solve"]["user"] == drawn["in situ"]["user"]
    assert words(verify[1]["content"]) == drawn["standard"]["user"]
    assert drawn["in situ"]["assistant"].endswith(words(prompts.QUERY))
    for form in ("template", "as_drawn"):
        text = p_true.standard_prompt(
            real, CAKE, "Hm.\n</think>\n\n" * real.spec.thinking + SOLVED, Verification(standard_prompt=form)
        )
        assert verify[1]["content"] in text and verify[0]["content"] in text
        assert prompts.DEMONSTRATION not in text and prompts.INSTRUCTION not in text
        assert text.endswith(prompts.QUERY) == (form == "as_drawn")
        assert text.count("<think>") == text.count("</think>"), "A or B inside an open thinking block means nothing"


def test_one_beginning_of_sequence_and_options_of_one_token(real):
    bos = real.tokenizer.bos_token_id if "Qwen" not in real.name else None
    for text in (
        generation.solving_prompt(real, CAKE, "one"),
        p_true.standard_prompt(real, CAKE, SOLVED, Verification()),
    ):
        ids = models.encode(real, text)
        assert ids.count(bos) == (bos is not None)
    found = p_true.option_tokens(real)
    assert set(found) == {space + word for word in p_true.OPTION_WORDS for space in ("", " ")}
    assert len(set(found.values())) == 8
    for spelling, index in found.items():
        assert real.tokenizer.decode([index]) == spelling
    for word in p_true.OPTION_WORDS:  # in these vocabularies, encoding the word alone finds the same tokens
        assert models.encode(real, word) == [found[word]] and models.encode(real, " " + word) == [found[" " + word]]
    assert p_true.balanced_spellings(real) == {
        "A/B": "'A', ' A' against 'B', ' B'",
        "True/False": "'True', ' True' against 'False', ' False'",
    }
    assert 30 <= len(models.encode(real, prompts.QUERY)) <= 40


LLAMA2 = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *":\u2581"]
MARK = {"bytes": "\u0120", "metaspace": "\u2581"}  # how they write a space


def made(kind, *pieces):
    """A model without weights whose vocabulary holds `pieces` beside what every one of its kind holds; that."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet()) if kind == "bytes" else LLAMA2
    pieces = [piece.replace(" ", MARK[kind]) for piece in pieces]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys([*alphabet, *pieces]))}
    merges = [tuple(piece) for piece in pieces if len(piece) == 2 and set(piece) <= set(vocabulary)]
    if kind == "bytes":  # as GPT-2, Llama 3, Qwen: every byte is a token
        tokenizer = Tokenizer(tokenizer_models.BPE(vocabulary, merges))
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(False), decoders.ByteLevel()
    else:  # as Llama 2 and llama2.c: every text is opened with a space, bytes stand for what no token writes
        tokenizer = Tokenizer(tokenizer_models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    return LanguageModel("made", params.load_model_config("tiny-llama"), None, fast, [], {}), vocabulary


@pytest.mark.parametrize(("kind", "pieces", "written", "counts"), [
    ("bytes", [" A", " B"], ["A", " A", "B", " B"], "'A', ' A' against 'B', ' B'"),
    ("bytes", [" B"], ["A", "B", " B"], "'A' against 'B'"),
    ("bytes", [" A", "AB"], ["A", " A", "B"], "'A' against 'B'"),
    ("metaspace", ["A", "B", " A", " B"], ["A", " A", "B", " B"], "'A', ' A' against 'B', ' B'"),
    ("metaspace", ["A", "B", " B"], ["A", "B", " B"], "'A' against 'B'"),
    ("metaspace", ["A", " A", " B"], ["A", " A", " B"], "' A' against ' B'"),
])  # fmt: skip
def test_spellings_are_the_vocabularys_own(kind, pieces, written, counts):
    """By what a token writes in place, whatever encoding the bare word gives; only forms of both options count."""
    lm, vocabulary = made(kind, *pieces)
    assert p_true.option_tokens(lm) == {spelling: vocabulary[spelling.replace(" ", MARK[kind])] for spelling in written}
    assert p_true.balanced_spellings(lm) == {"A/B": counts}  # True and False are no tokens here


@pytest.mark.parametrize(("pieces", "said"), [
    (["B", " B"], "the option 'A' is not a single token of the vocabulary"),
    (["A", " A"], "the option 'B' is not a single token of the vocabulary; there is: A$"),
    (["A", " B"], "the options A/B have no spelling of the same form as single tokens, only 'A' and ' B'"),
])  # fmt: skip
def test_options_that_cannot_be_compared_are_refused(pieces, said):
    lm, _ = made("metaspace", *pieces)
    with pytest.raises(UserError, match=f"model 'made': {said}"):
        p_true.option_tokens(lm)


# ---- reading


def verified(logits, spellings=("A", " A", "B", " B")):
    row = {"model": "m", "dataset": "d", "split": "evaluation", "example_id": "1", "spellings": list(spellings)}
    for variant in confidence.MARGINS:
        row |= {f"{variant}_logits": np.float32(logits), f"{variant}_logz": float(np.log(np.exp(logits).sum() + 10))}
    return pd.DataFrame([row])


def test_every_spelling_counts():
    logits = [1.0, 2.0, 0.5, -1.0]
    read = confidence.option_log_odds(verified(logits)).iloc[0]
    a, b = np.exp(1) + np.exp(2), np.exp(0.5) + np.exp(-1)
    assert read.standard_margin == pytest.approx(np.log(a / b), abs=1e-6)
    assert read.in_situ_mass == pytest.approx((a + b) / (a + b + 10), abs=1e-6)
    assert estimators.p_true(read.standard_margin) == pytest.approx(a / (a + b), abs=1e-6)
    other = confidence.option_log_odds(verified(logits, ("A", "True", "B", "False")), "True/False").iloc[0]
    assert other.standard_margin == pytest.approx(3.0, abs=1e-6)
    with pytest.raises(UserError, match="'False' is not a single token"):
        confidence.option_log_odds(verified(logits), "B/False")


def test_only_forms_that_both_options_have_are_counted():
    """Bare A against bare B: .314; with the ` B` that has no counterpart it would be .015."""
    logits = [np.log(0.314), np.log(0.686), np.log(0.314 / 0.015 - 1)]
    read = confidence.option_log_odds(verified(logits, ("A", "B", " B"))).iloc[0]
    assert estimators.p_true(read.in_situ_margin) == pytest.approx(0.314, abs=1e-6)
    assert read.in_situ_mass == pytest.approx(1 / (np.exp(logits).sum() + 10), abs=1e-6)
    spaced = confidence.option_log_odds(verified([0.0, 1.0, 3.0, 9.0], (" A", "A", " B", "True"))).iloc[0]
    assert spaced.standard_margin == pytest.approx(-3.0, abs=1e-6)
    with pytest.raises(UserError, match="A/B have no spelling of the same form .* only 'A' and ' B'"):
        confidence.option_log_odds(verified([0.0, 1.0], ("A", " B")))
    assert prompts.balance_spellings(["True", " True", " False"], "True/False") == ([" True"], [" False"])


def test_p_true_does_not_underflow():
    assert estimators.p_true(800.0) == 1.0 and estimators.p_true(-800.0) == 0.0
    assert estimators.p_true(-30.0) == pytest.approx(np.exp(-30), rel=1e-9)


def test_kept_verdicts_are_used_for_their_own_generations_only(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "ARTIFACTS", tmp_path)
    monkeypatch.setattr(store, "SHIPPED", tmp_path / "shipped" / "demo")
    row = {key: ["x"] for key in store.KEYS} | {"in_situ_logits": [np.zeros(4)], "in_situ_logz": [0.5],
                                                "in_situ_seconds": [0.1]}  # fmt: skip
    for query in ("Is it?", prompts.QUERY):
        store.write_frame(pd.DataFrame(row), store.frame_path("lab", "in_situ", "m__d"), generations="abc", query=query)
        with pytest.raises(UserError, match="of other responses or of another query: run 01_generate"):
            p_true.read_in_situ("lab", "m__d", "abd" if query == prompts.QUERY else "abc")
    assert len(p_true.read_in_situ("lab", "m__d", "abc")) == 1


def test_no_space_comes_between_response_and_query(lm):
    """Some tokenizers open every text with a space; in situ the query continues one."""
    made = Tokenizer(tokenizer_models.BPE({"\u2581": 0, "\n": 1, "I": 2, "s": 3, "?": 4}, [], unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    words = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="?")
    assert words("\n", add_special_tokens=False).input_ids[0] == 0
    opened = LanguageModel("mine", lm.spec, None, words, [], {})
    assert p_true.query_ids(opened) == words(prompts.QUERY, add_special_tokens=False).input_ids[1:]
    assert p_true.query_ids(opened)[0] == 1
    assert p_true.query_ids(lm) == models.encode(lm, prompts.QUERY)


def test_a_run_without_texts_verifies_the_same_and_shows_a_question_of_ours(lm):
    """Questions are found again in the dataset and texts in the ids; nothing of either is written."""
    settings = Generation(demonstration="none", max_new_tokens=60, top_logits=8, n_temperature_nodes=4)
    asked = examples("demo-easy", 3)
    frames = [
        generation.generate_responses(lm, "demo-easy", asked, settings.model_copy(update={"save_texts": keep}))
        for keep in (True, False)
    ]
    assert frames[1][["text", "prompt", "question"]].isna().all(axis=None)
    told = generation.restore_texts(lm, frames[1], "demo-easy", {"save_texts": False, "demonstration": "none"})
    one, other = (frame.drop(columns="in_situ_seconds") for frame in (told, frames[0]))
    pd.testing.assert_frame_equal(one, other, check_like=True, check_dtype=False)
    whole = p_true.verify_responses(lm, frames[0], Verification())
    bare = p_true.verify_responses(lm, told, Verification(), save_texts=False)
    assert bare.standard_prompt.isna().all()
    pd.testing.assert_frame_equal(
        *(frame.drop(columns=["standard_prompt", "standard_seconds", "in_situ_seconds"]) for frame in (whole, bare))
    )
    shown = generation.example_dialogue(lm, settings.model_dump() | {"save_texts": False}, Verification())
    assert prompts.EXAMPLE in shown["prompt"] and prompts.EXAMPLE in shown["standard_prompt"] and shown["text"]
    with pytest.raises(UserError, match="has no row 'gone' to ask again"):
        generation.restore_texts(
            lm, frames[1].assign(example_id="gone"), "demo-easy", {"save_texts": False, "demonstration": "none"}
        )
    for keep in (True, False):  # as 01b writes it
        with pytest.raises(UserError, match="were imported, .* run 01_generate for model 'tiny-"):
            generation.restore_texts(lm, frames[1], "demo-easy", {"save_texts": keep})
