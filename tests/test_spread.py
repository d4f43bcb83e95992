"""The distributions of the passes: those whose entropies the passes' frames hold."""

import architectures
import numpy as np
import pytest
import torch
from test_dropout import generations

from lib.generate import scopes, spread
from lib.params import Dropout

SETTINGS = Dropout(seed=1, dropout_passes=3)


@pytest.mark.parametrize("scope, opening", [("trajectory", "own"), ("trajectory", "shared"), ("answer", "own")])
def test_they_have_the_entropies_of_the_frame(scope, opening):
    lm = architectures.load(architectures.NAMES[0])
    frame, settings = generations(lm), SETTINGS.model_copy(update={"dropout_opening": opening})
    row = scopes.MADE_BY[scope](lm, frame, [(0, 0.2)], settings).iloc[0]
    p = spread.distributions(scope, lm, frame.iloc[0], 0.2, settings)
    assert p.shape[:2] == (3, len(row.predictive[-1])) and torch.allclose(p.sum(-1), torch.ones(()).double())
    np.testing.assert_allclose(torch.special.entr(p.mean(0)).sum(-1), row.predictive[-1], atol=1e-6)
    np.testing.assert_allclose(torch.special.entr(p).sum(-1).mean(0), row.conditional[-1], atol=1e-6)
    assert not torch.equal(p[0], p[1])
    table = spread.table(lm, p, top=2)
    assert list(table.index) == [1, 2, 3, "mean"] and table.shape[1] == 2 * p.shape[1]
    np.testing.assert_allclose(table.loc["mean"], table.iloc[:3].mean())
    assert table.loc["mean"].iloc[0] == pytest.approx(float(p.mean(0)[0].max()))
