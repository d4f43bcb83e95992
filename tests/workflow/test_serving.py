"""`--url`: the address, the model's file, the key's neighbors (proxies, certificates), and what is
refused in one line before anything is asked."""

import shutil
import socket
import ssl
import subprocess
from argparse import Namespace
from types import SimpleNamespace

import pytest
import yaml
from served import Served, completion, right, serving

from lib import params, paths
from lib.errors import UserError
from lib.paths import ROOT
from workflow import cli, run
from workflow.serving import connection, errors, givers, model_file
from workflow.serving.address import parse_address

# ---- the address

CHATS = {  # address: where a chat completion is asked for
    "http://h:8000": "http://h:8000/v1/chat/completions",
    "http://h:8000/": "http://h:8000/v1/chat/completions",
    "http://h:8000/v1": "http://h:8000/v1/chat/completions",
    "http://h:8000/v1/": "http://h:8000/v1/chat/completions",
    "http://h:8000/v1/chat/completions": "http://h:8000/v1/chat/completions",
    "https://h/v1/models": "https://h/v1/chat/completions",
    "https://h/v1beta/openai/": "https://h/v1beta/openai/chat/completions",
    "https://h/openai/v1": "https://h/openai/v1/chat/completions",
    "https://h/api": "https://h/api/chat/completions",
    "https://h/api/coding/paas/v4?api-version=2": (
        "https://h/api/coding/paas/v4/chat/completions?api-version=2"
    ),
    "https://h/d/m/chat/completions?api-version=2024-10-21": (
        "https://h/d/m/chat/completions?api-version=2024-10-21"
    ),
    "http://[::1]:8000": "http://[::1]:8000/v1/chat/completions",
}


@pytest.mark.parametrize("url, chat", CHATS.items(), ids=CHATS)
def test_an_address_is_that_of_the_openai_library_however_it_is_pasted(url, chat):
    assert parse_address(url).join("/chat/completions") == chat


def test_what_a_server_renders_lies_beside_its_version():
    root = parse_address("http://h:8000/v1").root
    assert root.join("/tokenize") == "http://h:8000/tokenize"


WRONG = {
    "localhost:8000": "is written as --url http://localhost:8000/v1, not 'localhost:8000'",
    "ftp://h": "is written as",
    "http://": "is written as",
    "http://h/a b": "is written as",
    "http://h:99999": "Port out of range",
    "http://h:0": "no server has port 0",
    "http://h:8x": "Port could not be cast",
    "https://user:secret@h/v1": "holds a password: set OPENAI_API_KEY",
}


