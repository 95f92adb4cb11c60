"""The monitoring of a run, and the export of its metrics and traces, that a configuration describes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from river import base

from streamkernel.engine.config import build
from streamkernel.engine.config.environment import problems_of, ratio_of
from streamkernel.engine.config.messages import ConfigError, to_toml
from streamkernel.engine.config.schema import DriftTable, MonitoringTable, NoveltyTable, TelemetryTable, metric_at
from streamkernel.engine.monitoring.drift_watch import DriftWatch
from streamkernel.engine.monitoring.monitoring import Monitoring
from streamkernel.engine.monitoring.novelty_watch import NoveltyWatch
from streamkernel.engine.monitoring.several_metrics import SeveralMetrics
from streamkernel.engine.monitoring.stream_statistics import StreamStatistics
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.internals import learner_of

if TYPE_CHECKING:
    from river.metrics.base import Metric

    from streamkernel.engine.config.settings import Settings
    from streamkernel.engine.engine import Engine
    from streamkernel.engine.runner import EngineParts, Runner

STATISTICS_EVERY, DRIFT_EVERY, NOVELTY_EVERY = (8, 64), (64, 512), (32, 64)
"""Sampling intervals for second-order models, and for first-order models, which are many times as fast."""


def build_monitoring(settings: Settings) -> Monitoring | None:
    """Return the monitoring that a configuration describes; ``None`` if there is none."""
    quality, segments = settings.quality, settings.segments
    statistics, drift, novelty = settings.monitoring, settings.drift, settings.novelty
    if all(table is None for table in (quality, segments, statistics, drift, novelty)):
        return None
    classes = issubclass(settings.estimator_class, base.Classifier)
    several, main = None, build.type_of(settings.metric_spec)
    if quality is not None or segments is not None:
        several = SeveralMetrics(
            {main: settings.build_metric()} | further_metrics(settings),
            main=main,
            most_segments=None if segments is None else segments.most,
            classes=classes,
        )

    def options(table: MonitoringTable | DriftTable | NoveltyTable, intervals: tuple[int, int]) -> dict[str, Any]:
        every = table.every or intervals[_is_first_order(settings)]
        return table.model_dump(exclude={"action"}) | {"every": every}

    return Monitoring(
        quality=several,
        segment_field=None if segments is None else segments.field,
        statistics=None
        if statistics is None
        else StreamStatistics(classes=classes, **options(statistics, STATISTICS_EVERY)),
        drift=None if drift is None else DriftWatch(**options(drift, DRIFT_EVERY), forget=drift.action == "forget"),
        novelty=None if novelty is None else NoveltyWatch(**options(novelty, NOVELTY_EVERY)),
    )


def check_monitoring(settings: Settings) -> None:
    """Raise a ConfigError for metrics and segments that do not fit the model and its inputs."""
    main = build.type_of(settings.metric_spec)
    problems = [
        f"{name}: expected none with several targets, got a table"
        for name in ("quality", "segments")
        if getattr(settings, name) is not None and not isinstance(settings.label, str)
    ]
    if problems:
        raise ConfigError(*problems)
    for i, (name, metric) in enumerate(further_metrics(settings).items()):
        where = f"quality.metrics[{i}]"
        if name == main:
            problems.append(f"{where}: expected another metric than the key metric has, got {to_toml(name)}")
        elif not metric.works_with(settings.build_model()):
            problems.append(f"{where}: expected a metric for {build.type_of(settings.model)}, got {to_toml(name)}")
    segments = settings.segments
    if segments is not None and (
        segments.field in (*settings.labels, settings.weight) or settings.ignored[segments.field]
    ):
        problems.append(f"segments.field: expected an input of the model, got {to_toml(segments.field)}")
    for key, table in (("monitoring", settings.monitoring), ("drift", settings.drift), ("novelty", settings.novelty)):
        for name in (table and table.fields) or ():
            if name in (*settings.labels, settings.weight) or settings.ignored[name]:
                problems.append(f"{key}.fields: expected inputs of the model, got {to_toml(name)}")
    if problems:
        raise ConfigError(*problems)


def _is_first_order(settings: Settings) -> bool:
    model = settings.build_model()
    return isinstance(model, KernelModel) and learner_of(model).table is None


def further_metrics(settings: Settings) -> dict[str, Metric]:
    """Return the metrics besides the one of the key metric, by name."""
    specs = () if settings.quality is None else settings.quality.metrics
    return {build.type_of(spec): metric_at(i, spec) for i, spec in enumerate(specs)}


def check_telemetry(settings: Settings) -> None:
    """Check OpenTelemetry's variables of the environment, and that its packages are installed."""
    if settings.telemetry is None:
        return
    problems = list(problems_of(os.environ))
    try:
        import streamkernel.engine.otel  # noqa: F401
    except ImportError as error:
        problems.append(f"telemetry: it needs pip install 'streamkernel[otel]', got no module \"{error.name}\"")
    if problems:
        raise ConfigError(*problems)


def traced_runner(table: TelemetryTable) -> Callable[[EngineParts], Runner]:
    """Return a function that makes the loop of a run that follows traces."""
    from streamkernel.engine.otel import TracedRunner, Tracing, resource_of, span_exporter

    ratio = ratio_of(os.environ) if table.sampling_ratio is None else table.sampling_ratio

    def make(parts: EngineParts) -> Runner:
        return TracedRunner(parts, Tracing(span_exporter(table.endpoint), resource_of(parts.outputs.member), ratio))

    return make


@contextmanager
def exported_metrics(engine: Engine, table: TelemetryTable | None) -> Iterator[None]:
    """Send the metrics of an engine to the collector meanwhile, if there is one."""
    if table is None:
        yield
        return
    from streamkernel.engine.otel import MetricsExport, resource_of
    from streamkernel.engine.telemetry.status import registry_of

    export = MetricsExport(registry_of(engine), table.endpoint, resource_of(engine.parts.outputs.member))
    try:
        yield
    finally:
        export.close()
