"""The verification of a pair's responses (03): the standard prompt, beside the in-situ logits that
01 stored.
"""

import pandas as pd

from lib import store
from lib.errors import UserError
from lib.generate import generation, p_true, stored_responses
from lib.models.loading import LanguageModel
from lib.params import Selection, VerificationStep
from lib.paths import relative_path
from lib.row_cache import RowCache, digest_responses, measured_facts
from lib.tasks import prompts


def verify_pair(
    run: str, lm: LanguageModel, dataset: str, settings: VerificationStep
) -> pd.DataFrame:
    """Verify a model's responses to a dataset in both ways, and store the verdicts.

    Rows that an earlier process has finished are not made again (lib.row_cache).

    Parameters
    ----------
    run : name of the run, whose folder holds the frame `verification`

    Returns
    -------
    The verification frame, in the order of the responses.
    """
    pair = f"{lm.name}__{dataset}"
    path = store.find_frame(run, "generations", pair)
    frame = read_trajectories(run, lm, dataset, settings)
    parameters = store.read_manifest(path)["parameters"]
    save_texts = parameters.get("save_texts", True)
    facts = {
        "model": lm.spec.model_dump(),
        "loaded": lm.facts,
        "inputs": store.file_checksums([path]),
        "options": p_true.balanced_spellings(lm),
    }
    of_rows = facts | {"save_texts": save_texts}
    cache = RowCache(run, "verification", pair, of_rows, settings.rows_per_shard)

    def verify(ids: list[str]) -> pd.DataFrame:
        rows = frame[frame.example_id.isin(ids)]
        return p_true.verify_responses(lm, rows, settings.max_batch_tokens, save_texts)

    verified = cache.map(verify, frame.example_id.tolist(), about=digest_responses(frame))
    if not save_texts:  # then figures show one of our own questions
        facts["exchange"] = generation.answer_own_question(lm, parameters)
    written = store.frame_path(run, "verification", pair)
    store.write_frame(verified, written, **facts, **measured_facts(cache))
    cache.clear()
    return verified


def read_trajectories(
    run: str, lm: LanguageModel, dataset: str, settings: Selection
) -> pd.DataFrame:
    """Return a pair's stored responses, with their texts and in-situ logits."""
    in_situ = read_in_situ(run, f"{lm.name}__{dataset}")
    responses = stored_responses.read_responses(run, lm, dataset, settings)
    return responses.merge(in_situ, on=store.KEYS, validate="one_to_one")


def read_in_situ(run: str, pair: str) -> pd.DataFrame:
    """Return the in-situ logits that 01 computed at the end of each trajectory.

    Raise UserError if they are missing, or belong to other responses or to another query.
    """
    responses = store.read_manifest(store.find_frame(run, "generations", pair))
    path = store.find_frame(run, "in_situ", pair)
    facts = store.read_manifest(path)
    belong = facts["generations"] == responses["sha256"]
    if not belong or facts["query"] != prompts.QUERY:
        raise UserError(
            f"{relative_path(path)} is of other responses or of another query: "
            "run 01_generate for this pair again"
        )
    return store.read_frame(path)
