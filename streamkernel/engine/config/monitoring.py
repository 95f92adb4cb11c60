"""What a configuration wants to be watched besides the metric."""

from __future__ import annotations

from typing import TYPE_CHECKING

from river import base

from streamkernel.engine.config import build
from streamkernel.engine.config.messages import ConfigError, to_toml
from streamkernel.engine.config.monitoring_tables import metric_at
from streamkernel.engine.monitoring.monitoring import Monitoring
from streamkernel.engine.monitoring.several_metrics import SeveralMetrics

if TYPE_CHECKING:
    from river.metrics.base import Metric

    from streamkernel.engine.config.settings import Settings


def build_monitoring(settings: Settings) -> Monitoring | None:
    """Return the monitoring that a configuration describes; ``None`` if there is none."""
    quality, segments = settings.quality, settings.segments
    if quality is None and segments is None:
        return None
    main = settings.build_metric()
    several = SeveralMetrics(
        {build.type_of(settings.metric_spec): main} | further_metrics(settings),
        main=build.type_of(settings.metric_spec),
        most_segments=None if segments is None else segments.most,
        classes=issubclass(settings.estimator_class, base.Classifier),
    )
    return Monitoring(quality=several, segment_field=None if segments is None else segments.field)


def check_monitoring(settings: Settings) -> None:
    """Raise a ConfigError for metrics and segments that do not go with the model and its inputs."""
    problems, main = [], build.type_of(settings.metric_spec)
    for name in ("quality", "segments"):
        if getattr(settings, name) is not None and not isinstance(settings.label, str):
            problems.append(f"{name}: expected none with several targets, got a table")
    if problems:
        raise ConfigError(*problems)
    for i, (name, metric) in enumerate(further_metrics(settings).items()):
        where = f"quality.metrics[{i}]"
        if name == main:
            problems.append(f"{where}: expected another metric than that of the key metric, got {to_toml(name)}")
        elif not metric.works_with(settings.build_model()):
            problems.append(f"{where}: expected a metric for {build.type_of(settings.model)}, got {to_toml(name)}")
    segments = settings.segments
    if segments is not None and segments.field in (*settings.labels, *settings.ignore, settings.weight):
        problems.append(f"segments.field: expected an input of the model, got {to_toml(segments.field)}")
    if problems:
        raise ConfigError(*problems)


def further_metrics(settings: Settings) -> dict[str, Metric]:
    """Return the metrics besides the one of the key metric, by name."""
    specs = () if settings.quality is None else settings.quality.metrics
    return {build.type_of(spec): metric_at(i, spec) for i, spec in enumerate(specs)}
