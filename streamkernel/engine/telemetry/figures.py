"""The table of a run's figures.

Prometheus and OpenTelemetry, the live page, the terminal, reports and the history render this table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from streamkernel.engine.monitoring.monitoring import MONITORING
from streamkernel.engine.telemetry.figure import Figure, counter, gauge, histogram
from streamkernel.engine.telemetry.snapshot import MOST, EngineSnapshot, ModelSnapshot, place

if TYPE_CHECKING:
    from streamkernel.engine.challengers import ChallengerSnapshot, ChallengersSnapshot
    from streamkernel.engine.checkpoint.mirror import Mirror
    from streamkernel.engine.checkpointer import Checkpointer
    from streamkernel.engine.coverage import CoverageSnapshot
    from streamkernel.engine.telemetry.figure import Histogram
    from streamkernel.engine.telemetry.quality import Scores
    from streamkernel.engine.telemetry.snapshot import ClusterSnapshot

OUTCOMES = {
    "learned": "events learned",
    "predicted": "events predicted",
    "dead_letter": "dead letters",
    "pending": "events predicted before their label",
    "passed_over": "records with nothing to learn from",
}
"""Outcomes of events, as text."""


class Reading(NamedTuple):
    """The parts of a run that have figures; a part is ``None`` if the run does not have it, or it is not to be read."""

    outcomes: Mapping[str, int] | None = None
    scores: Scores | None = None
    coverage: CoverageSnapshot | None = None
    run: EngineSnapshot | None = None
    lags: Mapping[tuple[str, str], int] | None = None
    model: ModelSnapshot | None = None
    checkpointer: Checkpointer | None = None
    checkpoints: Histogram | None = None
    mirror: Mirror | None = None
    cluster: ClusterSnapshot | None = None
    incidents: Mapping[str, int] | None = None


def figures_in(reading: Reading) -> Iterator[tuple[Figure, Any]]:
    """Yield the figures of the parts that a reading has, each with its part."""
    for path, figures in FIGURES.items():
        part: Any = reading
        for name in path.split("."):
            part = None if part is None else getattr(part, name)
        if part is not None:
            yield from ((figure, part) for figure in figures)


def figures_of_page(reading: Reading) -> dict[str, float | None]:
    """Return the current figures of the page and the terminal; ``None`` for a number that JSON does not have."""
    return {
        name: value if math.isfinite(value) else None
        for figure, part in figures_in(reading)
        for name, value in figure.named(part, figure.page)
    }


def figures_of_point(reading: Reading) -> dict[str, float]:
    """Return the finite figures of a point of the history."""
    return {
        name: float(value)
        for figure, part in figures_in(reading)
        for name, value in figure.named(part, figure.point)
        if math.isfinite(value)
    }


def _of_metric(name: str, text: str, value: Callable[[Scores], float], page: str = "", point: str = "") -> Figure:
    return gauge(name, "of the metric", text, lambda of: {of.name: value(of)}, ("name",), page=page, point=point)


def _of_baseline(name: str, text: str, value: Callable[[Scores], float], page: str, point: str = "") -> Figure:
    def read(of: Scores) -> Any:
        return {(of.name, of.baseline): value(of)} if of.baseline else None

    return gauge(f"baseline_{name}", "of the metric", text, read, ("name", "baseline"), page=page, point=point)


def _of_challengers(value: Callable[[ChallengerSnapshot], Any]) -> Callable[[ChallengersSnapshot], Any]:
    """Return a function that reads values of each challenger, by their labels."""
    return lambda of: {key: one for model in of.models for key, one in value(model).items()} or None


def _covered(name: str, unit: str, text: str, attribute: str, shown: str = "") -> tuple[Figure, Figure]:
    def read(of: CoverageSnapshot) -> float | None:
        value: float = getattr(of, attribute)
        return None if math.isnan(value) else value

    def by_target(of: CoverageSnapshot) -> dict[str, float]:
        return {target: getattr(coverage, attribute) for target, coverage in of.by_target.items()}

    return (
        gauge(name, unit, f"{text}.", read, page=shown, point=shown),
        gauge(f"{name}_by_target", unit, f"{text}, by target.", by_target, ("target",)),
    )


def _lags(lags: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Return the lag of each of the first streams, and of all others together."""
    streams = list(lags.items())
    rest = {("(others)", ""): sum(waiting for _, waiting in streams[MOST:])} if streams[MOST:] else {}
    return dict(streams[:MOST]) | rest


def _positions(run: EngineSnapshot) -> dict[str, float]:
    """Return the positions of the last streams, as numbers."""
    last = list(run.positions.items())[-MOST:]
    return {stream: number for stream, position in last if (number := place(position)) is not None}


def _checks(model: ModelSnapshot) -> dict[str, int] | None:
    """Return the steps by the decision of the rule, if its learner makes such checks."""
    if model.last_step is None:
        return None
    reused, grew = model.n_reused - model.n_forced, model.n_steps - model.n_reused
    return {"reused": reused, "grew": grew, "forced": model.n_forced}


