"""Models of checkpoints, served by several processes on one socket."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from streamkernel.engine.http.listening import Server, listen
from streamkernel.engine.http.tls import Certificate
from streamkernel.engine.serving.application import serving_application
from streamkernel.engine.serving.counts import SharedCounts
from streamkernel.engine.serving.follower import CheckpointFollower
from streamkernel.engine.serving.workers import Workers

log = structlog.get_logger("streamkernel")


class ModelServer:
    """Follows state directories, and answers requests for predictions by their models.

    Parameters
    ----------
    states
        The state directories, by the name of the model.
    host, port
        Address and port to listen on; the system chooses a port for 0.
    workers
        Processes that answer.
    poll_seconds
        Seconds between checks for a new checkpoint.
    token
        As for :class:`~streamkernel.engine.http.guard.Guard`.
    certificate
        The certificate of the server; ``None`` for plain HTTP.

    Attributes
    ----------
    port : int
        The port.

    Raises
    ------
    OSError
        If the port is in use.
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
        self._counts = SharedCounts(workers, list(states))
        self._listening = listen(host, port)
        self.port = int(self._listening.getsockname()[1])

    def run(self, stopping: Callable[[], bool]) -> None:
        """Serve until `stopping` returns true; open requests are then answered."""

        def is_stopping() -> bool:
            if not stopping():
                return False
            self._listening.close()  # else new connections wait for workers that no longer accept them
            return True

        parent = os.getpid()
        Workers(lambda number: self._work(number, parent), self._workers, self._counts.add_restart).run(is_stopping)

    def _work(self, number: int, parent: int) -> None:
        """Follow the directories and answer requests, in a process of its own."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(
            signal.SIGHUP, signal.SIG_IGN
        )  # a terminal sends it to all processes, and the parent stops this one
        self._counts.worker = number
        followers = [CheckpointFollower(name, path) for name, path in self._states.items()]
        for follower in followers:  # before the first request: other workers have models already
            follower.look()
        server = Server(serving_application(followers, self._counts, self._token), self._certificate)

        def follow() -> None:
            try:
                while os.getppid() == parent:
                    time.sleep(self._poll_seconds)
                    for follower in followers:
                        follower.look()
            finally:
                server.should_exit = True  # the parent was killed; or else it starts another worker

        threading.Thread(target=follow, daemon=True, name="checkpoints").start()
        server.run([self._listening])
