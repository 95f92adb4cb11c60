"""Logins on a real broker with the tables of the page on security; refusals are named, and no secret is shown."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import brokers
import pytest
from click.testing import Result
from secured import PASSWORD, USER, Secured
from served import server
from typer.testing import CliRunner
from waiting import wait_for

from streamkernel.cli import app
from streamkernel.connectors.kafka import Options
from streamkernel.connectors.kafka.options import CLIENTS

PAGE = (Path(__file__).parents[2] / "docs" / "how_to" / "security.md").read_text()
TABLES = dict(re.findall(r'```toml title="([^"]+)"\n(.*?)```', PAGE, re.DOTALL))
PROGRAMS = dict(re.findall(r'```python title="([^"]+)"\n(.*?)```', PAGE, re.DOTALL))
LISTENERS = {"TLS": "SSL", "Mutual TLS": "MUTUAL", "A password": "SASL_SSL", "Tokens": "SASL_SSL"}
REST = """
[source]
topics = ["there"]
[model]
type = "KernelClassifier"
learner = "dsg"
max_features = 8
[state]
directory = "state"
checkpoint_seconds = 0.2
"""
SOON = {"kafka-python": "bootstrap_timeout_ms = 1500", "confluent-kafka": '"socket.connection.setup.timeout.ms" = 1500'}
SECRETS = ("horse", "eyJ")
"""Of all passwords, and of all tokens."""

Write = Callable[..., Path]


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def write(secured: Secured, client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Return a function that writes a configuration with a table of the page, changed by replacements of text."""

    def written(kind: str, listener: str | None = None, *changes: tuple[str, str], rest: str = REST) -> Path:
        monkeypatch.setenv("KAFKA_USER", USER)
        (tmp_path / "secret").write_text(f"{PASSWORD}\n")
        texts = {"run.toml": 'label = "y"\n' + TABLES[f"{kind}, {client}"] + rest, "tokens.py": PROGRAMS["tokens.py"]}
        own = [
            ("broker1:9093", f"127.0.0.1:{secured.ports[listener or LISTENERS[kind]]}"),
            ("/run/secrets/kafka", str(tmp_path / "secret")),
            ("https://issuer.example", secured.issuer),
            ("tokens:", f"{module}:"),
            *((f'"{name}"', f'"{secured.folder / name}"') for name in ("ca.pem", "client.pem", "client.key")),
        ]
        for name, text in texts.items():
            for old, new in (*changes, *own):
                text = text.replace(old, new)
            (tmp_path / name.replace("tokens", module)).write_text(text)
        return tmp_path / "run.toml"

    module = "tokens_" + re.sub(r"\W", "_", tmp_path.name)  # modules are imported once
    return written


def soon(client: str) -> tuple[str, str]:
    return "[kafka.options]", f"[kafka.options]\n{SOON[client]}"


def check(path: Path) -> Result:
    found = CliRunner().invoke(app, ["run", "--check", "--connect", str(path)])
    assert not any(secret in found.output for secret in SECRETS)
    return found


@pytest.mark.java
@pytest.mark.parametrize("kind", LISTENERS)
def test_the_tables_of_the_page_connect(write: Write, kind: str) -> None:
    answer = check(write(kind))
    assert answer.exit_code == 0, answer.output


@pytest.mark.java
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_other_mechanisms_connect_and_refuse_a_wrong_password(
    write: Write, client: str, mechanism: str, secured: Secured
) -> None:
    other = ("SCRAM-SHA-512", mechanism)
    answer = check(write("A password", None, other))
    assert answer.exit_code == 0, answer.output
    path = write("A password", None, other, soon(client))
    (path.parent / "secret").write_text("wrong-horse")
    answer = check(path)
    assert answer.exit_code == 2
    assert f"Kafka at 127.0.0.1:{secured.ports['SASL_SSL']} rejects the login: " in answer.stderr
    assert re.search("invalid (credentials|username or password)", answer.stderr, re.IGNORECASE), answer.stderr