@pytest.mark.parametrize("url, message", WRONG.items(), ids=WRONG)
def test_a_wrong_address_is_one_line_before_anything_is_installed(url, message, capsys):
    assert cli.main(["demo", "--url", url]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert "secret" not in error


WORDS = {
    "--dry-run": (["demo", "--url", "http://h", "--dry-run"], "--dry-run does not go with --url"),
    "a name alone": (["demo", "--model-name", "m"], "are for a server: add --url http"),
    "a time alone": (["demo", "--timeout", "5"], "are for a server: add --url http"),
    "no time": (["demo", "--url", "http://h", "--timeout", "0"], "a whole number from 1 up"),
    "replay": (["replay", "--url", "http://h"], "replay takes no --url"),
    "ask": (["ask", "demo"], "unknown profile or verb 'ask'"),
}


@pytest.mark.parametrize("words, message", WORDS.values(), ids=WORDS)
def test_words_that_do_not_fit_a_server_are_one_line(words, message, capsys):
    assert cli.main(words) == 2
    assert message in capsys.readouterr().err


# ---- the model and its file


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Parameter files of one's own beside the project's: `mine` of a server, and `weights`."""
    models = shutil.copytree(ROOT / "params", tmp_path / "params") / "models"
    (models / "mine.yaml").write_text("label: Mine\nresponses: artifacts/mine/\n")
    (models / "weights.yaml").write_text("label: W\nsource: ./w\n")
    monkeypatch.setattr(paths, "PARAMS", tmp_path / "params")
    for module in (params, model_file):
        monkeypatch.setattr(module, "PARAMS", tmp_path / "params")
    return models


def list_new_files(folder):
    ours = {path.name for path in (ROOT / "params" / "models").iterdir()}
    return {path.stem for path in folder.iterdir() if path.name not in ours}


def choose(url, models=(), name="", add=()):
    args = Namespace(
        url=url, models=list(models), add_models=list(add), model_name=name, timeout=None
    )
    return model_file.choose_model(args)


def test_the_only_model_of_a_server_is_asked_and_named_after_itself(folder):
    """A second command finds its file again, whatever was set in it."""
    with serving(right, models=["org/My Model:7b"]) as server:
        for _ in range(2):
            args = choose(server.url)
            assert (args.models, args.model_name) == (["My-Model-7b"], "org/My Model:7b")
            path = folder / "My-Model-7b.yaml"
            spec = params.load_model_config("My-Model-7b")
            path.write_text(path.read_text().replace("temperature: 1.0", "temperature: 0.5"))
    assert (spec.label, spec.responses) == ("org/My Model:7b", "artifacts/served/My-Model-7b/")
    assert params.load_model_config("My-Model-7b").temperature == 0.5
    assert server.paths == ["/v1/models"] * 2 and not server.requests


def test_the_name_of_a_file_is_without_its_folder(folder):
    """No path of this machine enters a table. The server is asked by its own name."""
    args = choose("http://h", name="/home/someone/models/q4.gguf")
    assert (args.models, args.model_name) == (["q4"], "/home/someone/models/q4.gguf")
    assert params.load_model_config("q4").label == "q4"


def test_a_name_that_another_model_has_is_left_to_it(folder):
    assert choose("http://h", name="org/weights").models == ["org-weights"]
    assert choose("http://h", name="weights").models == ["weights-served"]
    assert choose("http://h", name="other/weights").models == ["other-weights"]


def test_a_file_is_taken_by_its_name_and_weights_are_refused(folder):
    assert choose("http://h", ["mine"], "x").models == ["mine"]
    assert list_new_files(folder) == {"mine", "weights"}
    with pytest.raises(UserError, match="model 'weights' has a `source`, so its weights are read"):
        choose("http://h", ["weights"], "x")
    for models, add in ((["mine", "weights"], []), ([], ["mine"])):
        with pytest.raises(UserError, match="a server is asked for one model"):
            choose("http://h", models, "x", add)


@pytest.mark.parametrize("names", [[], ["a", "b"]])
def test_of_several_models_one_is_named(folder, names):
    listed = ", ".join(names)
    with (
        serving(right, models=names) as server,
        pytest.raises(UserError, match=rf"has {len(names)} models, name one: .* \({listed}\)"),
    ):
        choose(server.url)
    assert list_new_files(folder) == {"mine", "weights"}


def test_a_server_that_is_not_there_changes_no_file(folder, monkeypatch):
    monkeypatch.setattr(connection, "RETRIES", 0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UserError, match=f"^{url}: {url}/v1: .*: does it run there\\?$"):
            choose(url)
    assert list_new_files(folder) == {"mine", "weights"}


def test_requests_needs_what_the_server_calls_the_model(folder):
    with pytest.raises(UserError, match="as --model-name NAME"):
        choose("", ["mine"])


# ---- proxies and certificates


@pytest.fixture
def somewhere(monkeypatch):
    """A host elsewhere, and no proxy but a test's own."""
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)
    monkeypatch.setattr(connection, "RETRIES", 0)
    return parse_address("http://server.invalid:8000")


def connect(address):
    return connection.Server(address, None, print)


@pytest.mark.parametrize("variable, proxy, message", [
    ("ALL_PROXY", "socks5://127.0.0.1:9", "the proxy of ALL_PROXY speaks SOCKS: unset it, or"),
    ("HTTP_PROXY", "socks://127.0.0.1:9", "the proxy of HTTP_PROXY can't be used: write it as"),
    ("http_proxy", "ftp://127.0.0.1:9", "the proxy of http_proxy can't be used: write it as"),
])  # fmt: skip
def test_a_proxy_that_can_not_be_used_is_one_line(somewhere, monkeypatch, variable, proxy, message):
    """Unless the server is on this machine, or named in NO_PROXY: then it is not asked for."""
    monkeypatch.setenv(variable, proxy)
    with pytest.raises(UserError, match=f"^{message}"):
        connect(somewhere)
    connect(parse_address("http://localhost:8000"))
    monkeypatch.setenv("NO_PROXY", "server.invalid")
    connect(somewhere)


