"""`./run_all.sh PROFILE --url URL`: what a model that only a server has was not asked yet.

For each dataset these are the questions, then both forms of P(True) about the responses. Each
answer is one line, appended as soon as it comes, so a killed run loses what was in flight and no
more. An answer is checked before it is kept. A request that fails keeps no other from being sent:
the reasons are counted.
"""

import asyncio
import random
import re
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

from filelock import FileLock, Timeout
from tqdm import tqdm

from lib.errors import UserError
from lib.parameter_schemas import Model
from lib.paths import relative_path
from lib.responses import first_answers, server_requests
from lib.responses.first_answers import FIRST
from lib.responses.formats import Response, parse_response
from lib.responses.server_requests import PROBES, BatchRequest, RequestFile
from workflow.check import select_examples
from workflow.engine.jobs_of_run import Run
from workflow.engine.progress import say
from workflow.serving.address import parse_address
from workflow.serving.answer_files import line_of_answer, read_answers
from workflow.serving.batch_files import check_folders, write_questions, write_verification
from workflow.serving.connection import Server
from workflow.serving.errors import Body, ServerError
from workflow.serving.givers import explain_missing

IN_A_ROW = 8  # failures of the server itself, after which the rest is left for later
SECONDS_OF_SILENCE = 30  # between two lines of progress where there is no terminal
MOST_REASONS = 4  # in one line


@dataclass
class Outcome:
    """How asking ended."""

    answers: int = 0
    reasons: Counter[str] = field(default_factory=Counter)  # of requests without an answer
    untried: int = 0  # requests that were left for later
    is_stopped: bool = False  # whether the server can't answer now

    @property
    def missing(self) -> int:
        return self.reasons.total() + self.untried

    def describe(self) -> str:
        """Return one line on the requests without an answer."""
        counts = [f"{count} x {reason}" for reason, count in self.reasons.most_common(MOST_REASONS)]
        if self.untried:
            counts.append(f"{self.untried} not sent")
        again = "the same command asks for them again"
        return f"{self.missing} requests have no answer ({again}): {'; '.join(counts)}"


@dataclass
class Exchange:
    """The requests of one form about one dataset, and what became of them."""

    spec: Model
    dataset: str
    form: str  # one of VERIFICATIONS, or empty for the questions
    responses: dict[str, Response] = field(default_factory=dict)  # by custom_id
    problems: dict[str, UserError] = field(default_factory=dict)  # by custom_id

    def __post_init__(self) -> None:
        paths = server_requests.exchange_files(self.spec, self.dataset, self.form)
        self.path, self.answers = paths

    @property
    def title(self) -> str:
        return f"{self.dataset} {self.form}".strip()

    def list_usable(self) -> list[Response]:
        return [response for response in self.responses.values() if not response.empty]

    def list_missing(self, names: Iterable[str]) -> list[str]:
        """Return the requests without an answer."""
        missing = []
        for name in names:
            if name not in self.responses or self.responses[name].empty:
                missing.append(name)
        return missing


def ask_run(run: Run, args: Namespace) -> Outcome:
    """Ask what a run with one model lacks. Raise UserError if nothing at all can be had."""
    check_folders(run)
    outcome = Outcome()
    for dataset in run.values["datasets"]:
        if not outcome.is_stopped:
            ask_about_dataset(run, dataset, args, outcome)
    return outcome


def ask_about_dataset(run: Run, dataset: str, args: Namespace, outcome: Outcome) -> None:
    """Ask the questions of a dataset, then both forms of P(True) about the responses."""
    (model,) = run.specs
    spec = run.specs[model]
    examples = select_examples(run, dataset)
    write_questions(run, model, dataset, args.model_name, examples)
    questions = Exchange(spec, dataset, "")
    ask_form(questions, args, outcome)
    responses = {}
    for example in examples:
        name = example.example_id
        responses[name] = questions.responses.get(name, Response(name))
    for form in server_requests.VERIFICATIONS:
        if outcome.is_stopped:
            return
        write_verification(spec, dataset, form, examples, responses)
        ask_form(Exchange(spec, dataset, form), args, outcome)


def ask_form(exchange: Exchange, args: Namespace, outcome: Outcome) -> None:
    """Send the requests of a file that lack an answer, and count those that still do.

    Raise UserError if this and all before gave no answer: then no other will.
    """
    requests = RequestFile(exchange.path)
    with open_answers(exchange) as file:
        exchange.responses = read_answers(file, exchange.answers, requests, exchange.dataset)
        missing = exchange.list_missing(requests)
        random.shuffle(missing)  # so that what fails each time does not come first each time
        missing.sort(key=lambda name: name.startswith(PROBES))  # these say nothing of responses
        try:
            if missing:
                asyncio.run(Asker(exchange, requests, file, args).ask_for(missing))
        except UserError as problem:
            if not outcome.answers and not exchange.list_usable():
                raise
            for name in exchange.list_missing(requests):
                exchange.problems.setdefault(name, problem)
    missing = exchange.list_missing(requests)
    answered = len(requests) - len(missing)
    say(f"{exchange.title}: {answered} of {len(requests)} answered")
    outcome.answers += answered
    count_reasons(exchange, missing, outcome)


