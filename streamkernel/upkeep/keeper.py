"""When something is done to a running model, by which thread, and how the model goes on with the result."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any

import numpy as np

from streamkernel import model_file
from streamkernel.errors import InputError
from streamkernel.mixture import Mixture
from streamkernel.rows import F64, Rows
from streamkernel.upkeep.functions import Build, Function
from streamkernel.upkeep.tasks import Compaction, Task, kept_blocks

log = logging.getLogger(__name__)

LONG = 0.05
"""Seconds that a stream may wait without a word."""

_ASKED = "upkeep.asked."
_FEW = 8
_LOADED: set[tuple[type, type]] = set()

Examples = tuple[Rows, F64]


class Upkeep:
    """Does tasks to a function that learns, at fixed places of its stream.

    A job is begun after every so many examples, from a small copy of the function and a window of examples. A thread of
    its own makes the new function, which then learns what has come since, while the old one goes on. At a fixed example
    the new one takes the old one's place; if it is not ready, the stream waits for it. So what is learnt depends on the
    examples alone.

    Parameters
    ----------
    tasks
        What is done.
    build
        Makes a function that has learnt nothing.
    """

    def __init__(self, tasks: Sequence[Task], build: Build) -> None:
        self._tasks, self._build = tasks, build
        self._room = max(task.window for task in tasks)
        self._recent: deque[Examples] = deque()
        self._held = 0
        self._job: _Job | None = None
        self.seen = 0
        self.n_compactions = 0
        self.gap = float("nan")
        self._due = self._next()

    def until_due(self) -> int:
        """Return how many examples are left until a job begins or ends."""
        return self._due - self.seen

    def saw(self, function: Function, rows: Rows, y: F64) -> Function:
        """Take note of what a function has learnt, at most :meth:`until_due` rows; return the one to go on with."""
        n = len(y)
        if not self.seen:
            self._load(function, rows, y)
        self.seen += n
        self._held += n
        self._recent.append((rows, y))
        if self._held > self._room:
            self._trim()
        if self._job is not None:
            self._job.put((rows, y))
        return function if self.seen < self._due else self._turn(function)

    def _load(self, function: Function, rows: Rows, y: F64) -> None:
        """Do the tasks once for nothing, so that their code is loaded before events wait for it."""
        from streamkernel.upkeep.work import done

        for task in self._tasks:
            if (type(function), type(task)) in _LOADED:
                continue
            _LOADED.add((type(function), type(task)))
            old = self._build(function.columns)
            old.restore(function.asked(), to_learn=False)
            some, targets = Rows.stack([rows.part(0, 1)] * _FEW), np.full(_FEW, y[0])
            with suppress(Exception):  # a job says what is wrong
                done(task, old, old.directions.own(some), targets, self._build)

    def _turn(self, function: Function) -> Function:
        """Let a job end or begin, and return the function to go on with."""
        if self._job is not None and self.seen == self._job.until:
            function = self._ended(function, self._job)
        tasks = [task for task in self._tasks if self.seen % task.every == 0 and _has_work(task, function)]
        if tasks and self._job is None:
            until = self.seen + min(task.every for task in tasks) // 2
            self._job = _Job(tasks, until, function.columns, function.asked(), [*self._recent], self._build)
            self._job.start()
        self._due = self._next()
        return function

    def _next(self) -> int:
        starts = [self.seen + task.every - self.seen % task.every for task in self._tasks]
        return min(starts if self._job is None else [*starts, self._job.until])

    def added_column(self) -> None:
        """Take note of one more column of f."""
        if self._job is not None:
            self._job.put(None)

    def _ended(self, function: Function, job: _Job) -> Function:
        self._job = None
        new = job.result()
        if new is None:
            return function
        self.n_compactions += any(isinstance(task, Compaction) for task in job.tasks)
        if not np.isnan(job.gap):
            self.gap = job.gap
        return new

    def tensors(self) -> dict[str, Any]:
        """Return all of this as tensors, with the job's beginning if there is one."""
        job = self._job
        numbers = np.array([self.seen, self.n_compactions], np.int64)
        gap = np.array([0.0 if np.isnan(self.gap) else self.gap, not np.isnan(self.gap)])
        found = {"upkeep.numbers": numbers, "upkeep.gap": gap}
        if job is None:
            return found | model_file.pack_examples("upkeep.recent", self._recent)
        asked = {f"upkeep.asked.{name}": tensor for name, tensor in job.asked.items()}
        since = [model_file.pack_examples(f"upkeep.since{i}", run) for i, run in enumerate(job.since)]
        found["upkeep.job"] = np.array([job.until, job.columns, *(task in job.tasks for task in self._tasks)], np.int64)
        recent = model_file.pack_examples("upkeep.recent", job.window)
        return found | asked | recent | {k: v for run in since for k, v in run.items()}

    def restore(self, function: Function, tensors: Mapping[str, Any]) -> None:
        """Take over what :meth:`tensors` returned; a job that was under way is begun again.

        Raises
        ------
        ValueError
            If a tensor is missing or does not fit.
        """
        seen, compactions = model_file.taken(tensors, "upkeep.numbers", np.int64, (2,)).tolist()
        gap, is_known = model_file.taken(tensors, "upkeep.gap", np.float64, (2,)).tolist()
        if min(seen, compactions) < 0:
            raise ValueError(f"expected counters of upkeep, got {[seen, compactions]}")
        self.seen, self.n_compactions, self.gap = seen, compactions, gap if is_known else float("nan")
        self.abandon()
        recent = _unpacked("recent", tensors, function)
        self._recent, self._held = deque(recent), sum(len(y) for _, y in recent)
        self._due = self._next()
        if "upkeep.job" not in tensors:
            return
        until, columns, *is_done = model_file.taken(tensors, "upkeep.job", np.int64, (2 + len(self._tasks),)).tolist()
        if not (seen < until and 0 < columns <= function.columns):
            raise ValueError(f"expected a later end and columns of a function as upkeep.job, got {[until, columns]}")
        names = [f"since{i}" for i in range(len(tensors)) if f"upkeep.since{i}.targets" in tensors]
        runs = [_unpacked(name, tensors, function) for name in names]
        asked = {name.removeprefix(_ASKED): tensor for name, tensor in tensors.items() if name.startswith(_ASKED)}
        tasks = [task for task, is_one in zip(self._tasks, is_done, strict=True) if is_one]
        self._job = _Job(tasks, until, columns, asked, recent, self._build)
        for i, run in enumerate(runs):
            if i:
                self._job.put(None)
            for examples in run:
                self._job.put(examples)
                self._recent.append(examples)
                self._held += len(examples[1])
        self._trim()
        self._due = self._next()
        self._job.start()

    def abandon(self) -> None:
        """Let a job that is under way come to nothing, since the function that it began from is gone."""
        if self._job is not None:
            self._job.abandon()
            self._job = None
            self._due = self._next()

    def _trim(self) -> None:
        while self._held - len(self._recent[0][1]) >= self._room:
            self._held -= len(self._recent.popleft()[1])


