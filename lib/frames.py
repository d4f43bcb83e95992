"""The columns of every stored frame, described once: name, type, shape, unit, and which notebook writes them. `store`
checks a frame against this when it is read.

Shapes: n tokens of a response (its end token too), m answer tokens, p positions whose logits are kept, k top logits,
c nodes of the tail curve, s spellings of the options, T passes, w words. Log-probabilities and entropies are in nats.
"""

from fnmatch import fnmatchcase
from typing import NamedTuple

import pandas as pd
import pyarrow as pa

from lib.project import UserError, nearest

SECONDS = "_seconds"  # ends the names of columns of what a row took: files have their means in the manifest instead
TYPES = {"text": pa.types.is_large_string, "int": pa.types.is_integer, "float": pa.types.is_floating,
         "bool": pa.types.is_boolean}  # fmt: skip


class Column(NamedTuple):
    name: str  # one that ends in * stands for all that begin so
    type: str  # one of TYPES
    shape: str = ""  # "n", "p k"; one value per row by default
    meaning: str = ""  # with its unit


KEYS = (
    Column("model", "text", "", "file in params/models/"),
    Column("dataset", "text", "", "file in params/datasets/"),
    Column("split", "text", "", "calibration or evaluation"),
    Column("example_id", "text", "", "unique within a dataset"),
)
CONFIDENCE = (
    *KEYS,
    Column("estimator", "text", "", "row of tab:estimators"),
    Column("confidence", "float", "", "probability of being right, in [0, 1]"),
    Column("correct", "bool", "", "under the run's grader"),
)
METHOD = Column("method", "text", "", "calibration method; empty for the raw score")
ANSWER = (
    Column("reference", "text", "", "the right answer, a canonical number"),
    Column("answer", "text", "", "the answer found, a canonical number; missing where there is none"),
    Column("boxed", "text", "", "the number in its last \\boxed{}, canonical; missing where there is none"),
    Column("finish_reason", "text", "", "stop, or length: cut by the limit"),
)
IN_SITU = (
    Column("in_situ_logits", "float", "s", "logits of the options' spellings after the query"),
    Column("in_situ_logz", "float", "", "log-partition of that position, natural"),
    Column("in_situ_seconds", "float", "", "the row's share of its batch, seconds; read back, the mean of all rows"),
)
PASSES = (
    *KEYS,
    Column("rate", "float", "", "dropout rate"),
    Column("predictive", "float", "T m", "entropy of the mean over the first t passes, nats"),
    Column("conditional", "float", "T m", "mean entropy of the first t passes, nats"),
    Column("top_k_*", "int", "T m", "tokens in the union of the passes' top-k sets"),
    Column("top_p_*", "int", "T m", "tokens in the union of the passes' top-p sets"),
    Column("top_changed", "bool", "m", "whether the most probable token differs between passes"),
    Column("tuning", "bool", "", "whether the example served to choose the rate"),
    Column("selected", "bool", "", "whether its rate is the chosen one"),
)
DROPOUT = {"trajectory": "dropout", "answer": "dropout_answer"}  # kind of the passes' frames by where dropout acts
FRAMES: dict[str, tuple[str, tuple[Column, ...]]] = {  # by folder below artifacts/<run>/: its writer and columns
    "generations": ("01_generate", (
        *KEYS, *ANSWER,
        Column("text", "text", "", "the response, decoded; missing where a run keeps no texts, as are the next two"),
        Column("prompt", "text", "", "as the model's template writes it"),
        Column("question", "text", "", "as published"),
        Column("words", "int", "w", "codes of the question's words, numbers put aside"),
        Column("plain", "bool", "", "whether the answer stands alone on its line"),
        Column("last_number", "text", "", "the last number of the text, canonical; missing where there is none"),
        Column("prompt_tokens", "int", "", "tokens; 0 where the model is not at hand (01b_import)"),
        Column("token_ids", "int", "n", "of the response, its end token too; -1 of a token known by its text alone"),
        Column("token_logprobs", "float", "n", "under the model's own distribution, or as a server logged it, nats"),
        Column("token_logprobs_sampling", "float", "n", "after temperature, top-k, top-p and min-p, nats"),
        Column("answer_start", "int", "", "first token of the answer; -1 for none"),
        Column("answer_end", "int", "", "token after its last; -1 for none"),
        Column("last_number_start", "int", "", "as answer_start, of the last number in the text"),
        Column("last_number_end", "int", "", "as answer_end, of the last number in the text"),
        Column("thinking_end", "int", "", "first token after the thinking; 0 without thinking"),
        Column("eos", "int", "", "1 where the last token ends the response, else 0"),
        Column("seed", "int", "", "of the example's random stream"),
        Column("kept_positions", "int", "p", "tokens whose logits are kept; none where the model is not at hand"),
        Column("reencoded", "int", "", "how many of them took a pass of their own"),
        Column("chosen_logit", "float", "p", "of the token that was written"),
        Column("top_logits", "float", "p k", "the largest, in falling order"),
        Column("top_ids", "int", "p k", "their token ids"),
        Column("tail_curve", "float", "p c", "log sum exp((z - z_max) / t) of the rest, at `temperatures(c)`"),
    )),
    "in_situ": ("01_generate", (*KEYS, *IN_SITU)),
    "verification": ("03_ptrue_insitu", (
        *KEYS, *IN_SITU,
        Column("spellings", "text", "s", "those of the options that are single tokens"),
        Column("standard_prompt", "text", "", "as the model's template writes it"),
        Column("standard_tokens", "int", "", "tokens encoded for the standard prompt"),
        Column("in_situ_tokens", "int", "", "tokens encoded in situ: those of the query"),
        Column("standard_logits", "float", "s", "as in_situ_logits, after the standard prompt"),
        Column("standard_logz", "float", "", "as in_situ_logz"),
        Column("standard_seconds", "float", "", "as in_situ_seconds"),
        Column("live", "bool", "", "whether the in-situ verdict was taken on the live cache"),
    )),
    "dropout": ("04_mc_dropout_grid", PASSES),
    "dropout_answer": ("04_mc_dropout_grid", PASSES),
    "ablation": ("the ablation notebook", (
        *KEYS, *ANSWER,
        Column("demonstration", "text", "", "what the prompt showed first: one, few, none"),
        Column("profile", "bool", "", "whether that is as the profile asks"),
    )),
    "confidence": ("02_single_pass", CONFIDENCE),
    "calibration/confidence": ("05_calibration", (*CONFIDENCE, METHOD)),
    "calibration/results": ("05_calibration", (
        *KEYS[:2], METHOD,
        Column("estimator", "text", "", "row of tab:estimators; empty for accuracy, ans for the temperature"),
        Column("metric", "text", "", "acc, ece, mce, brier; t, a, b: what a method learned"),
        Column("value", "float", "", "point estimate"),
        Column("low", "float", "", "lower end of the 95% interval"),
        Column("high", "float", "", "its upper end"),
        Column("relative", "float", "", "share by which a method lowers the raw ECE"),
        Column("n", "int", "", "evaluation rows; of what a method learned, calibration rows"),
        Column("reason", "text", "", "why there is no value, or what was out of the ordinary"),
    )),
    "calibration/curves": ("06_sample_efficiency", (
        *KEYS[:2], METHOD,
        Column("sampling", "text", "", "how the rows were drawn"),
        Column("n", "int", "", "calibration rows"),
        Column("draw", "int", "", "number of the draw"),
        Column("ece", "float", "", "of Ans Avg on the evaluation rows"),
        Column("one_class", "bool", "", "whether all rows drawn were right, or all wrong"),
    )),
    "selective/scores": ("10_selective", (
        *KEYS[:2], METHOD,
        Column("estimator", "text", "", "as in confidence; base: the constant at the base rate"),
        Column("metric", "text", "", "ece, ece_mass, brier, skill, log_loss (nats), auroc, augrc"),
        Column("value", "float", "", "point estimate on the evaluation rows"),
        Column("low", "float", "", "lower end of the 95% interval, of raw scores"),
        Column("high", "float", "", "its upper end"),
        Column("n", "int", "", "evaluation rows"),
        Column("reason", "text", "", "why there is no value"),
    )),
    "selective/thresholds": ("10_selective", (
        *KEYS[:2],
        Column("estimator", "text", "", "whose raw score is held against the threshold"),
        Column("target", "float", "", "precision wanted"),
        Column("threshold", "float", "", "answer from this score on; missing where none is guaranteed"),
        Column("answered", "float", "", "share of evaluation rows that it answers"),
        Column("precision", "float", "", "share of these that are right"),
        Column("held", "bool", "", "false where they are fewer than chance explains"),
        Column("n", "int", "", "evaluation rows"),
        Column("tested", "int", "", "calibration rows that tested it"),
        Column("reason", "text", "", "why there is no threshold"),
    )),
    "selective/curves": ("10_selective", (
        *KEYS[:2], METHOD,
        Column("estimator", "text", "", "row of tab:estimators, or of ours"),
        Column("answered", "float", "", "share of evaluation rows answered, the surest first"),
        Column("accuracy", "float", "", "share of these that are right"),
    )),
    "calibration/transfer": ("07_transfer", (
        *KEYS[:2], METHOD,
        Column("source_model", "text", "", "on whose rows the calibrator was fitted"),
        Column("source_dataset", "text", "", "likewise"),
        Column("metric", "text", "", "ece, mce, brier; delta_ece: change against the raw score"),
        Column("value", "float", "", "on the target's evaluation rows"),
        Column("n", "int", "", "how many they are"),
    )),
}  # fmt: skip


