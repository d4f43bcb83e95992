"""What tables, figures and claims need of tokens, verification and passes, pair by pair: the whole
frames of one pair are in memory at a time."""

from collections.abc import Sequence

import pandas as pd

from lib.analysis import multi_pass_statistics, token_statistics
from lib.analysis.costs import count_tokens
from lib.analysis.signals import AnySignals, Signals
from lib.analysis.token_statistics import apply_by_pair
from lib.score.confidence import evaluate_rate_grid, rows_at_selected_rate
from lib.score.interpretation import answer_coverage, find_unread_lines
from lib.store import KEYS, evaluation_rows

Frames = dict[str, pd.DataFrame]


def collect_pair_frames(signals: AnySignals) -> Frames:
    """Return the `frames_of_pair` of all pairs, by name."""
    parts: dict[str, list[pd.DataFrame]] = {}
    for pair in signals.by_pair():
        for name, frame in frames_of_pair(pair).items():
            parts.setdefault(name, []).append(frame)
    return {name: concatenate_pairs(frames) for name, frames in parts.items()}


def concatenate_pairs(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of all frames; without any, the first frame, which has the columns."""
    with_rows = [frame for frame in frames if len(frame)]
    return pd.concat(with_rows, ignore_index=True) if with_rows else frames[0]


def frames_of_pair(pair: Signals) -> Frames:
    """Return what the paper shows of a pair as pictures or in words, and what notes tell of it.

    Statistics of passes are at the selected rate, on rows with a parsed answer; empty without any.
    """
    generations = pair.generations
    responses = pair.responses
    dropout = pair.dropout
    answered = multi_pass_statistics.keep_parsed_answers(dropout, responses)
    passes = rows_at_selected_rate(answered)
    return {
        "dropout_grid_search": evaluate_rate_grid(responses, dropout, pair.choices),
        "running_mean": apply_by_pair(token_statistics.running_mean_curves, responses),
        "tokens": token_statistics.summarize_answer_tokens(responses),
        "verification": multi_pass_statistics.verification_costs(pair.verification, generations),
        "entropies": apply_by_pair(multi_pass_statistics.entropy_curves, passes),
        "passes": apply_by_pair(multi_pass_statistics.summarize_passes, passes),
        "rates": multi_pass_statistics.compare_rates(responses, dropout, pair.choices),
        "costs": count_tokens(generations, pair.verification, dropout),
        "questions": generations[KEYS],
        "coverage": answer_coverage(generations),
        "unread_lines": find_unread_lines(evaluation_rows(generations)),
    }
