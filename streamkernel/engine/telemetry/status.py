"""A running engine in figures: descriptions of its models, the data of the live page, and metrics.

The metrics are for Prometheus and OpenTelemetry, with the names of `docs/reference/metrics.md`. Each scrape reads the
snapshot that the engine publishes. Values that may change while the learner waits, such as for unavailable brokers, are
read at the moment of the scrape: integers under fixed names.
"""

from __future__ import annotations

import math
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from river import compose
from river.metrics import Accuracy
from river.metrics.base import MeanMetric

from streamkernel.connectors.json_text import printable
from streamkernel.engine.pipelines import counts_of_targets, importances
from streamkernel.engine.telemetry.figure import Figure
from streamkernel.engine.telemetry.figures import OUTCOMES, Reading, figures_in, figures_of_page
from streamkernel.engine.telemetry.history import marks_of
from streamkernel.engine.telemetry.monitor import MANY_LOST, SHARE_LOST, shares_of, why_none_joins
from streamkernel.engine.telemetry.quality import WINDOW, Scores, stored_scores
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.internals import learner_of
from streamkernel.estimators.parameters import parameters_of
from streamkernel.estimators.several_targets import SeveralTargetsModel
from streamkernel.versions import package_version

if TYPE_CHECKING:
    from streamkernel.engine.engine import Engine
    from streamkernel.engine.telemetry.snapshot import ClusterSnapshot, EngineSnapshot

FAMILIES: dict[str, Any] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "histogram": HistogramMetricFamily,
}

LINES = 6
"""Largest number of workers with their own lines; beyond it, a chart shows the fastest, median and slowest."""

KINDS: dict[str, Callable[[Iterable[float]], float]] = {"fastest": max, "median": statistics.median, "slowest": min}


def model_table(numbers: EngineSnapshot) -> list[dict[str, Any]]:
    """Return a row for each model of a run that has challengers, as JSON values."""
    challengers = numbers.challengers
    if not challengers.models:
        return []
    learned = numbers.outcomes["learned"]
    return [
        _row(challengers.champion, "champion", numbers.scores, learned, 0, ""),
        *(
            _row(one.name, _role(one.is_suspended), one.scores, one.judged, one.errors, one.reason)
            for one in challengers.models
        ),
    ]