def count_reasons(exchange: Exchange, missing: list[str], outcome: Outcome) -> None:
    """Count why requests have no answer; reasons that differ in numbers alone are one."""
    text_by_kind: dict[str, str] = {}
    for name in missing:
        problem = exchange.problems.get(name)
        if problem is None:
            outcome.untried += 1
            outcome.is_stopped = True
            continue
        if isinstance(problem, ServerError) and problem.is_of_the_server:
            outcome.is_stopped = True
        kind = re.sub(r"\d+", "0", str(problem))
        text = text_by_kind.setdefault(kind, f"{problem} (the first: {name})")
        outcome.reasons[text] += 1


@contextmanager
def open_answers(exchange: Exchange) -> Iterator[BinaryIO]:
    """Open the file of answers to append to. Raise UserError if another command does."""
    path = exchange.answers
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise UserError(f"{relative_path(path)} is being written by another command") from None
    with lock, path.open("ab", buffering=0) as file:
        yield file


# ---- the server


class Asker:
    """Sends the requests of an exchange, and appends the answers to its file."""

    def __init__(
        self, exchange: Exchange, requests: RequestFile, file: BinaryIO, args: Namespace
    ) -> None:
        self.exchange = exchange
        self.requests = requests
        self.file = file
        self.args = args
        self.parameter_file = f"params/models/{args.models[0]}.yaml"
        self.models: dict[str, str] = {}  # that answered, by custom_id
        self.in_a_row = 0  # failures of the server itself
        self.server = Server(parse_address(args.url), args.timeout, self.say, self.parameter_file)

    def say(self, text: str) -> None:
        say(f"{self.exchange.title}: {text}")

    async def ask_for(self, missing: list[str]) -> None:
        """Send requests: some first, and the others unless these were in vain. Raise UserError with
        the reason."""
        end = self.file.seek(0, 2)
        async with self.server:
            await self.send_all(missing[:FIRST])
            self.judge_first(end)
            await self.send_all(missing[FIRST:])

    def judge_first(self, end: int) -> None:
        """Raise UserError if the first answers are in vain: the file then ends where it did before
        them, as another request will be asked."""
        responses = self.exchange.list_usable()
        if not responses:
            raise next(iter(self.exchange.problems.values()))
        fault = first_answers.find_fault(
            self.exchange.form, self.exchange.spec, responses, self.parameter_file
        )
        wanted = self.args.model_name
        other = first_answers.find_other_model(wanted, self.models.values())
        if other:
            fault = (
                f"the server answers as model '{other}', not '{wanted}': write --model-name {other}"
                "; if it must be sent another name, also write `request: {model: NAME}` in "
                f"{self.parameter_file}"
            )
        if fault:
            self.file.truncate(end)
            for name in self.models:
                del self.exchange.responses[name]
            raise UserError(fault)

    async def send_all(self, names: list[str]) -> None:
        """Send requests, as many at once as the command says, until all are or the server is
        gone."""
        progress = Progress(self.exchange.title, len(names))
        queue = iter(names)

        async def work() -> None:
            for name in queue:
                await self.send(name)
                progress.advance()
                if self.in_a_row >= max(IN_A_ROW, self.args.concurrent):
                    return

        count = min(self.args.concurrent, len(names))
        await asyncio.gather(*(work() for _ in range(count)))
        progress.end()

    async def send(self, name: str) -> None:
        """Send a request, and keep its answer, or why there is none."""
        try:
            answer = await self.fetch(self.requests[name])
            line = line_of_answer(name, answer)
            response = parse_response(line, "its answer")
            self.check_usable(response)
        except UserError as problem:
            self.exchange.problems[name] = problem
            of_the_server = isinstance(problem, ServerError) and problem.is_of_the_server
            self.in_a_row = self.in_a_row + 1 if of_the_server else 0
            return
        self.file.write(line)
        self.exchange.responses[name] = response
        self.models[name] = str(answer.get("model") or "")
        self.in_a_row = 0

    def check_usable(self, response: Response) -> None:
        """Raise UserError for an answer that holds no text, or no log-probabilities."""
        if response.empty:
            raise UserError("its answer is empty: it was withheld, or calls a tool")
        if not response.pieces:
            remedy = explain_missing(self.server.address)
            raise UserError(f"its answer has no log-probabilities: {remedy}")

    async def fetch(self, request: BatchRequest) -> Body:
        """Return the completion that answers a request. Raise UserError if there is none."""
        body = request["body"]
        if "prompt" in body:
            prompt = await self.server.render(body) + body["prompt"]  # with its special tokens
            body = body | {"prompt": prompt, "add_special_tokens": False}
        return await self.server.complete(request["url"].removeprefix("/v1"), body)


class Progress:
    """How many requests are done: a bar on a terminal, elsewhere a line now and then."""

    def __init__(self, title: str, total: int):
        self.title = title
        self.total = total
        self.done = 0
        self.next_line = time.monotonic() + SECONDS_OF_SILENCE
        is_terminal = sys.stderr.isatty()
        self.bar = tqdm(total=total, desc=title, disable=not (is_terminal and total))

    def advance(self) -> None:
        self.done += 1
        self.bar.update()
        if self.bar.disable and time.monotonic() > self.next_line:
            self.next_line = time.monotonic() + SECONDS_OF_SILENCE
            say(f"{self.title}: {self.done} of {self.total} sent")

    def end(self) -> None:
        self.bar.close()
