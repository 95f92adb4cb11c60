"""A task that runs in a thread while the model continues learning."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any

import numpy as np

from streamkernel.errors import InputError
from streamkernel.features.rows import F64, Rows
from streamkernel.upkeep.tasks import Build, Function, Task

log = logging.getLogger(__name__)

LONG = 0.05
"""Seconds for which a stream may wait without a log line."""

Examples = tuple[Rows, F64]


class _Work:
    """The part of a job that its thread refers to; a waiting thread does not keep the job or the model in memory."""

    def __init__(self, tasks: Sequence[Task], build: Build) -> None:
        self.tasks, self.build = tasks, build
        self.since: list[Examples | None] = []  # None for one more column of f
        self.gap = float("nan")
        self.new: Function | None = None
        self.has_ended = False
        self._last: int | None = None  # the final length of `since`
        self._signals: SimpleQueue[None] = SimpleQueue()

    def feed(self, examples: Examples | None, place: int) -> None:
        """Pass on learned examples, as :meth:`BackgroundJob.feed` does."""
        self.since[place : place + 1] = [examples]  # in one operation: a handler may feed a copy of the model
        self._signals.put(None)

    def end(self, last: int) -> None:
        """Set how many of the passed examples are learned before the thread ends."""
        self._last = last
        self._signals.put(None)

    @property
    def names(self) -> str:
        return " and ".join(type(task).__name__.lower() for task in self.tasks)

    def run(self, columns: int, predicting: Mapping[str, Any], window: Sequence[Examples]) -> None:
        try:
            function = self.build(columns)
            function.restore(predicting, to_learn=False)
            rows, y = join_examples(window, function)
            from streamkernel.upkeep.work import do_task

            for task in self.tasks:
                first = max(0, len(y) - task.window)
                function, gap = do_task(task, function, rows.part(first, len(y)), y[first:], self.build)
                self.gap = self.gap if gap is None else gap
            log.info("%s: %d features", self.names, function.n_blocks * function.block_size)
            del self.build  # it refers to the model, which may be dropped while the thread waits
            self.new = self._caught_up(function.make_private()).make_shared()
        except BaseException:  # also what another thread raises here, which would end this one in silence
            log.exception("%s has failed; the model is unchanged", self.names)
        finally:
            self.has_ended = True

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
                    log.warning("a model after %s cannot learn an example: %s", self.names, error)
        return function


class BackgroundJob:
    """The construction of a new function in a thread, which then learns the examples that have arrived meanwhile.

    The thread also ends when nothing refers to the job any more, as where the model is dropped.
    """

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
        self._work = _Work(tasks, build)
        arguments = columns, predicting, window
        self._thread = Thread(target=self._work.run, args=arguments, name="streamkernel upkeep", daemon=True)
        weakref.finalize(self, self._work.end, 0).atexit = False

    @property
    def since(self) -> list[Examples | None]:
        """The passed examples; ``None`` represents one more column of f."""
        return self._work.since

    @property
    def gap(self) -> float:
        """The gap that the task reported for the new function; NaN before."""
        return self._work.gap

    @property
    def is_lost(self) -> bool:
        """Whether the thread was left behind in the process that this one was forked from."""
        return not (self._work.has_ended or self._thread.is_alive())

    def again(self, build: Build) -> BackgroundJob:
        """Return a job that starts again, with the examples passed so far."""
        job = BackgroundJob(self.tasks, self.until, self.columns, self.predicting, self.window, build)
        job.since[:] = self.since
        job.start()
        return job

    def start(self) -> None:
        """Start the thread, unless it has started."""
        if self._thread.ident is None:
            self._thread.start()

    def feed(self, examples: Examples | None, place: int) -> None:
        """Pass on learned examples, or ``None`` for one more column of f; the same position may be passed twice."""
        self._work.feed(examples, place)

    def abandon(self) -> None:
        """Let the thread end by itself."""
        self._work.end(0)

    def result(self, last: int) -> Function | None:
        """Wait for the new function, which has learned all passed examples; ``None`` if there is none."""
        self._work.end(last)
        began = time.perf_counter()
        self._thread.join()
        waited = time.perf_counter() - began
        if waited > LONG:
            names = self._work.names
            log.warning("the stream has waited %.1f s for %s; a larger `every` avoids this", waited, names)
        return self._work.new


def join_examples(examples: Sequence[Examples], function: Function) -> Examples:
    """Return examples as one, their rows as a function reads them."""
    rows = Rows.stack([rows for rows, _ in examples])
    return function.directions.adopt_rows(rows), np.concatenate([y for _, y in examples])
