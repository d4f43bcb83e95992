"""The signals of a run: what 01, 03 and 04 stored of its responses, under the choices that need no
model.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pandas as pd

from lib import params, store
from lib.calibrate.calibration_sets import DataByPair, calibration_data
from lib.calibrate.fit_methods import CalibratedScores, calibrate
from lib.params import EvaluationChoices
from lib.score.confidence import confidence_frame, rows_at_selected_rate
from lib.score.interpretation import interpret_responses


@dataclass(eq=False)
class Signals:
    """The stored model outputs of a run, and what they are under its choices, computed once.

    `source` tells the file of each pair's generations, as `load_frames` does.
    """

    generations: pd.DataFrame
    verification: pd.DataFrame
    dropout: pd.DataFrame
    choices: EvaluationChoices
    source: pd.DataFrame = field(default_factory=pd.DataFrame)

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
    def calibration(self) -> CalibratedScores:
        """The calibrated scores, what was learned, and the calibrators, from `calibrate`."""
        return calibrate(self.confidence, self.sets)


def load_signals(
    run: str,
    models: Sequence[str],
    datasets: Sequence[str],
    choices: EvaluationChoices,
    kinds: Collection[str] = ("verification", "dropout"),
) -> Signals:
    """Load the signals of a run, or the shipped ones.

    `kinds`: which frames to read beside the generations. Raise UserError if there are neither own
    nor shipped ones; passes may be missing, and the verification of models that are not at hand.
    """
    at_hand = params.models_at_hand(models)
    served = {name.split("__")[0] for name in store.stored_frames(run, "verification")}
    verified = []
    if "verification" in kinds:
        verified = [name for name in models if name in at_hand or name in served]
    passed = at_hand if "dropout" in kinds else []
    generations, source = store.load_frames(run, "generations", models, datasets)
    verification, _ = store.load_frames(run, "verification", verified, datasets)
    dropout, _ = store.load_frames(run, "dropout", passed, datasets, may_lack=True)
    return Signals(generations, verification, dropout, choices, source)
