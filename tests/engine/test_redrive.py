"""Dead letters are redriven to topics and files, each once, for any selection and after a kill at any time."""

from __future__ import annotations

import json
import os
import random
import uuid
from pathlib import Path
from typing import Any

import brokers
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from streamkernel.cli import app
from streamkernel.connectors import redrive
from streamkernel.connectors.kafka.options import CLIENTS
from streamkernel.connectors.redrive import Driven, FileTarget
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import load_config
from streamkernel.engine.redrive import Choice, Redrive

CONFIG = """
label = "y"
[kafka]
servers = "{servers}"
group = "{name}"
client = "{client}"
[source]
topics = ["{name}"]
until = "latest"
[model]
type = "KernelClassifier"
max_features = 32
learner = "dsg"
[sink]
{letters}
[state]
directory = "state"
"""
BAD = [b"{", b'{"a": 1}', b'{"a": [], "y": 1}', b"\xff{", b'{"a": 2}', b""]


@pytest.fixture(scope="module", params=["noida", pytest.param("apache", marks=pytest.mark.java)])
def servers(request, tmp_path_factory):
    if request.param == "noida":
        with brokers.noida(tmp_path_factory.mktemp("noida")) as broker:
            yield f"127.0.0.1:{broker.port}"
    else:
        yield f"127.0.0.1:{request.getfixturevalue('apache').port}"


def ran(path: Path) -> Any:
    engine = engine_of(load_config(path))
    engine.run()
    return engine


def made(folder: Path, servers: str, client: str, letters: str) -> tuple[Path, str]:
    """Run a configuration over bad records and some good ones; return its path and the name of the topic."""
    name = uuid.uuid4().hex
    brokers.make_topics(servers, names=[name], partitions=2)
    brokers.make_topics(servers, names=[f"{name}-dead"])
    brokers.produce(
        servers,
        name,
        [{"a": i, "y": i % 2} for i in range(4)] + BAD,
        partitions=2,
    )
    path = folder / "run.toml"
    sink = 'dead_letters = "dead.jsonl"' if letters == "file" else f'dead_letters_topic = "{name}-dead"'
    path.write_text(CONFIG.format(servers=servers, name=name, client=client, letters=sink))
    ran(path)
    return path, name


def command(*words: Any) -> str:
    answer = CliRunner().invoke(app, ["redrive", *map(str, words)])
    assert answer.exit_code == 0, answer.output
    return answer.stdout


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("letters", ["topic", "file"])
def test_letters_go_back_to_the_partition_that_they_came_from_and_once(tmp_path, servers, client, letters):
    path, name = made(tmp_path, servers, client, letters)
    counted = command(path, "--dry-run")
    assert "unreadable: Expected valid JSON" in counted
    assert "1  stay: it has no value" in counted
    assert len(brokers.committed(servers, name)) == 10
    assert "3 sent back" in command(path, "--kind", "unreadable", "--kind", "value")
    assert "1 sent back" in command(path, "--reason", "Expected a label", "--limit", 1)
    assert "1 sent back" in command(path)
    assert "sent back" not in command(path)
    records = brokers.committed(servers, name)
    first = {record.key: record for record in records if record.offset < 5}
    back = [record for record in records if record.offset >= 5 and record.key in first]
    assert sorted(record.value for record in back) == sorted(value for value in BAD if value)
    for record in back:
        origin = first[record.key]
        assert (record.partition, record.value) == (origin.partition, origin.value)
        assert dict(record.headers) == {"streamkernel.redriven": b"1"}
    (tmp_path / "state" / "redriven.json").unlink()
    assert "sent back" not in command(path)  # the brokers have the ledger, too
    engine = ran(path)
    assert engine.outcomes["dead_letter"] == 2 * len(BAD) - 1
    assert "5 sent back" in command(path)
    times = [dict(record.headers).get("streamkernel.redriven") for record in brokers.committed(servers, name)]
    assert times.count(b"2") == 5


