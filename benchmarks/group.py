"""A group of consumers: quality while members join and leave, with one shared model, apart, and beside one member.

Records arrive at a constant rate in a topic of six partitions. One member reads all of them; two more join after a
third of the records, and leave after two thirds, so most partitions move twice. Members are processes of
``streamkernel run``. The same records are learned three times:

* *shared*: with `state.shared_model`, so members exchange what they have learned at their checkpoints,
* *apart*: each member has its own model,
* *alone*: one member reads everything from the first record to the last.

Accuracy is that of the predictions in the topic, in the partitions that move: the last records before a move, and the
first ones after it. *alone* is the accuracy on the same records. Apache Kafka runs on this machine, as for
`benchmarks.kafka`. A run takes `records / rate` seconds.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import arguments, show
from benchmarks.kafka import servers_at

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import brokers
from faults.kafka_runs import Run
from faults.members import paced

PARTITIONS = 6
NEW = ("two", "three")
"""Names of the members that join and leave."""

WINDOWS = ((-250, 0), (0, 100), (100, 250), (250, 500))
"""Records of a partition around a move."""

CONFIG = """
label = "y"
[kafka]
servers = "{servers}"
client = "{client}"
group = "{group}"
{kafka}
options = {{ {options} }}
[source]
topics = ["{topic}"]
{source}
[model]
type = "KernelClassifier"
[sink]
predictions_topic = "{predictions}"
[state]
directory = "{state}"
checkpoint_seconds = {seconds}
{shared}
[http]
port = 0
"""


class Prediction(NamedTuple):
    """One prediction that a consumer of committed records reads."""

    number: int
    member: str
    is_right: bool
    delay: float
    """Seconds from the record to its prediction."""


class Group(Run):
    """Members of a group, with one model or apart."""

    def __init__(
        self, servers: str, folder: Path, client: str, *, seconds: float, shared: bool = False, options: str = ""
    ) -> None:
        topic = f"t{random.randrange(10**9)}"
        super().__init__(servers, folder, topic, source="", client=client, options=options)
        brokers.make_topics(servers, names=[topic], partitions=PARTITIONS)
        line = f'shared_model = "{folder / (topic + "-shared")}"' if shared else ""
        self.template = CONFIG.replace("{seconds}", f"{seconds:g}").replace("{shared}", line)

    def learn(self, records: Sequence[dict[str, object]], rate: float, changes: Sequence[tuple[float, str]]) -> None:
        """Write the records at a constant rate, let members join and leave at shares of them, and stop at the end.

        Parameters
        ----------
        records
            The records of the topic.
        rate
            Records a second.
        changes
            The share of the records after which something happens, and what: "join" or "stop".
        """
        running = {"one": self.start()}
        self.wait_for(lambda: "partitions assigned" in self.log())
        n, written, reached = len(records), 0, threading.Event()
        marks = [int(share * n) for share, _ in changes]

        def counted() -> Iterator[dict[str, object]]:
            nonlocal written
            for record in paced(records, n / rate):
                written += 1
                if written in marks:
                    reached.set()
                yield record

        writer = threading.Thread(target=brokers.produce, args=(self.servers, self.topic, counted(), PARTITIONS))
        writer.start()
        for mark, (_, change) in zip(marks, changes, strict=True):
            while written < mark:
                reached.wait()
                reached.clear()
            for name in NEW:
                if change == "join":
                    running[name] = self.start(name)
                else:
                    running.pop(name).terminate()
        writer.join()
        self.wait_for(lambda: self.committed() >= n)
        for process in running.values():
            process.terminate()
            assert process.wait() == 0, self.log_of_all()

    def predicted(self) -> list[Prediction]:
        """Return the predictions, in the order of their records."""
        found = []
        for record in brokers.committed(self.servers, self.predictions):
            line = json.loads(record.value)
            is_right = line["prediction"] == line["label"]
            delay = (record.timestamp - line["timestamp"]) / 1000.0
            found.append(Prediction(int(record.key), line["member"], is_right, delay))
        return sorted(found)


def moves(predictions: Sequence[Prediction]) -> Iterator[tuple[bool, list[Prediction], int]]:
    """Yield each move of a partition: whether to a new member, the partition's predictions, and the first after it."""
    partitions = defaultdict(list)
    for one in predictions:
        partitions[one.number % PARTITIONS].append(one)
    first = predictions[0].member
    for those in partitions.values():
        for i in range(1, len(those)):
            if those[i].member != those[i - 1].member:
                yield those[i - 1].member == first, those, i


def quality(found: Sequence[Prediction], alone: Sequence[Prediction], *, join: bool) -> list[str]:
    """Return accuracies before and after moves, each with that of one member on the same records."""
    cells = []
    for begin, end in WINDOWS:
        ours, numbers = [], []
        for is_join, those, i in moves(found):
            if is_join is join:
                part = those[max(0, i + begin) : i + end]
                ours += [one.is_right for one in part]
                numbers += [one.number for one in part]
        theirs = [alone[number].is_right for number in numbers]
        cells.append(f"{sum(ours) / len(ours):.3f} ({sum(ours) / len(ours) - sum(theirs) / len(theirs):+.3f})")
    return cells


def stream(n: int) -> list[dict[str, object]]:
    """Return records of four inputs, whose label needs a curved boundary."""
    rng = random.Random(1)
    found: list[dict[str, object]] = []
    for _ in range(n):
        a, b, c, d = (rng.gauss(0.0, 1.0) for _ in range(4))
        found.append({"a": a, "b": b, "c": c, "d": d, "y": a * b + 0.5 * c + rng.gauss(0.0, 0.3) > 0.0})
    return found


def main() -> None:
    """Print accuracies around joins and leaves."""
    options = arguments(__doc__, servers="", client="kafka-python", records=30_000, rate=500.0, seconds=2.0)
    records = stream(options.records)
    changes = [(1 / 3, "join"), (2 / 3, "stop")]
    with servers_at(options.servers) as servers, tempfile.TemporaryDirectory() as name:
        found = {}
        for way in ("shared", "apart", "alone"):
            group = Group(servers, Path(name), options.client, shared=way == "shared", seconds=options.seconds)
            group.learn(records, options.rate, [] if way == "alone" else changes)
            found[way] = group.predicted()
            assert [one.number for one in found[way]] == list(range(len(records)))  # each once
    rows = []
    for way in ("shared", "apart"):
        for join in (True, False):
            rows.append([f"{way}, {'join' if join else 'leave'}", *quality(found[way], found["alone"], join=join)])
    columns = ["", "250 before", "first 100", "100 to 250", "250 to 500"]
    show("accuracy in partitions that move, and (difference from one member on the same records)", columns, rows)
    rows = [[way, f"{sum(one.is_right for one in those) / len(those):.3f}"] for way, those in found.items()]
    show(f"accuracy over all {len(records):,} records", ["", "accuracy"], rows)


if __name__ == "__main__":
    main()
