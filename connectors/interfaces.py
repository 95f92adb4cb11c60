"""Interfaces of sources and sinks, and of all that takes part in a checkpoint, with defaults.

Connectors do not depend on models; the engine connects the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

from streamkernel.connectors.base import Event, Position, Trouble

T = TypeVar("T")

RevokedCallback = Callable[[list[str], float], None]
"""Called with the streams that are about to move to another process, and the deadline for committing them."""

StreamsCallback = Callable[[list[str]], None]
"""Called with streams that have moved to another process."""


class Participant:
    """A participant of a checkpoint: a source, a sink, transactions, the model of a group, or a mirror.

    A checkpoint calls `prepare` of all participants, then `commit` of all, then `after_commit` of all; the order and
    the reason for it are in :class:`~streamkernel.engine.checkpointer.Checkpointer`. By default all three do nothing.
    """

    def prepare(self, deadline: float = math.inf) -> Any:
        """Make all work until now durable, and return the JSON values that the checkpoint stores about it.

        Parameters
        ----------
        deadline : float, default inf
            When the work must be done or have failed, by ``time.monotonic``.
        """
        return {}

    def commit(self, number: int, session: str, positions: Mapping[str, Position], deadline: float = math.inf) -> None:
        """Commit a checkpoint that is written, but counts only after all participants have committed it.

        Parameters
        ----------
        number : int
            The number of the checkpoint.
        session : str
            The process that made it.
        positions : dict of str to Position
            The ``resume`` of the last event of each stream, by name.
        deadline : float, default inf
            As for `prepare`.

        Raises
        ------
        CommitRefusedError
            If nothing was committed, or the outcome is unknown.
        """

    def after_commit(self, number: int, positions: Mapping[str, Position], deadline: float = math.inf) -> None:
        """Act on a checkpoint that counts, such as by releasing what was kept until then.

        A crash may come before this call; the next checkpoint then makes it for all until then.

        Parameters
        ----------
        number : int
            The number of the checkpoint.
        positions : dict of str to Position
            The ``resume`` of the last event of each stream, by name.
        deadline : float, default inf
            As for `prepare`.
        """


class Source(Participant):
    """A stream of events with positions, which can be read again from a position.

    Only `seek`, `poll`, `lag` and `close` must be defined, by a subclass or by any other class; the rest has defaults.

    Events are learned exactly once, because the positions are part of a checkpoint. A source that cannot be read again
    from a position has an attribute ``guarantee = "at_least_once"``, which ``--check`` reports. An attribute
    ``identity`` has the names of the parameters that decide what a position means, by default all: a run with other
    values needs a new state directory.

    Attributes
    ----------
    trouble : Trouble or None
        A current problem with the service that the events come from.
    is_repeating : bool
        Whether events may come again that were committed before.
    submit : callable or None
        Appends the events of a request, if clients send the events.
    """

    trouble: Trouble | None = None
    is_repeating: bool = False
    submit: Any = None

    def open(self) -> None:
        """Check that the source is available, or raise `UnavailableError`; may be called again."""

    def seek(self, positions: Mapping[str, Position]) -> None:
        """Continue after the given position of each stream; called at most once, before the first poll.

        Parameters
        ----------
        positions : dict of str to Position
            The ``resume`` of the last event of each stream, by name.
        """
        raise NotImplementedError

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
        raise NotImplementedError

    def lag(self) -> Mapping[tuple[str, str], int]:
        """Return the backlog after the last event, by (topic, partition): records, or bytes of a file."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the resources of the source."""

    def listen(self, revoked: RevokedCallback, lost: StreamsCallback) -> None:
        """Register callbacks of a source whose streams move between processes; they are called before `poll` returns.

        Parameters
        ----------
        revoked : callable
            Called with the streams that are about to move to another process, and the deadline for committing them.
        lost : callable
            Called with the streams that have moved to another process.
        """

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take back what `prepare` returned, which is part of a checkpoint; called before `open` and `resume`."""

    def resume(self, positions: Mapping[str, Position], *, is_older: bool = False) -> None:
        """Continue after the positions of a checkpoint: at the start, and after each commit that failed.

        Parameters
        ----------
        positions : dict of str to Position
            The ``resume`` of the last event of each stream, by name.
        is_older : bool, default False
            Whether later checkpoints had been committed, whose files are lost or damaged.
        """
        if positions:
            self.seek(positions)

    def goes_back(self, before: Position, position: Position) -> bool:
        """Return whether a position is before an earlier one of the same stream; false if that cannot be decided.

        Parameters
        ----------
        before, position : Position
            The positions after two events, of which the second one came later.
        """
        return False

    def was_committed(self, event: Event) -> bool:
        """Return whether an event that comes again was committed before."""
        return False

    def advance(self, event: Event) -> None:
        """Record that an event is processed; called while `is_repeating`."""


def as_source(source: Any) -> Source:
    """Return a source with the defaults of `Source`; its class need not derive from it."""
    return _complete(source, Source, ("seek", "poll", "lag", "close"))


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


class PartitionedSource(Participant):
    """A source that several processes read together: one plans the rounds, and each reads its assignments."""

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take back what `prepare` returned, as `Source.restore`."""

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
        raise NotImplementedError

    def read(self, assignment: WorkAssignment) -> Iterator[Sequence[Event]]:
        """Yield the events of an assignment, a few at a time, and sometimes ``[]`` while none arrive.

        An assignment has the same events in the same order whenever it is read. If a stream was read beyond its last
        event, an event without a record (`Event.is_position_only`) has the new position; it is not counted.

        Parameters
        ----------
        assignment : WorkAssignment
            An assignment of `plan`.
        """
        raise NotImplementedError

    def lag(self, positions: Mapping[str, Position]) -> Mapping[tuple[str, str], int]:
        """Return the backlog after these positions when the last round was planned, as `Source.lag`."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the resources of the source."""


