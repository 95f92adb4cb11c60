"""Traces of records, from the header of a record of a topic to that of its prediction, sent to a stand-in."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import brokers
import pytest
import structlog
from otlp import Collector, collector
from river import metrics, preprocessing

from streamkernel import KernelClassifier
from streamkernel.connectors import Event
from streamkernel.connectors.kafka.options import CLIENTS
from streamkernel.engine import Engine, otel
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import load_config
from streamkernel.engine.config.monitoring import traced_runner
from streamkernel.engine.config.schema import TelemetryTable
from streamkernel.engine.delayed_labels import DelayedLabels

CONFIG = """
label = "y"
[kafka]
servers = "{servers}"
client = "{client}"
group = "{name}"
[source]
topics = ["{topic}"]
until = "latest"
{steps}
[model]
type = "KernelClassifier"
learner = "dsg"
max_features = 32
[sink]
predictions_topic = "{name}"
dead_letters_topic = "{name}.dead"
[state]
directory = "{name}"
{more}
"""
STEPS = {"together": "", "one by one": '[[preprocessing]]\ntype = "StandardScaler"'}
RUNS = [*((client, "together") for client in CLIENTS), ("kafka-python", "one by one")]
N, TRACED, REFUSED = 400, (3, 150, 151, 399), 200


def traceparent(n: int, flags: str = "01") -> bytes:
    return f"00-{n + 1:032x}-{n + 0xA000:016x}-{flags}".encode()


def headers_of(n: int) -> list[tuple[str, bytes]]:
    """Return the headers of a record: sampled, not sampled, none, or wrong ones."""
    if n in (*TRACED, REFUSED):
        return [("id", b"7"), ("traceparent", traceparent(n)), ("tracestate", b"vendor=1")]
    if n % 4 == 0:
        return []
    if n % 4 == 1:
        return [("traceparent", b"00-" + 32 * b"0" + traceparent(n)[35:])]
    return [("traceparent", traceparent(n, "00")), ("tracestate", b"vendor=2"), ("id", b"8")]


@pytest.fixture(scope="module", params=["noida", pytest.param("apache", marks=pytest.mark.java)])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "apache":
        yield f"127.0.0.1:{request.getfixturevalue('apache').port}"
    else:
        with brokers.noida(tmp_path_factory.mktemp("noida")) as broker:
            yield f"127.0.0.1:{broker.port}"


@pytest.fixture(scope="module")
def topic(servers: str) -> str:
    """A topic of records with headers; one cannot be read."""
    from kafka import KafkaProducer

    name = f"t{uuid.uuid4().hex[:12]}"
    brokers.make_topics(servers, names=[name])
    producer = KafkaProducer(bootstrap_servers=servers, linger_ms=20)
    for n in range(N):
        value = b"{" if n == REFUSED else json.dumps({"a": n % 7, "b": n % 5, "y": n % 2}).encode()
        producer.send(name, value, headers=headers_of(n), partition=0)
    producer.close()
    return name


@pytest.fixture
def received() -> Iterator[Collector]:
    with collector() as found:
        yield found


def predictions(folder: Path, servers: str, topic: str, client: str, steps: str, more: str) -> tuple[str, list[Any]]:
    """Run a configuration, and return the topic of its predictions and these."""
    name = f"t{uuid.uuid4().hex[:12]}"
    brokers.make_topics(servers, names=[name, f"{name}.dead"])
    path = folder / f"{name}.toml"
    path.write_text(CONFIG.format(servers=servers, client=client, topic=topic, name=name, steps=steps, more=more))
    engine_of(load_config(path)).run()
    return name, brokers.committed(servers, name)


@pytest.mark.parametrize(("client", "steps"), RUNS)
def test_a_trace_goes_from_a_record_through_its_steps_to_its_prediction(
    servers: str, topic: str, client: str, steps: str, received: Collector, tmp_path: Path
) -> None:
    run = partial(predictions, tmp_path, servers, topic, client, STEPS[steps])
    _, without = run("")
    name, found = run(f'[telemetry]\nendpoint = "{received.address}"\n')
    assert lines(found) == lines(without)
    spans = {(int.from_bytes(span.trace_id) - 1, span.name.split()[0]): span for span in received.spans}
    parts = ("process", "predict", "learn", "send")
    assert spans.keys() == {(n, part) for n in TRACED for part in parts} | {(REFUSED, "process")}
    assert len(received.spans) == len(spans)
    headers = {json.loads(one.value)["offset"]: dict(one.headers) for one in found}
    for n in TRACED:
        process, predict, learn, send = (spans[n, part] for part in parts)
        assert process.parent_span_id == (n + 0xA000).to_bytes(8)
        assert {one.parent_span_id for one in (predict, learn, send)} == {process.span_id}
        times = [process.start_time_unix_nano, predict.start_time_unix_nano, predict.end_time_unix_nano]
        times += [learn.start_time_unix_nano, learn.end_time_unix_nano, send.start_time_unix_nano]
        times += [send.end_time_unix_nano, process.end_time_unix_nano]
        assert times == sorted(times)
        assert (process.kind, send.kind) == (process.SPAN_KIND_CONSUMER, process.SPAN_KIND_PRODUCER)
        assert (process.name, send.name) == (f"process {topic}", f"send {name}")
        assert attributes(process)["messaging.kafka.offset"] == n
        assert headers[n] == {
            "traceparent": b"00-%b-%b-01" % (send.trace_id.hex().encode(), send.span_id.hex().encode()),
            "tracestate": b"vendor=1",
        }
    refused = spans[REFUSED, "process"]
    assert refused.status.code == refused.status.STATUS_CODE_ERROR
    assert refused.status.message.startswith("Expected valid JSON")
    for n in set(headers) - {*TRACED}:
        assert headers[n] == {name: value for name, value in headers_of(n) if name != "id"}
    letter, *_ = brokers.committed(servers, f"{name}.dead")
    assert dict(letter.headers)["traceparent"] == traceparent(REFUSED)


def lines(found: list[Any]) -> list[Any]:
    """Return predictions without the identity of the process."""
    return [{key: value for key, value in json.loads(one.value).items() if key != "member"} for one in found]


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


class Records:
    """Records with headers, all in one poll."""

    def __init__(self, records: list[tuple[dict[str, Any], bytes | None]]) -> None:
        self._left = [
            Event("t:0", i, b"", record, headers=() if header is None else (("traceparent", header),))
            for i, (record, header) in enumerate(records, start=1)
        ]

    def poll(self, timeout: float) -> list[Event] | None:
        found, self._left = self._left, []
        return found or None

    def lag(self) -> dict[tuple[str, str], int]:
        return {}

    def seek(self, positions: Any) -> None:
        pass

    def close(self) -> None:
        pass


def run(received: Collector, records: list[tuple[dict[str, Any], bytes | None]], ratio: float | None = None) -> Engine:
    """Run records with and without labels, which are sent to the collector at the end."""
    table = TelemetryTable(endpoint=received.address, sampling_ratio=ratio)
    model = preprocessing.StandardScaler() | KernelClassifier(learner="dsg", max_features=32)
    options: dict[str, Any] = {"label": "y", "metric": metrics.Accuracy(), "runner": traced_runner(table)}
    engine = Engine(model, Records(records), labels=DelayedLabels("id"), **options)
    engine.run()
    return engine


def test_the_trace_of_a_delayed_label_is_linked_to_that_of_its_features(received: Collector) -> None:
    features = [({"id": i, "a": i % 3}, traceparent(i) if i < 2 else None) for i in range(4)]
    labels = [({"id": i, "y": i % 2}, traceparent(10 + i) if i != 1 else None) for i in range(4)]
    engine = run(received, features + labels)
    assert engine.outcomes["learned"] == 4
    spans = {(int.from_bytes(span.trace_id) - 1, span.name.split()[0]): span for span in received.spans}
    assert spans.keys() == {
        *((n, part) for n in (0, 1) for part in ("process", "predict")),
        *((n, part) for n in (10, 12, 13) for part in ("process", "learn")),
    }
    (link,) = spans[10, "process"].links
    assert (link.trace_id, link.span_id) == (spans[0, "process"].trace_id, spans[0, "process"].span_id)
    assert not spans[12, "process"].links  # its features have no trace


@pytest.mark.parametrize(("ratio", "sampler"), [(1.0, ""), (None, "parentbased_always_on")])
def test_records_without_a_trace_begin_one_as_often_as_configured(
    ratio: float | None, sampler: str, received: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    run(received, [({"id": i, "a": 1.0}, traceparent(i, "00") if i % 2 else None) for i in range(10)], ratio)
    spans = [span for span in received.spans if span.name.startswith("process")]
    assert len({span.trace_id for span in spans}) == len(spans) == 5
    assert not any(span.parent_span_id for span in spans)


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_run_does_not_wait_for_a_collector(
    is_silent: bool, received: Collector, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whether it is not there, or takes requests and does not answer them, the run ends, and lost spans are counted."""
    monkeypatch.setattr(otel, "CLOSE_SECONDS", 0.1)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer of-the-collector")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "600")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600")
    received.answers.clear()
    if not is_silent:
        received.address = f"http://127.0.0.1:{brokers.free_port()}"
    with structlog.testing.capture_logs() as log:
        engine = run(received, [({"id": i, "a": 1.0}, None) for i in range(1000)], 1.0)
    assert engine.outcomes["pending"] == 1000
    assert received.requests == []
    (line,) = [line for line in log if "spans were lost" in line["event"]]
    assert (line["count"], line["made"]) == (2000, 2000)
    assert "of-the-collector" not in capfd.readouterr().err + str(log)
