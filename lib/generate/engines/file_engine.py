"""Responses from a file, as an engine draws them: token ids, scored by the model afterwards."""

from collections.abc import Sequence

from lib.errors import UserError
from lib.generate import p_true
from lib.models.loading import LanguageModel, encode
from lib.responses.formats import Response
from lib.responses.imported import ImportedResponses
from lib.responses.rows import Request
from lib.tasks.datasets import Example


class FileEngine:
    """An engine that takes the responses from a model's file instead of sampling."""

    def __init__(self, lm: LanguageModel, dataset: str, examples: Sequence[Example]):
        self.lm = lm
        imported = ImportedResponses.read(lm.spec, dataset, examples)
        self.responses = imported.responses
        self.facts = imported.facts

    def sample(self, requests: Sequence[Request]) -> list[list[int]]:
        """Return the token ids of the response to each request, with its end token.

        A response is cut where it would fill the context, with prompt and query.
        """
        sampled = []
        cut = []
        for request in requests:
            name = request.example.example_id
            ids = response_token_ids(self.lm, self.responses[name])
            room = p_true.room_for_response(self.lm, request.prompt_ids)
            ended = ids[-1] in self.lm.eos
            body = ids[:-1] if ended else ids
            if len(body) > room:
                cut.append(name)
                ids = ids[:room]
            sampled.append(ids)
        if cut:
            print(
                f"{len(cut)} of {len(requests)} responses, the first to '{cut[0]}', do not fit the "
                f"context of {self.lm.context} with prompt and query: they are cut there"
            )
        return sampled


def response_token_ids(lm: LanguageModel, response: Response) -> list[int]:
    """Return the tokens of a response, encoded with the model's tokenizer if it has only text.

    Its end tokens and padding become one end token. A complete response without an end token gets
    one. Raise UserError for an id outside the vocabulary.
    """
    ids = list(response.token_ids or encode(lm, response.text))
    wrong = [token for token in ids if not 0 <= token < lm.vocab_size]
    if wrong:
        raise UserError(
            f"the response to '{response.example_id}' holds the token id {wrong[0]}, and the "
            f"vocabulary of model '{lm.name}' ends at {lm.vocab_size - 1}: drawn by another model?"
        )
    body = len(ids)
    endings = {*lm.eos, lm.tokenizer.pad_token_id}
    while body and ids[body - 1] in endings:
        body -= 1
    ends = [token for token in ids[body:] if token in lm.eos]
    if not (ends or body) or response.finish_reason == "stop":
        ends.append(lm.eos[0])
    return ids[:body] + ends[:1]