def test_a_ledger_that_brokers_lack_is_in_the_copy(tmp_path, servers, monkeypatch):
    from streamkernel.connectors.kafka.kafka_python.consumer import PythonConsumer

    path, _ = made(tmp_path, servers, "kafka-python", "topic")
    assert "5 sent back" in command(path)
    monkeypatch.setattr(PythonConsumer, "committed_with_note", lambda self, partition: None)
    assert "sent back" not in command(path)


def test_a_transaction_that_is_not_committed_leaves_nothing(tmp_path, servers):
    path, name = made(tmp_path, servers, "kafka-python", "topic")
    work = Redrive(load_config(path), Choice())
    assert work.count() == 5

    def stop(letter: Any) -> None:
        send(letter)
        raise KeyboardInterrupt

    send, work.target.send = work.target.send, stop
    with pytest.raises(KeyboardInterrupt):
        work.drive(5)
    work.close()
    assert len(brokers.committed(servers, name)) == 10
    assert "5 sent back" in command(path)


def test_letters_of_other_tools_are_read(tmp_path, servers):
    path, name = made(tmp_path, servers, "kafka-python", "topic")
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers)
    for prefix, message in (("__connect.errors.", "exception.message"), ("__streams.errors.", "message")):
        headers = [
            (f"{prefix}topic", name.encode()),
            (f"{prefix}partition", b"1"),
            (f"{prefix}{message}", b"theirs"),
            ("own", b"1"),
        ]
        producer.send(f"{name}-dead", b"value", key=b"theirs", headers=headers)
    producer.close()
    assert "2 sent back" in command(path, "--reason", "theirs", "--rate", 1000)
    back = [record for record in brokers.committed(servers, name) if record.key == b"theirs"]
    assert [(record.partition, record.value, dict(record.headers)["own"]) for record in back] == [
        (1, b"value", b"1")
    ] * 2


@pytest.mark.parametrize("letters", ["topic", "file"])
def test_letters_of_topics_go_to_another_topic_or_a_file(tmp_path, servers, letters):
    path, name = made(tmp_path, servers, "kafka-python", letters)
    brokers.make_topics(servers, names=[f"{name}-other"])
    assert "3 sent back" in command(path, "--kind", "unreadable", "--kind", "value", "--to-topic", f"{name}-other")
    assert len(brokers.committed(servers, f"{name}-other")) == 3
    target = tmp_path / "back.jsonl"
    assert "2 sent back" in command(path, "--kind", "label", "--to-file", target)
    assert sorted(target.read_bytes().splitlines()) == [b'{"a": 1}', b'{"a": 2}']
    assert "sent back" not in command(path, "--kind", "label", "--to-file", target)


def test_letters_of_predictions_stay_because_their_records_were_learned(tmp_path, servers):
    path, name = made(tmp_path, servers, "kafka-python", "topic")
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers)
    headers = [("__connect.errors.topic", name.encode()), ("__connect.errors.partition", b"1"),
               ("streamkernel.kind", b"output")]  # fmt: skip
    producer.send(f"{name}-dead", b"", key=b"k", headers=headers)
    producer.close()
    assert "1  stay: its record was learned; only its prediction is missing" in command(path, "--dry-run")
    assert "5 sent back" in command(path)


FILE = (
    'label = "y"\n[source]\npath = "in.jsonl"\n[model]\ntype = "KernelClassifier"\nmax_features = 32\nlearner = "dsg"\n'
)


@pytest.fixture
def file_run(tmp_path):
    """A run over a file with four good records and three bad ones, without a newline at its end."""
    lines = [json.dumps({"a": i, "y": i % 2}) for i in range(4)] + ["{", '{"a": 1}', '{"a": 2}']
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    (tmp_path / "run.toml").write_text(FILE)
    ran(tmp_path / "run.toml")
    return tmp_path


