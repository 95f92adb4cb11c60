"""Predictions with the headers of a trace, and values of a schema: what is refused costs one record, on real topics."""

from __future__ import annotations

import json
from functools import partial

import brokers
import pytest
import registries
from kafka import KafkaProducer
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from river import linear_model
from test_refused_records import HOW, N, check, exactly_once, filled, tells  # noqa: F401 - a fixture
from topics import made

from streamkernel import KernelClassifier
from streamkernel.connectors.schema_registry import Registry, registry_reader
from streamkernel.connectors.schema_registry.writing import record_writer
from streamkernel.engine.config.streams import PREDICTION_FIELDS
from streamkernel.engine.otel import TracedRunner, Tracing

PARENT = "traceparent", b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-00"
"""A trace that is not sampled, so that its headers go on unchanged."""

MODELS = {
    "one by one": linear_model.LogisticRegression,
    "together": partial(KernelClassifier, learner="dsg", max_features=64),
}
"""Models whose records are processed in each way."""

FORMS = pytest.mark.parametrize("form", ["avro", "protobuf", "json-schema"])


def with_headers(servers, headers):
    """Return a topic of records that each have the headers at their number, or else a trace alone."""
    topic = made(servers, **{"max.message.bytes": "3000000"})
    producer = KafkaProducer(bootstrap_servers=servers, max_request_size=3_000_000)
    for n in range(N):
        value = json.dumps({"a": n % 3, "y": n % 2 == 0}).encode()
        producer.send(topic, value, key=b"k%d" % n, headers=[PARENT, *headers.get(n, ())])
    producer.close()
    return topic


def traced():
    return partial(TracedRunner, tracing=Tracing(InMemorySpanExporter(), Resource({}), 0.0))


@pytest.mark.parametrize("way", MODELS)
def test_headers_that_are_too_large_for_the_client(servers, options, way, tmp_path):
    topic, predictions = with_headers(servers, {7: [("tracestate", b"t" * 1_200_000)]}), made(servers)
    engine, dead = exactly_once(servers, options, topic, predictions, tmp_path, model=MODELS[way](), runner=traced())
    engine.run()
    (reason,) = check(servers, engine, predictions, dead, {7})
    assert "of value, 2 of key, 1,200,0" in reason
    assert reason.partition(" of headers")[1]
    written = brokers.committed(servers, predictions)
    assert {dict(one.headers)["traceparent"] for one in written} == {PARENT[1]}
    assert engine.incidents["record_refused"] == engine.incidents["commit_refused"] == 0


@HOW
@pytest.mark.parametrize("way", MODELS)
def test_headers_that_are_too_large_for_the_topic(servers, options, tells, tells_settings, way, tmp_path):  # noqa: F811
    tells(tells_settings)
    refused = {3, 40, 59}
    topic = with_headers(servers, {n: [("tracestate", b"t" * (25_000 if n in refused else 2_000))] for n in range(N)})
    predictions = made(servers, **{"max.message.bytes": "20000"})
    engine, dead = exactly_once(servers, options, topic, predictions, tmp_path, model=MODELS[way](), runner=traced())
    engine.run()
    reasons = check(servers, engine, predictions, dead, refused)
    assert tells_settings == all("of headers" in reason for reason in reasons)
    assert (engine.incidents["record_refused"] == 0) == tells_settings
    assert engine.incidents["commit_refused"] == 0


@FORMS
def test_a_label_that_the_schema_refuses(servers, options, form, tmp_path):
    refused = {3, 40}
    values = lambda n: {"a": n % 3, "y": "maybe" if n in refused else n % 2 == 0}  # noqa: E731
    topic, predictions = filled(servers, [b"k"] * N, values), made(servers)
    with registries.small() as registry:
        fields = PREDICTION_FIELDS | {"label": "boolean"}
        writer = record_writer(Registry(registry.url), predictions, form, fields)
        engine, dead = exactly_once(
            servers, options, topic, predictions, tmp_path, values=writer, model=MODELS["together"]()
        )
        engine.run()
        read = registry_reader(Registry(registry.url), form)
        letters = [dict(letter.headers) for letter in brokers.committed(servers, dead)]
        offsets = [read(record.value)["offset"] for record in brokers.committed(servers, predictions)]
    assert sorted(offsets) == [n for n in range(N) if n not in refused]
    assert {int(headers["__connect.errors.offset"]) for headers in letters} == refused
    for headers in letters:
        assert headers["__connect.errors.exception.message"].startswith(
            b"Expected a prediction that the format can represent, got Expected true or false, got str - at field "
        )
    assert engine.refused["output"] == engine.outcomes["dead_letter"] == 2
    assert engine.incidents["commit_refused"] == engine.incidents["record_refused"] == 0


@FORMS
def test_values_whose_schema_the_registry_refuses(servers, options, form, tmp_path):
    """One has a schema that is unknown, one a schema that the registry answers with an error for, one no such value."""
    topic, predictions = made(servers), made(servers)
    with registries.small() as registry:
        asked = Registry(registry.url)
        good = record_writer(asked, "good", form, {"a": "number", "y": "boolean"})
        other = record_writer(asked, "other", form, {"a": "number", "y": "boolean", "z": "text"})
        rows = [good({"a": n % 3, "y": n % 2 == 0}) for n in range(N)]
        rows[3] = rows[3][:4] + b"\x63" + rows[3][5:]
        rows[40] = other({"a": 1, "y": True, "z": "x"})
        rows[50] = rows[50][:5] + b"\xff" * 9
        producer = KafkaProducer(bootstrap_servers=servers)
        for row in rows:
            producer.send(topic, row)
        producer.close()
        registry.fails, registry.where = 422, "/schemas/ids/2"
        decoder = registry_reader(Registry(registry.url), form)
        engine, dead = exactly_once(servers, options, topic, predictions, tmp_path, decoder=decoder)
        engine.run()
    letters = {int(dict(one.headers)["__connect.errors.offset"]): one for one in brokers.committed(servers, dead)}
    assert {n: letter.value for n, letter in letters.items()} == {n: rows[n] for n in (3, 40, 50)}
    assert {dict(letter.headers)["streamkernel.kind"] for letter in letters.values()} == {b"unreadable"}
    offsets = [json.loads(record.value)["offset"] for record in brokers.committed(servers, predictions)]
    assert sorted(offsets) == [n for n in range(N) if n not in letters]
    assert engine.outcomes["learned"] == N - 3
