"""The files and topics that the engine writes conform to the schemas in docs/."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import brokers
import pytest
from jsonschema import Draft202012Validator

from streamkernel.connectors import DeadLetters, Event, FileSink
from streamkernel.connectors.kafka.options import CLIENTS
from streamkernel.connectors.kafka.sink import LONGEST
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import load_config
from streamkernel.engine.telemetry.dead_letters import KINDS, REASONS, refusal_of

SCHEMAS = Path(__file__).parents[2] / "docs" / "reference" / "schemas"
PREDICTION, LETTER, HEADERS = (
    Draft202012Validator(json.loads((SCHEMAS / f"{name}.schema.json").read_text()))
    for name in ("prediction", "dead-letter", "dead-letter-headers")
)
MODELS = {
    "classes": ('"KernelClassifier"\nmax_features = 32', lambda i: "ab"[i % 2]),
    "truth": ('"KernelClassifier"\nmax_features = 32', lambda i: bool(i % 2)),
    "numbers": ('"KernelRegressor"\nmax_features = 32', lambda i: i / 7),
    "process": ('"GaussianProcessRegressor"\nn_features = 16', lambda i: i / 7),
}
CONFIG = """
label = "y"
{labels}
{kafka}
[source]
{source}
[model]
type = {model}
[sink]
{sink}
[state]
directory = "state"
"""
KAFKA = '[kafka]\nservers = "{servers}"\nclient = "{client}"\ngroup = "{group}"'
N = 40


def ran(folder: Path, **parts: str) -> Any:
    """Run a configuration to the end, and return the engine."""
    path = folder / "run.toml"
    path.write_text(CONFIG.format(**({"labels": "", "kafka": ""} | parts)))
    engine = engine_of(load_config(path))
    engine.run()
    return engine


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def records(label: Callable[[int], Any]) -> list[dict[str, Any]]:
    return [{"a": i / 10, "b": -i / 5, "y": label(i)} for i in range(N)]


def test_the_schemas_are_schemas_and_describe_each_field() -> None:
    for validator in (PREDICTION, LETTER, HEADERS):
        Draft202012Validator.check_schema(validator.schema)
        assert all("description" in field for field in validator.schema["properties"].values())
    for validator, name in ((LETTER, "kind"), (HEADERS, "streamkernel.kind")):
        assert set(validator.schema["properties"][name]["enum"]) == set(KINDS)


@pytest.mark.parametrize("change", [{"offset": -1}, {"stream": "a"}, {"resume": 1}, {"prediction": []}, {"member": 1}])
def test_the_schema_of_predictions_rejects_invalid_records(change: dict[str, Any]) -> None:
    good = {"topic": "t", "partition": 0, "offset": 1, "model_version": 0, "member": "m", "label": 1, "prediction": 1}
    assert PREDICTION.is_valid(good)
    assert not PREDICTION.is_valid(good | change)
    assert not any(PREDICTION.is_valid({k: v for k, v in good.items() if k != name}) for name in good)


@pytest.mark.parametrize("name", MODELS)
def test_predictions_in_files(tmp_path: Path, name: str) -> None:
    model, label = MODELS[name]
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records(label)))
    engine = ran(tmp_path, model=model, source='path = "in.jsonl"', sink='predictions = "out.jsonl"')
    found = lines(tmp_path / "out.jsonl")
    for line in found:
        PREDICTION.validate(line)
    assert [line["model_version"] for line in found] == list(range(N))
    identity = (tmp_path / "state" / "identity").read_text()
    assert {line["member"] for line in found} == {engine.parts.outputs.member} == {identity}
    assert ("probabilities" in found[-1]) == ("Classifier" in model)


BAD = [b"{", b"\xff", b'{"a": 1}', b'{"a": [], "y": 1}', b'{"a": 1, "y": []}']
"""Records that cannot be parsed, or have an invalid value or label."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with brokers.noida(tmp_path_factory.mktemp("noida")) as broker:
        yield f"127.0.0.1:{broker.port}"


