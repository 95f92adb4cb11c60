"""The parent process of a server: it starts worker processes, starts them again when they end, and stops them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from pathlib import Path

import structlog

from streamkernel.engine.http.listening import DRAIN_SECONDS, Certificate, Server, listen
from streamkernel.engine.serving.application import CheckpointFollower, SharedCounts, serving_application

STOP_SECONDS = DRAIN_SECONDS + 5.0
"""Seconds in which a worker has to end after a request to stop; it is killed then."""

PAUSE_SECONDS = 1.0
"""Seconds from the start of a worker to the start of its successor, at least."""

POLL_SECONDS = 0.2
"""Seconds between two checks of the request to stop."""

FORK = multiprocessing.get_context("fork")

log = structlog.get_logger("streamkernel")


class ModelServer:
    """Follows state directories, and answers requests for predictions by their models, in forked processes.

    `states` are the state directories, by the name of the model. The system chooses a port for 0; `OSError` is raised
    if the port is in use. `workers` is the number of processes, which all do the same work. `poll_seconds` are the
    seconds between checks for a new checkpoint. `token` is as for
    :class:`~streamkernel.engine.http.applications.Guard`. `certificate` is ``None`` for plain HTTP.
    """

    def __init__(
        self,
        states: Mapping[str, Path],
        host: str,
        port: int,
        *,
        workers: int,
        poll_seconds: float,
        token: str | None,
        certificate: Certificate | None,
    ) -> None:
        self._states, self._workers, self._poll_seconds = states, workers, poll_seconds
        self._token, self._certificate = token, certificate
        self._processes: dict[int, tuple[ForkProcess, float]] = {}  # each with the time of its start
        self._counts = SharedCounts(workers, list(states))
        self._listening = listen(host, port)
        self.port = int(self._listening.getsockname()[1])

    def run(self, stopping: Callable[[], bool]) -> None:
        """Keep all processes running until `stopping` returns true; open requests are then answered."""
        try:
            while not stopping():
                self._start_missing()
                wait([one.sentinel for one, _ in self._processes.values() if one.is_alive()], POLL_SECONDS)
            self._listening.close()  # else new connections wait for workers that no longer accept them
        finally:
            self._stop_processes()

    def _start_missing(self) -> None:
        for number in range(self._workers):
            before = self._processes.get(number)
            if before is not None:
                process, began = before
                if process.is_alive() or time.monotonic() - began < PAUSE_SECONDS:
                    continue
                self._counts.add_restart()
                log.error("a worker ended and is started again", worker=number, exit_code=process.exitcode)
            process = FORK.Process(target=self._serve_models, args=(number, os.getpid()), name=f"worker {number}")
            process.start()
            self._processes[number] = process, time.monotonic()

    def _stop_processes(self) -> None:
        """Ask all processes to stop, and kill each that does not in time."""
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

    def _serve_models(self, number: int, parent: int) -> None:
        """Follow the directories and answer requests until SIGTERM, in a process of its own."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a terminal sends it to all, and the parent stops this process
        self._counts.worker = number
        followers = [CheckpointFollower(name, path) for name, path in self._states.items()]
        for follower in followers:  # before the first request: other workers have models already
            follower.load_newest()
        server = Server(serving_application(followers, self._counts, self._token), self._certificate)

        def follow() -> None:
            try:
                while os.getppid() == parent:
                    time.sleep(self._poll_seconds)
                    for follower in followers:
                        follower.load_newest()
            finally:
                server.should_exit = True  # the parent was killed; or else it starts another worker

        threading.Thread(target=follow, daemon=True, name="checkpoints").start()
        server.run([self._listening])
