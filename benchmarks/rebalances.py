"""How long partitions pause in a rebalance, by the client and the protocol of the group.

Records arrive at a constant rate in a topic of six partitions, which one member reads. Two members join after a fifth
of the records, leave by SIGTERM after two fifths, join again after three, and leave after four. Members are processes
of ``streamkernel run``.

A pause is the longest time from a record to its prediction, in one partition, over the records of the fifth that begins
with the change. The table has medians over partitions and changes: of partitions that another member predicts
afterwards, and of those that stay with their member. "none" is the same over the half of the first fifth before any
change.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import arguments, show
from benchmarks.group import PARTITIONS, Group, Prediction, stream
from benchmarks.kafka import servers_at

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from faults.members import OPTIONS, PROTOCOLS

WAYS = {
    "kafka-python": ("kafka-python", OPTIONS["kafka-python"]),
    "confluent-kafka": ("confluent-kafka", OPTIONS["confluent-kafka"]),
    **{f"confluent-kafka, {name}": ("confluent-kafka", options) for name, options in PROTOCOLS.items()},
}
CHANGES = [(0.2, "join"), (0.4, "stop"), (0.6, "join"), (0.8, "stop")]
SHARES = [0.2, 0.4, 0.6, 0.8, 1.0]


def pauses(found: Sequence[Prediction], begin: float, end: float) -> tuple[list[float], list[float]]:
    """Return the longest delay in each partition that moves between two shares of the records, and in each other."""
    part = [one for one in found if begin * len(found) <= one.number < end * len(found)]
    moved: list[float] = []
    kept: list[float] = []
    for partition in range(PARTITIONS):
        those = [one for one in part if one.number % PARTITIONS == partition]
        (kept if those[0].member == those[-1].member else moved).append(max(one.delay for one in those))
    return moved, kept


def main() -> None:
    """Print the pauses."""
    options = arguments(__doc__, servers="", records=15_000, rate=200.0, seconds=1.0)
    records, rows = stream(options.records), []
    with servers_at(options.servers) as servers, tempfile.TemporaryDirectory() as name:
        for way, (client, given) in WAYS.items():
            group = Group(servers, Path(name), client, seconds=options.seconds, options=given)
            group.learn(records, options.rate, CHANGES)
            found = group.predicted()
            changed = [pauses(found, *shares) for shares in itertools.pairwise(SHARES)]
            sides = [[one for change in changed for one in change[side]] for side in (0, 1)]
            cells = [pauses(found, 0.1, 0.2)[1], *sides]
            rows.append([way, *(f"{statistics.median(those):.2f}" if those else "-" for those in cells)])
    columns = ["", "none", "partitions that move", "partitions that stay"]
    show("longest time from a record to its prediction, median, seconds", columns, rows)


if __name__ == "__main__":
    main()
