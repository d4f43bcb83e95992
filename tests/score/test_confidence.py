"""From stored model outputs to the estimators' signals, by hand."""

import numpy as np
import pytest
from synthetic import keyed, passed

from lib.score.bald import scale_bald
from lib.score.confidence import option_log_odds

# ---- P(True): A and its form after a space, B and its form


def ask(spellings=("A", " A", "B", " B"), logits=(1.0, 2.0, 0.5, -1.0), logz=5.0):
    """A row of two prompts with the same logits; the logarithm of the sum of all logits' exponents
    is larger in situ."""
    return keyed(
        1,
        spellings=[list(spellings)],
        standard_logits=[list(logits)],
        standard_logz=[logz],
        in_situ_logits=[list(logits)],
        in_situ_logz=[logz + 2],
    )


def test_every_spelling_of_an_option_counts():
    option_a = np.exp(1) + np.exp(2)
    option_b = np.exp(0.5) + np.exp(-1)
    (row,) = option_log_odds(ask()).itertuples()
    assert row.standard_margin == pytest.approx(np.log(option_a / option_b))
    assert row.in_situ_margin == pytest.approx(np.log(option_a / option_b))
    assert row.standard_mass == pytest.approx((option_a + option_b) / np.exp(5))
    assert row.in_situ_mass == pytest.approx((option_a + option_b) / np.exp(7))


def test_other_words_may_be_the_options():
    (row,) = option_log_odds(ask(["A", "True", "B", "False"]), "True/False").itertuples()
    assert row.standard_margin == pytest.approx(2 - -1)
    both = np.exp(2) + np.exp(-1)
    assert row.standard_mass == pytest.approx(both / np.exp(5))


def test_a_form_that_one_option_lacks_does_not_count():
    """Of ` A` there is no token, of B after a space there is."""
    (row,) = option_log_odds(ask(["A", "B", " B", "C"])).itertuples()
    assert row.standard_margin == pytest.approx(1 - 2)
    both = np.exp(1) + np.exp(2)
    assert row.standard_mass == pytest.approx(both / np.exp(5))


def test_a_form_after_a_space_may_be_the_only_one_of_both():
    (row,) = option_log_odds(ask([" A", "A", " B", "True"])).itertuples()
    assert row.standard_margin == pytest.approx(1 - 0.5)


def test_far_apart_logits_are_no_overflow():
    (row,) = option_log_odds(ask(["A", "B"], [0.0, 800.0], 800.0)).itertuples()
    assert row.standard_margin == -800
    assert row.standard_mass == 1


def test_options_without_a_common_form_are_refused():
    message = "have no spelling of the same form as single tokens"
    with pytest.raises(ValueError, match=message):
        option_log_odds(ask(), "B/Z")


# ---- BALD: .2 and .6 after three passes, over supports of 12 and 20 tokens


def test_bald_is_scaled_by_the_logarithm_of_its_support():
    (scaled,) = scale_bald(passed(), "top_k")
    assert scaled == pytest.approx([0.2 / np.log(12), 0.6 / np.log(20)])


def test_a_support_of_one_token_counts_as_two():
    (scaled,) = scale_bald(passed(top_p=[[[1, 3]]]), "top_p")
    assert scaled == pytest.approx([0.2 / np.log(2), 0.6 / np.log(3)])
