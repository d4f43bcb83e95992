"""Schemas of the stored frames: name, type and meaning of each column. `store` checks them at writing and reading.

Axes: n tokens of a response (including its end token), m answer tokens, p positions with stored logits, k top logits,
c nodes of the tail curve, s spellings of the options, T passes, h halves of them, w words. Log-probabilities and
entropies are in nats. Columns of seconds (`in_situ_seconds`: a row's share of its batch) are not stored: a manifest has
their means."""

from collections.abc import Iterable

import numpy as np
import pandas as pd
import pyarrow as pa

from lib.paths import UserError

# Words of a frame are Python's own: its rows are read one by one, which Arrow's words make several times slower.
pd.set_option("mode.string_storage", "python")

SECONDS = "_seconds"  # suffix of columns with durations
COLDEST, HOTTEST = 0.1, 20.0  # temperatures of answer tokens
TEXT, INTEGER, NUMBER, FLAG = pa.large_string(), pa.int64(), pa.float64(), pa.bool_()
INTEGERS, NUMBERS = pa.list_(pa.int32()), pa.list_(pa.float32())


def column(name: str, type_: pa.DataType, meaning: str) -> pa.Field:
    return pa.field(name, type_, metadata={"meaning": meaning})


KEY_COLUMNS = [
    column("model", TEXT, "file in params/models/"),
    column("dataset", TEXT, "file in params/datasets/"),
    column("split", TEXT, "calibration or evaluation"),
    column("example_id", TEXT, "unique within a dataset"),
]
ANSWER = [
    column("reference", TEXT, "the right answer, a canonical number"),
    column("answer", TEXT, "the answer found, a canonical number; missing where there is none"),
    column("finish_reason", TEXT, "stop, or length: cut by the limit"),
]
IN_SITU_FIELDS = [
    column("in_situ_logits", NUMBERS, "(s) logits of the options' spellings after the query"),
    column("in_situ_logz", NUMBER, "log-partition of that position, natural"),
]
SCHEMAS = {  # by folder below artifacts/<run>/
    "generations": pa.schema([
        *KEY_COLUMNS, *ANSWER,
        column("text", TEXT, "the response, decoded; missing where a run keeps no texts, as are the next two"),
        column("prompt", TEXT, "as the model's template writes it"),
        column("question", TEXT, "as published"),
        column("prompt_tokens", INTEGER, "tokens; 0 where the model is not at hand (01b_import)"),
        column("token_ids", INTEGERS, "(n) of the response, its end token too; -1 of a token known by its text alone"),
        column("token_logprobs", NUMBERS, "(n) under the model's own distribution, or as a server logged it, nats"),
        column("token_logprobs_sampling", NUMBERS, "(n) after temperature, top-k, top-p and min-p, nats"),
        column("answer_start", INTEGER, "first token of the answer; -1 for none"),
        column("answer_end", INTEGER, "token after its last; -1 for none"),
        column("last_number_start", INTEGER, "as answer_start, of the last number in the text"),
        column("last_number_end", INTEGER, "as answer_end, of the last number in the text"),
        column("thinking_end", INTEGER, "first token after the thinking; 0 without; past the last if it never ended"),
        column("eos", INTEGER, "1 where the last token ends the response, else 0"),
        column("kept_positions", INTEGERS, "(p) tokens whose logits are kept; none where the model is not at hand"),
        column("chosen_logit", NUMBERS, "(p) of the token that was written"),
        column("top_logits", pa.list_(NUMBERS), "(p, k) the largest, in falling order"),
        column("top_ids", pa.list_(INTEGERS), "(p, k) their token ids"),
        column("tail_curve", pa.list_(NUMBERS), "(p, c) log sum exp((z - z_max) / t) of the rest at c temperatures t"),
    ]),
    "in_situ": pa.schema([*KEY_COLUMNS, *IN_SITU_FIELDS]),
    "verification": pa.schema([
        *KEY_COLUMNS, *IN_SITU_FIELDS,
        column("spellings", pa.list_(pa.string()), "(s) those of the options that are single tokens"),
        column("standard_prompt", TEXT, "as the model's template writes it"),
        column("standard_tokens", INTEGER, "tokens encoded for the standard prompt"),
        column("in_situ_tokens", INTEGER, "tokens encoded in situ: those of the query"),
        column("standard_logits", NUMBERS, "(s) as in_situ_logits, after the standard prompt"),
        column("standard_logz", NUMBER, "as in_situ_logz"),
    ]),
    "dropout": pa.schema([
        *KEY_COLUMNS,
        column("rate", NUMBER, "dropout rate"),
        column("predictive", pa.list_(pa.list_(NUMBER)), "(T, m) entropy of the mean over the first t passes, nats"),
        column("conditional", pa.list_(pa.list_(NUMBER)), "(T, m) mean entropy of the first t passes, nats"),
        column("top_k", pa.list_(INTEGERS), "(T, m) tokens in the union of the first t passes' top-k sets"),
        column("top_p", pa.list_(INTEGERS), "(T, m) tokens in the union of their top-p sets"),
        column("top_changed", pa.list_(FLAG), "(m) whether the most probable token differs between passes"),
        column("half_predictive", pa.list_(pa.list_(NUMBER)), "(h, m) as predictive, of each half of the passes"),
        column("half_conditional", pa.list_(pa.list_(NUMBER)), "(h, m) as conditional, of each half of the passes"),
        column("tuning", FLAG, "whether the example served to choose the rate"),
        column("selected", FLAG, "whether its rate is the chosen one"),
    ]),
    "ablation": pa.schema([
        *KEY_COLUMNS, *ANSWER,
        column("ans_avg", NUMBER, "its Ans Avg; missing where the log-probabilities were not kept"),
        column("demonstration", TEXT, "what the prompt showed first: one, few, none"),
        column("profile", FLAG, "whether that is as the profile asks"),
    ]),
    "confidence": pa.schema([
        *KEY_COLUMNS,
        column("estimator", TEXT, "row of tab:estimators"),
        column("confidence", NUMBER, "probability of being right, in [0, 1]"),
        column("correct", FLAG, "under the run's grader"),
    ]),
}  # fmt: skip
WRITERS = {  # notebooks by the folder or frame that they write
    "generations": "01_generate", "in_situ": "01_generate", "verification": "03_ptrue_insitu",
    "dropout": "04_mc_dropout_grid", "ablation": "04b_ablation",
    "confidence": "02_single_pass", "calibration": "05_calibration", "calibration/curves": "06_sample_efficiency",
    "calibration/transfer": "07_transfer", "selective": "09_beyond",
}  # fmt: skip


