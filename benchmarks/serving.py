"""``streamkernel serve`` under load, beside ``/predict`` of ``streamkernel run``: requests per second, and their times.

Four servers answer by models of the same parameters: a run that learns as fast as it can, a run that waits for lines
of its file, and `serve` with one and with two workers, which follows the checkpoints of the second. A generator, in a
process of its own, asks over connections that stay open, each as soon as it has its answer: one record, or 100. The
servers take turns, and the learner is stopped while it is not its turn; a ratio is of the same round.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice, product
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from rich.progress import track
from river.datasets import synth

from benchmarks.common import arguments, show

CONFIG = """
label = "y"
[source]
{source}
[model]
type = "KernelRegressor"
max_features = 1024
learner = "dsg"
[state]
directory = "{state}"
checkpoint_seconds = 5
[http]
port = 0
"""
EVENTS, BATCH = 5000, 100


async def load(port: int, records: int, seconds: float, connections: int) -> list[float]:
    """Return how long each response took, of as many requests as a server answers."""
    rows = [{str(i): value for i, value in x.items()} for x, _ in islice(synth.Friedman(seed=7), records)]
    body = json.dumps({"x": rows[0] if records == 1 else rows})
    head = ["POST /predict HTTP/1.1", "host: localhost", "content-type: application/json"]
    request = "\r\n".join([*head, f"content-length: {len(body)}", "", body]).encode()
    took: list[float] = []
    end = time.perf_counter() + seconds

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (began := time.perf_counter()) < end:
            writer.write(request)
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert answer.startswith(b"http/1.1 200"), answer
            await reader.readexactly(int(answer.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
            took.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(connection() for _ in range(connections)))
    return took


@contextmanager
def started(folder: Path, name: str, *words: Any) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a command that serves; return the process, and its port once its model predicts."""
    log = folder / f"{name}.log"
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-m", "streamkernel", *map(str, words)], stderr=file)
    try:
        while not (found := re.search(rb"http://127.0.0.1:(\d+)/", log.read_bytes())) or not is_ready(int(found[1])):
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield process, int(found[1])
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait()


def is_ready(port: int) -> bool:
    """Return whether the model of a server can predict."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def figures(port: int, records: int, options: Any) -> tuple[float, float, float]:
    """Return requests per second, median and 99th percentile of the times in milliseconds, asked by another process."""
    words = ["--port", port, "--records", records, "--seconds", options.seconds, "--connections", options.connections]
    command = [sys.executable, "-m", "benchmarks.serving", *map(str, words)]
    took = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    cuts = statistics.quantiles(took, n=100)
    return len(took) / options.seconds, 1000 * cuts[49], 1000 * cuts[98]


def main() -> None:
    """Print a row for each server and size of a request."""
    options = arguments(__doc__, seconds=4.0, rounds=5, connections=8, port=0, records=1)
    if options.port:
        print(json.dumps(asyncio.run(load(options.port, options.records, options.seconds, options.connections))))
        return
    with tempfile.TemporaryDirectory() as path, ExitStack() as stack:
        folder = Path(path)
        lines = (json.dumps(x | {"y": y}) for x, y in islice(synth.Friedman(seed=3), EVENTS))
        (folder / "events.jsonl").write_text("".join(f"{line}\n" for line in lines))
        sources = {"waiting": 'path = "events.jsonl"\nfollow = true', "learning": 'dataset = "synth.Friedman"'}
        for state, source in sources.items():
            (folder / f"{state}.toml").write_text(CONFIG.format(source=source, state=state))
        commands: dict[str, list[Any]] = {
            "run, learning": ["run", folder / "learning.toml"],
            "run, waiting": ["run", folder / "waiting.toml"],
            "serve, 1 worker": ["serve", folder / "waiting", "--port", 0],
            "serve, 2 workers": ["serve", folder / "waiting", "--port", 0, "--workers", 2],
        }
        servers = {}
        for name, words in commands.items():
            servers[name] = stack.enter_context(started(folder, name, *words))
        learner, _ = servers["run, learning"]
        found: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
        for _ in track(range(options.rounds), description="rounds"):
            for records, (name, (process, port)) in product((1, BATCH), servers.items()):
                learner.send_signal(signal.SIGCONT if process is learner else signal.SIGSTOP)
                found.setdefault((name, records), []).append(figures(port, records, options))
    rows = []
    for (name, records), every in found.items():
        rate, middle, most = map(statistics.median, zip(*every, strict=True))
        cells = [f"{rate:,.0f}", f"{rate * records:,.0f}", f"{middle:.1f} ms", f"{most:.1f} ms"]
        for peer in ("run, waiting", "run, learning"):
            pairs = zip(every, found[peer, records], strict=True)
            cells.append(f"{statistics.median(ours[0] / theirs[0] for ours, theirs in pairs):.2f}")
        rows.append([name, str(records), *cells])
    columns = ["server", "records", "requests/s", "records/s", "median", "99 of 100", "/ waiting run", "/ learning run"]
    show(f"{options.connections} connections, {os.cpu_count()} processors", columns, rows)


if __name__ == "__main__":
    main()
