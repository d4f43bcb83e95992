"""A server's verdict on a response: the one token that P(True) reads.

The mass of an option is that of its spellings among the most probable tokens, which the server
lists. An option outside the list is bounded by the least probability listed and by what the listed
ones leave of 1.
"""

from dataclasses import dataclass

import numpy as np

from lib.responses.formats import Response
from lib.responses.imported import IMPOSSIBLE
from lib.tasks import prompts
from lib.tasks.thinking import is_opening

OPTION_A = [form + "A" for form in prompts.FORMS]  # its spellings
OPTION_B = [form + "B" for form in prompts.FORMS]
SPELLINGS = [*OPTION_A, *OPTION_B]
FLOAT32_ROUNDING = float(
    np.finfo(np.float32).eps
)  # of a sum of probabilities as servers compute them


@dataclass(frozen=True)
class OptionVerdict:
    """The answer to a request for one token."""

    response: Response

    @property
    def thinks(self) -> bool:
        return self.response.thought or is_opening(self.response.text)

    @property
    def options_listed(self) -> int:
        """How many of the two options are listed; 0 where the model thinks."""
        if self.thinks:
            return 0
        return len([option for option in (OPTION_A, OPTION_B) if self.lists(option)])

    def lists(self, spellings: list[str]) -> bool:
        return not self.response.listed.keys().isdisjoint(spellings)

    def option_logprobs(self) -> list[float]:
        """Return the log-probabilities of SPELLINGS (nats).

        A spelling that is not listed is impossible. If none of an option is, its first has the most
        that the listed tokens leave it.
        """
        logprobs = []
        for option in (OPTION_A, OPTION_B):
            of_option = [self.response.listed.get(spelling, IMPOSSIBLE) for spelling in option]
            if not self.lists(option):
                of_option[0] = self.bound_unlisted()
            logprobs += of_option
        return logprobs

    def bound_unlisted(self) -> float:
        """Return the most that the log-probability of a token that is not listed may be (nats).

        It is no more probable than the least one listed, and than what these leave of 1. A rest
        below FLOAT32_ROUNDING is none that can be told.
        """
        logprobs = np.array(list(self.response.listed.values()))
        rest = 1 - np.exp(logprobs).sum()
        return float(min(logprobs.min(), np.log(max(rest, FLOAT32_ROUNDING))))
