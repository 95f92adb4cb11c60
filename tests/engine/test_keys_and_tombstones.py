"""Keys of records as a field in each format, and tombstones of compacted topics, by runs of the command line."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import brokers
import pytest
from states import named
from typer.testing import CliRunner

from streamkernel.cli import app
from streamkernel.commands.state import newest_checkpoint
from streamkernel.connectors.kafka.options import CLIENTS
from streamkernel.engine.config.config import ConfigError, load_config

CONFIG = """
label = "y"
[kafka]
servers = "{servers}"
client = "{client}"
group = "{topic}"
[source]
topics = ["{topic}"]
until = "latest"
{source}
[model]
type = "KernelClassifier"
max_features = 8
learner = "dsg"
[sink]
predictions = "predictions.jsonl"
[state]
directory = "state"
{more}
"""
N = 40
JSON = [json.dumps({"a": i % 7 / 7, "y": i % 7 > 3}).encode() for i in range(N)]
CSV = [b"\xef\xbb\xbf" * (i == 3) + b"%g,%d" % (i % 7 / 7, i % 7 > 3) for i in range(N)]


@pytest.fixture(scope="module", params=["noida", pytest.param("apache", marks=pytest.mark.java)])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "apache":
        yield f"127.0.0.1:{request.getfixturevalue('apache').port}"
    else:
        with brokers.noida(tmp_path_factory.mktemp("noida")) as broker:
            yield f"127.0.0.1:{broker.port}"


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(folder: Path, servers: str, client: str, source: str, topic: str, more: str = "") -> dict[str, Any]:
    """Run the command line on a topic to its present end, and return the newest checkpoint."""
    named(folder / "state")
    path = folder / "run.toml"
    path.write_text(CONFIG.format(servers=servers, client=client, source=source, topic=topic, more=more))
    answer = CliRunner().invoke(app, ["run", str(path)])
    assert answer.exit_code == 0, answer.output
    return newest_checkpoint(folder / "state")


def letters(folder: Path) -> list[str]:
    path = folder / "state" / "dead_letters.jsonl"
    return [json.loads(line)["reason"] for line in path.read_text().splitlines()] if path.exists() else []


def lines(folder: Path, *left_out: str) -> list[dict[str, Any]]:
    found = map(json.loads, (folder / "predictions.jsonl").read_text().splitlines())
    return [{name: value for name, value in line.items() if name not in left_out} for line in found]


@pytest.mark.parametrize(
    ("values", "source"), [(JSON, ""), (CSV, 'format = "csv"\ncolumns = ["a", "y"]')], ids=["json", "csv"]
)
def test_tombstones_are_passed_over_and_counted(
    tmp_path: Path, servers: str, client: str, values: list[bytes], source: str
) -> None:
    compacted: list[bytes | None] = [*values]
    for i in (0, 7, 20, 21, N):
        compacted.insert(i, None)
    found = []
    for name, records in (("plain", values), ("compacted", compacted)):
        (tmp_path / name).mkdir()
        topic = f"{name}-{uuid.uuid4().hex}"
        brokers.make_topics(servers, names=[topic])
        brokers.produce(servers, topic, records)
        found.append(run(tmp_path / name, servers, client, source, topic))
        assert letters(tmp_path / name) == []
    of_run = ("topic", "offset", "timestamp", "member")
    assert lines(tmp_path / "compacted", *of_run) == lines(tmp_path / "plain", *of_run)
    plain, other = (checkpoint["outcomes"] for checkpoint in found)
    assert (plain["learned"], plain["passed_over"]) == (N, 0)
    assert other == plain | {"passed_over": 5}

    brokers.produce(servers, topic, [None, values[0]])  # the same run, continued
    again = run(tmp_path / "compacted", servers, client, source, topic)
    assert again["outcomes"] == other | {"passed_over": 6, "learned": N + 1, "predicted": N + 1}
    assert list(again["positions"].values()) == [N + 7]


def digits(n: int) -> bytes:
    return b"%d" % n


def long(n: int) -> bytes:
    return struct.pack(">q", n)


SERIALIZERS: dict[str, tuple[Callable[[int], bytes], Any]] = {
    "string": (digits, "3"),
    "long": (long, 3),
    "integer": (lambda n: struct.pack(">i", n), 3),
    "json": (digits, 3),
}


@pytest.mark.parametrize("form", SERIALIZERS)
def test_keys_of_each_format(tmp_path: Path, servers: str, client: str, form: str) -> None:
    key_of, third = SERIALIZERS[form]
    topic = f"{form}-{uuid.uuid4().hex}"
    brokers.make_topics(servers, names=[topic])
    brokers.produce(servers, topic, JSON[:5], key_of=key_of)
    source = 'partitions = [0]\nkey_as_field = "id"' + ("" if form == "string" else f'\nkey_format = "{form}"')
    labels = '[delayed_labels]\nkey = "id"'  # so predictions have the key
    assert run(tmp_path, servers, client, source, topic, labels)["outcomes"]["learned"] == 5
    found = lines(tmp_path)[3]["key"]
    assert (found, type(found)) == (third, type(third))


def test_keys_in_another_format_are_dead_letters_that_name_it(tmp_path: Path, servers: str, client: str) -> None:
    topic, other = uuid.uuid4().hex, uuid.uuid4().hex
    brokers.make_topics(servers, names=[topic, other])
    for key_of in (long, lambda n: long(-1 - n), digits):
        brokers.produce(servers, topic, JSON[:1], key_of=key_of)
        brokers.produce(servers, other, JSON[:1], key_of=key_of)
    assert run(tmp_path, servers, client, 'key_as_field = "id"', topic)["outcomes"]["dead_letter"] == 2
    for reason, number in zip(letters(tmp_path), ("00 00 00 00 00 00 00 00", "ff ff ff ff ff ff ff ff"), strict=True):
        expected = f"Expected a key of UTF-8 text, got 8 bytes, {number}: declare its key_format - at {topic}:0, "
        assert reason.startswith(expected)
    (tmp_path / "long").mkdir()
    source = 'key_as_field = "id"\nkey_format = "long"'
    run(tmp_path / "long", servers, client, source, other)
    expected = f'Expected a key of 8 bytes for key_format "long", got 1 byte, 30 - at {other}:0, offset 2'
    assert letters(tmp_path / "long") == [expected]


def test_key_format_needs_a_field(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    text = CONFIG.format(servers="localhost", client="kafka-python", topic="t", more="", source='key_format = "long"')
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"source.key_format: only goes with key_as_field"):
        load_config(path)
    path.write_text(text.replace('"long"', '"short"\nkey_as_field = "id"'))
    with pytest.raises(ConfigError, match=r'source.key_format: expected "string", "long", "integer" or "json", got'):
        load_config(path)
