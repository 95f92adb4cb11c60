"""The command `topics`, and the output of `run --check --connect`, with real brokers."""

from __future__ import annotations

import shlex
import socket
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import brokers
import pytest
from click.testing import Result
from secured import PASSWORD, USER, Secured
from typer.testing import CliRunner
from waiting import wait_for

from streamkernel.cli import app
from streamkernel.connectors.kafka import Options
from streamkernel.connectors.kafka.options import CLIENTS

CONFIG = """
label = "y"
{labels}
[kafka]
servers = "127.0.0.1:{port}"
client = "{client}"
group = "{group}"
options = {{ {options} }}
[source]
topics = {topics}
{source}
[model]
type = "KernelClassifier"
[sink]
predictions_topic = "{group}.out"
dead_letters_topic = "{group}.dead"
[state]
directory = "state"
"""
LOGIN = {
    "kafka-python": 'security_protocol = "SASL_PLAINTEXT", sasl_mechanism = "SCRAM-SHA-512", sasl_plain_username = '
    '"{user}", sasl_plain_password = "{password}"',
    "confluent-kafka": '"security.protocol" = "SASL_PLAINTEXT", "sasl.mechanism" = "SCRAM-SHA-512", "sasl.username" = '
    '"{user}", "sasl.password" = "{password}"',
}
SOON = {"kafka-python": "bootstrap_timeout_ms = 500", "confluent-kafka": '"socket.connection.setup.timeout.ms" = 1500'}

Write = Callable[..., tuple[str, Path]]


@pytest.fixture(scope="module", params=["noida", pytest.param("apache", marks=pytest.mark.java)])
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    if request.param == "apache":
        yield request.getfixturevalue("apache").port
    else:
        with brokers.noida(tmp_path_factory.mktemp("noida")) as broker:
            yield broker.port


@pytest.fixture(params=CLIENTS)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Write:
    """Return a function that writes a configuration and returns the name of its topics and its path."""

    def write(port: int, *, login: dict[str, str] | None = None, soon: bool = False, **parts: str) -> tuple[str, Path]:
        name, path = f"t{uuid.uuid4().hex[:12]}", tmp_path / "run.toml"
        options = [SOON[request.param]] * soon + [LOGIN[request.param].format(**one) for one in (login,) if one]
        given = {"topics": f'["{name}"]', "labels": "", "source": ""} | parts
        given = {key: text.replace("NAME", name) for key, text in given.items()}
        path.write_text(CONFIG.format(port=port, client=request.param, group=name, options=", ".join(options), **given))
        return name, path

    return write


def call(*words: Any) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def counts(port: int, *names: str) -> dict[str, int]:
    """Return how many partitions topics have."""
    asked = Options(f"127.0.0.1:{port}").consumer()
    try:
        return {name: len(asked.partitions_of(name)) for name in names}
    finally:
        asked.close()


def test_topics_are_listed_and_created(written: Write, port: int) -> None:
    name, config = written(port)
    brokers.make_topics(f"127.0.0.1:{port}", names=[name], partitions=3)
    expected = [
        f"{name} (source): exists with 3 partitions",
        f"{name}.out (predictions): missing, should have 3 partitions",
        f"{name}.dead (dead letters): missing, should have 1 partition",
    ]
    answer = call("topics", config)
    lines = answer.stdout.splitlines()
    assert (answer.exit_code, lines[:3]) == (1, expected)
    command = ["kafka-topics.sh", "--bootstrap-server", f"127.0.0.1:{port}", "--create", "--topic"]
    assert [shlex.split(line) for line in lines[-2:]] == [
        [*command, f"{name}.out", "--partitions", "3"],
        [*command, f"{name}.dead", "--partitions", "1"],
    ]
    assert counts(port, f"{name}.out") == {f"{name}.out": 0}
    answer = call("topics", config, "--create")
    made = [line.replace("missing, should have", "created with") for line in expected]
    assert (answer.exit_code, answer.stdout.splitlines()) == (0, made)
    names = name, f"{name}.out", f"{name}.dead"
    wait_for(lambda: counts(port, *names) == dict(zip(names, (3, 3, 1), strict=True)))
    for words in ([], ["--create"]):
        answer = call("topics", config, *words)
        there = [line.replace("created", "exists") for line in made]
        assert (answer.exit_code, answer.stdout.splitlines()) == (0, there)
    assert call("run", "--check", "--connect", config).stdout.splitlines()[0] == f"{config} is valid"


