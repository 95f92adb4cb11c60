"""How long partitions pause in a rebalance, by the protocol of the group.

Records arrive at a constant rate in a topic of six partitions, which one member reads. Two members join after a fifth
of the records, leave by SIGTERM after two fifths, join again after three, and are killed with kill -9 after four.
Members are processes of ``streamkernel run``.

A pause is the longest time from a record to its prediction, over the records of the fifth that begins with the
change: in partitions that another member predicts afterwards, and in those that stay with their member. "none" is the
longest time before the first change. Sessions last six seconds, by configuration of the clients or of the broker.
"""

from __future__ import annotations

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
CHANGES = [(0.2, "join"), (0.4, "stop"), (0.6, "join"), (0.8, "kill")]


def pauses(found: Sequence[Prediction], begin: float, end: float) -> tuple[str, str]:
    """Return the longest delays in partitions that move between two shares of the records, and in the others."""
    part = [one for one in found if begin * len(found) <= one.number < end * len(found)]
    moved, kept = [0.0], [0.0]
    for partition in range(PARTITIONS):
        those = [one for one in part if one.number % PARTITIONS == partition]
        (kept if those[0].member == those[-1].member else moved).append(max(one.delay for one in those))
    return tuple(f"{max(delays):.1f}" if len(delays) > 1 else "-" for delays in (moved, kept))  # type: ignore[return-value]


def main() -> None:
    """Print the pauses."""
    options = arguments(__doc__, servers="", records=30_000, rate=300.0, seconds=1.0)
    records, rows = stream(options.records), []
    with servers_at(options.servers) as servers, tempfile.TemporaryDirectory() as name:
        for way, (client, given) in WAYS.items():
            group = Group(servers, Path(name), client, seconds=options.seconds, options=given)
            group.learn(records, options.rate, CHANGES)
            found = group.predicted()
            cells = [pauses(found, 0.1, 0.2)[1]]
            for (begin, _), (end, _) in zip(CHANGES, [*CHANGES[1:], (1.0, "")], strict=True):
                cells += pauses(found, begin, end)
            rows.append([way, cells[0], *cells[1:5], *cells[7:9]])
    columns = ["", "none", "join: moved", "kept", "SIGTERM: moved", "kept", "kill -9: moved", "kept"]
    show("longest time from a record to its prediction, seconds", columns, rows)


if __name__ == "__main__":
    main()