def test_letters_of_a_file_go_back_to_it(file_run):
    path, source = file_run / "run.toml", file_run / "in.jsonl"
    before = source.read_text()
    assert "3  label: Expected a label" not in command(path, "--dry-run")
    assert source.read_text() == before
    assert "1 sent back" in command(path, "--kind", "unreadable")
    assert "2 sent back" in command(path)
    assert "no dead letters are left" in command(path)
    assert source.read_text() == before + '\n{\n{"a": 1}\n{"a": 2}\n'


@pytest.mark.parametrize("where", ["before", "within", "after"])
def test_a_kill_around_the_write_to_a_file_repeats_and_loses_nothing(file_run, monkeypatch, where):
    path, source = file_run / "run.toml", file_run / "in.jsonl"
    before, write, calls = source.read_bytes(), redrive.write, []

    class KilledError(BaseException):
        pass

    def killed(ledger: Path, content: Any) -> None:
        calls.append(content)
        if len(calls) == 2 and where == "within":
            os.truncate(source, len(before) + 3)
        if len(calls) == 2:
            raise KilledError
        write(ledger, content)
        if where == "before":
            raise KilledError

    monkeypatch.setattr(redrive, "write", killed)
    work = Redrive(load_config(path), Choice())
    with pytest.raises(KilledError):
        work.drive(work.count())
    monkeypatch.undo()
    assert ("3 sent back" in command(path)) == (where != "after")
    assert source.read_bytes() == before + b'\n{\n{"a": 1}\n{"a": 2}\n'


def test_a_file_that_others_write_to_after_a_kill_is_not_changed(file_run):
    target = FileTarget(file_run / "in.jsonl")
    ledger = file_run / "in.jsonl.redriven"
    ledger.write_text(json.dumps({"driven": {}, "pending": {"begin": 3, "end": 5, "driven": {}}}))
    with pytest.raises(ValueError, match="another program wrote to"):
        target.read([])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--kind", "labels"],
            '--kind: expected one of unreadable, classes, label, join, diverged, value, error, got "labels"',
        ),
        (["--kind", "output"], 'got "output", whose records were learned: only their predictions are missing'),
        (["--to-file", "x.csv.gz"], "expected a file that lines can be added to"),
        (["--to-file", "a", "--to-topic", "b"], "expected --to-topic or --to-file, got both"),
        (["--to-topic", "t"], "kafka: "),
    ],
)
def test_invalid_commands_are_refused(file_run, words, message):
    answer = CliRunner().invoke(app, ["redrive", str(file_run / "run.toml"), *words])
    assert answer.exit_code == 2
    assert message.lower() in answer.output.lower().replace("\n", "")


def test_a_run_without_dead_letters_is_reported(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"a": 1, "y": 1}\n')
    (tmp_path / "run.toml").write_text(FILE)
    answer = CliRunner().invoke(app, ["redrive", str(tmp_path / "run.toml")])
    assert answer.exit_code == 2
    assert "Expected a file of dead letters, found none" in answer.output


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=25), st.integers(0, 9))
def test_a_ledger_is_a_set(ranges, base):
    driven, expected = Driven(base), set(range(base))
    for number, length in ranges:
        driven.add(number, number + length)
        expected |= set(range(number, number + length))
    again = Driven(driven.base, driven.note())
    for number in range(80):
        assert (number in driven) == (number in again) == (number in expected)
    assert driven.base == min(set(range(80)) - expected)


def test_a_ledger_that_is_too_long_for_brokers_is_reported():
    driven = Driven()
    for number in range(1, 40_000, 2):
        driven.add(number)
    assert len(driven.note()) < 4000  # regular
    driven, at, generator = Driven(), 1, random.Random(0)
    for _ in range(9000):
        at += generator.randint(2, 1000)
        driven.add(at)
    with pytest.raises(ValueError, match="redrive all letters up to here first"):
        driven.note()
