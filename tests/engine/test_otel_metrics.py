"""Metrics for a collector of OpenTelemetry, here a stand-in with the official messages: those of a scrape."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from otlp import Collector, Samples, collector
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from test_metrics import engines
from waiting import wait_for

from streamkernel.engine import Engine
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import ConfigError, load_config
from streamkernel.engine.config.monitoring import exported_metrics
from streamkernel.engine.config.schema import TelemetryTable
from streamkernel.engine.telemetry.status import registry_of

CONFIG = """
label = "y"
[source]
path = "events.csv"
[model]
type = "KernelClassifier"
learner = "dsg"
max_features = 32
[telemetry]
{telemetry}
"""
KINDS = {"counter": "sum", "gauge": "gauge", "info": "gauge", "unknown": "gauge", "histogram": "histogram"}
CHANGING = ("process_", "streamkernel_checkpoint_age_seconds", "streamkernel_mirror_lag_seconds")
"""Metrics of this moment, which change between two reads."""


def written(folder: Path, telemetry: str = "") -> Path:
    (folder / "events.csv").write_text("a,y\n" + "".join(f"{i % 7},{i % 2}\n" for i in range(200)))
    path = folder / "run.toml"
    path.write_text(CONFIG.format(telemetry=telemetry))
    return path


def scraped(engine: Engine) -> tuple[Samples, dict[str, str]]:
    """Return the values of a scrape, and the kind that each metric with values has in OpenTelemetry."""
    values: Samples = {}
    kinds = {}
    for family in text_string_to_metric_families(generate_latest(registry_of(engine)).decode()):
        for sample in family.samples:
            values[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
            kinds[family.name if family.type == "histogram" else sample.name] = KINDS[family.type]
    return values, kinds


def steady(values: Samples) -> Samples:
    return {key: value for key, value in values.items() if not key[0].startswith(CHANGING)}


@pytest.fixture
def received() -> Any:
    with collector() as found:
        yield found


def test_the_metrics_are_those_of_a_scrape(received: Collector, tmp_path: Path) -> None:
    table, names = TelemetryTable(endpoint=received.address), set()
    for engine in engines(tmp_path):
        with exported_metrics(engine, table):
            pass  # its end sends them
        values, kinds = received.newest_metrics()
        expected, expected_kinds = scraped(engine)
        assert values.keys() == expected.keys()
        assert steady(values) == steady(expected)
        assert kinds == expected_kinds
        names |= kinds.keys()
    assert {"streamkernel_events_total", "streamkernel_event_seconds", "streamkernel_build_info"} < names
    assert len(names) > 80
    resource = received.resources()[0]
    assert resource["service.name"] == "streamkernel"
    assert len(resource["service.instance.id"]) > 10


def test_a_run_sends_its_metrics_periodically(
    received: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "10")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "clicks")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.address)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer of-the-collector")
    config = load_config(written(tmp_path))
    engine = engine_of(config)
    with exported_metrics(engine, config.telemetry):
        wait_for(lambda: len(received.requests) > 2)
        engine.run()
    values, _ = received.newest_metrics()
    assert values["streamkernel_events_total", (("outcome", "learned"),)] == 200.0
    assert {resource["service.name"] for resource in received.resources()} == {"clicks"}
    assert {headers["authorization"] for _, headers, _ in received.requests} == {"Bearer of-the-collector"}


@pytest.mark.parametrize(
    ("telemetry", "environment", "line"),
    [
        (
            'endpoint = "localhost:4318"',
            {},
            'telemetry.endpoint: expected an address as "http://localhost:4318", got "localhost:4318"',
        ),
        (
            'endpoint = "http://collector:99999"',
            {},
            'telemetry.endpoint: expected an address as "http://localhost:4318", got "http://collector:99999"',
        ),
        (
            'endpoint = "https://me:secret@collector:4318"',
            {},
            "telemetry.endpoint: expected an address without login and query; OTEL_EXPORTER_OTLP_HEADERS is for "
            "credentials, got another",
        ),
        ("sampling_ratio = 2", {}, "telemetry.sampling_ratio: expected a share from 0 to 1, got 2"),
        (
            "",
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            'OTEL_EXPORTER_OTLP_PROTOCOL: expected http/protobuf, got "grpc"',
        ),
        (
            "",
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://me:secret@collector"},
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: expected an address without login and query; "
            "OTEL_EXPORTER_OTLP_HEADERS is for credentials, got another",
        ),
        (
            "",
            {"OTEL_TRACES_SAMPLER": "always_on"},
            "OTEL_TRACES_SAMPLER: expected parentbased_always_on, parentbased_always_off or parentbased_traceidratio, "
            'got "always_on"',
        ),
        (
            "",
            {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "much"},
            'OTEL_TRACES_SAMPLER_ARG: expected a share from 0 to 1, got "much"',
        ),
        (
            "",
            {"OTEL_METRIC_EXPORT_INTERVAL": "0"},
            'OTEL_METRIC_EXPORT_INTERVAL: expected milliseconds above 0, got "0"',
        ),
    ],
)
def test_what_a_run_cannot_follow_is_refused_by_name(
    telemetry: str, environment: dict[str, str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as error:
        load_config(written(tmp_path, telemetry)).check()
    assert str(error.value) == line


def test_a_table_without_the_packages_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "streamkernel.engine.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    with pytest.raises(ConfigError, match=r"^telemetry: it needs pip install 'streamkernel\[otel\]', got no module"):
        load_config(written(tmp_path)).check()


WITHOUT = """
import sys
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import load_config
from streamkernel.engine.config.monitoring import exported_metrics
config = load_config(sys.argv[1])
config.check()
engine = engine_of(config)
with exported_metrics(engine, config.telemetry):
    engine.run()
print(engine.outcomes["learned"], [name for name in sys.modules if name.startswith("opentelemetry")])
"""


def test_a_run_without_the_table_imports_nothing(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text().replace("[telemetry]\n", ""))
    words = [sys.executable, "-c", WITHOUT, str(path)]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "200 []\n"