def check(kind: str, schema: pa.Schema, where: str) -> None:
    """Raises UserError where a stored frame of a known kind lacks a column (but of seconds, which older ones have), has
    one that is not described, or one of another type or shape."""
    if kind not in FRAMES:
        return
    writer, columns = FRAMES[kind]
    described = {column.name: column for column in columns}
    lacking = [name for name in described if not name.endswith(("*", SECONDS)) and name not in schema.names]
    if lacking:
        raise UserError(f"{where} has no column '{lacking[0]}'; it is not what {writer} writes: run that again")
    for name in schema.names:
        column = next((column for column in columns if fnmatchcase(name, column.name)), None)
        if column is None:
            raise UserError(f"{where} has a column '{name}' that lib/frames.py does not describe; "
                            f"{nearest(name, described)}")  # fmt: skip
        if not fits(schema.field(name).type, column):
            expected = f"{column.type} ({', '.join(column.shape.split())})" if column.shape else column.type
            raise UserError(f"{where}: column '{name}' is {schema.field(name).type}, not {expected}")


def empty(kind: str) -> pd.DataFrame:
    """A frame of a kind without rows."""
    types = {"text": str, "int": int, "float": float, "bool": bool}
    columns = [column for column in FRAMES[kind][1] if not column.name.endswith("*")]
    return pd.DataFrame({c.name: pd.Series(dtype=object if c.shape else types[c.type]) for c in columns})


def fits(stored: pa.DataType, column: Column) -> bool:
    """Whether a stored type is a column's: a list in a list for each of its axes. Where all is missing, any is."""
    for _ in column.shape.split():
        if pa.types.is_null(stored):
            return True
        if not pa.types.is_list(stored):
            return False
        stored = stored.value_type
    is_text = column.type == "text" and pa.types.is_string(stored)  # as lists hold it
    return pa.types.is_null(stored) or is_text or TYPES[column.type](stored)
