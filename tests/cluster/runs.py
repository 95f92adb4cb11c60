"""Runs of the command line on Ray clusters with injected faults, and the results of these runs."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import rounds
from faults import kafka_runs
from faults.kafka_runs import Run
from states import named
from waiting import LIMIT, wait_for

from streamkernel.cluster import assemble
from streamkernel.engine.config.config import load_config

CONFIG = """
label = "y"
ignore = ["id", "town"]
[source]
path = "{data}/part-*.jsonl"
[[preprocessing]]
type = "StandardScaler"
[model]
type = "KernelClassifier"
max_features = 64
[sink]
predictions = "predictions.jsonl"
dead_letters = "dead_letters.jsonl"
[state]
directory = "state"
[cluster]
workers = {workers}
events_per_round = {events_per_round}
"""
CLUSTER = """
[cluster]
workers = 2
events_per_round = 150
"""


class FilesRun:
    """A run over files with workers, and all its processes.

    Parameters
    ----------
    data, folder
        Where the files are, and where results go.
    workers, events_per_round, address
        As for the command line.
    """

    def __init__(
        self, data: Path, folder: Path, workers: int = 2, events_per_round: int = 200, address: str = "local"
    ) -> None:
        named(folder / "state")
        self.data, self.folder, self.address = data, folder, address
        self.planned(workers, events_per_round)

    def planned(self, workers: int, events_per_round: int = 200) -> None:
        """Write the division of the work from now on into the configuration file."""
        self.config = self.folder / "run.toml"
        self.config.write_text(CONFIG.format(data=self.data, workers=workers, events_per_round=events_per_round))

    def start(self) -> subprocess.Popen[str]:
        """Start a driver; a second one resumes from the state of the first."""
        with (self.folder / "log").open("a") as log:
            return subprocess.Popen(words(self.config, self.address), stderr=log, text=True, cwd=self.folder)

    def finish(self, seconds: float = LIMIT) -> None:
        """Let the run continue to the end."""
        process = self.start()
        try:
            assert process.wait(seconds) == 0, self.log()
        finally:
            process.kill()

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def rounds(self) -> int:
        """Return the number of the newest checkpoint."""
        return newest(self.folder / "state")

    def told(self) -> dict[str, Any]:
        return rounds.told(self.folder)


class TopicsRun(Run):
    """The same over a topic, with predictions written to a topic."""

    template = kafka_runs.CONFIG.replace("[http]\nport = 0\n", CLUSTER)
    program = 'import sys; sys.argv[2:2] = ["--cluster", "local"]; from streamkernel.cli import main; main()'
    is_new = True  # Ray's processes end with that of a run

    def rounds(self) -> int:
        """Return the number of the newest checkpoint."""
        return newest(self.state_directory())

    def here(self) -> None:
        """Run all of it in this process."""
        folder = self._folder / f"{self.name}-one"
        folder.mkdir(exist_ok=True)
        here(self.write(folder))


def newest(directory: Path) -> int:
    """Return the number of the newest valid checkpoint."""
    return max((int(path.stem.split("-")[1]) for path in directory.glob("checkpoint-*")), default=0)


def here(path: Path) -> None:
    """Run a configuration with workers that are in this process."""
    config = load_config(path)
    with mock.patch.object(assemble, "WorkerPool", lambda address, replica: rounds.HerePool(replica)):
        assemble.cluster_engine_of(config, "here", lambda: config.cluster.workers).run()


def words(config: Path, address: str, *more: str) -> list[str]:
    """Return the command that runs a configuration on a cluster."""
    return [
        sys.executable, "-c", "from streamkernel.cli import main; main()",
        "run", "--cluster", address, *more, str(config),
    ]  # fmt: skip


def after_a_round(run: FilesRun, process: subprocess.Popen[str], rng: random.Random, longest: float = 0.3) -> bool:
    """Wait for the next round and a random delay; return whether the driver is still running."""
    before = max(1, run.rounds())
    wait_for(lambda: run.rounds() > before or process.poll() is not None)
    with suppress(subprocess.TimeoutExpired):
        process.wait(rng.uniform(0.0, longest))
    return process.poll() is None


def below(pid: int) -> dict[int, str]:
    """Return the descendants of a process, with their names."""
    parents: dict[int, tuple[int, str]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            fields = (path / "stat").read_text().rsplit(")", 1)[1].split()
            if fields[0] != "Z":
                title = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                parents[int(path.name)] = int(fields[1]), title
    found: dict[int, str] = {}
    fresh = {pid}
    while fresh:
        fresh = {one for one, (parent, _) in parents.items() if parent in fresh}
        found |= {one: parents[one][1] for one in fresh}
    return found


def workers_of(pid: int) -> list[int]:
    """Return the workers of a driver."""
    return sorted(one for one, title in below(pid).items() if title.startswith("ray::_Worker"))


def listening(pids: Iterable[int]) -> list[str]:
    """Return the addresses that processes listen at, in the kernel's hexadecimal."""
    sockets = set()
    for pid in pids:
        for file in Path(f"/proc/{pid}/fd").glob("*"):
            with suppress(OSError):
                sockets.add(str(file.readlink()).removeprefix("socket:[").rstrip("]"))
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    found = [line[1].split(":")[0] for line in lines if line[3] == "0A" and line[9] in sockets]
    assert found, "a Ray that listens nowhere"
    return found


def is_loopback(address: str) -> bool:
    """Return whether an address is unreachable from other machines."""
    return address[-8:] == "0100007F" or address == "0" * 24 + "01000000"


def kill_all(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
