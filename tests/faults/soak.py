"""A run over very many events, and the memory that it takes: after a while it must not grow.

``python tests/faults/soak.py --events 3000000`` prints it as it goes. One record in 97 is none, and one label in ten
comes a thousand records later, in a record of its own.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from rich.progress import Progress

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # before tests, which has a folder "connectors" too

import brokers
from faults import kafka_runs

LATER = 1000
"""Records between an event and a label of its own."""

MOST = 8.0
"""Megabytes that a run may grow by after the first third: what is freed and taken again is not always the same."""

DONE = [
    'streamkernel_events_total{outcome="predicted"}',
    'streamkernel_events_total{outcome="dead_letter"}',
    'streamkernel_labels_total{outcome="joined"}',
]
"""What a record leads to, one of these each."""


class Soak(kafka_runs.Run):
    """A run in first order, which is quick, with labels that come later, and not many to remember."""

    template = (
        kafka_runs.CONFIG.replace("max_features = 64", 'max_features = 64\nrule = {{ type = "CDSG", longest = 1.0 }}')
        .replace("checkpoint_seconds = 0.3", "checkpoint_seconds = 2.0")
        .replace("[state]", '[labels]\nkey = "id"\nmax_pending = 2000\n[state]')
    )


class Sample(NamedTuple):
    """How many records a process had finished with at a time, in seconds, and its memory then, in megabytes."""

    seconds: float
    records: int
    memory: float


def records(n: int) -> Iterator[bytes]:
    """Yield events, labels that come later, and some that are neither."""
    rng, late = random.Random(0), deque[tuple[int, bytes]]()
    for i in range(n):
        a, b = rng.gauss(0, 1), rng.gauss(0, 1)
        event, label = f'"id":{i},"a":{a},"b":{b}', f'"y":{str(a * b > 0).lower()}'
        if late and late[0][0] <= i:
            yield late.popleft()[1]
        elif i % kafka_runs.BAD_EVERY == 5:
            yield b"{half"
        elif i % 10 == 3:
            late.append((i + LATER, f'{{"id":{i},{label}}}'.encode()))
            yield f"{{{event}}}".encode()
        else:
            yield f"{{{event},{label}}}".encode()


def samples(run: Soak, process: subprocess.Popen[str], seconds: float) -> Iterator[Sample]:
    """Yield what a process says of itself every few seconds, until it ends."""
    began = time.monotonic()
    while process.poll() is None:
        said = run.metrics()
        memory = Path(f"/proc/{process.pid}/statm").read_text().split()[1:2]  # in pages; nothing if it has just ended
        if said and memory:
            done = sum(said[name] for name in DONE)
            yield Sample(time.monotonic() - began, int(done), int(memory[0]) * resource.getpagesize() / 1e6)
        time.sleep(seconds)
    assert process.returncode == 0, run.log()


def growth(found: Iterable[Sample]) -> float:
    """Return by how many megabytes the last third takes more than the second one, by their medians."""
    found = list(found)
    most = found[-1].records
    second, last = (
        statistics.median(s.memory for s in found if i * most <= 3 * s.records <= (i + 1) * most) for i in (1, 2)
    )
    return last - second


def main() -> None:
    """Print the memory of a run as it goes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=3_000_000, help="records in the topic")
    parser.add_argument("--partitions", type=int, default=4)
    options = parser.parse_args()
    n = options.events
    with (
        tempfile.TemporaryDirectory() as name,
        brokers.apache(Path(name, "broker")) as (broker,),
        Progress() as progress,
    ):
        servers = f"127.0.0.1:{broker.port}"
        brokers.make_topics(servers, names=["events"], partitions=options.partitions)
        written = progress.track(records(n), n, description="written")
        brokers.produce(servers, "events", written, options.partitions)
        run, found = Soak(servers, Path(name), "events"), list[Sample]()
        task = progress.add_task("learnt", total=n)
        for sample in samples(run, run.start(), 1.0):
            progress.update(task, completed=sample.records)
            if sample.records - (found[-1].records if found else 0) > n // 1000:
                found.append(sample)
                if len(found) % 20 == 1:
                    progress.print(f"{sample.seconds:6.0f} s  {sample.records:12,} records  {sample.memory:7.1f} MB")
        rate = (found[-1].records - found[0].records) / (found[-1].seconds - found[0].seconds)
        grown = growth(found)
        print(f"{run.state()['outcomes']}, {run.state()['labels']['counts']}")
    print(f"{rate:,.0f} events/s; the last third took {grown:+.1f} MB more than the second one; allowed are {MOST:g}")
    if grown > MOST:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
