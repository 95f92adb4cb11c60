"""A thread that runs jobs one after the other, so that none of them blocks the event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

MAX_JOBS = 16
"""Jobs that may be queued, including the one that is running."""

QUICK_SECONDS = 0.005
"""Seconds up to which a short job runs in the event loop, measured by the last one."""

T = TypeVar("T")


class BusyError(Exception):
    """The queue is full."""


class Worker:
    """Runs one job at a time, in a thread, or in the event loop if the job is short.

    Passing a job to a thread and its result back takes longer than a short job. So a short job runs in the event loop
    if the last one was quick and the thread has nothing to do.

    Examples
    --------
    >>> asyncio.run(Worker().run(lambda: 6 * 7, is_short=False))
    42
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]]] = queue.SimpleQueue()
        self._n_jobs = 0  # changed by the event loop only
        self._is_quick = False
        self._thread = self._started()

    async def run(self, job: Callable[[], T], *, is_short: bool) -> T:
        """Run a job, and return its result or raise its error.

        Raises
        ------
        BusyError
            If `MAX_JOBS` are queued already.
        """
        if is_short and self._is_quick and not self._n_jobs:
            return self._time_call(job)
        if self._n_jobs >= MAX_JOBS:
            raise BusyError
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if not self._thread.is_alive():  # after an exception that another thread raised there
            self._thread = self._started()
        self._n_jobs += 1
        self._queue.put(((lambda: self._time_call(job)) if is_short else job, future))
        return await future

    def _started(self) -> threading.Thread:
        """Return a new thread that runs the queued jobs."""
        thread = threading.Thread(target=self._work, daemon=True, name="predictions")
        thread.start()
        return thread

    def _time_call(self, job: Callable[[], T]) -> T:
        began = time.perf_counter()
        try:
            return job()
        finally:
            self._is_quick = time.perf_counter() - began <= QUICK_SECONDS

    def _work(self) -> None:
        while True:
            job, future = self._queue.get()
            try:
                result, error = job(), None
            except Exception as raised:
                result, error = None, raised
            except BaseException as raised:  # which would end the thread here, and there the event loop
                result, error = None, RuntimeError(f"The prediction was interrupted by {type(raised).__name__}")
            future.get_loop().call_soon_threadsafe(self._finish, future, result, error)

    def _finish(self, future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        self._n_jobs -= 1
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