class Transactions(Participant):
    """An external system that decides which checkpoint is valid, when `commit` returns."""

    def newest(self) -> tuple[int, str]:
        """Return the number and the session of the last committed checkpoint, 0 for none; abort open transactions."""
        raise NotImplementedError

    def close(self) -> None:
        """Abort open transactions."""


class Sink(Participant):
    """A destination of records that can be truncated to a position.

    Only `open`, `write`, `flush`, `seek` and `close` must be defined, by a subclass or by any other class; the rest has
    defaults. A sink that writes many records at once more quickly has a method ``write_all(records, keys)``.

    Records are written exactly once, because the position is part of a checkpoint. A sink that cannot be truncated has
    an attribute ``guarantee = "at_least_once"``, which ``--check`` reports; its `flush` returns ``None``.

    A sink whose service is unavailable raises `UnavailableError`, `write` after it has buffered the record. The engine
    then repeats `flush`, with pauses, before it writes the next record. A sink whose service refuses records for good
    raises `RecordsRefusedError` in `write` or `flush`, once for each record; the engine writes dead letters for them.

    A `ValueError`, `TypeError`, `LookupError` or `ArithmeticError` of `write` is about its record, which the sink must
    not have taken: it becomes a dead letter, too. After an `OSError` of `flush` the engine calls it again at the next
    checkpoint, and the sink must still have its records. `GaveUpError` and any other error end the run.

    Attributes
    ----------
    topic : str or None
        The topic of the records, if they can have headers, which ``write_all`` then takes as a third argument.
    keeps_committed : bool
        Whether records stay when a run returns to an older checkpoint, so that they are not written again.
    """

    topic: str | None = None
    keeps_committed: ClassVar[bool] = False

    def prepare(self, deadline: float = math.inf) -> Position:
        """Make all written records durable and return the position after them, by default with `flush`.

        Parameters
        ----------
        deadline : float, default inf
            When the records must be durable, by ``time.monotonic``; after that, an error says that they are not.
        """
        return self.flush()

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
        raise NotImplementedError

    def flush(self) -> Position:
        """Make all written records durable and return the position after them."""
        raise NotImplementedError

    def seek(self, position: Position) -> None:
        """Remove the records after a position that `flush` returned; called at most once, before the first write.

        By default nothing is removed.
        """

    def close(self) -> None:
        """Flush, and release the resources of the sink."""


def as_sink(sink: Any) -> Sink:
    """Return a sink with the defaults of `Sink`; its class need not derive from it."""
    return _complete(sink, Sink, ("open", "write", "flush", "seek", "close"))


def _complete(implementation: Any, base: type[T], names: Sequence[str]) -> T:
    """Return an object with its own methods of these names, and the other methods of a base class."""
    if isinstance(implementation, base):
        return implementation

    def calling(name: str) -> Any:
        return lambda self, *words: getattr(implementation, name)(*words)

    methods = {name: calling(name) for name in names}
    others = {"__getattr__": lambda self, name: getattr(implementation, name)}
    return cast(T, type(type(implementation).__name__, (base,), methods | others)())
