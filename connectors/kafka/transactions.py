"""Transactions that commit a checkpoint on disk, the records written and the offsets read together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.base import Position
from connectors.kafka.clients import Partition, Producer
from connectors.kafka.source import KafkaSource
from connectors.kafka.writer import Writer


class KafkaTransactions(Writer):
    """Commits checkpoints by number, each in one transaction with the records written and the offsets read since.

    The number is also committed as an offset, in a group without members that has the name of the transactional id. No
    other process writes to this group, so its offset is the number of the last committed checkpoint.

    Parameters
    ----------
    source : KafkaSource
        The source, whose offsets are committed as a member of its group, so that the commit of an evicted member is
        refused.
    name : str
        The transactional id. A new process with this id fences older ones.
    seconds : float
        The longest time that a transaction may stay open, in seconds; longer than the time between two commits.
    """

    def __init__(self, source: KafkaSource, name: str, seconds: float) -> None:
        super().__init__(source.options)
        self._source, self._name, self._seconds = source, name, seconds
        self._number_partition = Partition(source.topics[0], 0)

    def newest(self) -> int:
        """Return the number of the last committed checkpoint, 0 for none.

        Open transactions of this process, and of others with the same transactional id, are aborted.

        Raises
        ------
        UnavailableError
            If no broker is available.
        """
        self.close()
        self._connect()
        keeper = self.options.consumer(self._name)
        try:
            return keeper.committed(self._number_partition) or 0
        finally:
            keeper.close()

    def commit(self, number: int, positions: Mapping[str, Position]) -> None:
        """Commit the records, the positions and the number of the checkpoint in one transaction.

        Raises
        ------
        CommitRefusedError
            If nothing was committed, or the outcome is unknown: call `newest`.
        """
        source, note = self._source, f"{self._name} {number}"
        parts: list[tuple[Any, Mapping[Partition, int], str]] = [(self._name, {self._number_partition: number}, note)]
        if source.group is not None:
            parts.insert(0, (source.client.membership, source.offsets(positions), note))
        self._connect().commit(parts)

    def _make_producer(self) -> Producer:
        return self.options.producer(self._name, self._seconds)
