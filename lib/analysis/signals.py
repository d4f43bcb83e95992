"""The signals of a run: what 01, 03 and 04 stored of its responses, under the choices that need no
model.

`Signals` has the frames of one pair or several in memory. `StoredSignals` reads a run's frames pair
by pair, and keeps of each what is small, so its memory does not grow with the length of responses.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import NamedTuple

import pandas as pd

from lib import params, store
from lib.analysis.multi_pass_statistics import summarize_token_reduction
from lib.calibrate.calibration_sets import DataByPair, Pair, calibration_data, no_response_left
from lib.calibrate.fit_methods import CalibratedScores, calibrate
from lib.params import EvaluationChoices
from lib.score.confidence import confidence_frame, in_frame_order, rows_at_selected_rate
from lib.score.interpretation import interpret_responses
from lib.store import PAIR

ALL_KINDS = ("verification", "dropout")  # of frames, beside the generations
UNSCORED = (  # columns that no score reads: words, tokens, and each half of the passes
    "text",
    "prompt",
    "question",
    "token_ids",
    "top_ids",
    "standard_prompt",
    "half_predictive",
    "half_conditional",
)


@dataclass(eq=False)
class Signals:
    """The stored model outputs of pairs, and what they are under the choices, computed once.

    `source` tells the file of each pair's generations, as `load_frames` does.
    """

    generations: pd.DataFrame
    verification: pd.DataFrame
    dropout: pd.DataFrame
    choices: EvaluationChoices
    source: pd.DataFrame = field(default_factory=pd.DataFrame)

    def by_pair(self) -> Iterator["Signals"]:
        """Yield the signals of each pair."""
        for pair in self.generations.groupby(PAIR, sort=False).groups:
            yield self.of_pair(pair)

    def of_pair(self, pair: Pair) -> "Signals":
        """Return the signals of one pair."""
        signals = Signals(
            rows_of_pair(self.generations, pair),
            rows_of_pair(self.verification, pair),
            rows_of_pair(self.dropout, pair),
            self.choices,
        )
        signals.responses = rows_of_pair(self.responses, pair)  # interpreted once
        return signals

    @cached_property
    def row_counts(self) -> pd.Series:
        """The number of responses by model, dataset and split."""
        return self.generations.groupby([*PAIR, "split"], sort=False).size()

    @cached_property
    def responses(self) -> pd.DataFrame:
        """The responses under the choices, from `interpret_responses`."""
        return interpret_responses(self.generations, self.choices)

    @cached_property
    def sets(self) -> DataByPair:
        """The rows of calibrators. Raise UserError if the choices leave no response."""
        return calibration_data(self.generations, self.responses)

    @cached_property
    def confidence(self) -> pd.DataFrame:
        """The scores of every estimator of the paper; c_BALD at the selected dropout rate."""
        passes = rows_at_selected_rate(self.dropout, self.choices)
        return confidence_frame(self.responses, self.verification, passes, self.choices)

    @cached_property
    def token_reduction(self) -> pd.DataFrame:
        """The tokens that P(True) saves in situ, from `summarize_token_reduction`."""
        return summarize_token_reduction(self.verification)

    @cached_property
    def calibration(self) -> CalibratedScores:
        """The calibrated scores, what was learned, and the calibrators, from `calibrate`."""
        return calibrate(self.confidence, self.sets)


def rows_of_pair(frame: pd.DataFrame, pair: Pair) -> pd.DataFrame:
    """Return the rows of a model and a dataset."""
    model, dataset = pair
    return frame[(frame["model"] == model) & (frame["dataset"] == dataset)]


class KeptOfPairs(NamedTuple):
    """What `StoredSignals` keeps of the pairs: attributes of `Signals`, the responses without
    their tokens' log-probabilities."""

    row_counts: pd.Series
    responses: pd.DataFrame
    sets: DataByPair
    confidence: pd.DataFrame
    token_reduction: pd.DataFrame


def without_tokens(responses: pd.DataFrame) -> pd.DataFrame:
    """Return responses without the log-probabilities of their tokens, but those of the answers."""
    answers = []
    for logprobs in responses["answer"]:
        answers.append(None if logprobs is None else logprobs.copy())  # of a part, free the whole
    kept = responses.drop(columns=["response", "answer"])
    return kept.assign(answer=pd.Series(answers, responses.index, dtype=object))


