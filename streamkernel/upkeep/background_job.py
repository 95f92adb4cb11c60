"""A task that runs in a thread while the model continues learning."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any

import numpy as np

from streamkernel.errors import InputError
from streamkernel.features.rows import F64, Rows
from streamkernel.upkeep.functions import Build, Function
from streamkernel.upkeep.tasks import Task

log = logging.getLogger(__name__)

LONG = 0.05
"""Seconds for which a stream may wait without a log line."""

Examples = tuple[Rows, F64]


class BackgroundJob:
    """The construction of a new function in a thread, which then learns the examples that have arrived meanwhile."""

    def __init__(
        self,
        tasks: Sequence[Task],
        until: int,
        columns: int,
        predicting: Mapping[str, Any],
        window: Sequence[Examples],
        build: Build,
    ) -> None:
        self.tasks, self.until, self.columns = tasks, until, columns
        self.predicting, self.window = predicting, window
        self.since: list[Examples | None] = []  # None for one more column of f
        self.gap = float("nan")
        self._build = build
        self._last: int | None = None  # how many of `since` there are when nothing more comes
        self._signals: SimpleQueue[None] = SimpleQueue()
        self._new: Function | None = None
        self._thread = Thread(target=self._run, name="streamkernel upkeep", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def feed(self, examples: Examples | None, place: int) -> None:
        """Pass on learned examples, or ``None`` for one more column of f; the same position may be passed twice."""
        if len(self.since) == place:
            self.since.append(examples)
        self._signals.put(None)

    def abandon(self) -> None:
        """Let the thread end by itself."""
        self._end(0)

    def _end(self, last: int) -> None:
        self._last = last
        self._signals.put(None)

    def result(self, last: int) -> Function | None:
        """Wait for the new function, which has learned all passed examples; ``None`` if there is none."""
        self._end(last)
        began = time.perf_counter()
        self._thread.join()
        waited = time.perf_counter() - began
        if waited > LONG:
            log.warning("the stream has waited %.1f s for %s; a larger `every` avoids this", waited, self._names)
        return self._new

    @property
    def _names(self) -> str:
        return " and ".join(type(task).__name__.lower() for task in self.tasks)

    def _run(self) -> None:
        try:
            function = self._build(self.columns)
            function.restore(self.predicting, to_learn=False)
            rows, y = join_examples(self.window, function)
            from streamkernel.upkeep.work import do_task

            for task in self.tasks:
                first = max(0, len(y) - task.window)
                function, gap = do_task(task, function, rows.part(first, len(y)), y[first:], self._build)
                self.gap = self.gap if gap is None else gap
            log.info("%s: %d features", self._names, function.n_blocks * function.block_size)
            self._new = self._caught_up(function.make_private()).make_shared()
        except Exception:
            log.exception("%s has failed; the model is unchanged", self._names)

    def _caught_up(self, function: Function) -> Function:
        """Return the function after it has learned the passed examples."""
        learned = 0
        while self._last is None or learned < self._last:
            if learned == len(self.since):
                self._signals.get()
                continue
            examples = self.since[learned]
            learned += 1
            if examples is None:
                function = function.with_column()
                continue
            rows, y = join_examples([examples], function)
            done, before = 0, function.n_offered
            while done < len(y):
                try:
                    function.learn(rows.part(done, len(y)), y[done:])
                    done = len(y)
                except InputError as error:
                    done, before = done + function.n_offered - before + 1, function.n_offered
                    log.warning("a model after %s cannot learn an example: %s", self._names, error)
        return function


def join_examples(examples: Sequence[Examples], function: Function) -> Examples:
    """Return several sets of examples as one, with their rows as a function reads them."""
    rows = Rows.stack([rows for rows, _ in examples])
    return function.directions.adopt_rows(rows), np.concatenate([y for _, y in examples])
