"""Interfaces of sources and sinks, and the events that pass between them.

Connectors do not depend on models; the engine connects the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

Position = Any
"""A position in one stream: a JSON value that only its source interprets."""


class Event(NamedTuple):
    """One record, or an error if it could not be read.

    Parameters
    ----------
    stream : str
        The name of the record's stream: a path, a data set or a partition of a topic.
    resume : Position
        The position **after** this record: a source that seeks it returns the next record first.
    raw : bytes
        The unchanged bytes of the record, for a dead letter.
    record : dict or None, default None
        The fields, or ``None`` if the bytes could not be read.
    error : str or None, default None
        The reason if there is no record: the expected and the actual value.
    key : bytes or None, default None
        The key of a record of a topic.
    headers : tuple of tuple of str and bytes, default ()
        The headers of a record of a topic.
    origin : dict or None, default None
        The topic, partition and offset of a record of a topic, and its timestamp in milliseconds if it has one.
    """

    stream: str
    resume: Position
    raw: bytes
    record: dict[str, Any] | None = None
    error: str | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    origin: Mapping[str, str | int] | None = None

    @property
    def location(self) -> Mapping[str, Any]:
        """The fields that identify the record in predictions and dead letters."""
        return self.origin or {"stream": self.stream, "position": self.resume}

    @property
    def is_position_only(self) -> bool:
        """Whether there is neither a record nor an error, but only a new position of the stream."""
        return self.record is None and self.error is None

    @property
    def is_passed_over(self) -> bool:
        """Whether there was a record with nothing to learn from, such as a tombstone: only its position is left."""
        return self.is_position_only and self.origin is not None


class Refusal(NamedTuple):
    """The reason why a record became a dead letter.

    Parameters
    ----------
    reason : str
        The expected and the actual value.
    kind : str
        The label of the counter of dead letters.
    exception : str
        The class of the error, with its module.
    """

    reason: str
    kind: str
    exception: str


class Source(Protocol):
    """A stream of events with positions, which can be read again from a position.

    Events are learned exactly once, because the positions are part of a checkpoint. A source that cannot be read again
    from a position has an attribute ``guarantee = "at_least_once"``, which ``--check`` reports. An attribute
    ``identity`` has the names of the parameters that decide what a position means, by default all: a run with other
    values needs a new state directory.
    """

    def seek(self, positions: Mapping[str, Position]) -> None:
        """Continue after the given position of each stream; called at most once, before the first poll.

        Parameters
        ----------
        positions : dict of str to Position
            The ``resume`` of the last event of each stream, by name.
        """

    def poll(self, timeout: float) -> Sequence[Event] | None:
        """Return the next events in order.

        Parameters
        ----------
        timeout : float
            The time to wait for events, in seconds.

        Returns
        -------
        sequence of Event or None
            Empty if no event arrived in time, ``None`` at the end.
        """

    def lag(self) -> Mapping[tuple[str, str], int]:
        """Return the backlog after the last event, by (topic, partition): records, or bytes of a file."""

    def close(self) -> None:
        """Release the resources of the source."""


class GroupSource(Source, Protocol):
    """A source whose streams are shared with other processes, and which stores the committed positions itself."""

    def listen(self, revoked: Callable[[list[str]], None], lost: Callable[[list[str]], None]) -> None:
        """Register callbacks that are called before `poll` returns.

        Parameters
        ----------
        revoked : callable
            Called with the streams that are about to move to another process.
        lost : callable
            Called with the streams that have moved to another process.
        """

    def again(self, positions: Mapping[str, Position]) -> None:
        """Read the events since the last commit again.

        Parameters
        ----------
        positions : dict of str to Position
            The ``resume`` of the last event of each stream, by name.
        """

    def rewind(self, positions: Mapping[str, Position]) -> None:
        """Continue after these positions, regardless of the committed positions.

        Parameters
        ----------
        positions : dict of str to Position
            The ``resume`` of the last event of each stream, by name.
        """


class WorkAssignment(NamedTuple):
    """The part of a source that one process reads in one round, as JSON values.

    Parameters
    ----------
    begin : dict of str to Position
        The start position in each stream, in order; ``None`` is the beginning.
    end : dict of str to Position
        The end position in a stream, if it was planned.
    events : int
        The largest number of events; 0 if there are none yet.
    """

    begin: dict[str, Position]
    end: dict[str, Position]
    events: int


class PartitionedSource(Protocol):
    """A source that several processes read together: one plans the rounds, and each reads its assignments."""

    def plan(self, positions: Mapping[str, Position], workers: int, events: int) -> list[WorkAssignment] | None:
        """Return the next assignment of each worker.

        Together, ``begin`` of all assignments has the start position of each stream, also of streams without events to
        read; ``None`` is an unknown position.

        Parameters
        ----------
        positions : dict of str to Position
            The ``resume`` of the last event of each stream, by name.
        workers : int
            The number of processes.
        events : int
            The largest number of events per worker.

        Returns
        -------
        list of WorkAssignment or None
            ``None`` at the end. If there are no events yet, all assignments have 0 events.
        """

    def read(self, assignment: WorkAssignment) -> Iterator[Sequence[Event]]:
        """Yield the events of an assignment, a few at a time, and sometimes ``[]`` while none arrive.

        An assignment has the same events in the same order whenever it is read. If a stream was read beyond its last
        event, an event without a record (`Event.is_position_only`) has the new position; it is not counted.

        Parameters
        ----------
        assignment : WorkAssignment
            An assignment of `plan`.
        """

    def lag(self, positions: Mapping[str, Position]) -> Mapping[tuple[str, str], int]:
        """Return the backlog after these positions when the last round was planned, as `Source.lag`.

        Parameters
        ----------
        positions : dict of str to Position
            The ``resume`` of the last event of each stream, by name.
        """

    def close(self) -> None:
        """Release the resources of the source."""


class UnavailableError(OSError):
    """A service is unavailable; the call may be retried.

    Attributes
    ----------
    service : str
        The name of the service in log lines.
    """

    service: ClassVar[str] = "Kafka"


class GaveUpError(OSError):
    """A service refuses the login, or was unavailable for longer than the user wants to wait: the run ends."""


class DecoderUnavailableError(UnavailableError):
    """A record cannot be decoded yet: a service that the decoder needs, such as a schema registry, is unavailable."""

    service = "the decoder"


class TopicMissingError(UnavailableError):
    """A topic does not exist, or not yet."""


class Trouble(NamedTuple):
    """A current problem of a source with brokers or topics.

    Parameters
    ----------
    error : UnavailableError
        The problem.
    since : float
        The time of its first occurrence by the monotonic clock, in seconds.
    """

    error: UnavailableError
    since: float


class CommitRefusedError(Exception):
    """The commit failed, or its outcome is unknown: it timed out, or the member was fenced.

    Parameters
    ----------
    reason : str
        The reason.
    kind : str, default "commit_refused"
        The kind of the incident; others are ``"record_refused"``, where brokers refuse one record, which becomes a dead
        letter when the events are repeated, and ``"write_forbidden"``, where they refuse all until a person acts.
    """

    def __init__(self, reason: str, kind: str = "commit_refused") -> None:
        super().__init__(reason)
        self.kind = kind


class RecordsRefusedError(Exception):
    """The service of a sink refuses records for good, such as one that is too large; the sink has taken the others.

    Parameters
    ----------
    refused : sequence of tuple of dict, bytes or None, and str
        Each record, its key, and the reason.
    """

    def __init__(self, refused: Sequence[tuple[Mapping[str, Any], bytes | None, str]]) -> None:
        super().__init__("; ".join(dict.fromkeys(reason for *_, reason in refused)))
        self.refused = refused


class Transactions(Protocol):
    """An external system that decides which checkpoint is valid."""

    def commit(self, number: int, session: str, positions: Mapping[str, Position]) -> None:
        """Commit a checkpoint with its positions and the records written since the last one.

        Parameters
        ----------
        number : int
            The number of the checkpoint.
        session : str
            The process that made it.
        positions : dict of str to Position
            The ``resume`` of the last event of each stream, by name.

        Raises
        ------
        CommitRefusedError
            If nothing was committed, or the outcome is unknown.
        """

    def newest(self) -> tuple[int, str]:
        """Return the number and the session of the last committed checkpoint, 0 for none; abort open transactions."""

    def close(self) -> None:
        """Abort open transactions."""


class Sink(Protocol):
    """A destination of records that can be truncated to a position.

    Records are written exactly once, because the position is part of a checkpoint. A sink that cannot be truncated has
    an attribute ``guarantee = "at_least_once"``, which ``--check`` reports; its `flush` returns ``None``.

    A sink whose service is unavailable raises `UnavailableError`, `write` after it has buffered the record. The engine
    then repeats `flush`, with pauses, before it writes the next record. A sink whose service refuses records for good
    raises `RecordsRefusedError` in `write` or `flush`, once for each record; the engine writes dead letters for them.

    A `ValueError`, `TypeError`, `LookupError` or `ArithmeticError` of `write` is about its record, which the sink must
    not have taken: it becomes a dead letter, too. After an `OSError` of `flush` the engine calls it again at the next
    checkpoint, and the sink must still have its records. `GaveUpError` and any other error end the run.
    """

    def open(self) -> None:
        """Check that the sink is available, or raise `UnavailableError`; may be called again."""

    def write(self, record: Mapping[str, Any], key: bytes | None = None) -> None:
        """Write one record.

        Parameters
        ----------
        record : dict
            The fields.
        key : bytes or None, default None
            The key of the record that it was made from, used by sinks with keys.
        """

    def flush(self) -> Position:
        """Make all written records durable and return the position after them."""

    def seek(self, position: Position) -> None:
        """Remove the records after a position; called at most once, before the first write.

        Parameters
        ----------
        position : Position
            A return value of `flush`.
        """

    def close(self) -> None:
        """Flush, and release the resources of the sink."""