@dataclass(eq=False)
class StoredSignals:
    """The signals of a run, whose frames are read pair by pair.

    Its attributes are those of `Signals`, without the frames; its responses lack the tokens'
    log-probabilities.
    """

    run: str
    models: Sequence[str]
    datasets: Sequence[str]
    choices: EvaluationChoices
    kinds: Collection[str]
    without: Collection[str]
    source: pd.DataFrame

    def by_pair(self) -> Iterator[Signals]:
        """Yield the signals of each pair, read from its files."""
        for pair in product(self.models, self.datasets):
            yield self.of_pair(pair)

    def of_pair(self, pair: Pair) -> Signals:
        """Read the signals of one pair."""
        model, dataset = pair
        return load_signals(self.run, [model], [dataset], self.choices, self.kinds, self.without)

    @cached_property
    def kept(self) -> KeptOfPairs:
        """What is kept of each pair. Raise UserError if the choices leave no response."""
        counts = []
        responses = []
        sets: dict = {}
        scores = []
        reductions = []
        for pair in self.by_pair():
            counts.append(pair.row_counts)
            reductions.append(pair.token_reduction)
            if pair.responses.empty:
                continue
            responses.append(without_tokens(pair.responses))
            sets |= pair.sets
            scores.append(pair.confidence)
        if not responses:
            raise no_response_left()
        return KeptOfPairs(
            row_counts=pd.concat(counts).groupby([*PAIR, "split"], sort=False).sum(),
            responses=pd.concat(responses, ignore_index=True),
            sets=sets,
            confidence=in_frame_order(scores),
            token_reduction=pd.concat(reductions, ignore_index=True),
        )

    @cached_property
    def row_counts(self) -> pd.Series:
        return self.kept.row_counts

    @cached_property
    def responses(self) -> pd.DataFrame:
        return self.kept.responses

    @cached_property
    def sets(self) -> DataByPair:
        return self.kept.sets

    @cached_property
    def confidence(self) -> pd.DataFrame:
        return self.kept.confidence

    @cached_property
    def token_reduction(self) -> pd.DataFrame:
        return self.kept.token_reduction

    @cached_property
    def calibration(self) -> CalibratedScores:
        return calibrate(self.confidence, self.sets)


AnySignals = Signals | StoredSignals


def load_signals(
    run: str,
    models: Sequence[str],
    datasets: Sequence[str],
    choices: EvaluationChoices,
    kinds: Collection[str] = ALL_KINDS,
    without: Collection[str] = (),
) -> Signals:
    """Load the signals of a run, or the shipped ones.

    `kinds`: which frames to read beside the generations; `without`: which columns to leave out.
    Raise UserError if there are neither own nor shipped ones; passes may be missing, and the
    verification of models that are not at hand.
    """
    verified, passed = models_with_passes(run, models, kinds)
    generations, source = store.load_frames(run, "generations", models, datasets, False, without)
    verification, _ = store.load_frames(run, "verification", verified, datasets, False, without)
    dropout, _ = store.load_frames(run, "dropout", passed, datasets, True, without)
    return Signals(generations, verification, dropout, choices, source)


def stored_signals(
    run: str,
    models: Sequence[str],
    datasets: Sequence[str],
    choices: EvaluationChoices,
    kinds: Collection[str] = ALL_KINDS,
    without: Collection[str] = UNSCORED,
) -> StoredSignals:
    """Return the signals of a run, or the shipped ones, to be read pair by pair. Arguments and
    errors as for `load_signals`."""
    verified, _ = models_with_passes(run, models, kinds)
    source = store.list_sources(run, "generations", store.pair_names(models, datasets))
    store.list_sources(run, "verification", store.pair_names(verified, datasets))
    return StoredSignals(run, models, datasets, choices, kinds, without, source)


def models_with_passes(
    run: str, models: Sequence[str], kinds: Collection[str]
) -> tuple[list[str], list[str]]:
    """Return the models that have verification, and those that may have dropout passes."""
    at_hand = params.models_at_hand(models)
    served = {name.split("__")[0] for name in store.stored_frames(run, "verification")}
    verified = []
    if "verification" in kinds:
        verified = [name for name in models if name in at_hand or name in served]
    passed = at_hand if "dropout" in kinds else []
    return verified, passed
