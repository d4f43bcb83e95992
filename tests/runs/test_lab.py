"""A reader's way into the notebooks: a real Jupyter server, whose kernels stand and import where
notebooks expect it.

What the notebooks show by themselves is in test_edits and tests/blackbox.
"""

import json
import re
from contextlib import suppress

import httpx2
import nbformat
import pytest
from clone import ROOT, start, until
from jupyter_client import BlockingKernelClient, find_connection_file
from slurm_cluster import free_ports


@pytest.mark.slow
def test_a_notebook_begins_in_jupyterlab_whose_links_lead_to_code():
    """Where its kernel stands, and what it can import; the rest of a notebook hangs on no server.
    No news are asked for."""
    (port,) = free_ports(1)
    options = ["--no-browser", "--IdentityProvider.token=t", "--allow-root", "--ip=127.0.0.1"]
    process = start(ROOT, "lab", "--", *options, f"--port={port}")
    server = httpx2.Client(
        base_url=f"http://127.0.0.1:{port}", headers={"Authorization": "token t"}, timeout=30
    )

    def is_up():
        with suppress(httpx2.HTTPError):
            return server.get("api/status").is_success

    try:
        until(is_up, process=process)
        name = "notebooks/02_single_pass.ipynb"
        notebook = nbformat.from_dict(server.get(f"api/contents/{name}").json()["content"])
        session = {"path": name, "type": "notebook", "name": "", "kernel": {"name": "python3"}}
        kernel = server.post("api/sessions", json=session).json()["kernel"]["id"]
        client = BlockingKernelClient(connection_file=find_connection_file(f"kernel-{kernel}.json"))
        client.load_connection_file()
        client.start_channels()
        code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
        for source in code[:4]:
            answer = client.execute(source, reply=True, timeout=120)["content"]
            assert answer["status"] == "ok", "\n".join(answer["traceback"])
        client.stop_channels()
        assert "ESTIMATORS" in server.get("api/contents/lib/score/estimators.py").json()["content"]
        page = server.get("lab?token=t", follow_redirects=True).text
    finally:
        process.terminate()
        process.wait(30)
    (page,) = re.findall(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, flags=re.S)
    assert "@jupyterlab/apputils-extension:announcements" in json.loads(page)["disabledExtensions"]
