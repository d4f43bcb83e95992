"""What the steps of a pair make and store, and that an interrupted step goes on where it ended."""

import dataclasses
from itertools import chain

import pytest

from lib import params, store
from lib.analysis import prompt_ablation
from lib.errors import UserError
from lib.generate import generation, mc_dropout, p_true, prompt_arms, stored_responses, verification
from lib.params import (
    AblationStep,
    DropoutStep,
    EvaluationChoices,
    GenerationStep,
    VerificationStep,
)
from lib.tasks import prompts

DATASET = "demo-easy"
PAIR = f"tiny-llama__{DATASET}"
GENERATION = GenerationStep(demonstration="none", max_new_tokens=40, limit=3, rows_per_shard=2)
VERIFICATION = VerificationStep(limit=2, rows_per_shard=1)
DROPOUT = DropoutStep(
    limit=2, dropout_passes=2, dropout_rates=[0.1, 0.2], n_tuning_examples=1, dropout_limit=2
)


@pytest.fixture
def stored(monkeypatch, tmp_path, llama):
    """The frames and manifests of a run with six responses, by kind."""
    monkeypatch.setattr(store, "ARTIFACTS", tmp_path)
    generation.generate_pair("mine", llama, DATASET, GENERATION)

    def read(kind):
        path = store.frame_path("mine", kind, PAIR)
        return store.read_frame(path), store.read_manifest(path)

    return read


def test_responses_are_stored_beside_what_belongs_to_them(stored):
    responses, manifest = stored("generations")
    in_situ, of_in_situ = stored("in_situ")
    assert len(responses) == len(in_situ) == 6
    assert of_in_situ["generations"] == manifest["sha256"]
    assert manifest["limit"] == 3
    assert manifest["parameters"]["max_new_tokens"] == 40


def test_an_interrupted_step_makes_only_the_rows_that_it_lacks(stored, monkeypatch, llama):
    """In a second run, which is killed after its first shard."""
    whole = store.frame_path("mine", "generations", PAIR).read_bytes()
    generate = generation.generate_responses
    batches = []

    def record(lm, dataset, examples, *more):
        batches.append([example.example_id for example in examples])
        return generate(lm, dataset, examples, *more)

    def record_until_killed(*words):
        if batches:
            raise KeyboardInterrupt
        return record(*words)

    monkeypatch.setattr(generation, "generate_responses", record_until_killed)
    with pytest.raises(KeyboardInterrupt):
        generation.generate_pair("killed", llama, DATASET, GENERATION)
    monkeypatch.setattr(generation, "generate_responses", record)
    generation.generate_pair("killed", llama, DATASET, GENERATION)
    responses, _ = stored("generations")
    assert [len(names) for names in batches] == [2, 2, 2]
    assert list(chain.from_iterable(batches)) == responses.example_id.tolist()
    assert store.frame_path("killed", "generations", PAIR).read_bytes() == whole


def test_verified_are_the_responses_of_the_run(stored, llama):
    verified = verification.verify_pair("mine", llama, DATASET, VERIFICATION)
    frame, manifest = stored("verification")
    responses, _ = stored("generations")
    assert frame.example_id.tolist() == verified.example_id.tolist()
    assert len(frame) == 4
    assert {*frame.example_id} <= {*responses.example_id}
    assert manifest["options"] == p_true.balanced_spellings(llama)


def test_responses_to_another_query_than_today_s_are_not_verified(stored, monkeypatch, llama):
    monkeypatch.setattr(verification.prompts, "QUERY", "\n\nIs it so? A or B:")
    with pytest.raises(UserError, match="of another query: run 01_generate for this pair again"):
        verification.verify_pair("mine", llama, DATASET, VERIFICATION)


@pytest.mark.parametrize("saves_texts", [True, False])
def test_a_run_that_saves_no_texts_verifies_a_question_of_our_own_to_be_shown(
    monkeypatch, tmp_path, llama, saves_texts
):
    monkeypatch.setattr(store, "ARTIFACTS", tmp_path)
    settings = GENERATION.model_copy(update={"save_texts": saves_texts, "limit": 1})
    generation.generate_pair("mine", llama, DATASET, settings)
    verification.verify_pair("mine", llama, DATASET, VERIFICATION)
    manifest = store.read_manifest(store.frame_path("mine", "verification", PAIR))
    assert ("exchange" in manifest) != saves_texts
    if not saves_texts:
        assert prompts.EXAMPLE in manifest["exchange"]["prompt"]
        assert prompts.QUERY in manifest["exchange"]["standard_prompt"]


def test_passes_are_of_tuning_rows_at_all_rates_and_of_others_at_one(stored, llama):
    responses = stored_responses.read_responses("mine", llama, DATASET, DROPOUT)
    pair = mc_dropout.prepare_passes("mine", llama, DATASET, responses, DROPOUT)
    grid = mc_dropout.pass_grid(pair)
    assert sorted(grid.rate) == [0.1, 0.2]
    assert grid.tuning.all()
    mc_dropout.pass_pair(pair, 0.2, EvaluationChoices())
    frame, manifest = stored("dropout")
    assert frame.tuning.tolist() == [True, True, False, False, False]
    assert frame.rate.tolist() == [0.1, 0.2, 0.2, 0.2, 0.2]
    assert frame.selected.tolist() == [False, True, True, True, True]
    assert manifest["rate"] == 0.2
    assert "LlamaAttention" in manifest["sites"]


def test_the_same_questions_follow_each_other_prompt(stored, llama):
    settings = AblationStep(demonstration="none", max_new_tokens=20, ablation_limit=2)
    combine = prompt_ablation.combine_arms
    prompt_arms.ask_pair("mine", llama, DATASET, settings, combine)
    frame, manifest = stored("ablation")
    assert frame.demonstration.tolist() == ["none", "none", "one", "one"]
    assert frame.example_id.tolist()[:2] == frame.example_id.tolist()[2:]
    assert list(manifest["drawn"]) == ["one"]


def test_a_file_of_responses_is_for_the_run_s_own_prompt(stored, llama):
    """The other prompts are asked, though the model's file names one."""
    spec = llama.spec.model_copy(update={"responses": "nowhere.jsonl"})
    lm = dataclasses.replace(llama, spec=spec)
    settings = AblationStep(demonstration="none", max_new_tokens=20, ablation_limit=1)
    prompt_arms.ask_pair("mine", lm, DATASET, settings, prompt_ablation.combine_arms)
    _, manifest = stored("ablation")
    assert manifest["drawn"]["one"]["engine"] == "transformers"
    assert manifest["model"]["responses"] == "nowhere.jsonl"


def test_a_model_s_own_limit_of_tokens_comes_first(llama):
    thinking = llama.spec.model_copy(update={"max_new_tokens": 7})
    lm = dataclasses.replace(llama, spec=thinking)
    assert generation.tokens_at_most(lm, params.Generation()) == 7
    assert generation.tokens_at_most(llama, params.Generation(max_new_tokens=9)) == 9
