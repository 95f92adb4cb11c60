"""The figures of a run as rows of text, from a running engine, the data of its page, or a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamkernel.engine.telemetry.challengers import texts

MOVED, MOST_MOVED = 0.25, 3
"""The stability index above which an input has moved, and the number of such inputs that are named."""

FIRST = {"learned": "events learned", "dead letters": "dead letters"}
"""Names in the data of the page, and on the terminal."""


def rows_of(status: Mapping[str, Any], rate: float | None) -> list[tuple[str, str]]:
    """Return names and values as text.

    Parameters
    ----------
    status
        The data of the page, or the part of it that `status.figures_of` returns.
    rate
        Events per second, if known.
    """
    now = status["now"]
    rows = [("health", status["ill"] or "ok")] if "ill" in status else []
    rows += [(text, shown(name, now[name])) for name, text in FIRST.items() if name in now]
    rows.append(("events/s", "–" if rate is None else f"{rate:,.0f}"))
    rows += [(name, shown(name, value)) for name, value in now.items() if name not in FIRST]
    for target, of in status.get("targets", {}).items():
        rows.append((f"{status['metric']['name']} of {target}", shown("", of["since start"])))
    rows += texts(status.get("models", ()))
    rows += _changes(status.get("monitoring") or {})
    letters = status.get("dead_letters") or [
        {"reason": group["reason"]} for group in status.get("dead_letter_groups", ())[:1]
    ]
    return [*rows, ("last dead letter", letters[-1]["reason"])] if letters else rows


def shown(name: str, value: float | None) -> str:
    """Return a number as text.

    Examples
    --------
    >>> shown("learned", 12345), shown("Accuracy", 0.8125), shown("round, s", 1.566), shown("MAE", None)
    ('12,345', '0.8125', '1.57', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.2f}" if name.endswith(", s") else f"{value:,.4f}"


def rate_between(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> float | None:
    """Return events learned per second: between two states of a page, or at the end of the history of one."""
    if not after["clock"]:  # a checkpoint
        return None
    if before is not None and before["clock"]:
        seconds, events = after["clock"] - before["clock"], after["now"]["learned"] - before["now"]["learned"]
    else:
        columns = after["history"]
        times, counts = columns.get("time", ())[-2:], columns.get("learned", ())[-2:]
        if len(times) < 2 or None in (*times, *counts):
            return None
        seconds, events = times[1] - times[0], counts[1] - counts[0]
    return events / seconds if seconds > 0 and events >= 0 else None


def _changes(monitoring: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what the monitoring has found: alarms, and inputs that have moved."""
    parts = [part for name in ("drift", "novelty") if (part := monitoring.get(name))]
    statistics = monitoring.get("statistics")
    if parts:
        alarms: Sequence[Mapping[str, Any]] = sorted(
            (one for of in parts for one in of["alarms"]), key=lambda one: one["event"]
        )
        last = ""
        if alarms:
            fields = ", ".join(str(one["field"]) for one in alarms[-1]["moved"])
            last = f", the last one after event {alarms[-1]['event']:,}: {fields}"
        count = sum(sum(of.get("counts", {}).values()) + of.get("alarms_raised", 0) for of in parts) or len(alarms)
        yield "alarms", f"{count:,}{last}"
    novelty = monitoring.get("novelty")
    if novelty and novelty["recent"] is not None:
        yield "novel events", f"{novelty['recent']:.1%} of the last 1,000 examined, expected {novelty['rate']:.1%}"
    if statistics and statistics["inputs"]:
        changes = {name: of["last"]["change"] for name, of in statistics["inputs"].items()}
        names = sorted((name for name, change in changes.items() if change > MOVED), key=lambda name: -changes[name])
        yield "inputs that moved", ", ".join(f"{name} {changes[name]:.2f}" for name in names[:MOST_MOVED]) or "none"