UNTRUSTED = {
    "an expired certificate": ("TLS", "EXPIRED", (), "certificate has expired"),
    "another host": ("TLS", "ELSEWHERE", (), "(?i)(hostname|ip address) mismatch"),
    "another authority": ("TLS", "SSL", (("ca.pem", "stranger.pem"),), "certificate verify failed"),
    "no certificate of the client": ("TLS", "MUTUAL", (), "(?i)alert.(bad.certificate|certificate.required)"),
    "a certificate of a stranger": (
        "Mutual TLS",
        "MUTUAL",
        (("client.pem", "stranger.pem"), ("client.key", "stranger.key")),
        "(?i)alert.(certificate.(unknown|required)|bad.certificate|unknown.ca)",  # or none is sent
    ),
}


@pytest.mark.java
@pytest.mark.parametrize("case", UNTRUSTED)
def test_a_certificate_that_is_refused_is_named(write: Write, client: str, case: str, secured: Secured) -> None:
    kind, listener, files, cause = UNTRUSTED[case]
    changes = [(f'"{old}"', f'"{secured.folder / new}"') for old, new in files]
    answer = check(write(kind, listener, *changes, soon(client)))
    assert answer.exit_code == 2
    what = (
        "cannot be trusted (option ssl" if listener != "MUTUAL" else "rejects the certificate of the client (option ssl"
    )
    assert f"Kafka at 127.0.0.1:{secured.ports[listener]} {what}" in answer.stderr
    assert re.search(cause, answer.stderr), answer.stderr


TOKENS = {
    "an expired token": (("example/token", "example/old"), "(?i)(expired|invalid_token)"),
    "a wrong secret of the issuer": (("alice", "mallory"), "(?i)(401|invalid_client|unauthorized)"),
    "an issuer that is down": (("https://issuer.example", "http://127.0.0.1:1"), "(?i)(refused|connect)"),
}


@pytest.mark.java
@pytest.mark.parametrize("case", TOKENS)
def test_a_token_that_is_refused_is_named(
    write: Write, client: str, case: str, secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, cause = TOKENS[case]
    path = write("Tokens", None, change, soon(client))
    if change[0] == USER:
        monkeypatch.setenv("KAFKA_USER", change[1])
    answer = check(path)
    assert answer.exit_code == 2
    assert f"Kafka at 127.0.0.1:{secured.ports['SASL_SSL']} rejects the login: " in answer.stderr
    assert re.search(cause, answer.stderr), answer.stderr


@pytest.mark.java
def test_a_run_shows_no_secret(write: Write, client: str, secured: Secured, tmp_path: Path) -> None:
    name = f"events-{client}"
    servers = f"127.0.0.1:{secured.broker.port}"
    brokers.make_topics(servers, names=[name, f"{name}.dead"])
    brokers.produce(servers, name, [*({"a": i % 3, "y": i % 2} for i in range(20)), b"no JSON"])
    rest = REST.replace('"there"', f'"{name}"') + f'[sink]\ndead_letters_topic = "{name}.dead"\n[http]\nport = 0\n'
    path = write("A password", rest=rest)
    log = tmp_path / "log"
    with server("run", path, log=log) as run:
        wait_for(lambda: brokers.committed(servers, f"{name}.dead"), what=log.read_text)
        shown = [str(run.ask("GET", each)) for each in ("/", "/metrics", "/healthz", "/status")]
    letters = [str(record) for record in brokers.committed(servers, f"{name}.dead")]
    files = [one for one in tmp_path.rglob("*") if one.is_file() and one.name != "secret"]
    assert len(letters) == 1
    assert any(one.suffix == ".safetensors" for one in files)
    for text in (*shown, *letters, *(one.read_bytes().decode(errors="replace") for one in files)):
        assert not any(secret in text for secret in SECRETS)


def test_a_provider_of_tokens_that_is_wrong_is_named(tmp_path: Path) -> None:
    name = f"provider_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text("import os\ndef tokens():\n    return os.environ['NO_SUCH']\n")
    table = tomllib.loads(TABLES["Tokens, kafka-python"])["kafka"]["options"] | {"ssl_cafile": __file__}
    for given, line in (
        (f"{name}:tokens", """got KeyError: 'NO_SUCH'"""),
        ("tokens_nowhere:Tokens", "No module named 'tokens_nowhere'"),
    ):
        with pytest.raises(ValueError, match=r'Expected a function as "sasl_oauth_token_provider"') as error:
            Options("127.0.0.1:1", table | {"sasl_oauth_token_provider": given}, folder=tmp_path)
        assert line in str(error.value)