def check_columns(kind: str, names: Iterable[str], where: str) -> None:
    """Raise UserError if the columns of a frame are not those of its kind. Kinds without a schema may have any."""
    expected = set(SCHEMAS[kind].names if kind in SCHEMAS else names)
    if differing := sorted(expected ^ set(names)):
        names = ", ".join(differing)
        raise UserError(f"{where}: {names} not as {WRITERS[kind]} writes it (lib/stored_columns.py): run that again")


def to_table(kind: str, frame: pd.DataFrame, where: str) -> pa.Table:
    """Convert a frame to its stored table. Raise UserError for other columns, or values of another type."""
    check_columns(kind, list(frame), where)
    schema = pa.schema([SCHEMAS[kind].field(name) for name in frame]) if kind in SCHEMAS else None
    try:
        return pa.Table.from_pandas(frame, schema, preserve_index=False)
    except pa.ArrowException as error:
        raise UserError(f"{where}: {'; '.join(map(str, error.args))}") from None


def empty_frame(kind: str) -> pd.DataFrame:
    """Return a frame of a kind without rows."""
    return SCHEMAS[kind].empty_table().to_pandas()


def temperatures(nodes: int) -> np.ndarray:
    """Return the temperatures of `tail_curve`, (nodes,) from COLDEST to HOTTEST, evenly spaced in log(1/t)."""
    return np.exp(np.linspace(np.log(COLDEST), np.log(HOTTEST), nodes))
