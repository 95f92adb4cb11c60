"""How long records wait for their prediction in a rebalance, by the client and the protocol of the group.

Records arrive at a constant rate in a topic of six partitions, which one member reads. Two members join, leave by
SIGTERM, join again with their names, and leave. Members are processes of ``streamkernel run``. A change is over when
the group has committed all records up to then; the next one follows some seconds later.

The wait in a partition is the longest time from a record to its prediction, over the records from one change to the
next. The table has medians and maxima over partitions and changes: of partitions that another member predicts
afterwards, and of those that stay with their member. *no change* is the same over the time before the first change.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, show
from benchmarks.group import NEW, PARTITIONS, Group, Prediction, stream
from benchmarks.kafka import servers_at

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import brokers
from faults.members import OPTIONS, PROTOCOLS

WAYS = {
    "kafka-python": ("kafka-python", OPTIONS["kafka-python"]),
    "confluent-kafka": ("confluent-kafka", OPTIONS["confluent-kafka"]),
    **{f"confluent-kafka, {name}": ("confluent-kafka", options) for name, options in PROTOCOLS.items()},
}
CHANGES = ("join", "leave", "join", "leave")


class Members(Group):
    """A group whose members join and leave while records arrive."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self.n_written = 0
        self._logged: dict[str, int] = {}  # characters in the log of a member before its last start

    def change_all(self, rate: float, seconds: float) -> list[int]:
        """Make all changes, each some seconds after the end of the previous one; return the records before each."""
        over, marks = threading.Event(), []
        running = {"one": self.start()}
        self.wait_for(lambda: "reading partitions" in self.log())
        given = self.topic, self._paced(rate, over), PARTITIONS
        writer = threading.Thread(target=brokers.produce, args=(self.servers, *given), daemon=True)
        writer.start()
        time.sleep(seconds)  # it compiles
        for change in ("none", *CHANGES):
            self._catch_up()
            marks.append(self.n_written)
            for name in NEW if change != "none" else ():
                if change == "join":
                    self._logged[name] = len(self.log(name)) if self.has_state(name) else 0
                    running[name] = self.start(name)
                else:
                    leaving = running.pop(name)
                    leaving.terminate()
                    assert leaving.wait() == 0, self.log(name)
            self.wait_for(lambda: all(map(self._has_begun, running)))
            self._catch_up()
            time.sleep(seconds)
        over.set()
        writer.join()
        self._catch_up()
        running["one"].terminate()
        assert running["one"].wait() == 0, self.log()
        return [*marks, self.n_written]

    def _has_begun(self, name: str) -> bool:
        """Return whether a running member has been given partitions since its last start."""
        return "reading partitions" in self.log(name)[self._logged.get(name, 0) :]

    def _catch_up(self) -> None:
        """Wait until all records written until now are committed."""
        n = self.n_written
        while self.committed() < n:
            time.sleep(0.5)

    def _paced(self, rate: float, over: threading.Event) -> Iterator[dict[str, object]]:
        began = time.monotonic()
        for record in itertools.cycle(stream(1000)):
            if over.wait(max(0.0, began + self.n_written / rate - time.monotonic())):
                return
            self.n_written += 1
            yield record


def waits(found: Sequence[Prediction], begin: int, end: int) -> tuple[list[float], list[float]]:
    """Return the longest wait in each partition that moves between two records, and in each other."""
    moved: list[float] = []
    kept: list[float] = []
    for partition in range(PARTITIONS):
        those = [one for one in found[begin:end] if one.number % PARTITIONS == partition]
        (kept if those[0].member == those[-1].member else moved).append(max(one.delay for one in those))
    return moved, kept


def main() -> None:
    """Print the waits."""
    options = arguments(__doc__, servers="", rate=200.0, seconds=6.0, commit=1.0)
    rows = []
    with servers_at(options.servers) as servers, tempfile.TemporaryDirectory() as folder:
        for way, (client, given) in WAYS.items():
            group = Members(servers, Path(folder), client, seconds=options.commit, options=given)
            marks = group.change_all(options.rate, options.seconds)
            found = group.predicted()
            assert [one.number for one in found] == list(range(marks[-1]))  # each once
            still, *changed = [waits(found, *window) for window in itertools.pairwise(marks)]
            cells = [still[1]]
            for name, side in itertools.product(("join", "leave"), (0, 1)):
                of_name = [change for change, kind in zip(changed, CHANGES, strict=True) if kind == name]
                cells.append([one for change in of_name for one in change[side]])
            rows.append([way, *(f"{statistics.median(c):.2f} ({max(c):.2f})" if c else "-" for c in cells)])
    columns = ["", "no change", "join: moves", "stays", "leave: moves", "stays"]
    show("longest time from a record to its prediction, median (largest), seconds", columns, rows)


if __name__ == "__main__":
    main()
