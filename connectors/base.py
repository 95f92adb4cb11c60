"""What a source and a sink are: four short methods each, and events that say where they came from.

Nothing here, or in any other connector, knows of learning; the engine joins the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

Position = Any
"""Where to go on in one stream: a JSON value that only the source that gave it can read."""


class Event(NamedTuple):
    """One record, or the reason why there is none.

    Parameters
    ----------
    stream
        Name of the stream the record was read from: a path, a data set's name, a topic's partition.
    resume
        Position **after** this record: a source that is sent there yields the next record first.
    raw
        The record's bytes as they came, for a dead letter.
    record
        The fields, or ``None`` if the bytes could not be read.
    error
        Why there is no record: what was expected, what came. ``None`` if there is one.
    key, headers
        What a topic's record has besides its value.
    origin
        Where a topic's record is: its topic, partition, offset, and timestamp in milliseconds if it has one.
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
        """The fields that name the record in predictions and dead letters."""
        return self.origin or {"stream": self.stream, "position": self.resume}

    @property
    def is_position_only(self) -> bool:
        """Whether there is neither a record nor an error: it only says how far its stream was read."""
        return self.record is None and self.error is None


class Refusal(NamedTuple):
    """Why a record became a dead letter.

    Parameters
    ----------
    reason
        What was expected, and what came.
    kind
        What it is counted as.
    exception
        The class of the error, with its module.
    """

    reason: str
    kind: str
    exception: str


class Source(Protocol):
    """A stream of events that can be sent back to where it was."""

    def seek(self, positions: Mapping[str, Position]) -> None:
        """Go on after the given ``Event.resume`` of each stream; called at most once, before any poll."""

    def poll(self, timeout: float) -> Sequence[Event] | None:
        """Return the next events in order, ``[]`` if none came in `timeout` seconds, ``None`` at the end."""

    def lag(self) -> Mapping[tuple[str, str], int]:
        """Return what waits behind the last event returned, by (topic, partition); a file counts bytes."""

    def close(self) -> None:
        """Release what the source holds."""


class GroupSource(Source, Protocol):
    """A source whose streams are shared with other processes, and that keeps its own account of what was read."""

    def listen(self, revoked: Callable[[list[str]], None], lost: Callable[[list[str]], None]) -> None:
        """Have something called, before `poll` returns, with streams that are about to be taken away, or were."""

    def again(self, positions: Mapping[str, Position]) -> None:
        """Forget what was read since the last commit and read it again; `positions` are as for `seek`."""

    def rewind(self, positions: Mapping[str, Position]) -> None:
        """Go on after these positions, whatever the account says."""


class WorkAssignment(NamedTuple):
    """What one process reads in one round; all of it are JSON values.

    Parameters
    ----------
    begin
        Where to begin in each stream, in order; ``None`` is the start.
    end
        Where to stop in a stream, if that was planned.
    events
        How many events to read at most; 0 if nothing is there yet.
    """

    begin: dict[str, Position]
    end: dict[str, Position]
    events: int


class PartitionedSource(Protocol):
    """A source that several processes read together: one plans, and each reads its assignment of every round."""

    def plan(self, positions: Mapping[str, Position], workers: int, events: int) -> list[WorkAssignment] | None:
        """Return what each worker is to read next, at most so many events; ``None`` at the end.

        `positions` are the last ``Event.resume`` of each stream. If nothing is there yet, all assignments are of 0
        events. ``begin`` of all assignments together tells where each stream begins that can tell, also where nothing
        is to be read; ``None`` does not tell.
        """

    def read(self, assignment: WorkAssignment) -> Iterator[Sequence[Event]]:
        """Yield the events of an assignment, a few at a time, and ``[]`` now and then while none come.

        They are the same in the same order whenever it is read. Where a stream was read beyond its last event, an event
        without a record (`Event.is_position_only`) says so, which is none of the events that an assignment counts.
        """

    def lag(self, positions: Mapping[str, Position]) -> Mapping[tuple[str, str], int]:
        """Return what waited behind these positions when the last round was planned, as `Source.lag` has it."""

    def close(self) -> None:
        """Release what the source holds."""


class UnavailableError(OSError):
    """A service is unavailable; the call may be retried."""


class DecoderUnavailableError(UnavailableError):
    """A record cannot be decoded yet: a service that the decoder needs, such as a schema registry, is unavailable."""


class TopicMissingError(UnavailableError):
    """A topic is not there, or not yet."""


class Trouble(NamedTuple):
    """What a source that is being read finds wrong with brokers or topics, and since when by the monotonic clock."""

    error: UnavailableError
    since: float


class CommitRefusedError(Exception):
    """The commit failed, or its outcome is unknown: it timed out, or the member was fenced."""


class Transactions(Protocol):
    """What decides, elsewhere than on this disk, which checkpoint counts."""

    def commit(self, number: int, positions: Mapping[str, Position]) -> None:
        """Commit a checkpoint, its positions and what was written since the last one, or raise `CommitRefusedError`."""

    def newest(self) -> int:
        """Return the number of the checkpoint that was committed last, 0 for none, and void what was not committed."""

    def close(self) -> None:
        """Void what was not committed."""


class Sink(Protocol):
    """Something records are written to, that can be cut back to a position it gave."""

    def open(self) -> None:
        """Find out whether it is there, or raise `UnavailableError`; may be called again."""

    def write(self, record: Mapping[str, Any], key: bytes | None = None) -> None:
        """Write one record, under the key of the one it was made from if the sink has keys."""

    def flush(self) -> Position:
        """Make everything written durable and return the position after it."""

    def seek(self, position: Position) -> None:
        """Drop what was written after `position`. Called at most once, before the first write."""

    def close(self) -> None:
        """Flush and release what the sink holds."""
