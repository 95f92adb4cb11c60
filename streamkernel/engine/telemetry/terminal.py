"""The terminal view of a run: its figures as rows of text, live and at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import structlog
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from streamkernel.engine.telemetry.figures import OUTCOMES
from streamkernel.engine.telemetry.status import summary_of, texts
from streamkernel.warm_up import warm_up

if TYPE_CHECKING:
    from streamkernel.engine.engine import Engine

LOG_SECONDS = 10.0
"""Seconds between two lines of progress without a terminal."""

MOVED, MOST_MOVED = 0.25, 3
"""The stability index above which an input has moved, and the number of such inputs that are named."""

FIRST = {"learned": OUTCOMES["learned"], "dead letters": OUTCOMES["dead_letter"]}
"""Names in the data of the page, and on the terminal."""

log = structlog.get_logger("streamkernel")


class View:
    """The figures of one engine, read when they are drawn."""

    def __init__(self, engine: Engine, title: str) -> None:
        self._engine = engine
        self._title = title
        self._since = time.monotonic()

    @property
    def events_per_second(self) -> float | None:
        """Events learned per second by this process since the view was created; ``None`` if none."""
        learned = self._engine.outcomes["learned"] - self._engine.parts.checkpointer.learned_before
        return learned / max(time.monotonic() - self._since, 1e-9) if learned else None

    def rows(self) -> list[tuple[str, str]]:
        """Return the displayed names and values as text."""
        return rows_of(summary_of(self._engine), self.events_per_second)

    def __rich__(self) -> Group:
        """Return the rich table with its title."""
        return table_of(self._title, self.rows())


def table_of(title: str, rows: Iterable[tuple[str, str]]) -> Group:
    """Return names and values as a rich table below a title."""
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in rows:
        table.add_row(escape(name), escape(value))
    return Group(escape(title), table)


@contextmanager
def showing(engine: Engine, title: str, *, as_json: bool = False) -> Iterator[View]:
    """Show the engine's figures while it runs: live on a terminal, and once at the end everywhere.

    With `as_json` the figures are one line of the log at the end, and nothing else is written.
    """
    console = Console(stderr=True)
    view = View(engine, title)
    if as_json:
        yield view
        log.info("the run has ended", **dict(view.rows()))
    elif sys.stderr.isatty():
        with Live(get_renderable=view.__rich__, console=console, refresh_per_second=4):
            yield view
    else:
        yield view
        console.print(view)


def compile_for(model: Any, console: Console) -> None:
    """Compile the code of a model, which takes some seconds once on a machine."""
    with console.status("compiling the numerical code, once on this machine"):
        warm_up(model)


class ProgressLog:
    """Writes progress to the log periodically; a watcher for :meth:`Engine.run`."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._next = time.monotonic() + LOG_SECONDS

    def __call__(self, engine: Engine) -> None:
        """Write a line if it is due."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + LOG_SECONDS
            log.info("progress", **dict(self._view.rows()))


def rows_of(status: Mapping[str, Any], rate: float | None) -> list[tuple[str, str]]:
    """Return names and values as text.

    `status` is the data of the page, or the part of it that `status.summary_of` returns. `rate` are events per second,
    if known.
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
