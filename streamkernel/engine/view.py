"""What a terminal shows of a running engine, and what is left on it at the end."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from streamkernel import growth
from streamkernel.classification import KernelClassifier
from streamkernel.engine.quality import WINDOW

if TYPE_CHECKING:
    from streamkernel.engine.runner import Engine

LOG_SECONDS = 10.0
"""Time between two lines of progress where there is no terminal."""

log = logging.getLogger(__name__)


class View:
    """The numbers of one engine, drawn when they are asked for.

    Parameters
    ----------
    engine
        The engine.
    title
        What is above the numbers.
    """

    def __init__(self, engine: Engine, title: str) -> None:
        self._engine = engine
        self._title = title
        self._since = time.monotonic()

    @property
    def events_per_second(self) -> float:
        """Events that this process has taken in, a second since the view was made."""
        events = self._engine.numbers.events.buckets[-1][1]  # those of a checkpoint were taken in by another process
        return events / max(time.monotonic() - self._since, 1e-9)

    def rows(self) -> list[tuple[str, str]]:
        """Return what is shown: names and numbers as text."""
        engine, numbers = self._engine, self._engine.numbers
        model, scores = numbers.model, numbers.scores
        rows = [
            ("events learnt", f"{numbers.outcomes['learned']:,}"),
            ("dead letters", f"{numbers.outcomes['dead_letter']:,}"),
            ("events/s", f"{self.events_per_second:,.0f}" if self.events_per_second else "-"),
        ]
        if numbers.labels:
            rows.append(("waiting for labels", f"{numbers.pending_labels:,}"))
        rows += [(scores.name, f"{scores.ours:.4f}"), (f"{scores.name}, last {WINDOW:,}", f"{scores.recent()[0]:.4f}")]
        if scores.baseline:
            rows.append((f"{scores.name} (baseline)", f"{scores.theirs:.4f}"))
        if model is not None:
            rows += [
                ("objective", f"{model.objective:.4f}"),
                ("features", f"{model.n_features:,}"),
                ("seeds", f"{model.n_seeds:,}"),
                ("reused steps", f"{model.n_reused:,}"),
            ]
        if engine.cluster is not None:
            last = engine.cluster.last
            rows += [
                ("workers", f"{len(last.events):,}"),
                ("round, s", f"{last.round_seconds:.2f}"),
                ("merging, s", f"{last.merge_seconds:.2f}"),
                ("spread of replicas", f"{last.spread:.4f}"),
            ]
        if engine.last_dead_letters:
            rows.append(("last dead letter", escape(engine.last_dead_letters[-1]["reason"])))
        return rows

    def __rich__(self) -> Group:
        """Return what a terminal shows: the title, and the table below it."""
        table = Table(show_header=False)
        table.add_column()
        table.add_column(justify="right")
        for row in self.rows():
            table.add_row(*row)
        return Group(self._title, table)


@contextmanager
def showing(engine: Engine, title: str) -> Iterator[View]:
    """Show the engine's numbers while it runs: live on a terminal, and once at the end everywhere."""
    console = Console(stderr=True)
    view = View(engine, title)
    if sys.stderr.isatty():
        with Live(get_renderable=view.__rich__, console=console, refresh_per_second=8):
            yield view
    else:
        yield view
        console.print(view)


def compile_all(console: Console) -> None:
    """Compile the numerical code, which takes half a minute once on a machine, and no time afterwards."""
    logging.disable()
    try:
        _compile(console)
    finally:
        logging.disable(logging.NOTSET)


def _compile(console: Console) -> None:
    with console.status("compiling the numerical code, once on this machine"):
        for model in (KernelClassifier(features_per_seed=1, max_features=6), KernelClassifier(second_order=None)):
            for i in range(growth.FROM):  # the second decides scales and bandwidth, the last begins a larger group
                model.learn_one({"x": float(i % 7)}, i % 2 == 0)
            model.predict_one({"x": 1.0})


class ProgressLog:
    """Writes a line of progress to the log now and then; a watcher for :meth:`Engine.run`."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._next = time.monotonic() + LOG_SECONDS

    def __call__(self, engine: Engine) -> None:
        """Write a line if it is time."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + LOG_SECONDS
            log.info(", ".join(f"{name} {value}" for name, value in self._view.rows()))
