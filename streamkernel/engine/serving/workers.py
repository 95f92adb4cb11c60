"""Worker processes: they are started, started again when they end, and asked to stop."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess

import structlog

from streamkernel.engine.http.listening import DRAIN_SECONDS

STOP_SECONDS = DRAIN_SECONDS + 5.0
"""Seconds in which a worker has to end after a request to stop; it is killed then."""

PAUSE_SECONDS = 1.0
"""Seconds from the start of a worker to that of its successor, at least."""

POLL_SECONDS = 0.2
"""Seconds between two checks of the request to stop."""

log = structlog.get_logger("streamkernel")


class Workers:
    """Forked processes that all do the same work.

    Parameters
    ----------
    work
        The function that a process runs, given its number; it returns after SIGTERM.
    count
        The number of processes.
    on_restart
        Called before a process is started again.
    """

    def __init__(self, work: Callable[[int], None], count: int, on_restart: Callable[[], None]) -> None:
        self._work, self._count, self._on_restart = work, count, on_restart
        self._context = multiprocessing.get_context("fork")
        self._processes: dict[int, tuple[ForkProcess, float]] = {}

    def run(self, stopping: Callable[[], bool]) -> None:
        """Keep all processes running until `stopping` returns true, and then wait until they have ended."""
        try:
            while not stopping():
                self._start_missing()
                wait([one.sentinel for one, _ in self._processes.values() if one.is_alive()], POLL_SECONDS)
        finally:
            self._stop()

    def _start_missing(self) -> None:
        for number in range(self._count):
            before = self._processes.get(number)
            if before is not None:
                process, began = before
                if process.is_alive() or time.monotonic() - began < PAUSE_SECONDS:
                    continue
                self._on_restart()
                log.error("a worker ended and is started again", worker=number, exit_code=process.exitcode)
            process = self._context.Process(target=self._work, args=(number,), name=f"worker {number}")
            process.start()
            self._processes[number] = process, time.monotonic()

    def _stop(self) -> None:
        """Ask all processes to stop, and kill those that do not."""
        processes = [process for process, _ in self._processes.values()]
        for process in processes:
            process.terminate()
        end = time.monotonic() + STOP_SECONDS
        for process in processes:
            process.join(max(0.0, end - time.monotonic()))
            if process.is_alive():
                log.error("a worker did not end in time and is killed", pid=process.pid)
                process.kill()
                process.join()