def test_a_missing_source_topic_is_created(written: Write, port: int) -> None:
    name, config = written(
        port, labels='[delayed_labels]\nkey = "id"', topics='["NAME", "NAME.y"]', source="partitions = [0, 3]"
    )
    answer = call("topics", config, "--create")
    assert answer.exit_code == 0, answer.stderr
    assert answer.stdout.splitlines()[1] == f"{name}.y (source of features and labels): created with 4 partitions"
    wait_for(lambda: counts(port, name, f"{name}.y") == {name: 4, f"{name}.y": 4})
    name, config = written(port)
    answer = call("topics", config)
    lines = answer.stdout.splitlines()
    assert lines[0] == f"{name} (source): missing, should have the brokers' default number of partitions"
    assert "--partitions" not in lines[-3]
    assert call("topics", config, "--create").exit_code == 0
    wait_for(lambda: min(counts(port, name, f"{name}.out").values()) > 0)


def test_unavailable_brokers_are_named(written: Write) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    _, config = written(port, soon=True)
    for words in (["topics"], ["topics", "--create"], ["run", "--check", "--connect"]):
        answer = call(*words, config)
        assert (answer.exit_code, answer.stdout) == (2, "")
        *_, line = answer.stderr.splitlines()  # with a longer timeout the client may log its retries first
        assert f"Kafka at 127.0.0.1:{port} cannot be reached: " in line
        assert answer.stderr.count("streamkernel: ") == 1
    assert call("run", "--check", config).exit_code == 0


def test_check_reports_each_missing_topic_and_partition(written: Write, port: int) -> None:
    name, config = written(port, source="partitions = [0, 7]")
    answer = call("run", "--check", "--connect", config)
    assert (answer.exit_code, answer.stdout) == (2, "")
    for topic in (name, f"{name}.out", f"{name}.dead"):
        assert f'kafka: expected a topic, got "{topic}", which does not exist - at 127.0.0.1:{port}' in answer.stderr
    brokers.make_topics(f"127.0.0.1:{port}", names=[name, f"{name}.out", f"{name}.dead"], partitions=2)
    answer = call("run", "--check", "--connect", config)
    assert answer.stderr == f'streamkernel: kafka: expected a partition from 0 to 1 of "{name}", got 7\n'
    assert not (config.parent / "state").exists()


@pytest.mark.java
def test_a_wrong_password_is_reported_and_the_right_one_is_used(written: Write, secured: Secured) -> None:
    wrong = {"user": USER, "password": "wrong-horse"}
    _, config = written(secured.ports["SASL_PLAINTEXT"], login=wrong, soon=True)
    for words in (["topics"], ["topics", "--create"], ["run", "--check", "--connect"]):
        answer = call(*words, config)
        assert (answer.exit_code, answer.stdout) == (2, "")
        assert f"Kafka at 127.0.0.1:{secured.ports['SASL_PLAINTEXT']} rejects the login: " in answer.stderr
        assert "horse" not in answer.stderr
    name, config = written(secured.ports["SASL_PLAINTEXT"], login=wrong | {"password": PASSWORD})
    assert "--command-config client.properties" in call("topics", config).stdout
    assert call("topics", config, "--create").exit_code == 0
    names = name, f"{name}.out", f"{name}.dead"
    wait_for(lambda: min(counts(secured.broker.port, *names).values()) > 0)
    assert call("run", "--check", "--connect", config).stdout.splitlines()[0] == f"{config} is valid"


def test_topics_require_the_kafka_table(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text('label = "y"\n[source]\ndataset = "Phishing"\n[model]\ntype = "KernelClassifier"\n')
    answer = call("topics", config)
    assert answer.exit_code == 2
    assert answer.stderr == "streamkernel: kafka: required for topics; expected a table, got nothing\n"
