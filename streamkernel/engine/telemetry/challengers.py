"""The champion and its challengers compared: as metrics, as a table of the page, and as texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from streamkernel.engine.telemetry.quality import WINDOW, Scores, stored_scores

if TYPE_CHECKING:
    from streamkernel.engine.challengers.challengers import ChallengersSnapshot
    from streamkernel.engine.telemetry.snapshot import EngineSnapshot


def challenger_metrics(found: ChallengersSnapshot) -> Iterator[Metric]:
    """Yield the metrics of challengers; none if there are none."""
    if not found.models:
        return
    since_start = "Prequential quality of a challenger since it began."
    recent = "Prequential quality of a challenger over its last 1,000 events."
    yield _quality("challenger_metric", since_start, {one.name: (one.scores, one.scores.ours) for one in found.models})
    scores = {one.name: (one.scores, one.scores.recent()[0]) for one in found.models}
    yield _quality("challenger_metric_recent", recent, scores)
    text = "Events of a challenger: judged by their label, or an error."
    events = CounterMetricFamily("streamkernel_challenger_events", text, labels=["model", "outcome"])
    text = "Time that this process spent on a challenger."
    seconds = CounterMetricFamily("streamkernel_challenger_seconds", text, labels=["model"])
    text = "1 if a challenger was suspended after repeated errors, else 0."
    suspended = GaugeMetricFamily("streamkernel_challenger_suspended", text, labels=["model"])
    for one in found.models:
        events.add_metric([one.name, "judged"], one.judged)
        events.add_metric([one.name, "error"], one.errors)
        seconds.add_metric([one.name], one.seconds)
        suspended.add_metric([one.name], one.is_suspended)
    yield from (events, seconds, suspended)
    text = "The name of the model whose predictions are written; always 1."
    champion = GaugeMetricFamily("streamkernel_champion_info", text, labels=["model"])
    champion.add_metric([found.champion], 1.0)
    yield champion


def model_table(numbers: EngineSnapshot) -> list[dict[str, Any]]:
    """Return a row for each model of a run that has challengers, as JSON values."""
    found = numbers.challengers
    if not found.models:
        return []
    learned = numbers.outcomes["learned"]
    return [
        _row(found.champion, "champion", numbers.scores, learned, 0, ""),
        *(
            _row(one.name, _role(one.is_suspended), one.scores, one.judged, one.errors, one.reason)
            for one in found.models
        ),
    ]


def checkpoint_table(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the same rows for a checkpoint."""
    found = state.get("challengers") or {}
    if not found.get("models"):
        return []
    rows = [_row(found["champion"], "champion", stored_scores(state), state["outcomes"]["learned"], 0, "")]
    for one in found["models"]:
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


def _quality(name: str, text: str, scores: Mapping[str, tuple[Scores, float]]) -> Metric:
    family = GaugeMetricFamily(f"streamkernel_{name}", text, labels=["name", "model"])
    for model, (one, value) in scores.items():
        if not math.isnan(value):
            family.add_metric([one.name, model], value)
    return family


def _row(name: str, role: str, scores: Scores, judged: int, errors: int, reason: str) -> dict[str, Any]:
    numbers = {"metric": scores.ours, "recent": scores.recent()[0]}
    return {
        "model": name,
        "role": role,
        "name_of_metric": scores.name,
        **{key: number if math.isfinite(number) else None for key, number in numbers.items()},
        "judged": judged,
        "errors": errors,
        "reason": reason,
    }


def _role(is_suspended: bool) -> str:
    return "suspended" if is_suspended else "challenger"


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
