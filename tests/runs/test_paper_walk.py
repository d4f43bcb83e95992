"""Every path of the paper's run, walked with the real vocabularies, tokenizers and templates of its
five models.

The weights are random and two layers small, so the answers are nonsense; the point is that it is
counted and shown.
"""

import re
import shutil

import pandas as pd
import pytest
from clone import copy_of_project, edit, play_in
from realmodels import FOLDERS, build

from lib import params
from lib.tasks import answers

pytestmark = pytest.mark.slow
SMALLER = {
    "engine": "transformers", "datasets": ["gsmhard"], "main_figure_dataset": "gsmhard",
    "transfer_datasets": ["gsmhard"], "limit": 4, "max_new_tokens": 12, "max_batch_tokens": 16384,
    "n_tuning_examples": 3, "dropout_passes": 2, "resamples": 20, "draws": 2,
    "calibration_sizes": [5], "ablation_limit": 1, "top_logits": 16, "n_temperature_nodes": 8,
}  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory, shared):
    folder = copy_of_project(tmp_path_factory.mktemp("paper") / "a folder")
    shutil.copytree(shared / "data", folder / "data")
    edit(folder / "params/paper.yaml", **SMALLER)
    for number, (name, published) in enumerate(FOLDERS.items()):
        build(shared / "tokenizers" / published, folder / "weights" / name, seed=number)
        longer = {"max_new_tokens": 18} if params.load_model_config(name).thinking else {}
        file = folder / f"params/models/{name}.yaml"
        edit(file, source=f"weights/{name}", revision=None, **longer)
    source = {"all": "data/gsmhard/gsmhardv2.jsonl"}
    edit(folder / "params/datasets/gsmhard.yaml", source=source, revision=None, config=None)
    assert len(play_in(folder, "walk", "paper").split("01_generate__")) == 6
    return folder


def frames(project, kind):
    paths = sorted((project / "artifacts/paper" / kind).glob("*.parquet"))
    return pd.concat([pd.read_parquet(path) for path in paths])


def test_prompts_are_each_models_own_and_spans_are_of_the_generated_ids(project):
    from transformers import AutoTokenizer

    rows = frames(project, "generations")
    assert len(rows) == 5 * 2 * SMALLER["limit"]
    for name, part in rows.groupby("model"):
        tokenizer = AutoTokenizer.from_pretrained(project / "weights" / name)
        spec = params.load_model_config(name)
        for row in part.itertuples():
            assert ("You are a helpful, respectful" in row.prompt) == spec.system_prompt
            assert "Sarah has 10 marbles" in row.prompt and "'#### '" in row.prompt
            assert ("Today Date: 26 Jul 2024" in row.prompt) == name.startswith("llama")
            assert row.prompt.rstrip().endswith("<think>") == (name == "deepseek-r1-8b")
            ids = tokenizer(row.prompt, add_special_tokens=False).input_ids
            assert len(ids) == row.prompt_tokens
            assert ids.count(tokenizer.bos_token_id) <= 1
            body = list(row.token_ids)[: len(row.token_ids) - row.eos]
            assert "".join(answers.token_texts(tokenizer, body)) == row.text
            start, end = answers.answer_span(row)
            assert 0 <= start < end <= max(len(row.token_ids), 1)


def test_options_and_query_are_of_the_vocabularies(project):
    verified = frames(project, "verification")
    assert verified.spellings.map({"A", " A", "B", " B"}.issubset).all()
    assert verified.model.nunique() == 5
    assert (verified.in_situ_tokens == 35).all()


def test_nonsense_is_counted_and_shown_and_never_called_a_reproduction(project):
    """The labels are the paper's, the weights are not."""
    table = (project / "figures/paper/tab_result_estimation.tex").read_text()
    for name in ("Llama-3.1-8B", "DeepSeek-R1-8B", "Qwen3-8B-Thinking", "GSMHard"):
        assert name in table
    rows = frames(project, "generations")
    assert rows.answer.isna().mean() > 0.5
    assert (rows.finish_reason == "length").mean() > 0.5
    thinks = rows.model.isin(["deepseek-r1-8b", "qwen3-8b-thinking"])
    unclosed = rows[thinks & ~rows.text.str.contains("</think>")]
    assert len(unclosed)
    assert unclosed.answer.isna().all(), "thinking that was never closed holds no answer"
    report = (project / "figures/paper/report.html").read_text()
    assert re.search(r"\d% without a parsable answer", report)
    assert re.search(r"\d% cut by length", report)
    assert "The models of this run are not" in report
    assert "outside" not in report.split("<h2")[0]