def topics(servers: str, client: str) -> dict[str, str]:
    """Create topics, and return the tables of a configuration that reads one and writes to the others."""
    name = uuid.uuid4().hex
    brokers.make_topics(servers, names=[name, f"{name}-out", f"{name}-dead"])
    return {
        "name": name,
        "kafka": KAFKA.format(servers=servers, client=client, group=name),
        "source": f'topics = ["{name}"]\nuntil = "latest"',
        "sink": f'predictions_topic = "{name}-out"\ndead_letters_topic = "{name}-dead"',
    }


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", ["truth", "numbers"])
def test_predictions_and_dead_letters_in_topics(tmp_path: Path, servers: str, name: str, client: str) -> None:
    (model, label), parts = MODELS[name], topics(servers, client)
    long = json.dumps({"a": "x" * LONGEST["value"]}).encode()
    brokers.produce(servers, parts["name"], [*BAD, long, None, b"", *records(label)], max_request_size=2_000_000)
    engine = ran(tmp_path, model=model, **parts)
    found = brokers.committed(servers, f"{parts['name']}-out")
    source = {record.offset: record for record in brokers.committed(servers, parts["name"])}
    for version, record in enumerate(found):
        line = json.loads(record.value)
        PREDICTION.validate(line)
        origin = source[line["offset"]]
        assert (origin.topic, origin.partition, origin.timestamp, origin.key) == (
            line["topic"], line["partition"], line["timestamp"], record.key
        )  # fmt: skip
        assert (line["label"], line["model_version"]) == (json.loads(origin.value)["y"], version)
        assert line["member"] == engine.parts.outputs.member
    assert len(found) == N
    letters = brokers.committed(servers, f"{parts['name']}-dead")
    kinds = set()
    for letter in letters:
        headers = {header: value.decode() for header, value in letter.headers}
        HEADERS.validate(headers)
        origin = source[int(headers["__connect.errors.offset"])]
        assert letter.value == (origin.value or b"")[: LONGEST["value"]]
        assert headers["streamkernel.timestamp"] == str(origin.timestamp)
        kinds.add(headers["streamkernel.kind"])
        if len(origin.value or b"") > LONGEST["value"]:
            assert headers["streamkernel.truncated"] == "value"
            assert headers["streamkernel.value.size"] == str(len(long))
    assert [letter.key for letter in letters] == [b"%d" % i for i in range(len(BAD) + 3) if i != len(BAD) + 1]
    assert kinds == {"unreadable", "label", "value"}


@pytest.mark.parametrize("target", ["file", "topic"])
def test_labels_that_come_later(tmp_path: Path, servers: str, target: str) -> None:
    parts = topics(servers, "kafka-python") | {"labels": '[delayed_labels]\nkey = "id"', "model": MODELS["classes"][0]}
    parts["kafka"] = "\n".join(line for line in parts["kafka"].splitlines() if not line.startswith("group"))
    if target == "file":
        parts["sink"] = 'predictions = "out.jsonl"\ndead_letters = "dead.jsonl"'
    sent: list[Any] = [
        part
        for i in range(N)
        for part in ({"id": i, "a": i / 9}, {"id": (i, str(i), float(i))[i % 3], "y": "ab"[i % 2]})
    ]
    brokers.produce(servers, parts["name"], [*sent, {"id": 1, "y": "a"}, {"a": 1}, b"{"])
    ran(tmp_path, **parts)
    if target == "file":
        found, dead = lines(tmp_path / "out.jsonl"), lines(tmp_path / "dead.jsonl")
        for letter in dead:
            LETTER.validate(letter)
        kinds, offsets = [letter["kind"] for letter in dead], [letter["offset"] for letter in dead]
    else:
        found = [json.loads(record.value) for record in brokers.committed(servers, f"{parts['name']}-out")]
        letters = [dict(letter.headers) for letter in brokers.committed(servers, f"{parts['name']}-dead")]
        kinds = [letter["streamkernel.kind"].decode() for letter in letters]
        offsets = [int(letter["__connect.errors.offset"]) for letter in letters]
    for line in found:
        PREDICTION.validate(line)
    assert [(line["key"], line["offset"], line["model_version"]) for line in found] == [(i, 2 * i, i) for i in range(N)]
    assert {line["label"] for line in found} == {None}
    assert (kinds, offsets) == (["join", "join", "unreadable"], [2 * N, 2 * N + 1, 2 * N + 2])


def test_dead_letters_in_files(tmp_path: Path) -> None:
    good = [json.dumps({"a": i, "y": i % 3}).encode() for i in range(9)]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join([*good, *BAD, b'{"a": 1, "y": 4}']) + b"\n")
    model = '"KernelClassifier"\nmax_features = 32\nmax_classes = 3'
    ran(tmp_path, source='path = "in.jsonl"', model=model, sink='dead_letters = "dead.jsonl"')
    found = lines(tmp_path / "dead.jsonl")
    for letter in found:
        LETTER.validate(letter)
    assert {letter["kind"]: letter["exception"] for letter in found} == {
        "unreadable": "streamkernel.errors.InputError",
        "label": "streamkernel.errors.LabelError",
        "value": "streamkernel.errors.InputError",
        "classes": "streamkernel.errors.TooManyClassesError",
    }


@pytest.mark.parametrize("kind", REASONS)
def test_dead_letters_of_each_kind(tmp_path: Path, kind: str) -> None:
    letters = DeadLetters(FileSink(tmp_path / "dead.jsonl"))
    event = Event("t:0", 8, b"{}", {}, origin={"topic": "t", "partition": 0, "offset": 7})
    letters.write(event, refusal_of(event, REASONS[kind]("Expected another record")))
    letters.close()
    (letter,) = lines(tmp_path / "dead.jsonl")
    LETTER.validate(letter)
    assert letter["kind"] == kind
