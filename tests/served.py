"""A model that only a server has, and a server of tests that answers as it is told to."""

import json
import re
import threading
from argparse import Namespace
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

from lib import params
from lib.parameter_schemas import Model
from lib.responses.formats import read_response_file
from lib.responses.imported import ImportedResponses
from lib.responses.server_requests import RequestFile, exchange_files
from workflow.check import select_examples
from workflow.engine.jobs_of_run import Run
from workflow.serving import asking, batch_files

DATASET = "demo-easy"
TOPS = {"A": -0.2, "B": -1.8}


class Served:
    """A model known by its folder and further facts of it, with `count` questions of each split."""

    def __init__(self, folder, count=10, **facts):
        usual = {"label": "S", "responses": f"{folder}/", "system_prompt": False}
        self.spec = Model(**usual | facts)
        values = params.load_profile("demo").model_dump()
        values |= {"limit": count, "example": "", "models": ["served"], "datasets": [DATASET]}
        self.run = Run("demo", values)
        self.run.specs["served"] = self.spec
        self.examples = select_examples(self.run, DATASET)

    def write_requests(self, model_name="m"):
        """`./run_all.sh requests` for this model alone."""
        assert batch_files.main(self.run, Namespace(model_name=model_name)) == 0

    def ask(self, url, **options):
        """What `./run_all.sh demo --url` asks before it runs; return how it ended."""
        usual = {"model_name": "m", "models": ["served"], "concurrent": 4, "timeout": None}
        return asking.ask_run(self.run, Namespace(**usual | options, url=url))

    def ask_fake(self, answer, **options):
        """Ask a server that answers in this way; return the requests that it got, and how asking
        ended."""
        with serving(answer) as server:
            outcome = self.ask(server.url, **options)
        return server.requests, outcome

    def respond(self, text):
        """Write the file of responses, all alike, each with an end token."""
        body = completion(text)
        body["choices"][0]["logprobs"]["content"].append({"token": "", "logprob": -0.1})
        self.answers().write_text("".join(batch_line(name, body) for name in self.names()))

    def names(self):
        return [example.example_id for example in self.examples]

    def requests(self, form=""):
        """The requests of a form, by name."""
        return RequestFile(exchange_files(self.spec, DATASET, form)[0])

    def answers(self, form=""):
        return exchange_files(self.spec, DATASET, form)[1]

    def read_responses(self, form=""):
        return read_response_file(self.answers(form), DATASET)

    def imported(self):
        return ImportedResponses.read(self.spec, DATASET, self.examples)


def of_questions(requests):
    """Those of them that ask a question: they alone have a seed."""
    return [request for request in requests if "seed" in request.body]


def batch_line(name, body, status=200):
    """What a batch service writes of an answer."""
    response = {"status_code": status, "body": body}
    return json.dumps({"custom_id": name, "response": response, "error": None}) + "\n"


def completion(text="#### 7", tops=TOPS, prompt=40, logprob=-0.2, **usage):
    """What a server answers: a token per word, each beside the most probable ones."""
    listed = [{"token": token, "logprob": logprob} for token, logprob in tops.items()]
    content = [
        {"token": piece, "logprob": logprob, "bytes": list(piece.encode()), "top_logprobs": listed}
        for piece in re.findall(r" ?\S+", text)
    ]
    ending = "stop" if len(content) > 1 else "length"
    choice = {
        "message": {"content": text},
        "finish_reason": ending,
        "logprobs": {"content": content},
    }
    return {"choices": [choice], "usage": {"prompt_tokens": prompt} | usage}


def right(request, text="#### 7"):
    """What a server answers whose tokens are words, with one more where it closes the assistant's
    own message."""
    body = request.body
    prompt = sum(len(message["content"].split()) for message in body["messages"])
    going_on = {"continue_final_message": True, "add_generation_prompt": False}
    goes_on = going_on.items() <= body.items()
    if body["messages"][-1]["role"] == "assistant" and not goes_on:
        prompt += 1
    return completion("A" if body["max_tokens"] == 1 else text, prompt=prompt)


@contextmanager
def serving(answer, models=("m",)):
    """A server that answers with `answer(request)`: an object, or (status, headers, bytes or None
    to say nothing).

    A request has its path, its body, and the key that it came with; `requests` has them all.
    `models`: the names that it lists.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            request = SimpleNamespace(path=self.path, body=body, key=self.headers["authorization"])
            server.requests.append(request)
            self.reply(answer(request))

        def do_GET(self):
            server.paths.append(self.path)
            self.reply({"data": [{"id": name} for name in models]})

        def reply(self, reply):
            if not isinstance(reply, tuple):
                reply = (200, {}, json.dumps(reply).encode())
            status, headers, data = reply
            if data is not None:
                self.send_response(status)
                for name, value in {"content-length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, *_):
            """Requests are none of what a test says."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.requests = []
        server.paths = []
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        server.handle_error = lambda *_: None  # of a client that went away
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