class _Job:
    """The making of a new function in a thread, which is told what is learnt meanwhile."""

    def __init__(
        self,
        tasks: Sequence[Task],
        until: int,
        columns: int,
        asked: Mapping[str, Any],
        window: Sequence[Examples],
        build: Build,
    ) -> None:
        self.tasks, self.until, self.columns, self.asked, self.window = tasks, until, columns, asked, window
        self.since: list[list[Examples]] = [[]]  # a run for every column that was added, and one more
        self.gap = float("nan")
        self._build = build
        self._told: SimpleQueue[tuple[Examples | None] | None] = SimpleQueue()  # None at the end
        self._new: Function | None = None
        self._thread = Thread(target=self._run, name="streamkernel upkeep", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def put(self, examples: Examples | None) -> None:
        """Tell what was learnt, ``None`` for one more column of f."""
        if examples is None:
            self.since.append([])
        else:
            self.since[-1].append(examples)
        self._told.put((examples,))

    def abandon(self) -> None:
        """Let the thread end when it will."""
        self._told.put(None)

    def result(self) -> Function | None:
        """Wait for the new function, which has learnt all it was told of; ``None`` if there is none."""
        self.abandon()
        began = time.perf_counter()
        self._thread.join()
        waited = time.perf_counter() - began
        if waited > LONG:
            log.warning("the stream has waited %.1f s for %s; with a longer `every` it does not", waited, self._names)
        return self._new

    @property
    def _names(self) -> str:
        return " and ".join(type(task).__name__.lower() for task in self.tasks)

    def _run(self) -> None:
        try:
            function = self._build(self.columns)
            function.restore(self.asked, to_learn=False)
            rows, y = _joined(self.window, function)
            from streamkernel.upkeep.work import done

            for task in self.tasks:
                first = max(0, len(y) - task.window)
                function, gap = done(task, function, rows.part(first, len(y)), y[first:], self._build)
                self.gap = self.gap if gap is None else gap
            log.info("%s: %d features", self._names, function.n_blocks * function.per_block)
            self._catch_up(function)
            self._new = function
        except Exception:
            log.exception("%s has failed; the model goes on as it is", self._names)

    def _catch_up(self, function: Function) -> None:
        """Learn what has been told until the end of it."""
        while (told := self._told.get()) is not None:
            (examples,) = told
            if examples is None:
                function.add_column()
                continue
            rows, y = _joined([examples], function)
            done = 0
            while done < len(y):
                try:
                    function.learn(rows.part(done, len(y)), y[done:])
                    done = len(y)
                except InputError as error:
                    done += function.refused + 1
                    log.warning("a model after %s cannot learn an example: %s", self._names, error)


def _has_work(task: Task, function: Function) -> bool:
    """Say whether there is anything for a task to do."""
    if not isinstance(task, Compaction):
        return True
    if isinstance(function, Mixture):
        return not function.is_packed and 2 * function.n_blocks > function.most_blocks
    return function.n_blocks > kept_blocks(function.cap, task.keep)[0]


def _joined(examples: Sequence[Examples], function: Function) -> Examples:
    """Return examples as one, their rows as a function reads them."""
    rows = Rows.stack([rows for rows, _ in examples])
    return function.directions.own(rows), np.concatenate([y for _, y in examples])


def _unpacked(name: str, tensors: Mapping[str, Any], function: Function) -> list[Examples]:
    found = model_file.unpack_examples(f"upkeep.{name}", tensors, function.directions)
    if found is None:
        raise ValueError(f"expected examples as upkeep.{name}, got none")
    function.check_targets([y for _, y in found])
    return [(row, np.array([y])) for row, y in found]
