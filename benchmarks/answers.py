"""Predictions over HTTP while the model learns: how long an answer takes, and what 500 a second cost the learning.

An `Engine` learns a stream without end in one process; another asks ``POST /predict`` for one record at a time, by a
fixed clock over eight connections that stay open. A time counts from when the question was due, so that one that had to
wait for the one before counts in full. Rounds with and without questions take turns.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import threading
import time
from typing import Any

from rich.progress import track
from river import metrics

from benchmarks.common import arguments, show
from benchmarks.hot_path import stream
from benchmarks.sizing import Repeated
from streamkernel import KernelClassifier
from streamkernel.connectors import Event
from streamkernel.engine import Engine
from streamkernel.engine.http import serve

MODELS: dict[str, dict[str, Any]] = {
    "first order, 1,024 features": {"max_features": 1024, "learner": "dsg"},
    "second order, 1,024 features": {"max_features": 1024},
    "no arguments": {},
}
INPUTS, CONNECTIONS = 10, 8


async def ask(port: int, rate: float, seconds: float) -> list[float]:
    """Return how long each answer took."""
    x = json.dumps({"x": next(iter(stream(INPUTS, 1)))[0]})
    head = ["POST /predict HTTP/1.1", "host: localhost", "content-type: application/json", f"content-length: {len(x)}"]
    question, took = "\r\n".join([*head, "", x]).encode(), []
    began = time.perf_counter()

    async def connection(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for turn in range(number, int(rate * seconds), CONNECTIONS):
            due = began + turn / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            writer.write(question)
            told = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert told.startswith(b"http/1.1 200"), told
            await reader.readexactly(int(told.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
            took.append(time.perf_counter() - due)
        writer.close()

    await asyncio.gather(*(connection(number) for number in range(CONNECTIONS)))
    return took


def measured(options: dict[str, Any], rate: float, seconds: float, rounds: int, warm: float) -> list[str]:
    """Return a row of the table."""
    events = [Event("memory", i, b"", {**x, "y": y}) for i, (x, y) in enumerate(stream(INPUTS, 8192))]
    engine = Engine(
        KernelClassifier(**options),
        Repeated(events, 1 << 60),
        label="y",
        metric=metrics.Accuracy(),
    )
    port, over = serve(engine, "127.0.0.1", 0), threading.Event()
    thread = threading.Thread(target=engine.run, args=(over.is_set,))
    thread.start()
    time.sleep(warm)
    ratios, alone, took = [], [], []
    for _ in range(rounds):
        rates = []
        for asked in (False, True):
            before, began = engine.outcomes["learned"], time.perf_counter()
            if asked:
                words = [sys.executable, "-m", "benchmarks.answers", "--port", str(port), "--seconds", str(seconds)]
                answer = subprocess.run([*words, "--rate", str(rate)], check=True, capture_output=True, text=True)
                took += json.loads(answer.stdout)
            else:
                time.sleep(seconds)
            rates.append((engine.outcomes["learned"] - before) / (time.perf_counter() - began))
        ratios.append(rates[1] / rates[0])
        alone.append(rates[0])
    over.set()
    thread.join()
    cuts = statistics.quantiles(took, n=100)
    figures = [f"{1000 * cuts[49]:.1f} ms", f"{1000 * cuts[98]:.1f} ms", f"{1000 * max(took):.0f} ms"]
    return [f"{len(took):,}", f"{statistics.median(alone):,.0f}", f"{statistics.median(ratios):.2f}", *figures]


def main() -> None:
    """Print a row for each model."""
    options = arguments(__doc__, rate=500.0, seconds=8.0, rounds=3, warm=10.0, port=0)
    if options.port:
        print(json.dumps(asyncio.run(ask(options.port, options.rate, options.seconds))))
        return
    rows = []
    for name, model in track(MODELS.items(), description="models"):
        rows.append([name, *measured(model, options.rate, options.seconds, options.rounds, options.warm)])
    columns = ["model", "answers", "events/s, nobody asks", "asked / not", "median", "99 of 100", "longest"]
    show(f"{options.rate:g} questions a second, {INPUTS} inputs", columns, rows)


if __name__ == "__main__":
    main()
