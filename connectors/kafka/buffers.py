"""Fetched records that are not yet processed, by partition."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from streamkernel.connectors.base import Position
from streamkernel.connectors.kafka.clients import Consumer, Partition, Record

Run = tuple[Partition, Sequence[Record], Sequence[Position]]
"""Successive records of a partition, and the positions after each."""

FULL = 4000
"""Buffered records of a partition, at most, or a few more."""


class Buffers:
    """Records by partition, returned in order of arrival, or one of each partition in turn.

    In turn, a position is ``[offset, round]``. The next record is from the first of the partitions with the fewest
    rounds, and other partitions wait for it. So neither the order of arrival nor a restart changes the order.

    Parameters
    ----------
    in_turn
        Whether partitions take turns.

    Examples
    --------
    >>> a, b = Partition("t", 0), Partition("t", 1)
    >>> buffers = Buffers(in_turn=True)
    >>> buffers.add({a: [Record(n, None, b"", ()) for n in range(3)]})
    >>> [(str(partition), positions) for partition, _, positions in buffers.take(9, [a, b])]
    [('t:0', [[1, 1]])]
    >>> buffers.add({b: [Record(7, None, b"", ())]})
    >>> [(str(partition), positions) for partition, _, positions in buffers.take(9, [a, b])]
    [('t:1', [[8, 1]]), ('t:0', [[2, 2]])]
    """

    def __init__(self, *, in_turn: bool) -> None:
        self._in_turn = in_turn
        self._waiting: defaultdict[Partition, deque[Record]] = defaultdict(deque)
        self._rounds: defaultdict[Partition, int] = defaultdict(int)
        self._full: set[Partition] = set()  # partitions that are paused because many records wait

    def add(self, records: Mapping[Partition, Iterable[Record]]) -> None:
        """Append records to their partitions."""
        for partition, those in records.items():
            self._waiting[partition].extend(those)

    def take(self, most: int, partitions: Collection[Partition]) -> list[Run]:
        """Return the next records of some partitions, and the positions after them."""
        runs: list[Run] = []
        while most > 0 and (partition := self._next(partitions)) is not None:
            waiting = self._waiting[partition]
            records = [waiting.popleft() for _ in range(1 if self._in_turn else min(most, len(waiting)))]
            positions: list[Position] = [record.offset + 1 for record in records]
            if self._in_turn:
                self._rounds[partition] += 1
                positions = [self.position(partition, offset) for offset in positions]
            runs.append((partition, records, positions))
            most -= len(records)
        return runs

    def put_back(self, runs: Sequence[Run]) -> None:
        """Return the last records to the buffer, in their order."""
        for partition, records, _ in reversed(runs):
            self._waiting[partition].extendleft(reversed(records))
            if self._in_turn:
                self._rounds[partition] -= len(records)

    def position(self, partition: Partition, offset: int) -> Position:
        """Return the position before an offset, after the records of a partition that were taken."""
        return [offset, self._rounds[partition]] if self._in_turn else offset

    def is_ready(self, partitions: Collection[Partition]) -> bool:
        """Return whether a record can be taken."""
        return self._next(partitions) is not None

    def count(self, partition: Partition) -> int:
        """Return the number of records of a partition."""
        return len(self._waiting[partition])

    def first(self, partition: Partition) -> int | None:
        """Return the offset of a partition's next record, or ``None`` if there is none."""
        waiting = self._waiting[partition]
        return waiting[0].offset if waiting else None

    def throttle(self, client: Consumer, partitions: Iterable[Partition]) -> None:
        """Pause partitions with many buffered records; each pause discards the fetches in flight."""
        for partition in partitions:
            waiting = self.count(partition)
            if waiting >= FULL and partition not in self._full:
                self._full.add(partition)
                client.pause([partition])
            elif waiting < FULL // 2 and partition in self._full:
                self._full.discard(partition)
                client.resume([partition])

    def drop(self, partition: Partition, position: Position = None) -> None:
        """Drop the records of a partition, and continue after a position."""
        self._waiting.pop(partition, None)
        self._full.discard(partition)
        self._rounds[partition] = position[1] if isinstance(position, list) else 0

    def _next(self, partitions: Collection[Partition]) -> Partition | None:
        if not self._in_turn:
            return next((partition for partition in partitions if self._waiting[partition]), None)
        partition = min(partitions, key=lambda p: (self._rounds[p], p), default=None)
        return partition if partition is not None and self._waiting[partition] else None