FIGURES: dict[str, tuple[Figure, ...]] = {
    "outcomes": (
        counter("events", "events", "Events by outcome.", dict, ("outcome",),
            page={"learned": "learned", "dead_letter": "dead letters"},
            point={"learned": "learned", "dead_letter": "dead_letters"}),
    ),
    "scores": (
        _of_metric("metric", "Prequential quality since the start, by metric.", lambda of: of.ours, "{name}",
            "quality: {name}"),
        _of_metric("metric_recent", "Prequential quality over the last 1,000 events.", lambda of: of.recent[0],
            "{name}, last 1,000"),
        _of_baseline("metric", "Quality of the baseline since the start.", lambda of: of.theirs, "{baseline}",
            "quality: {name} (baseline)"),
        _of_baseline("metric_recent", "Quality of the baseline over the last 1,000 events.", lambda of: of.recent[1],
            "{baseline}, last 1,000"),
        gauge("metric_by_target", "of the metric",
            "Prequential quality since the start, by target, of a model of several targets.",
            lambda of: {(of.name, target): value for target, value in of.by_target.items()}, ("name", "target")),
        gauge("metric_bigger_is_better", "0 or 1", "1 if a larger value of the metric is better, else 0.",
            lambda of: {of.name: float(of.bigger_is_better)}, ("name",)),
    ),
    "run.challengers": (
        gauge("challenger_metric", "of the metric", "Prequential quality of a challenger since it began.",
            _of_challengers(lambda one: {(one.scores.name, one.name): one.scores.ours}), ("name", "model")),
        gauge("challenger_metric_recent", "of the metric",
            "Prequential quality of a challenger over its last 1,000 events.",
            _of_challengers(lambda one: {(one.scores.name, one.name): one.scores.recent[0]}), ("name", "model")),
        counter("challenger_events", "events", "Events of a challenger: judged by their label, or an error.",
            _of_challengers(lambda one: {(one.name, "judged"): one.judged, (one.name, "error"): one.errors}),
            ("model", "outcome")),
        counter("challenger_seconds", "seconds", "Time that this process spent on a challenger.",
            _of_challengers(lambda one: {one.name: one.seconds}), ("model",)),
        gauge("challenger_suspended", "0 or 1", "1 if a challenger was suspended after repeated errors, else 0.",
            _of_challengers(lambda one: {one.name: one.is_suspended}), ("model",)),
        gauge("champion_info", "1", "The name of the model whose predictions are written; always 1.",
            lambda of: {of.champion: 1.0} if of.models else None, ("model",)),
    ),
    **MONITORING,
    "coverage": (
        *_covered("coverage", "1", "Share of labels inside their interval or set since the start", "since_start"),
        *_covered("coverage_recent", "1", "Share of the last 1,000 labels inside their interval or set", "recent",
            "coverage"),
        gauge("coverage_target", "1", "Share of labels that is to be inside, as configured.", "target",
            page="coverage target", point="coverage target"),
        *_covered("interval_width", "of the label", "Median width of the last 1,000 intervals", "width",
            "median width"),
        *_covered("set_labels", "labels", "Mean number of labels in the last 1,000 sets", "labels", "mean labels"),
    ),
    "run": (
        counter("dead_letters", "records", "Records that could not be processed, by reason.", "refused", ("reason",)),
        counter("outlying_inputs", "values", "Values of inputs far outside the usual range of their field.",
            "outlying_inputs"),
        gauge("names", "names", "Stored names of inputs, by table.", "names", ("table",)),
        counter("names_refused", "values",
            "Values whose name was not stored, because there were too many names or it was too long.", "names_refused",
            ("table",)),
        histogram("event_seconds", "Time to predict and learn one event.", "events"),
        gauge("last_event_timestamp_seconds", "seconds since 1970", "Time of the last event, in seconds since 1970.",
            "last_event"),
        counter("labels", "labels", "Labels from separate records, by outcome.", lambda run: run.labels or None,
            ("outcome",)),
        gauge("pending_labels", "features", "Features whose label has not arrived.",
            lambda run: run.pending_labels if run.labels else None, page="pending labels"),
        gauge("features_since_joined", "features", "Features without a label that came since one was last joined.",
            lambda run: run.since_joined["features"] if run.labels else None, page="features since a label joined"),
        gauge("source_position", "records or bytes",
            "Position of a stream: offset of a topic, bytes of a file, records of a data set.", _positions,
            ("stream",)),
    ),
    "run.of_targets": (
        counter("bounded_predictions", "predictions",
            "Predictions that were limited to the range of the targets seen, of examples that were learned.",
            lambda counts: counts[0]),
        counter("outlying_targets", "targets", "Targets that did not count in full because they were outliers.",
            lambda counts: counts[1]),
    ),
    "lags": (
        gauge("consumer_lag", "records or bytes", "Backlog of the source: records of a topic, bytes of a file.", _lags,
            ("topic", "partition")),
        gauge("", "records or bytes", "Backlog of all streams.", lambda lags: sum(lags.values()), page="lag"),
    ),
    "model": (
        gauge("objective", "of the loss", "Running regularised loss, of each example before it is learned.",
            "objective", page="objective", point="objective"),
        gauge("features", "features", "Random features in the model.", "n_features", page="features", point="features"),
        gauge("seeds", "blocks", "Blocks of random features in the model.", "n_seeds", page="blocks", point="seeds"),
        counter("steps", "steps", "Steps taken.", "n_steps"),
        counter("grown", "steps", "Steps that added a block.", lambda model: model.n_steps - model.n_reused),
        counter("reused", "steps", "Steps that changed an existing block.", "n_reused"),
        gauge("expected_descent", "of the loss",
            "Share of the loss that new features, and old ones with more examples, were expected to gain.",
            lambda model: model.descent and dict(zip(("new", "old"), model.descent, strict=True)), ("coordinate",),
            point="gain of {coordinate} features"),
        gauge("step_size", "of the step", "Size of the next step, in units of the model's step_size.", "next_step",
            point="step size"),
        gauge("checked_step_size", "of f", "Size of the last step, in units of the function.", "last_step"),
        counter("checks", "steps",
            "Steps by the decision of the rule: reused a block, grew by one, or was forced to reuse one at the cap.",
            _checks, ("outcome",)),
        gauge("model_bytes", "bytes", "Memory of the model's arrays, without cached directions.", "bytes"),
        gauge("cache_bytes", "bytes", "Memory of cached directions.", "cached_bytes"),
        counter("prunings", "times", "Prunings of the model.", "n_prunings"),
        gauge("refit_gap", "of the loss", "Certified primal-dual gap of the last refit.",
            lambda model: None if math.isnan(model.gap) else model.gap),
        gauge("function_weight", "1", "Weight of each kind of function in the prediction.",
            lambda model: model.shares or None, ("steps",), point="weight: {steps}"),
        gauge("groups", "groups", "Groups of features.", lambda model: model.groups or None),
        gauge("youngest_group_examples", "examples", "Examples before the newest group of features was added.",
            lambda model: model.youngest if model.groups else None),
    ),
    "checkpointer": (
        gauge("checkpoint_interval_seconds", "seconds", "Time between two checkpoints, as configured.",
            lambda of: of.seconds if of.state else None),
        gauge("checkpoint_age_seconds", "seconds", "Time since the last checkpoint.",
            lambda of: of.age if of.state else None),
        gauge("", "seconds", "The age in whole seconds.", lambda of: None if of.age is None else round(of.age),
            page="age of the checkpoint, s"),
        gauge("checkpoint_size_bytes", "bytes", "Size of the last checkpoint.", "size"),
    ),
    "checkpoints": (
        histogram("checkpoint_seconds", "Time to write a checkpoint and commit, while learning is paused.",
            lambda of: of),
    ),
    "mirror": (
        gauge("mirror_lag_checkpoints", "checkpoints", "Committed checkpoints after the last one in the mirror.",
            "lag_checkpoints"),
        gauge("mirror_lag_seconds", "seconds", "Time since the oldest commit that is not in the mirror; 0 if all are.",
            "lag_seconds"),
        counter("mirror_uploads", "checkpoints", "Checkpoints copied to the mirror.", "copies"),
        counter("mirror_failures", "attempts", "Attempts to copy a checkpoint to the mirror that failed.", "failures"),
    ),
    "cluster": (
        gauge("workers", "workers", "Workers of the last round.", lambda of: len(of.last.events), page="workers"),
        counter("worker_events", "events", "Events that each worker read.",
            lambda of: {str(worker): events for worker, (events, _) in of.by_worker.items()}, ("worker",)),
        counter("worker_seconds", "seconds", "Time that each worker was busy with its events.",
            lambda of: {str(worker): seconds for worker, (_, seconds) in of.by_worker.items()}, ("worker",)),
        histogram("round_seconds", "Time of a round, from its plan until its predictions are evaluated.", "rounds"),
        histogram("merge_seconds", "Time to merge the replicas of a round.", "merges"),
        gauge("", "seconds", "Time of the last round.", "last.round_seconds", page="round, s"),
        gauge("", "seconds", "Time of the last merge.", "last.merge_seconds", page="merging, s"),
        gauge("replica_spread", "1",
            "Distance of the replicas from their mean at the last merge, in units of its size.", "last.spread",
            page="spread of replicas"),
    ),
    "incidents": (
        counter("incidents", "incidents", "Problems from which the run recovered, by kind.", dict, ("kind",)),
        counter("", "incidents", "The kinds that occurred, as text.",
            lambda counts: {kind.replace("_", " "): n for kind, n in counts.items() if n}, ("kind",), page="{kind}"),
    ),
}  # fmt: skip
"""The figures by the part of a `Reading` with their values."""
