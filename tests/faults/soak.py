"""A run over very many events, and its memory, which must stop growing.

``python tests/faults/soak.py --events 3000000`` prints it as it grows. One record in 97 is invalid, and one label in
ten arrives a thousand records later, in a record of its own.
"""

from __future__ import annotations

import argparse
import itertools
import random
import resource
import statistics
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from rich.progress import Progress

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import brokers
from faults import kafka_runs
from waiting import LIMIT

LATER = 1000
"""Records between an event and its separate label."""

MOST = 8.0
"""Megabytes that a run may grow by after the first third, because freed memory is not reused completely."""


class Soak(kafka_runs.Run):
    """A run in first order, which is quick, with labels that come later, and not many to remember."""

    template = (
        kafka_runs.CONFIG.replace("max_features = 64", 'max_features = 64\nlearner = "dsg"')
        .replace('group = "{group}"\n', "")  # one process reads all partitions, since it remembers labels
        .replace("checkpoint_seconds = 0.3", "checkpoint_seconds = 2.0")
        .replace("[state]", '[delayed_labels]\nkey = "id"\nmax_pending = 2000\n[state]')
    )

    is_new = True  # the memory is all its own

    def done(self) -> int:
        """Return how many records the running process has processed."""
        found = self.metrics().items()
        return sum(int(offset) for name, offset in found if name.startswith("streamkernel_source_position{"))


class Sample(NamedTuple):
    """The records that a process had processed, and its memory then, in megabytes."""

    records: int
    memory: float


def records(n: int) -> Iterator[bytes]:
    """Yield events, labels that arrive later, and some invalid records."""
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


def samples(run: Soak, records: Iterable[bytes], size: int, partitions: int = 4) -> Iterator[Sample]:
    """Write records in parts of one size, and yield a sample when the run has finished with a part; then stop it."""
    process, written, rest = run.start(), 0, iter(records)
    while part := list(itertools.islice(rest, size)):
        brokers.produce(run.servers, run.topic, part, partitions)
        written += len(part)
        run.wait_for(lambda written=written: run.done() == written)
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        yield Sample(written, pages * resource.getpagesize() / 1e6)
    process.terminate()
    assert process.wait(LIMIT) == 0, run.log()


def growth(found: Iterable[Sample]) -> float:
    """Return by how many megabytes the last third exceeds the second one, by their medians."""
    found = list(found)
    most = found[-1].records
    second, last = (
        statistics.median(s.memory for s in found if i * most < 3 * s.records <= (i + 1) * most) for i in (1, 2)
    )
    return last - second


def main() -> None:
    """Print the memory of a run as it grows."""
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
        run, found = Soak(servers, Path(name), "events", source=""), list[Sample]()
        task = progress.add_task("learned", total=n)
        for sample in samples(run, records(n), max(1, n // 60), options.partitions):
            found.append(sample)
            progress.update(task, completed=sample.records)
            progress.print(f"{sample.records:12,} records  {sample.memory:7.1f} MB")
        grown = growth(found)
        print(f"{run.state()['outcomes']}, {run.state()['labels']['counts']}")
    print(f"the last third took {grown:+.1f} MB more than the second one; allowed are {MOST:g}")
    if grown > MOST:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
