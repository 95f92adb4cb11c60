"""The parts of a running engine that have figures, and the data of the live page: figures, their history, refusals."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from river.metrics import Accuracy
from river.metrics.base import MeanMetric

from streamkernel.engine.explanations import importances
from streamkernel.engine.label_losses import MANY, SHARE, shares_of, why_none_joins
from streamkernel.engine.telemetry.description import model_rows, model_table
from streamkernel.engine.telemetry.figures import Reading, figures_of_page
from streamkernel.engine.telemetry.history import marks_of
from streamkernel.engine.telemetry.snapshot import lag_of

if TYPE_CHECKING:
    from streamkernel.engine.engine import Engine
    from streamkernel.engine.telemetry.snapshot import ClusterSnapshot

LINES = 6
"""Largest number of workers with their own lines; beyond it, a chart shows the fastest, median and slowest."""

KINDS: dict[str, Callable[[Iterable[float]], float]] = {"fastest": max, "median": statistics.median, "slowest": min}


def reading_of(engine: Engine) -> Reading:
    """Return all parts of an engine at this moment, for any thread."""
    run, checkpointer = engine.snapshot, engine.parts.checkpointer
    return Reading(
        outcomes=run.outcomes,
        scores=run.scores,
        challengers=run.challengers,
        monitoring=run.monitoring,
        coverage=run.coverage,
        run=run,
        lags=lag_of(engine.source),
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
        "is_losing": any(share > SHARE and counts[outcome] >= MANY for outcome, share in shares.items()),
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
