"""The metrics of an engine for Prometheus and OpenTelemetry, with the names of `docs/reference/metrics.md`.

Each scrape reads the snapshot that the engine publishes. Values that may change while the learner waits, such as for
unavailable brokers, are read at the moment of the scrape: integers under fixed names.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from streamkernel.connectors.json_text import printable
from streamkernel.engine.mirror.mirror import MirroredDirectory
from streamkernel.engine.monitoring.families import monitoring_families
from streamkernel.engine.telemetry.challengers import challenger_metrics
from streamkernel.engine.telemetry.snapshot import MOST, EngineSnapshot, ModelSnapshot, lag_of, place
from streamkernel.versions import package_version

if TYPE_CHECKING:
    from streamkernel.engine.checkpoint.state_directory import StateDirectory
    from streamkernel.engine.checkpointer import Checkpointer
    from streamkernel.engine.cluster_snapshot import ClusterSnapshot
    from streamkernel.engine.coverage import CoverageSnapshot
    from streamkernel.engine.engine import Engine
    from streamkernel.engine.telemetry.histogram import Histogram
    from streamkernel.engine.telemetry.quality import Scores


class EngineCollector(Collector):
    """The metrics of an engine, for Prometheus.

    Parameters
    ----------
    engine
        The engine; any thread may collect.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        engine, numbers = self._engine, self._engine.snapshot
        yield build_info()
        if numbers.model is not None:
            yield from _model(numbers.model)
        if numbers.of_targets is not None:
            yield from _targets(*numbers.of_targets)
        yield from _quality(numbers.scores)
        yield from challenger_metrics(numbers.challengers)
        if numbers.monitoring is not None:
            yield from monitoring_families(numbers.monitoring)
        if numbers.coverage is not None:
            yield from _coverage(numbers.coverage)
        yield from _events(numbers)
        yield from _source(numbers, lag_of(engine.source))
        incidents = dict(engine.incidents)
        yield _counters("incidents", "Problems from which the run recovered, by kind.", "kind", incidents)
        yield from _checkpoints(engine.parts.checkpointer, numbers.checkpoints)
        yield from _mirror(engine.parts.checkpointer.state)
        if engine.cluster is not None:
            yield from _cluster(engine.cluster)


def registry_of(engine: Engine) -> CollectorRegistry:
    """Return the metrics of an engine and of its process."""
    registry = CollectorRegistry()
    registry.register(EngineCollector(engine))
    ProcessCollector(registry=registry)
    return registry


def build_info() -> Metric:
    """Return the versions of the program as a metric."""
    versions = {
        "version": package_version("streamkernel"),
        "river": package_version("river"),
        "python": platform.python_version(),
    }
    return InfoMetricFamily("streamkernel_build", "Versions; always 1.", versions)


def _model(model: ModelSnapshot) -> Iterator[Metric]:
    yield _gauge("objective", "Running regularised loss, of each example before it is learned.", model.objective)
    yield _gauge("features", "Random features in the model.", model.n_features)
    yield _gauge("seeds", "Blocks of random features in the model.", model.n_seeds)
    yield _counter("steps", "Steps taken.", model.n_steps)
    yield _counter("grown", "Steps that added a block.", model.n_steps - model.n_reused)
    yield _counter("reused", "Steps that changed an existing block.", model.n_reused)
    yield _gauge("step_size", "Size of the next step, in units of the model's step_size.", model.next_step)
    if model.last_step is not None:
        text = "Size of the last step, in units of the function."
        yield _gauge("checked_step_size", text, model.last_step)
        text = "Steps by the decision of the rule: reused a block, grew by one, or was forced to reuse one at the cap."
        reused, grew = model.n_reused - model.n_forced, model.n_steps - model.n_reused
        yield _counters("checks", text, "outcome", {"reused": reused, "grew": grew, "forced": model.n_forced})
    yield _gauge("model_bytes", "Memory of the model's arrays, without cached directions.", model.bytes)
    yield _gauge("cache_bytes", "Memory of cached directions.", model.cached_bytes)
    yield _counter("prunings", "Prunings of the model.", model.n_prunings)
    if not math.isnan(model.gap):
        text = "Certified primal-dual gap of the last refit."
        yield _gauge("refit_gap", text, model.gap)
    if model.shares:
        text = "Weight of each kind of function in the prediction."
        weights = GaugeMetricFamily("streamkernel_function_weight", text, labels=["steps"])
        for name, weight in model.shares.items():
            weights.add_metric([name], weight)
        yield weights
        yield _gauge("groups", "Groups of features.", model.groups)
        yield _gauge(
            "youngest_group_examples",
            "Examples before the newest group of features was added.",
            model.youngest,
        )


