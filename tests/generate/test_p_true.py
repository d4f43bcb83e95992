"""P(True): prompts as in the figure, spellings of the options (plain passes:
tests/field/test_architectures.py)."""

import re

import pytest
from architectures import SETTINGS, assert_alike, respond
from realmodels import FOLDERS
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers import models as tokenizer_models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from lib import params
from lib.errors import UserError
from lib.generate import generation, p_true, stored_responses
from lib.models import loading
from lib.models.loading import LanguageModel
from lib.tasks import prompts

# ---- the prompts


@pytest.fixture(params=FOLDERS.values())
def real(request, shared):
    """A real tokenizer with its chat template, without a model."""
    tokenizer = AutoTokenizer.from_pretrained(shared / "tokenizers" / request.param)
    thinking = request.param in ("Qwen3-8B", "DeepSeek-R1-Distill-Llama-8B")
    changed = {"thinking": thinking, "system_prompt": True, "date_string": "26 Jul 2024"}
    spec = params.load_model_config("tiny-llama").model_copy(update=changed)
    return LanguageModel(request.param, spec, None, tokenizer, [], {})


def words(text):
    return " ".join(text.split())


def figures(shared):
    """What each role says in the paper's figures, by name, line wraps and indentation undone."""
    text = (shared / "paper" / "paper.tex").read_text(encoding="utf-8")
    listings = re.findall(
        r"\\begin\{lstlisting\}\[style=promptstyle\]\n(.*?)\\end\{lstlisting\}", text, re.S
    )
    for name, listing in zip(("solve", "standard", "in situ"), listings, strict=True):
        turns = map(words, re.split(r"<\|start_header_id\|>(\w+)<\|end_header_id\|>", listing)[1:])
        yield name, dict(zip(turns, turns, strict=True))


def test_prompts_are_the_figures(real, shared):
    figure = dict(figures(shared))
    system, user = figure["solve"]["system"], figure["solve"]["user"]
    standard, in_situ = figure["standard"]["user"], figure["in situ"]
    cake = re.search("Next, solve: (.+) At the end", user)[1]
    solved = re.search("Proposed answer: (.+) Is the proposed", standard)[1]
    solve, verify = prompts.question_messages(cake), prompts.verification_messages(cake, solved)
    assert [words(message["content"]) for message in solve] == [system, user]
    assert [words(message["content"]) for message in verify] == [system, standard]
    assert in_situ["user"] == user
    assert in_situ["assistant"].endswith(words(prompts.QUERY))
    text = p_true.standard_prompt(real, cake, "Hm.\n</think>\n\n" * real.spec.thinking + solved)
    assert verify[1]["content"] in text and verify[0]["content"] in text
    assert prompts.DEMONSTRATION not in text and prompts.INSTRUCTION not in text
    few = [message["role"] for message in prompts.question_messages(cake, demonstration="few")]
    assert few == ["system", *["user", "assistant"] * len(prompts.WORKED), "user"]
    assert text.count("<think>") == text.count("</think>"), (
        "A or B inside an open thinking block means nothing"
    )
    assert (
        p_true.balanced_spellings(real)["True/False"] == "'True', ' True' against 'False', ' False'"
    )


def model_with(*pieces):
    """A model without weights, as Llama 2: every text is opened with a space, bytes stand for what
    no token writes. Its vocabulary holds `pieces`, too."""
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *":\u2581"]
    tokens += (piece.replace(" ", "\u2581") for piece in pieces)
    vocabulary = {token: i for i, token in enumerate(tokens)}
    merges = []
    for token in tokens:
        if len(token) == 2 and vocabulary.keys() >= set(token):
            merges.append(tuple(token))
    tokenizer = Tokenizer(
        tokenizer_models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    return LanguageModel("made", params.load_model_config("tiny-llama"), None, fast, [], {})


@pytest.mark.parametrize(("pieces", "counts"), [
    (["A", " A", "B", " B"], "'A', ' A' against 'B', ' B'"), (["A", "B", " B"], "'A' against 'B'"),
    (["A", " A", " B"], "' A' against ' B'"),
])  # fmt: skip
def test_spellings_are_the_vocabularys_own(pieces, counts):
    """By what a token writes in place, whatever encoding the bare word gives; only forms of both
    options count."""
    lm = model_with(*pieces)
    ids = {
        piece: lm.tokenizer.convert_tokens_to_ids(piece.replace(" ", "\u2581")) for piece in pieces
    }
    assert p_true.option_tokens(lm) == ids
    assert p_true.balanced_spellings(lm) == {"A/B": counts}  # True and False are no tokens here


def test_no_space_comes_between_response_and_query(llama):
    """Some tokenizers open every text with a space; in situ the query continues one."""
    for lm, opened in ((model_with(), True), (llama, False)):
        assert p_true.query_ids(lm) == loading.encode(lm, prompts.QUERY)[opened:]


def test_a_run_without_texts_verifies_the_same_and_shows_a_question_of_ours(lm):
    """Questions are found again in the dataset and texts in the ids; nothing of either is
    written."""
    with_texts = respond(lm, 3, "demo-easy", max_new_tokens=60, save_texts=True)
    frame = respond(lm, 3, "demo-easy", max_new_tokens=60, save_texts=False)
    assert frame[["text", "prompt", "question"]].isna().all(axis=None)
    bare = SETTINGS.model_dump() | {"save_texts": False}
    restored = stored_responses.restore_texts(lm, frame, "demo-easy", bare)
    assert_alike(restored, with_texts)
    assert p_true.verify_responses(lm, restored, save_texts=False).standard_prompt.isna().all()
    exchange = generation.answer_own_question(lm, bare)
    assert prompts.EXAMPLE in exchange["prompt"]
    assert prompts.EXAMPLE in exchange["standard_prompt"]
    assert exchange["text"]
    with pytest.raises(UserError, match="has no row 'gone' to ask again"):
        stored_responses.restore_texts(lm, frame.assign(example_id="gone"), "demo-easy", bare)
    with pytest.raises(UserError, match="of 'tiny-.* were imported, .* run 01_generate"):
        stored_responses.restore_texts(
            lm, frame, "demo-easy", {"save_texts": False}
        )  # as 01b writes it