def test_a_proxy_elsewhere_is_not_asked_for_this_machine(tmp_path, somewhere, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert not Served(tmp_path, 2).ask_fake(right)[1].missing


def test_a_proxy_that_does_not_answer_is_named(tmp_path, somewhere, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://user:secret@127.0.0.1:9")
    with pytest.raises(UserError, match="through the proxy of HTTP_PROXY: ") as refused:
        Served(tmp_path, 2).ask("http://server.invalid")
    assert "secret" not in str(refused.value)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of localhost that no authority knows."""
    folder = tmp_path_factory.mktemp("certificate")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-days", "2"]
    command += ["-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not here")
    return SimpleNamespace(key=folder / "key.pem", path=folder / "cert.pem")


def test_an_unknown_certificate_is_named_in_a_variable(tmp_path, certificate, monkeypatch):
    model = Served(tmp_path, 2)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.path, certificate.key)
    with serving(right) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = server.url.replace("http://127.0.0.1", "https://localhost")
        with pytest.raises(UserError, match="CERTIFICATE_VERIFY_FAILED.* in SSL_CERT_FILE"):
            model.ask(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nothing.pem"))
        with pytest.raises(UserError, match="certificates of SSL_CERT_FILE can't be read: No such"):
            model.ask(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))
        assert not model.ask(url).missing


# ---- who gives log-probabilities

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")


def test_a_service_that_gives_none_is_named(tmp_path, monkeypatch):
    """The page's table knows each service that the message knows."""
    message = givers.explain_missing(parse_address("https://api.anthropic.com/v1"))
    assert message == "Anthropic gives none; docs/extending.md lists who gives them"
    assert "start the server so" in givers.explain_missing(parse_address("http://localhost:8000"))
    for known in givers.GIVERS.values():
        assert known.split(" gives")[0].removesuffix("'s chat") in PAGE


# ---- the command


def test_the_command_goes_on_to_the_run_and_its_exit_code_says_what_is_missing(
    tmp_path, folder, monkeypatch, capsys
):
    """Of twenty questions one is refused each time: the run is made, the exit code is 1."""
    model = Served(tmp_path)
    (folder / "m.yaml").write_text("label: m\nresponses: artifacts/served/m/\n")
    made = []
    monkeypatch.setattr(run, "plan", lambda args: model.run)
    monkeypatch.setattr(run, "make", lambda args, run: made.append(run) or 0)
    refused = []

    def answer(request):
        if not refused:
            refused.append(request.body["seed"])
        if request.body.get("seed") in refused:
            return 400, {}, b'{"error": {"message": "filtered"}}'
        return right(request)

    with serving(answer) as server:
        assert run.main(["demo", "--url", server.url]) == 1
        assert made == [model.run]
        last_line = capsys.readouterr().out.splitlines()[-1]
        again = "(the same command asks for them again)"
        assert last_line.startswith(f"1 requests have no answer {again}: 1 x 400 filtered")
        refused[0] = -1  # no longer
        assert run.main(["demo", "--url", server.url]) == 0
    assert len(made) == 2


def test_a_server_without_log_probabilities_ends_the_command(tmp_path, folder, monkeypatch, capsys):
    monkeypatch.setattr(run, "plan", lambda args: Served(tmp_path).run)
    body = completion()
    body["choices"][0]["logprobs"] = None
    with serving(lambda _: body) as server:
        assert run.main(["demo", "--url", server.url]) == 2
        assert len(server.requests) == 8
    error = capsys.readouterr().err
    assert "its answer has no log-probabilities: start the server" in error
    assert yaml.safe_load((folder / "m.yaml").read_text())["label"] == "m"


@pytest.mark.parametrize(
    "name, reason, line",
    [
        ("seed", "no 'seed'", "write `request: {seed: null}`"),
        ("max_tokens", "no 'max_tokens'", "write `request: {max_tokens: null}`"),
        (
            "max_tokens",
            "use 'max_completion_tokens'",
            "write `request: {max_tokens: null, max_completion_tokens: 9}`",
        ),
        ("seed", "'seed' and 'max_completion_tokens'", "write `request: {seed: null}`"),
    ],
)
def test_a_field_that_is_refused_is_left_out_or_renamed(name, reason, line):
    assert errors.write_without(name, reason, {"max_tokens": 9, "seed": 1}) == line
