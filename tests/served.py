"""The demo models behind llama.cpp's own server, and a server of tests that answers as badly as it is told to."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import tiny_gguf

from lib.paths import ROOT

# ---- llama.cpp


def serve_gguf(path: str, port: str) -> None:
    """Serve a file until this process is killed, with a float32 cache and without flash attention."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.hostnames, params.port = path, ["127.0.0.1"], int(port)
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 4096, 4, 1
    params.cache_type_k = params.cache_type_v = xllamacpp.xllamacpp.ggml_type(0)
    params.flash_attn_type = xllamacpp.xllamacpp.llama_flash_attn_type(0)
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    time.sleep(1e6)


@contextmanager
def llama_cpp(model: str, folder: Path):
    """Serve a demo model, and yield the URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = tiny_gguf.write(folder / f"{model}.gguf", model)
    command, env = [sys.executable, __file__, str(path), str(port)], os.environ | {"PYTHONPATH": str(ROOT)}
    said = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=ROOT, env=env, **said) as server:
        try:
            assert server.stdout.readline(), "llama.cpp's server did not start"
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


# ---- the server of tests


def completion(body: dict, text: str = "#### 7", **changed) -> dict:
    """What a right server answers: a token per word, or `A` with the 20 most probable ones."""
    words = ["A"] if body["max_tokens"] == 1 else text.split(" ")
    pieces = [words[0], *(f" {word}" for word in words[1:])]
    tops = [{"token": token, "logprob": logprob} for token, logprob in (("A", -0.2), ("B", -1.8))]
    content = [
        {"token": piece, "logprob": -0.2, "bytes": list(piece.encode()), "top_logprobs": tops} for piece in pieces
    ]
    prompt = sum(len(message["content"].split()) for message in body.get("messages", ()))
    choice = {"index": 0, "message": {"role": "assistant", "content": "".join(pieces)}, "finish_reason": "stop",
              "logprobs": {"content": content}}  # fmt: skip
    return {"choices": [choice | changed], "usage": {"prompt_tokens": prompt}}


def like_vllm(server, number, body):
    """What vLLM answers for a model that thinks: its tokens are words, and its template joins the messages."""
    path = server.paths[number - 1]
    if path == "/tokenize":
        return {"tokens": " ".join(message["content"] for message in body["messages"]).split()}
    if path == "/detokenize":
        return {"prompt": " ".join(body["tokens"]) + " "}
    if path == "/v1/completions":
        arrays = {
            "tokens": [" A"],
            "token_logprobs": [-0.2],
            "top_logprobs": [{" A": -0.2, "B": -1.8}],
            "text_offset": [],
        }
        choice = {"text": " A", "logprobs": arrays, "finish_reason": "length"}
        return {"choices": [choice], "usage": {"prompt_tokens": len(body["prompt"].split())}}
    return completion(body, "Seven. </think> #### 7") if path == "/v1/chat/completions" else (404, {}, b"{}")


class FaultyServer(ThreadingHTTPServer):
    """Answers with `answer(server, number of the request, body)`: bytes, a JSON object, or (status, headers, bytes).

    `asked` has the body of each request, `headers` theirs, and `paths` where it was sent.
    """

    daemon_threads = True

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.asked, self.headers, self.paths, self.guard = answer, [], [], [], threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        """A client that went away is none of the test's business."""


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.guard:
            self.server.asked.append(body)
            self.server.headers.append(dict(self.headers))
            self.server.paths.append(self.path)
            number = len(self.server.asked)
        told = self.server.answer(self.server, number, body)
        status, headers, data = told if isinstance(told, tuple) else (200, {}, told)
        if data is None:
            return self.connection.close()
        data = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": len(data), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@contextmanager
def faulty(answer):
    """Run a server of tests."""
    server = FaultyServer(answer)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    serve_gguf(*sys.argv[1:])
