"""Transactions that commit a checkpoint on disk, the records written and the offsets read together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import orjson

from streamkernel.connectors.base import CommitRefusedError, Position, UnavailableError
from streamkernel.connectors.interfaces import Transactions
from streamkernel.connectors.kafka.clients import Headers, OutRecord, Partition, Producer, seconds_until
from streamkernel.connectors.kafka.source import KafkaSource
from streamkernel.connectors.kafka.writer import Writer, refusal_of

PLACE = "topic", "partition", "offset", "stream", "position"
"""Fields of an origin that identify it."""


class KafkaTransactions(Writer, Transactions):
    """Commits checkpoints by number, each in one transaction with the records written and the offsets read since.

    The number is also committed as an offset, in a group without members that has the name of the transactional id. No
    other process writes to this group, so its offset is the number of the last committed checkpoint.

    A record that brokers refuse ends its transaction. After a return to the last checkpoint, the same records are
    written one by one, which shows which one it is; after another return, `refusal` has the reason instead.

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
        source.is_in_transactions = True
        self._source, self._name, self._seconds = source, name, seconds
        self._number_partition = Partition(source.topics[0], 0)
        self._refusals: dict[bytes, str] = {}  # by topic and place of the origin
        self._has_refused = False  # in this transaction

    def newest(self) -> tuple[int, str]:
        """Return the number and the session of the last committed checkpoint, 0 for none.

        Open transactions of this process, and of others with the same transactional id, are aborted.

        Raises
        ------
        UnavailableError
            If no broker is available.
        """
        self.close()
        self._has_refused = False
        self._connect()
        keeper = self.options.consumer(self._name)
        try:
            number, note = keeper.committed_with_note(self._number_partition) or (0, "")
        finally:
            keeper.close()
        return number, note.removeprefix(f"{self._name} {number}").strip()

    def refusal(self, topic: str, origin: Mapping[str, Any]) -> str:
        """Return why the brokers refused the record of an origin before, or an empty string."""
        reason = self._refusals.get(_place(topic, origin), "") if self._refusals else ""
        self._has_refused |= bool(reason)
        return reason

    def send(self, topic: str, value: bytes, key: bytes | None = None, headers: Headers = ()) -> None:
        """Write a record that must not be refused."""
        with self._finding():
            super().send(topic, value, key, headers)

    def send_all(self, topic: str, records: Sequence[OutRecord], origins: Sequence[Mapping[str, Any]]) -> None:
        """Write records, of which some may be refused; `origins` has what each was made from."""
        with self._finding():
            self._connect().send_all(topic, records, origins if self.is_single else None)
            if self.is_single:
                self._connect().flush()

    def flush(self, deadline: float = math.inf) -> None:
        """Wait until all sent records are stored, at most until a deadline.

        Raises
        ------
        CommitRefusedError
            If they could not be written.
        """
        with self._finding():
            self._connect().flush(seconds_until(deadline))

    def commit(self, number: int, session: str, positions: Mapping[str, Position], deadline: float = math.inf) -> None:
        """Commit the records, the positions and the number of the checkpoint in one transaction.

        Raises
        ------
        CommitRefusedError
            If nothing was committed, or the outcome is unknown: call `newest`.
        """
        source, note = self._source, f"{self._name} {number}"
        numbers = {self._number_partition: number}
        parts: list[tuple[Any, Mapping[Partition, int], str]] = [(self._name, numbers, f"{note} {session}")]
        if source.group is not None:
            parts.insert(0, (source.client.membership, source.offsets(positions), note))
        self._connect().commit(parts, seconds_until(deadline))
        self._refusals.clear()
        if self.is_single and not self._has_refused:
            self._restart(is_single=False)
        self._has_refused = False

    @contextmanager
    def _finding(self) -> Iterator[None]:
        """Find the records that end the transaction by their errors."""
        try:
            yield
        except UnavailableError as error:  # of a new producer
            raise CommitRefusedError(str(error)) from error
        except CommitRefusedError as error:
            refused = [one for one in self._take_undelivered() if one.is_refused]
            if not refused and error.kind == "write_forbidden":
                raise CommitRefusedError(f"{error} - for topic {' or '.join(self._limits)}", error.kind) from error
            if not refused:
                raise
            reason = f"{refused[0].reason} - for topic {refused[0].topic}"
            if self.is_single and refused[0].origin is None:
                raise CommitRefusedError(f"{reason}, of dead letters", "write_forbidden") from error
            if self.is_single:  # what follows it fails with it
                self._refusals[_place(refused[0].topic, refused[0].origin)] = refusal_of(refused[0])
            self.is_single = True
            raise CommitRefusedError(reason, "record_refused") from error

    def _make_producer(self, batch: int | None) -> Producer:
        return self.options.producer(self._name, self._seconds, batch)


def _place(topic: str, origin: Mapping[str, Any]) -> bytes:
    return orjson.dumps((topic, *(origin.get(name) for name in PLACE)), default=repr)
