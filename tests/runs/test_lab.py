"""A reader's way into the notebooks, from the shipped signals alone: a real Jupyter server.

Plain papermill, and what the other notebooks show by themselves, are in test_edits and tests/blackbox.
"""

import json
import re
import uuid
from contextlib import suppress

import httpx2
import nbformat
import pytest
import websocket
from clone import start, wait_for
from slurm_cluster import free_ports

from lib.paths import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server():
    """`./run_all.sh lab` on a free port: its address, once it answers."""
    (port,) = free_ports(1)
    process = start(ROOT, "lab", "--", "--no-browser", f"--port={port}", "--IdentityProvider.token=t", "--allow-root",
                    "--ip=127.0.0.1")  # fmt: skip
    try:
        wait_for(process, lambda: answers(f"127.0.0.1:{port}"))
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def answers(address: str) -> bool:
    with suppress(httpx2.HTTPError):
        return bool(request(address, "api/status"))
    return False


def request(address: str, path: str, body=None):
    headers = {"Authorization": "token t"}
    answer = httpx2.request(
        "POST" if body else "GET", f"http://{address}/{path}", json=body, headers=headers, timeout=30
    )
    return answer.raise_for_status().json()


def run_cell(socket_, code: str) -> list[dict]:
    """What a cell sends back, up to its end."""
    header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "username": "", "session": "s"}
    message = {"header": header | {"version": "5.3"}, "parent_header": {}, "metadata": {}, "channel": "shell"}
    socket_.send(json.dumps(message | {"content": {"code": code, "silent": False}}))
    sent = []
    while True:
        message = json.loads(socket_.recv())
        if message["parent_header"].get("msg_id") == header["msg_id"]:
            sent.append(message)
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return sent


def test_a_notebook_begins_in_jupyterlab(server):
    """Where its kernel stands, and what it can import; the rest of a notebook hangs on no server."""
    notebook = nbformat.from_dict(request(server, "api/contents/notebooks/02_single_pass.ipynb")["content"])
    session = {"path": "notebooks/02_single_pass.ipynb", "type": "notebook", "name": "", "kernel": {"name": "python3"}}
    kernel = request(server, "api/sessions", session)["kernel"]["id"]
    socket_ = websocket.create_connection(f"ws://{server}/api/kernels/{kernel}/channels?token=t", timeout=120)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    for source in code[:4]:
        sent = run_cell(socket_, source)
        for message in sent:
            assert message["msg_type"] != "error", "\n".join(message["content"]["traceback"])
    assert any("text/html" in message["content"].get("data", {}) for message in sent), "a table of what is shipped"
    socket_.close()


def test_links_to_code_lead_somewhere_and_no_news_are_asked_for(server):
    assert "ESTIMATORS" in request(server, "api/contents/lib/score/estimators.py")["content"]
    page = httpx2.get(f"http://{server}/lab?token=t", timeout=30, follow_redirects=True).text
    (page,) = re.findall(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, flags=re.S)
    assert "@jupyterlab/apputils-extension:announcements" in json.loads(page)["disabledExtensions"]
