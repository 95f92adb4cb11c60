"""What makes a checkpoint on disk, the records written and the offsets read count together: Kafka decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.base import Position
from connectors.kafka.clients import Partition, Producer
from connectors.kafka.source import KafkaSource
from connectors.kafka.writer import Writer


class KafkaTransactions(Writer):
    """Commits checkpoints by number, each in one transaction with the records written and the offsets read since.

    The number is committed as an offset too, in a group that has no members and is called like the transactional id: no
    one else ever writes to it, so that it tells for good which checkpoint was the last to be committed.

    Parameters
    ----------
    source
        What is read: the offsets of its group are committed, as one of its members, so that one which has been evicted
        is refused.
    name
        The transactional id. Who has it shuts out all others who had it before.
    seconds
        How long a transaction may stay open; longer than the time between two commits.
    """

    def __init__(self, source: KafkaSource, name: str, seconds: float) -> None:
        super().__init__(source.options)
        self._source, self._name, self._seconds = source, name, seconds
        self._number_partition = Partition(source.topics[0], 0)

    def newest(self) -> int:
        """Return the number of the checkpoint that was committed last, 0 for none.

        What this process or one of the same name had begun and not committed is void from here on.

        Raises
        ------
        UnavailableError
            If no broker answers.
        """
        self.close()
        self._connect()
        keeper = self.options.consumer(self._name)
        try:
            return keeper.committed(self._number_partition) or 0
        finally:
            keeper.close()

    def commit(self, number: int, positions: Mapping[str, Position]) -> None:
        """Commit what was written, the positions, and the number of their checkpoint: all or nothing.

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