def checkpoint_table(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the same rows for a checkpoint."""
    challengers = state.get("challengers") or {}
    if not challengers.get("models"):
        return []
    rows = [_row(challengers["champion"], "champion", stored_scores(state), state["outcomes"]["learned"], 0, "")]
    for one in challengers["models"]:
        counts = one["quality"]["count"], one["errors"], one["reason"]
        rows.append(_row(one["name"], _role(one["is_suspended"]), stored_scores(one), *counts))
    return rows


def promotion_rows(state: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the promotions in a checkpoint, as pairs of a name and a text."""
    for one in (state.get("challengers") or {}).get("promotions", ()):
        champion, former = one["champion"] or "a model that was dropped", one["former"] or "a model that was dropped"
        yield one["action"], f"{champion} in place of {former} after {one['learned']:,} events, {one['time']}"


def texts(table: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the rows of a table, as pairs of a name and a text."""
    for row in table:
        figures = [f"{row['name_of_metric']} {_shown(row['metric'])}, last {WINDOW:,} {_shown(row['recent'])}"]
        figures += [f"{row['judged']:,} events"]
        figures += [f"{row['errors']:,} errors, the last one {row['reason']}"] if row["errors"] else []
        yield f"{row['role']} {row['model']}", "; ".join(figures)


def _row(name: str, role: str, scores: Scores, judged: int, errors: int, reason: str) -> dict[str, Any]:
    return {
        "model": name,
        "role": role,
        "name_of_metric": scores.name,
        "metric": finite(scores.ours),
        "recent": finite(scores.recent[0]),
        "judged": judged,
        "errors": errors,
        "reason": reason,
    }


def _role(is_suspended: bool) -> str:
    return "suspended" if is_suspended else "challenger"


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _gains(model: KernelModel) -> str:
    """Return as text what features were expected to gain at the model's last check."""
    descent = learner_of(model).expected_descent
    return "" if descent is None else "; new ones would gain {:.1%} of the loss, old ones {:.1%}".format(*descent)


def model_rows(model: Any) -> list[tuple[str, str]]:
    """Return the description of a pipeline, as pairs of a name and a text."""
    steps = list(model.steps.values()) if isinstance(model, compose.Pipeline) else [model]
    rows = [("pipeline", " | ".join(str(step) for step in steps))]
    last = steps[-1]
    if isinstance(last, KernelModel):
        rows += [("parameters", "\n".join(f"{name} = {value!r}" for name, value in parameters_of(last).items()))]
        rows += [
            ("kernel", repr(last.kernel_)),
            ("labels", ", ".join(map(repr, getattr(last, "labels", {}))) or "numbers"),
            *([("targets", ", ".join(map(str, last.targets)))] if isinstance(last, SeveralTargetsModel) else []),
            ("features", f"{last.n_features:,} in {last.n_seeds:,} blocks{_gains(last)}"),
            ("steps", f"{last.n_steps:,}, of which {last.n_reused:,} reused a block"),
            ("objective", f"{last.objective:.6g}"),
        ]
    bounded, outlying = counts_of_targets(model) or (0, 0)
    if bounded or outlying:
        rows += [("range of targets", f"{bounded:,} predictions bounded, {outlying:,} outlying targets")]
    return rows


def checkpoint_rows(state: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the description of a checkpoint, as pairs of a name and a text."""
    rows, scores = model_rows(state["model"]), stored_scores(state)
    rows += [(scores.name, "–" if math.isnan(scores.ours) else f"{scores.ours:.6g}")]
    rows += [(f"of {target}", f"{score:.6g}") for target, score in scores.by_target.items()]
    rows += [*texts(checkpoint_table(state)), *promotion_rows(state)]
    rows += [(OUTCOMES.get(outcome, outcome), f"{count:,}") for outcome, count in state["outcomes"].items()]
    if state.get("labels") is not None:
        rows += [(f"labels {outcome}", f"{count:,}") for outcome, count in state["labels"]["counts"].items()]
    rows += [(f"position in {stream}", str(position)) for stream, position in state["positions"].items()]
    return rows


def reading_of(engine: Engine) -> Reading:
    """Return all parts of an engine at this moment, for any thread."""
    run, checkpointer = engine.snapshot, engine.parts.checkpointer
    try:
        lags = engine.source.lag()
    except (OSError, RuntimeError):  # it changes at this moment
        lags = {}
    return Reading(
        outcomes=run.outcomes,
        scores=run.scores,
        coverage=run.coverage,
        run=run,
        lags=lags,
        model=run.model,
        checkpointer=checkpointer,
        checkpoints=None if checkpointer.state is None else run.checkpoints,
        mirror=getattr(checkpointer.state, "mirror", None),
        cluster=engine.cluster,
        incidents=dict(engine.incidents),
    )


def summary_of(engine: Engine) -> dict[str, Any]:
    """Return the part of the data of the live page that the terminal shows, as JSON values, for any thread."""
    numbers = engine.snapshot
    scores, monitoring = numbers.scores, numbers.monitoring
    since_joined = numbers.since_joined
    recent, baseline = scores.recent
    covered = {} if numbers.coverage is None else numbers.coverage.by_target
    watched = None if monitoring is None else monitoring._replace(quality=None)  # which takes milliseconds
    return {
        "metric": {"name": scores.name, "bigger_is_better": scores.bigger_is_better, "baseline": scores.baseline},
        "quality": {"recent": finite(recent), "baseline": finite(baseline), "since start": finite(scores.ours)},
        "ill": engine.ill(),
        "now": figures_of_page(reading_of(engine)),
        "targets": {
            name: {
                "since start": finite(value),
                "coverage": finite(covered[name].recent) if name in covered else None,
                "width": finite(covered[name].width) if name in covered else None,
            }
            for name, value in scores.by_target.items()
        },
        "models": model_table(numbers),
        "monitoring": {} if watched is None else watched.rows(),
        "dead_letters": list(engine.last_dead_letters),
        "labels": {} if not numbers.labels else labels_of(numbers.labels, since_joined),
    }


def labels_of(counts: Mapping[str, int], since_joined: Mapping[str, int]) -> dict[str, Any]:
    """Return the numbers and shares of labels that come later by outcome, and why none is joined."""
    shares = shares_of(counts)
    return {
        "joined": counts["joined"],
        "lost": {outcome: {"count": counts[outcome], "share": share} for outcome, share in shares.items()},
        "is_losing": any(share > SHARE_LOST and counts[outcome] >= MANY_LOST for outcome, share in shares.items()),
        "why_none_joins": why_none_joins(since_joined),
    }


def status_of(engine: Engine) -> dict[str, Any]:
    """Return all data of the live page as JSON values, for any thread."""
    newest, numbers, cluster = engine.publisher.newest, engine.snapshot, engine.cluster
    monitoring, history = numbers.monitoring, engine.history.columns()
    alarms = [] if monitoring is None else monitoring.alarms
    marks = marks_of(engine.history.marks.all(), alarms, engine.parts.processor.challengers.promotions, history)
    return {
        **summary_of(engine),
        "member": engine.parts.outputs.member,
        "clock": time.time(),
        "last_event": numbers.last_event or None,
        "events": engine.history.events,
        "history": history,
        "marks": marks,
        "cluster": None if cluster is None else rounds_of(cluster),
        "is_mean": is_mean(numbers.scores.metric),
        "monitoring": {} if monitoring is None else monitoring.rows(),
        "dead_letter_groups": engine.parts.outputs.dead_letter_groups.rows(),
        "refused": {kind: count for kind, count in numbers.refused.items() if count},
        "incidents": {kind: count for kind, count in dict(engine.incidents).items() if count},
        "about": {} if newest is None else dict(model_rows(newest.model)),
        "importances": {} if newest is None else importances(newest.model),
        "version": 0 if newest is None else newest.version,
    }


def finite(value: float) -> float | None:
    """Return a number, or ``None`` for one that JSON has not."""
    return value if math.isfinite(value) else None


def rounds_of(cluster: ClusterSnapshot) -> dict[str, Any]:
    """Return the figures of a cluster's last rounds: lists of equal length, the oldest first."""
    recent, last = cluster.recent, int(cluster.rounds.buckets[-1][1])
    rates = [
        {f"worker {i}": n / s for i, (n, s) in enumerate(zip(one.events, one.seconds, strict=True)) if n}
        for one in recent
    ]
    if max(map(len, rates)) > LINES:
        rates = [{name: kind(of.values()) for name, kind in KINDS.items() if of} for of in rates]
    names = sorted({name for of in rates for name in of})
    return {
        "round": list(range(last - len(recent) + 1, last + 1)),
        "rates": {name: [of.get(name) for of in rates] for name in names},
        "seconds": [one.round_seconds for one in recent],
        "merging": [one.merge_seconds for one in recent],
        "spread": [one.spread for one in recent],
    }


def is_mean(metric: Any) -> bool:
    """Return whether a metric is a mean over events, so that its value over a part follows from the value over all.

    Examples
    --------
    >>> from river import metrics
    >>> [is_mean(metric) for metric in (metrics.Accuracy(), metrics.MAE(), metrics.RMSE(), metrics.F1())]
    [True, True, False, False]
    """
    return isinstance(metric, Accuracy) or (isinstance(metric, MeanMetric) and type(metric).get is MeanMetric.get)


class EngineCollector(Collector):
    """The metrics of an engine, for Prometheus. `engine` is the engine; any thread may collect."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        yield build_info()
        yield from metrics_of(figures_in(reading_of(self._engine)))


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


def metrics_of(figures: Iterable[tuple[Figure, Any]]) -> Iterator[Metric]:
    """Yield figures as metrics, each read from its part, without the values that do not exist."""
    for figure, part in figures:
        samples = figure.samples(part) if figure.name else None
        if samples is None:
            continue
        family = FAMILIES[figure.kind](f"streamkernel_{figure.name}", figure.help, labels=figure.labels)
        for labels, value in samples:
            texts = [printable(label) for label in labels]
            if figure.kind == "histogram":
                family.add_metric(texts, list(value.buckets), value.total)
            elif not labels or not (value is None or math.isnan(value)):
                family.add_metric(texts, value)
        yield family
