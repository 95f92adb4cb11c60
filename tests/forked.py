"""Processes that have imported the command line when they start: imports take most of the time of a short process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

COMMAND = "from streamkernel.cli import main; main()"
"""The program that the command ``streamkernel`` is."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        "streamkernel.cli",
        "streamkernel.engine.assemble",
        "streamkernel.engine.http",
        "streamkernel.engine.telemetry.observed",
        "streamkernel.engine.telemetry.terminal",
        "streamkernel.connectors.kafka",
        "streamkernel.connectors.schema_registry",
        "confluent_kafka",
        "numba.core.typing.templates",
        "numba.experimental.jitclass",
        "numba.np.linalg",
        "uvicorn.protocols.http.h11_impl",
    ]
)


class Forked:
    """A process of Python, with the methods of `subprocess.Popen` that tests call.

    Parameters
    ----------
    words
        What follows the name of the program in its arguments.
    log
        The file to which its standard error is appended.
    program
        The code that it runs, with the variables of the environment that are set now.
    """

    def __init__(self, words: Iterable[object], log: Path, program: str = COMMAND) -> None:
        log.touch()
        told = program, [str(word) for word in words], str(log), dict(os.environ)
        self._process = _context.Process(target=_run, args=told, daemon=True)
        self._process.start()
        self.pid = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal, None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit code, None while the process runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once there is one."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("a process", timeout or 0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


Process = Forked | subprocess.Popen[str]


def _run(program: str, words: list[str], log: str, environment: dict[str, str]) -> None:
    """Run code in the process that was started."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), sys.stderr.fileno())
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *words]
    exec(program, {"__name__": "__main__"})
