"""Kafka: the throughput of the engine relative to its consumer and its learner alone, and the time of a restart.

Three jobs run in turn, on the same JSON records of 10 features in a topic of one partition:

* *consumer*: `KafkaSource` in a group, polled to the end: it fetches and decodes records, and learns nothing.
* *learner*: the `Engine` on the same records in memory, which predicts and learns each.
* *whole*: the `Engine` on the consumer, with predictions to a topic and a checkpoint every 5 seconds, each in one
  transaction with its predictions and offsets.

Each is timed from the first records to the last commit, without joining and leaving the group. All
three are in one process, and the broker and the client's threads have to share two processors with it.

A restart is timed from the start of the process to its first event learned: after a kill, from the newest checkpoint.

The broker is Apache Kafka on loopback, which `tests/brokers.py` runs with `java` from jars that `mvn` has fetched once;
`--servers HOST:PORT` uses an existing cluster, `--client confluent-kafka` the other client. It takes about six
minutes. With `--processor`, the first table has processor time of this process, including the client's threads and
excluding the broker. Other processes then disturb the figures less, and work in parallel threads is added up.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from river import metrics

from benchmarks.common import InMemory, arguments, interleaved, show
from benchmarks.hot_path import stream
from streamkernel import KernelClassifier
from streamkernel.connectors import Event, KafkaSink, KafkaSource, KafkaTransactions
from streamkernel.connectors.formats import JsonLines
from streamkernel.connectors.kafka import Options
from streamkernel.engine import Engine
from streamkernel.engine.checkpoint.state_directory import StateDirectory
from streamkernel.engine.runner import collect_rarely

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import brokers

INPUTS, CHECKPOINT_SECONDS, SLICE = 10, 5.0, 64
MODELS: dict[str, tuple[dict[str, Any], int]] = {
    "KernelClassifier(max_features=1024, learner='dsg')": ({"max_features": 1024, "learner": "dsg"}, 1),
    "KernelClassifier(max_features=1024)": ({"max_features": 1024}, 5),
}
"""Arguments, and the divisor of the number of events."""

RESTARTED = {
    "KernelClassifier(max_features=4096, learner='dsg')": (
        'type = "KernelClassifier"\nmax_features = 4096\nlearner = "dsg"',
        2000,
    ),
    "KernelRegressor()": ('type = "KernelRegressor"', 20_000),
}
"""Tables [model], where the default rule is named for first-order steps, and the events to learn before the restart."""

CONFIG = """
label = "y"
[kafka]
servers = "{servers}"
client = "{client}"
group = "{name}"
[source]
topics = ["{topic}"]
[model]
{model}
[sink]
predictions_topic = "{predictions}"
[state]
directory = "state"
"""
RESTART = """
import os, sys, time
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import load_config
engine, enough = engine_of(load_config(sys.argv[1])), int(sys.argv[2])
def learned():
    return engine.outcomes["learned"] >= enough
if len(sys.argv) == 3:
    engine.run(learned)
else:
    engine.run(lambda: learned() and (print(time.time(), engine.kernel_model.n_features, flush=True), os._exit(0)))
