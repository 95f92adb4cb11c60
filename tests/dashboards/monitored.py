"""Real engines that follow files, and a real Prometheus that scrapes them; time runs faster in a copy of the rules."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from brokers import free_port
from forked import Forked
from served import ServerProcess
from waiting import LIMIT, wait_for

PROMETHEUS = Path(__file__).parents[2] / "dashboards" / "prometheus"
RULES = ("recording.yml", "alerts.yml")

CONFIG = """
label = "y"
coverage = 0.9
[source]
{source}
[model]
{model}
{more}
[state]
directory = "state"
checkpoint_seconds = 0.5
mirror = "file://{folder}/mirror"
[http]
port = {port}
"""

SCRAPE = """
global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}}
rule_files: [recording.yml, alerts.yml]
scrape_configs:
  - job_name: streamkernel
    static_configs: [{{targets: [{targets}]}}]
"""


def hurried(rules: str) -> str:
    """Return rules whose minutes are seconds: windows of 10 s, and nothing that has to last or to come often.

    >>> hurried("rate(x[5m]) > 10 * y + 30, for: 10m")
    'rate(x[10s]) > 10 * y + 1, for: 1s'
    """
    rules = re.sub(r"for: \d+m", "for: 1s", re.sub(r"\[\d+m\]", "[10s]", re.sub(r"offset \d+m", "offset 10s", rules)))
    return rules.replace("+ 30", "+ 1").replace("> 600", "> 10").replace("> 5\n", "> 0\n")


class Run:
    """An engine as a process of its own."""

    def __init__(self, folder: Path, source: str, model: str, more: str = "") -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.port = folder, free_port()
        (folder / "config.toml").write_text(
            CONFIG.format(folder=folder, source=source, model=model, more=more, port=self.port)
        )
        self.process = Forked(["run", folder / "config.toml"], folder / "log")

    def is_ready(self) -> bool:
        """Return whether it learns."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=LIMIT) as answer:
            return bool(answer.status == 200)

    def stop(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()


class Stream(Run):
    """An engine that follows a file, and a thread that writes records to it, a few each tick."""

    def __init__(
        self, folder: Path, model: str, record: Callable[[int], Any], more: str = "", first: int = 1500
    ) -> None:
        folder.mkdir()
        self.record, self.each = record, 5
        self._n, self._running, self._writing = 0, True, threading.Lock()
        self._file = (folder / "events.jsonl").open("w")
        self.write(first)
        super().__init__(folder, 'path = "events.jsonl"\nfollow = true', model, more)
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def write(self, n: int) -> None:
        """Write the next records."""
        for _ in range(n):
            self._file.write(json.dumps(self.record(self._n)) + "\n")
            self._n += 1
        self._file.flush()

    def append(self, text: str) -> None:
        """Write what is no record, with nothing of a record before it."""
        self._file.write(text)
        self._file.flush()

    def pause(self) -> None:
        """Write no more records by itself."""
        with self._writing:
            self.each = 0

    def stop(self) -> None:
        """End both."""
        self._running = False
        self._thread.join()
        super().stop()
        self._file.close()

    def _feed(self) -> None:
        while self._running:
            with self._writing:
                self.write(self.each)
            time.sleep(0.1)


class Served(ServerProcess):
    """`streamkernel serve` of the state of an engine."""

    def __init__(self, state: Path) -> None:
        super().__init__(["serve", state, "--port", free_port(), "--workers", 1], state.parent / "log of serve")

    def stop(self) -> None:
        """End it at once."""
        self.process.terminate()
        self.process.wait()


class Prometheus:
    """The server, and questions to it."""

    def __init__(self, port: int) -> None:
        self.page = f"http://127.0.0.1:{port}"

    def query(self, expression: str) -> list[Any]:
        """Return the series that an expression has now."""
        found: list[Any] = self._get("query?" + urllib.parse.urlencode({"query": expression}))["result"]
        return found

    def firing(self) -> set[str]:
        """Return the names of alerts that fire."""
        return {alert["labels"]["alertname"] for alert in self._get("alerts")["alerts"] if alert["state"] == "firing"}

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.page}/api/v1/{path}", timeout=LIMIT) as answer:
            return json.loads(answer.read())["data"]


@contextmanager
def scraping(folder: Path, ports: list[int]) -> Iterator[Prometheus]:
    """Run Prometheus on engines at these ports."""
    for name in RULES:
        (folder / name).write_text(hurried((PROMETHEUS / name).read_text()))
    targets = ", ".join(f"'127.0.0.1:{port}'" for port in ports)
    (folder / "prometheus.yml").write_text(SCRAPE.format(targets=targets))
    port = free_port()
    words = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([*words, f"--web.listen-address=127.0.0.1:{port}"], stderr=log)
    try:
        yield Prometheus(port)
    finally:
        process.terminate()
        process.wait()


def until(condition: Callable[[], Any], what: Callable[[], str]) -> None:
    """Wait for a condition of servers that may not answer yet."""

    def is_so() -> Any:
        try:
            return condition()
        except OSError:
            return False

    wait_for(is_so, what=what)
