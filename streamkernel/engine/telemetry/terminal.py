"""The terminal view of a running engine, and its summary at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import structlog
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from streamkernel.engine.telemetry.figures import rows_of
from streamkernel.engine.telemetry.status import figures_of
from streamkernel.warm_up import warm_up

if TYPE_CHECKING:
    from streamkernel.engine.engine import Engine

LOG_SECONDS = 10.0
"""Seconds between two lines of progress without a terminal."""

log = structlog.get_logger("streamkernel")


class View:
    """The figures of one engine, read when they are drawn.

    Parameters
    ----------
    engine
        The engine.
    title
        The title above the figures.
    """

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
        return rows_of(figures_of(self._engine), self.events_per_second)

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