"""


clock = time.perf_counter
"""The clock of the first table."""


class TimedSource(KafkaSource):
    """A topic, and the time from its first records until it is closed."""

    began = seconds = 0.0

    def poll(self, timeout: float) -> list[Event] | None:
        """Return the next events."""
        events = super().poll(timeout)
        self.began = self.began or (clock() if events else 0.0)
        return events

    def close(self) -> None:
        """Stop the clock, and leave the group."""
        self.seconds = clock() - self.began
        super().close()


class Cluster:
    """A topic with records, and the three jobs on the first `n` of them; each returns its duration in seconds."""

    def __init__(self, servers: str, client: str, values: list[bytes]) -> None:
        self.servers, self.client = servers, client
        self.topic = self.made()
        brokers.produce(servers, self.topic, values)
        parse = JsonLines().parse
        self._events = [Event(f"{self.topic}:0", i + 1, raw, parse(raw)) for i, raw in enumerate(values)]

    def made(self) -> str:
        """Return the name of a new topic."""
        name = uuid.uuid4().hex[:12]
        brokers.make_topics(self.servers, names=[name])
        return name

    def consumer(self, n: int) -> float:
        """Read."""
        source = self._source(n)
        while source.poll(0.2) is not None:
            pass
        source.close()
        return source.seconds / n

    def learner(self, options: Mapping[str, Any], n: int) -> float:
        """Predict and learn."""
        source = InMemory(self._events[:n], SLICE)
        engine = Engine(KernelClassifier(**options), source, label="y", metric=metrics.Accuracy())
        began = clock()
        engine.run()
        assert engine.outcomes["learned"] == n
        return (clock() - began) / n

    def whole(self, options: Mapping[str, Any], n: int) -> float:
        """Read, predict, learn, write and commit."""
        with tempfile.TemporaryDirectory() as folder:
            source, state = self._source(n), StateDirectory(Path(folder))
            transactions = KafkaTransactions(source, f"{source.group}-{state.identity}", 60.0)
            engine = Engine(
                KernelClassifier(**options),
                source,
                label="y",
                metric=metrics.Accuracy(),
                sink=KafkaSink(transactions, self.made()),
                state=state,
                transactions=transactions,
                checkpoint_seconds=CHECKPOINT_SECONDS,
            )
            engine.run()
        assert engine.outcomes["learned"] == n
        return source.seconds / n

    def _source(self, n: int) -> TimedSource:
        return TimedSource(Options(self.servers, client=self.client), self.topic, group=uuid.uuid4().hex[:12], until=n)


def throughput(cluster: Cluster, runs: int, events: int) -> None:
    """Print the events per second of the three jobs."""
    rows = []
    for name, (options, divisor) in MODELS.items():
        n = events // divisor
        cluster.learner(options, min(n, 1000))  # compiles
        jobs = partial(cluster.consumer, n), partial(cluster.learner, options, n), partial(cluster.whole, options, n)
        times = interleaved(runs, *jobs)
        share = statistics.median(max(a, b) / c for a, b, c in zip(*times, strict=True))
        limit = statistics.median((a + b) / c for a, b, c in zip(*times, strict=True))
        rates = [f"{1.0 / statistics.median(took):,.0f}" for took in times]
        rows.append([name, f"{n:,}", *rates, f"{share:.2f}", f"{limit:.2f}"])
    columns = ["model", "events", "consumer", "learner", "whole", "whole / slower", "whole / both in turn"]
    show(f"{cluster.client}, {INPUTS} features, events/s, medians of {runs} runs", columns, rows)


def restarts(cluster: Cluster, runs: int) -> None:
    """Print the time from the start of a process to its first event learned."""
    rows = []
    for name, (model, n) in RESTARTED.items():
        with tempfile.TemporaryDirectory() as folder:
            config, group = Path(folder, "run.toml"), uuid.uuid4().hex[:12]
            fields = {"client": cluster.client, "topic": cluster.topic, "name": group, "model": model}
            config.write_text(CONFIG.format(**fields, servers=cluster.servers, predictions=cluster.made()))
            words = [sys.executable, "-c", RESTART, config]
            subprocess.run([*words, str(n)], check=True, stderr=subprocess.DEVNULL)

            def restarted(command: list[Any]) -> tuple[float, int]:
                began = time.time()
                done = subprocess.run(command, check=True, text=True, capture_output=True)
                moment, features = done.stdout.split()[-2:]  # after the log lines
                return float(moment) - began, int(features)

            found = [restarted([*words, str(n + 1), "kill"]) for _ in range(runs)]
            took = [seconds for seconds, _ in found]
            first, rest = took[0], statistics.median(took[1:] or took)
            rows.append([name, f"{found[0][1]:,}", f"{first:.2f} s", f"{rest:.2f} s", f"{max(took):.2f} s"])
    columns = ["model", "features", "after a stop", "after kills, median", "longest"]
    show("from the start of a process to the first event learned", columns, rows)


@contextmanager
def servers_at(given: str) -> Iterator[str]:
    """Run a broker unless one is given."""
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory() as folder, brokers.apache(Path(folder)) as (broker,):
        yield f"127.0.0.1:{broker.port}"


def main() -> None:
    """Print both tables."""
    global clock
    options = arguments(__doc__, servers="", client="kafka-python", runs=5, events=100_000, processor=False)
    clock = time.process_time if options.processor else clock
    import orjson

    with servers_at(options.servers) as servers:
        values = [orjson.dumps({**x, "y": y}) for x, y in stream(INPUTS, options.events)]
        cluster = Cluster(servers, options.client, values)
        collect_rarely()  # as `streamkernel run` does
        throughput(cluster, options.runs, options.events)
        restarts(cluster, options.runs)


if __name__ == "__main__":
    main()