def _targets(bounded: int, outlying: int) -> Iterator[Metric]:
    text = "Predictions that were limited to the range of the targets seen, of examples that were learned."
    yield _counter("bounded_predictions", text, bounded)
    yield _counter("outlying_targets", "Targets that did not count in full because they were outliers.", outlying)


def _quality(scores: Scores) -> Iterator[Metric]:
    recent, baseline_recent = scores.recent()
    yield _scores("metric", "Prequential quality since the start, by metric.", scores, scores.ours)
    yield _scores("metric_recent", "Prequential quality over the last 1,000 events.", scores, recent)
    if scores.baseline:
        yield _scores("baseline_metric", "Quality of the baseline since the start.", scores, scores.theirs, "baseline")
        text = "Quality of the baseline over the last 1,000 events."
        yield _scores("baseline_metric_recent", text, scores, baseline_recent, "baseline")
    text = "Prequential quality since the start, by target, of a model of several targets."
    by_target = GaugeMetricFamily("streamkernel_metric_by_target", text, labels=["name", "target"])
    for target, value in scores.by_target.items():
        by_target.add_metric([scores.name, printable(target)], value)
    yield by_target
    text = "1 if a larger value of the metric is better, else 0."
    yield _scores("metric_bigger_is_better", text, scores, float(scores.bigger_is_better))


def _scores(name: str, text: str, scores: Scores, value: float, *more: str) -> Metric:
    family = GaugeMetricFamily(f"streamkernel_{name}", text, labels=["name", *more])
    if not math.isnan(value):
        family.add_metric([scores.name, *(scores.baseline or "" for _ in more)], value)
    return family


def _coverage(coverage: CoverageSnapshot) -> Iterator[Metric]:
    yield _gauge("coverage_target", "Share of labels that is to be inside, as configured.", coverage.target)
    for name, text, figure in (
        ("coverage", "Share of labels inside their interval or set since the start", "since_start"),
        ("coverage_recent", "Share of the last 1,000 labels inside their interval or set", "recent"),
        ("interval_width", "Median width of the last 1,000 intervals", "width"),
        ("set_labels", "Mean number of labels in the last 1,000 sets", "labels"),
    ):
        if not math.isnan(getattr(coverage, figure)):
            yield _gauge(name, f"{text}.", getattr(coverage, figure))
        values = {target: getattr(own, figure) for target, own in coverage.by_target.items()}
        by_target = GaugeMetricFamily(f"streamkernel_{name}_by_target", f"{text}, by target.", labels=["target"])
        for target, value in values.items():
            if not math.isnan(value):
                by_target.add_metric([printable(target)], value)
        yield by_target


def _events(numbers: EngineSnapshot) -> Iterator[Metric]:
    yield _counters("events", "Events by outcome.", "outcome", numbers.outcomes)
    yield _counters("dead_letters", "Records that could not be processed, by reason.", "reason", numbers.refused)
    text = "Values of inputs far outside the usual range of their field."
    yield _counter("outlying_inputs", text, numbers.outlying_inputs)
    names = GaugeMetricFamily("streamkernel_names", "Stored names of inputs, by table.", labels=["table"])
    for table, count in numbers.names.items():
        names.add_metric([table], count)
    yield names
    text = "Values whose name was not stored, because there were too many names or it was too long."
    yield _counters("names_refused", text, "table", numbers.names_refused)
    yield _histogram("event_seconds", "Time to predict and learn one event.", numbers.events)
    yield _gauge("last_event_timestamp_seconds", "Time of the last event, in seconds since 1970.", numbers.last_event)
    if numbers.labels:
        text = "Labels from separate records, by outcome."
        yield _counters("labels", text, "outcome", numbers.labels)
        yield _gauge("pending_labels", "Features whose label has not arrived.", numbers.pending_labels)
        text = "Features without a label that came since one was last joined."
        yield _gauge("features_since_joined", text, numbers.since_joined["features"])


