"""Runs on topics with values in other formats than JSON, and the configurations of them that are refused."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from threading import Thread
from typing import Any

import brokers
import pytest
import registries
from confluent_kafka.schema_registry import topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.schema_registry_client import SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext
from waiting import wait_for

from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import ConfigError, load_config
from streamkernel.engine.config.start_checks import check_connections
from streamkernel.engine.config.streams import PREDICTION_FIELDS

CONFIG = """
label = "y"
[kafka]
servers = "{servers}"
group = "{name}"
[schema_registry]
url = "{url}"
[source]
topics = ["{name}"]
until = "latest"
format = "{form}"
[model]
type = "KernelClassifier"
max_features = 32
[sink]
predictions_topic = "{name}-out"
predictions_format = "{form}"
[state]
directory = "state"
"""
CLICK = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "user", "type": {"type": "record", "name": "User", "fields": [{"name": "age", "type": "double"}]}},
        {"name": "size", "type": ["null", "double"], "default": None},
        {"name": "y", "type": "string"},
    ],
}
N = 30
BY_TOPIC = {"subject.name.strategy": topic_subject_name_strategy}


@pytest.fixture(scope="module", params=["small", pytest.param("real", marks=pytest.mark.java)])
def services(request, tmp_path_factory):
    """Brokers and a schema registry: the ones without Java, or Apache Kafka and Apicurio."""
    folder = tmp_path_factory.mktemp("services")
    if request.param == "small":
        with brokers.noida(folder) as broker, registries.small() as registry:
            yield f"127.0.0.1:{broker.port}", registry.url
    else:
        with registries.apicurio(folder) as url:
            yield f"127.0.0.1:{request.getfixturevalue('apache').port}", url


def written(folder: Any, servers: str, url: str, **parts: str) -> Any:
    """Create topics and their configuration, and return its path and the name of the topic."""
    name = uuid.uuid4().hex
    brokers.make_topics(servers, names=[name, f"{name}-out"])
    path = folder / "run.toml"
    path.write_text(CONFIG.format(servers=servers, name=name, url=url, **{"form": "avro", **parts}))
    return path, name


def clicks(url: str) -> list[bytes]:
    write = AvroSerializer(SchemaRegistryClient({"url": url}), json.dumps(CLICK), conf=BY_TOPIC)
    context = SerializationContext(uuid.uuid4().hex, MessageField.VALUE)
    return [write({"user": {"age": i / 9}, "size": i % 3 or None, "y": "ab"[i % 2]}, context) for i in range(N)]


def test_avro_in_and_out(tmp_path, services):
    servers, url = services
    path, name = written(tmp_path, servers, url)
    unknown = b"\0" + (4242).to_bytes(4, "big") + b"..."
    brokers.produce(servers, name, [*clicks(url), unknown, b"{}"])
    check_connections(load_config(path))
    engine = engine_of(load_config(path))
    engine.run()
    assert engine.outcomes["learned"] == N
    assert set(engine.parts.processor.examples.numbers) == {"user.age", "size"}
    letters = [json.loads(line) for line in (tmp_path / "state" / "dead_letters.jsonl").read_text().splitlines()]
    assert [letter["kind"] for letter in letters] == ["unreadable", "unreadable"]
    assert "Expected schema 4242 of the schema registry at" in letters[0]["reason"]
    assert "Expected a zero byte and the id of a schema in front, got 7b 7d" in letters[1]["reason"]
    read = AvroDeserializer(SchemaRegistryClient({"url": url}), conf=BY_TOPIC)
    found = [read(record.value) for record in brokers.committed(servers, f"{name}-out")]
    assert [(line["offset"], line["label"], line["model_version"]) for line in found] == [
        (i, "ab"[i % 2], i) for i in range(N)
    ]
    assert set(found[-1]["probabilities"]) == {"a", "b"}


def test_protobuf_and_json_schema_of_one_run_are_read_by_another(tmp_path, services):
    """A run reads the predictions of another one, and learns them."""
    servers, url = services
    for form in ("protobuf", "json-schema"):
        (tmp_path / form).mkdir()
        path, name = written(tmp_path / form, servers, url)
        brokers.produce(servers, name, clicks(url))
        path.write_text(path.read_text().replace('predictions_format = "avro"', f'predictions_format = "{form}"'))
        engine_of(load_config(path)).run()
        text = (
            path.read_text().replace(f'["{name}"]', f'["{name}-out"]').replace('format = "avro"', f'format = "{form}"')
        )
        text = text.replace(f'predictions_topic = "{name}-out"\npredictions_format = "{form}"', "")
        label = "prediction.text" if form == "protobuf" else "prediction"
        text = text.replace('label = "y"', f'label = "{label}"').replace('"state"', '"other"')
        path.write_text(text.replace("group", 'processing_guarantee = "at_least_once"\ngroup'))
        engine = engine_of(load_config(path))
        engine.run()
        assert engine.outcomes["learned"] == N - 1  # the first record has no prediction


def test_a_run_waits_for_an_unavailable_registry(tmp_path):
    """An unavailable registry makes no record a dead letter, at the start or later."""
    with brokers.noida(tmp_path / "noida") as broker, registries.small() as registry:
        path, name = written(tmp_path, f"127.0.0.1:{broker.port}", registry.url)
        brokers.produce(f"127.0.0.1:{broker.port}", name, clicks(registry.url))
        registry.fails, registry.where = 503, "/subjects"  # the path at which the schema of predictions is registered
        engine = engine_of(load_config(path))
        run = Thread(target=engine.run)
        run.start()
        try:
            wait_for(lambda: engine.incidents["unreachable"])
            before = engine.incidents["unreachable"]
            registry.where = "/schemas"  # the path of the schemas of clicks
            wait_for(lambda: engine.incidents["unreachable"] > before and "/schemas/ids/1" in registry.asked)
        finally:
            registry.fails = 0
            run.join()
        assert (engine.outcomes["learned"], engine.outcomes["dead_letter"]) == (N, 0)


TOPICS = '[source]\ntopics = ["t"]\nformat = "avro"\n'
REGISTRY = '[schema_registry]\nurl = "http://localhost:8081"\n'
REFUSED = [
    (TOPICS, "", 'schema_registry: required for source.format = "avro"; expected a table, got nothing'),
    (TOPICS.replace("avro", "json"), REGISTRY, "schema_registry: expected a format with schemas in source or sink"),
    (
        TOPICS.replace("avro", "parquet"),
        "",
        'source.format: expected one of "json", "csv", "avro", "protobuf", "json-schema"',
    ),
    (TOPICS.replace("avro", "csv"), "", "source.columns: expected a list of names"),
    (TOPICS + 'columns = ["a"]', REGISTRY, "source.columns: expected a list of names with format"),
    (TOPICS + 'decoder = "json:loads"', REGISTRY, "source.format: does not go with a decoder"),
    (TOPICS + 'reader_schema = "missing.avsc"', REGISTRY, "source.reader_schema: no such file or directory"),
    (TOPICS + 'reader_schema = "wrong.avsc"', REGISTRY, "source.reader_schema: expected a schema of Avro, got"),
    (TOPICS.replace("avro", "json") + 'reader_schema = "wrong.avsc"', "", 'only goes with format = "avro"'),
    (TOPICS + 'envelope = "maxwell"', REGISTRY, 'source.envelope: expected "debezium", got "maxwell"'),
    (TOPICS + "max_list_length = -1", REGISTRY, "source.max_list_length: expected an integer from 0 to 10,000, got -1"),
    (TOPICS, REGISTRY + 'options = {"basic.auth.userinfo" = "me:s3cret"}', 'did you mean "basic.auth.user.info"'),
    (
        TOPICS,
        '[schema_registry]\nurl = "https://me:s3cret@here"\n',
        "schema_registry: expected an address without a login",
    ),
    (
        '[source]\npath = "a.csv"\nformat = "avro"\n',
        "",
        'source.format: expected one of "csv", "jsonl", "parquet", "svmlight"',
    ),
    ('[source]\npath = "a.csv"\nkey_as_field = "a"\n', "", "source.key_as_field: only goes with topics"),
    ('[source]\ndataset = "Phishing"\ncolumns = ["a"]\n', "", "source.columns: only goes with a path or topics"),
    (TOPICS + 'decimal = ","', REGISTRY, 'source.decimal: only goes with format = "csv", got "avro"'),
]


@pytest.mark.parametrize(("source", "registry", "message"), REFUSED)
def test_incompatible_formats_are_named(tmp_path, source, registry, message):
    (tmp_path / "wrong.avsc").write_text('{"type": "record"}')
    kafka = (
        '[kafka]\nservers = "localhost:9092"\nprocessing_guarantee = "at_least_once"\n' if "topics" in source else ""
    )
    path = tmp_path / "run.toml"
    path.write_text(f'label = "y"\n{kafka}{source}\n{registry}\n[model]\ntype = "KernelClassifier"\n')
    with pytest.raises(ConfigError) as error:
        load_config(path).check()
    assert message in str(error.value)
    assert "s3cret" not in str(error.value)


def test_a_format_of_predictions_that_go_to_a_file_is_refused(tmp_path):
    path = tmp_path / "run.toml"
    sink = '[sink]\npredictions = "out.jsonl"\npredictions_format = "avro"\n'
    path.write_text(f'label = "y"\n[source]\ndataset = "Phishing"\n{sink}[model]\ntype = "KernelClassifier"\n')
    with pytest.raises(ConfigError, match=r"sink\.predictions_format: only goes with predictions_topic"):
        load_config(path)


def test_the_log_shows_no_login(tmp_path):
    path = tmp_path / "run.toml"
    table = REGISTRY + 'options = {"basic.auth.user.info" = "me:s3cret", timeout = 3}\n'
    kafka = '[kafka]\nservers = "localhost:9092"\nprocessing_guarantee = "at_least_once"\n'
    path.write_text(f'label = "y"\n{kafka}{TOPICS}{table}[model]\ntype = "KernelClassifier"\n')
    shown = load_config(path).without_secrets()["schema_registry"]
    assert shown == {"url": "http://localhost:8081", "options": {"basic.auth.user.info": "***", "timeout": 3}}


def test_the_schema_of_predictions_has_all_their_fields():
    text = (Path(__file__).parents[2] / "docs/reference/schemas/prediction.schema.json").read_text()
    assert set(PREDICTION_FIELDS) == set(json.loads(text)["properties"])
