"""A reader's way into the notebooks: a real Jupyter server, whose kernels stand and import where notebooks expect it.

What the notebooks show by themselves is in test_edits and tests/blackbox.
"""

import json
import re
from contextlib import suppress

import httpx2
import nbformat
import pytest
from clone import ROOT, start, wait_for
from jupyter_client import BlockingKernelClient, find_connection_file
from slurm_cluster import free_ports

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server():
    """`./run_all.sh lab` on a free port, once it answers."""
    (port,) = free_ports(1)
    options = ("--no-browser", f"--port={port}", "--IdentityProvider.token=t", "--allow-root", "--ip=127.0.0.1")
    process = start(ROOT, "lab", "--", *options)
    asking = httpx2.Client(base_url=f"http://127.0.0.1:{port}", headers={"Authorization": "token t"}, timeout=30)

    def answers():
        with suppress(httpx2.HTTPError):
            return asking.get("api/status").is_success

    try:
        wait_for(process, answers)
        yield asking
    finally:
        process.terminate()
        process.wait(30)


def test_a_notebook_begins_in_jupyterlab(server):
    """Where its kernel stands, and what it can import; the rest of a notebook hangs on no server."""
    name = "notebooks/02_single_pass.ipynb"
    notebook = nbformat.from_dict(server.get(f"api/contents/{name}").json()["content"])
    session = {"path": name, "type": "notebook", "name": "", "kernel": {"name": "python3"}}
    kernel = server.post("api/sessions", json=session).json()["kernel"]["id"]
    client = BlockingKernelClient(connection_file=find_connection_file(f"kernel-{kernel}.json"))
    client.load_connection_file()
    client.start_channels()
    for source in [cell.source for cell in notebook.cells if cell.cell_type == "code"][:4]:
        answer = client.execute(source, reply=True, timeout=120)["content"]
        assert answer["status"] == "ok", "\n".join(answer["traceback"])
    client.stop_channels()


def test_links_to_code_lead_somewhere_and_no_news_are_asked_for(server):
    assert "ESTIMATORS" in server.get("api/contents/lib/score/estimators.py").json()["content"]
    page = server.get("lab?token=t", follow_redirects=True).text
    (page,) = re.findall(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, flags=re.S)
    assert "@jupyterlab/apputils-extension:announcements" in json.loads(page)["disabledExtensions"]
