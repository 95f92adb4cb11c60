"""The scheduler of tasks on a running model: when a task runs, in which thread, and how its result is applied.

A task may run in a thread of its own while the model continues learning.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Thread
from typing import Any

import numpy as np

from streamkernel import tensor_file
from streamkernel.errors import InputError
from streamkernel.features import example_tensors
from streamkernel.features.rows import F64, Rows
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.upkeep.tasks import Build, Function, Log, Pruning, Task, kept_blocks

log = logging.getLogger(__name__)
LONG = 0.05
"""Seconds for which a stream may wait without a log line."""
PAUSE = 0.001
"""Seconds between looks at a job that the stream waits for."""
Examples = tuple[Rows, F64]
_PREDICTING = "upkeep.asked."
_FEW = 8
_LOADED: set[tuple[type, type]] = set()


class _Work:
    """The part of a job that its thread refers to; a waiting thread does not keep the job or the model in memory."""

    def __init__(self, tasks: Sequence[Task], build: Build) -> None:
        self.tasks, self.build = tasks, build
        self.since: list[Examples | None] = []  # None for one more column of f
        self.gap = float("nan")  # until a task reports one
        self.new: Function | None = None
        self.has_ended = False
        self._last: int | None = None  # the final length of `since`
        self._signals: SimpleQueue[None] = SimpleQueue()

    def feed(self, examples: Examples | None, place: int) -> None:
        """Pass on learned examples, or ``None`` for one more column of f; the same position may be passed twice."""
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
        self.work = _Work(tasks, build)
        arguments = columns, predicting, window
        self._thread = Thread(target=self.work.run, args=arguments, name="streamkernel upkeep", daemon=True)
        weakref.finalize(self, self.work.end, 0).atexit = False

    @property
    def is_lost(self) -> bool:
        """Whether the thread was left behind in the process that this one was forked from."""
        return not (self.work.has_ended or self._thread.is_alive())

    def again(self, build: Build) -> BackgroundJob:
        """Return a job that starts again, with the examples passed so far."""
        job = BackgroundJob(self.tasks, self.until, self.columns, self.predicting, self.window, build)
        job.work.since[:] = self.work.since
        job.start()
        return job

    def start(self) -> None:
        """Start the thread, unless it has started."""
        if self._thread.ident is None:
            self._thread.start()

    def result(self, last: int) -> Function | None:
        """Wait for the new function, which has learned all passed examples; ``None`` if there is none."""
        self.work.end(last)
        began = time.perf_counter()
        while not self.work.has_ended and self._thread.is_alive():  # a signal's handler in a join could wait for itself
            time.sleep(PAUSE)
        waited = time.perf_counter() - began
        if waited > LONG:
            names = self.work.names
            log.warning("the stream has waited %.1f s for %s; a larger `every` avoids this", waited, names)
        return self.work.new


def join_examples(examples: Sequence[Examples], function: Function) -> Examples:
    """Return examples as one, their rows as a function reads them."""
    rows = Rows.stack([rows for rows, _ in examples])
    return function.directions.adopt_rows(rows), np.concatenate([y for _, y in examples])


@dataclass(frozen=True)
class BackgroundTasks:
    """Tasks that replace a learning function at fixed positions of its stream.

    After every `every` examples of a task, a job starts from a small copy of the function and a window of examples. It
    builds the new function in a thread of its own and then learns the examples that have arrived meanwhile, while the
    old function continues. The new function replaces the old one at a fixed example; the stream waits if it is not
    ready. So the learned state depends on the examples alone. The scheduler is immutable: :meth:`saw` returns the next
    state. `build` constructs an untrained function; `recent` are the last examples, at most `held`. `job` is the
    running one, ``None`` if there is none, to which `fed` batches of examples have been passed. `seen`, `n_prunings`
    and `gap` are the numbers of examples and prunings so far, and the gap of the last refit.
    """

    tasks: tuple[Task, ...]
    build: Build
    recent: Log[Examples]
    held: int = 0
    job: BackgroundJob | None = None
    fed: int = 0
    seen: int = 0
    n_prunings: int = 0
    gap: float = float("nan")

    @classmethod
    def new(cls, tasks: Sequence[Task], build: Build) -> BackgroundTasks:
        """Return the tasks before the first example."""
        return cls(tuple(tasks), build, Log([]))

    def until_due(self) -> int:
        """Return the number of examples until a job begins or ends."""
        starts = [self.seen + task.every - self.seen % task.every for task in self.tasks]
        return min(starts if self.job is None else [*starts, self.job.until]) - self.seen

    def observe(self, function: Function, rows: Rows, y: F64) -> tuple[Function, BackgroundTasks]:
        """Return the function that continues learning, and the new state, after some learned examples.

        These are at most :meth:`until_due` rows.
        """
        if self.job is not None and self.job.is_lost:
            return replace(self, job=self.job.again(self.build)).observe(function, rows, y)
        if not self.seen:
            self._compile_tasks(function, rows, y)
        recent, held, fed = self.recent.plus((rows, y)), self.held + len(y), self.fed
        recent, held = self._trim_recent(recent, held)
        if self.job is not None:
            self.job.start()  # the job of a file has waited for the next example
            self.job.work.feed((rows, y), fed)
            fed += 1
        is_due = self.until_due() == len(y)
        after = replace(self, recent=recent, held=held, fed=fed, seen=self.seen + len(y))
        return after._end_and_begin_jobs(function) if is_due else (function, after)

    def _trim_recent(self, recent: Log[Examples], held: int) -> tuple[Log[Examples], int]:
        longest = max(task.window for task in self.tasks)
        gone = 0
        for _, y in recent:
            if held - len(y) < longest:
                break
            held, gone = held - len(y), gone + 1
        return (recent.without(gone) if gone else recent), held

    def _compile_tasks(self, function: Function, rows: Rows, y: F64) -> None:
        """Run the tasks once on little data, so that their code is compiled before events wait for it."""
        from streamkernel.upkeep.work import do_task

        for task in self.tasks:
            if (type(function), type(task)) in _LOADED:
                continue
            _LOADED.add((type(function), type(task)))
            old = self.build(function.columns)
            old.restore(function.to_predict(), to_learn=False)
            some, targets = Rows.stack([rows.part(0, 1)] * _FEW), np.full(_FEW, y[0])
            with suppress(Exception):  # a job logs its own errors
                do_task(task, old, old.directions.adopt_rows(some), targets, self.build)

    def _end_and_begin_jobs(self, function: Function) -> tuple[Function, BackgroundTasks]:
        """End or begin a job; return the function that continues learning."""
        state = self
        if state.job is not None and state.seen == state.job.until:
            function, state = state._end_job(function, state.job)
        due = [task for task in state.tasks if state.seen % task.every == 0 and _has_work(task, function)]
        if due and state.job is None:
            until = state.seen + min(task.every for task in due) // 2
            job = BackgroundJob(due, until, function.columns, function.to_predict(), [*state.recent], state.build)
            job.start()
            state = replace(state, job=job, fed=0)
        return function, state

    def with_column(self) -> BackgroundTasks:
        """Return the state with one more column of f."""
        if self.job is None:
            return self
        self.job.work.feed(None, self.fed)
        return replace(self, fed=self.fed + 1)

    def _end_job(self, function: Function, job: BackgroundJob) -> tuple[Function, BackgroundTasks]:
        new, state = job.result(self.fed), replace(self, job=None, fed=0)
        if new is None:
            return function, state
        if isinstance(new, SecondOrderLearner) and isinstance(function, SecondOrderLearner):
            new.adopt_linear(function)  # the job has inputs as the features read them, after scaling and clipping
        state = replace(state, n_prunings=state.n_prunings + any(isinstance(t, Pruning) for t in job.tasks))
        return new, state if np.isnan(job.work.gap) else replace(state, gap=job.work.gap)

    def tensors(self) -> dict[str, Any]:
        """Return the complete state as tensors, with the input of the running job if there is one."""
        job = self.job
        numbers = np.array([self.seen, self.n_prunings], np.int64)
        gap = np.array([0.0 if np.isnan(self.gap) else self.gap, not np.isnan(self.gap)])
        tensors = {"upkeep.numbers": numbers, "upkeep.gap": gap}
        if job is None:
            return tensors | example_tensors.pack_examples("upkeep.recent", [*self.recent])
        predicting = {f"{_PREDICTING}{name}": tensor for name, tensor in job.predicting.items()}
        runs: list[list[Examples]] = [[]]  # one for every column that was added, and one more
        for examples in job.work.since[: self.fed]:
            if examples is None:
                runs.append([])
            else:
                runs[-1].append(examples)
        since = [example_tensors.pack_examples(f"upkeep.since{i}", run) for i, run in enumerate(runs)]
        tensors["upkeep.job"] = np.array(
            [job.until, job.columns, *(task in job.tasks for task in self.tasks)], np.int64
        )
        recent = example_tensors.pack_examples("upkeep.recent", job.window)
        return tensors | predicting | recent | {k: v for run in since for k, v in run.items()}

    def restore(self, function: Function, tensors: Mapping[str, Any]) -> BackgroundTasks:
        """Return the state that :meth:`tensors` returned; a job that was running starts again at the next example.

        Raise a ValueError if a tensor is missing or does not fit.
        """
        seen, prunings = tensor_file.require_tensor(tensors, "upkeep.numbers", np.int64, (2,)).tolist()
        gap, is_known = tensor_file.require_tensor(tensors, "upkeep.gap", np.float64, (2,)).tolist()
        if min(seen, prunings) < 0:
            raise ValueError(f"expected counters of upkeep, got {[seen, prunings]}")
        recent = _unpack("recent", tensors, function)
        state = replace(
            self,
            recent=Log.of(recent),
            held=sum(len(y) for _, y in recent),
            seen=seen,
            n_prunings=prunings,
            gap=gap if is_known else float("nan"),
        )
        if "upkeep.job" not in tensors:
            return state
        until, columns, *is_done = tensor_file.require_tensor(
            tensors, "upkeep.job", np.int64, (2 + len(self.tasks),)
        ).tolist()
        if not (seen < until and 0 < columns <= function.columns):
            raise ValueError(f"expected a later end and columns of a function as upkeep.job, got {[until, columns]}")
        names = [f"since{i}" for i in range(len(tensors)) if f"upkeep.since{i}.targets" in tensors]
        runs = [_unpack(name, tensors, function) for name in names]
        predicting = {n.removeprefix(_PREDICTING): tensor for n, tensor in tensors.items() if n.startswith(_PREDICTING)}
        tasks = [task for task, is_one in zip(self.tasks, is_done, strict=True) if is_one]
        job = BackgroundJob(tasks, until, columns, predicting, recent, self.build)
        log_of, held, fed = state.recent, state.held, 0
        for i, run in enumerate(runs):
            for examples in [None, *run] if i else run:
                job.work.feed(examples, fed)
                fed += 1
                if examples is not None:
                    log_of, held = log_of.plus(examples), held + len(examples[1])
        log_of, held = state._trim_recent(log_of, held)
        return replace(state, recent=log_of, held=held, job=job, fed=fed)

    def abandon(self) -> None:
        """Let the job end by itself."""
        if self.job is not None:
            self.job.work.end(0)


def _has_work(task: Task, function: Function) -> bool:
    """Return whether a task has anything to do."""
    if not isinstance(task, Pruning):
        return True
    if isinstance(function, SecondOrderLearner):
        return not function.is_packed and 2 * function.n_blocks > function.most_blocks
    return function.n_blocks > kept_blocks(function.cap, task.keep)[0]


def _unpack(name: str, tensors: Mapping[str, Any], function: Function) -> list[Examples]:
    examples = example_tensors.unpack_examples(f"upkeep.{name}", tensors, function.directions)
    if examples is None:
        raise ValueError(f"expected examples as upkeep.{name}, got none")
    function.check_targets([y for _, y in examples])
    return [(row, np.array([y])) for row, y in examples]