def _source(numbers: EngineSnapshot, lags: Mapping[tuple[str, str], int]) -> Iterator[Metric]:
    text = "Backlog of the source: records of a topic, bytes of a file."
    lag = GaugeMetricFamily("streamkernel_consumer_lag", text, labels=["topic", "partition"])
    streams = list(lags.items())
    for (topic, partition), waiting in streams[:MOST]:
        lag.add_metric([printable(topic), partition], waiting)
    if streams[MOST:]:
        lag.add_metric(["(others)", ""], sum(waiting for _, waiting in streams[MOST:]))
    yield lag
    text = "Position of a stream: offset of a topic, bytes of a file, records of a data set."
    positions = GaugeMetricFamily("streamkernel_source_position", text, labels=["stream"])
    for stream, position in list(numbers.positions.items())[-MOST:]:
        found = place(position)
        if found is not None:
            positions.add_metric([printable(stream)], found)
    yield positions


def _checkpoints(checkpointer: Checkpointer, seconds: Histogram) -> Iterator[Metric]:
    if checkpointer.state is None:
        return
    every, age, size = checkpointer.seconds, checkpointer.age, checkpointer.size
    yield _gauge("checkpoint_interval_seconds", "Time between two checkpoints, as configured.", every)
    yield _histogram("checkpoint_seconds", "Time to write a checkpoint and commit, while learning is paused.", seconds)
    if age is not None:
        yield _gauge("checkpoint_age_seconds", "Time since the last checkpoint.", age)
    if size is not None:
        yield _gauge("checkpoint_size_bytes", "Size of the last checkpoint.", size)


def _mirror(state: StateDirectory | None) -> Iterator[Metric]:
    if not isinstance(state, MirroredDirectory):
        return
    mirror = state.mirror
    text = "Committed checkpoints after the last one in the mirror."
    yield _gauge("mirror_lag_checkpoints", text, mirror.lag_checkpoints)
    text = "Time since the oldest commit that is not in the mirror; 0 if all are."
    yield _gauge("mirror_lag_seconds", text, mirror.lag_seconds)
    yield _counter("mirror_uploads", "Checkpoints copied to the mirror.", mirror.copies)
    yield _counter("mirror_failures", "Attempts to copy a checkpoint to the mirror that failed.", mirror.failures)


def _cluster(cluster: ClusterSnapshot) -> Iterator[Metric]:
    yield _gauge("workers", "Workers of the last round.", len(cluster.last.events))
    events = {str(worker): events for worker, (events, _) in cluster.by_worker.items()}
    yield _counters("worker_events", "Events that each worker read.", "worker", events)
    seconds = {str(worker): seconds for worker, (_, seconds) in cluster.by_worker.items()}
    yield _counters("worker_seconds", "Time that each worker was busy with its events.", "worker", seconds)
    yield _histogram(
        "round_seconds", "Time of a round, from its plan until its predictions are evaluated.", cluster.rounds
    )
    yield _histogram("merge_seconds", "Time to merge the replicas of a round.", cluster.merges)
    text = "Distance of the replicas from their mean at the last merge, in units of its size."
    yield _gauge("replica_spread", text, cluster.last.spread)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"streamkernel_{name}", text, value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"streamkernel_{name}", text, value)


def _counters(name: str, text: str, label: str, counts: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(f"streamkernel_{name}", text, labels=[label])
    for key, count in counts.items():
        family.add_metric([key], count)
    return family


def _histogram(name: str, text: str, found: Histogram) -> Metric:
    family = HistogramMetricFamily(f"streamkernel_{name}", text)
    family.add_metric([], list(found.buckets), found.total)
    return family
