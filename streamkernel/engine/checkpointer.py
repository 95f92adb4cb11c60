"""The order of a commit, and recovery of the last committed checkpoint."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import structlog

from streamkernel.connectors import CommitRefusedError, GaveUpError, Participant, PositionError, Source, Transactions
from streamkernel.engine.checkpoint.state_directory import StateDirectory, check_setup, recover_newest
from streamkernel.engine.health import LONGEST_PAUSE, REPORT_SECONDS, Health, Retries, pause, pause_after
from streamkernel.engine.outputs import Outputs
from streamkernel.engine.record_processor import RecordProcessor
from streamkernel.engine.shared_model import SharedModel
from streamkernel.engine.telemetry.figure import CHECKPOINT_BOUNDS, Durations
from streamkernel.engine.telemetry.history import History

log = structlog.get_logger("streamkernel")


REFUSALS = {
    "commit_refused": "a commit was refused or timed out",
    "record_refused": "the brokers refuse a record, which becomes a dead letter",
    "write_forbidden": "the brokers refuse all records of a topic",
}
"""Kinds of refused commits as the log names them."""


class Checkpointer:
    """Commits what a run has learned, read and written, all at once, and returns to the last commit that counts.

    It owns the positions of the streams; after each event, `advance` is called. `positions` is the position of each
    stream after the last event that was processed. `is_uncertain` says whether it is unknown which checkpoint counts,
    or streams were lost to others: nothing is processed or committed until `recover` has returned to one. `restored` is
    the number of the checkpoint that was read from disk, until the run has resumed. `learned_before` are events that
    the model had learned when this process began. `processor`, `history`, `source` and `outputs` are the parts whose
    state or position a checkpoint contains. `state`, `transactions`, `checkpoint_seconds` and `setup` are as for
    :class:`~streamkernel.engine.engine.Engine`.
    """

    def __init__(
        self,
        processor: RecordProcessor,
        history: History,
        source: Source,
        outputs: Outputs,
        retries: Retries,
        health: Health,
        *,
        state: StateDirectory | None,
        transactions: Transactions | None,
        checkpoint_seconds: float,
        setup: Mapping[str, Any] | None,
        shared: SharedModel | None = None,
    ) -> None:
        self.positions: dict[str, Any] = {}
        self._has_changes = True
        self.is_uncertain = transactions is not None
        self.restored: int | None = None
        self.learned_before = 0
        self.seconds = checkpoint_seconds
        self.durations = Durations(CHECKPOINT_BOUNDS)
        self.state, self.transactions, self._shared = state, transactions, shared
        self._processor, self._history = processor, history
        self._source, self._outputs = source, outputs
        self._retries, self._health = retries, health
        self._setup = dict(setup or {})
        mirror = None if state is None else state.mirror
        participants = source, outputs, transactions, mirror, shared
        self._participants: list[Participant] = [one for one in participants if one is not None]
        self._advanced: set[str] = set()  # streams that have advanced since they were begun or resumed
        self._written: float | None = None  # when all was durable
        self._tried: float | None = None
        self._reported = -math.inf  # when a checkpoint was last reported at the level info
        self._refusals = self._failures = 0  # in a row; a failure is a refusal that has found no refused record
        if state is not None and (saved := state.read_newest()) is not None:
            self._restore(saved)
            self.restored = saved["checkpoint"]

    @property
    def age(self) -> float | None:
        """Seconds since everything was durable."""
        written = self._written
        return None if written is None else time.monotonic() - written

    @property
    def size(self) -> int | None:
        """Size of this process's last checkpoint in bytes."""
        return None if self.state is None else self.state.size

    def advance(self, stream: str, position: Any) -> None:
        """Record that a stream has been processed up to a position.

        Raise `PositionError` if it goes back: what is between would be learned again, and a restart would miss other
        events.
        """
        if stream in self._advanced and self._source.goes_back(self.positions[stream], position):
            raise PositionError(
                f"Expected a position of {stream} after {self.positions[stream]!r}, got {position!r}: the source has "
                "gone back, and would have events learned twice; start the run again, which resumes from the last "
                "checkpoint"
            )
        self._advanced.add(stream)
        self.positions[stream] = position
        self._has_changes = True

    def advance_all(self, positions: Mapping[str, Any]) -> None:
        """Record that several streams have been processed up to these positions, as `advance`."""
        for stream, position in positions.items():
            self.advance(stream, position)

    def abandon(self) -> None:
        """Commit nothing more of the current work, as when the process leaves the group after an error."""
        self.is_uncertain = True

    def commit(self, deadline: float = math.inf) -> None:
        """Make everything durable: source, predictions, dead letters, transactions, mirror and the group's model.

        1. `prepare` of each participant in this order. The source refuses a topic that was made again, before anything
           is written. Then the sinks flush: in files their ends are positions; in topics records are not visible yet.
        2. Write one checkpoint that does not count yet: model, metrics, counters, positions, and the results of 1.
        3. `commit` of each participant. Transactions alone decide something here: the records of 1, the offsets read
           and the number of 2 become valid together.
        4. Let the checkpoint count.
        5. `after_commit` of each participant, which may forget what only an older checkpoint needs: the source
           acknowledges events, the mirror copies the checkpoint, and the group's model gets what was learned.

        A crash before 3 leaves lines in files after the ends of the last checkpoint, which the restart cuts off, and an
        open transaction, which it voids; the same events are then read again. After a crash between 3 and 4, and where
        the outcome of 3 is unknown, Kafka is asked which number it has: :meth:`recover`. A crash before 5 loses nothing
        either, because the next checkpoint acknowledges later positions; if 5 came before 4, a crash in between would
        lose events, which the group counts as read and no checkpoint contains. Raise `CommitRefusedError` if Kafka
        refused 1 or 3, or the outcome is unknown. `deadline` is when all participants must be done or have failed, by
        ``time.monotonic``.
        """
        if self.state is None:
            return
        began = time.perf_counter()
        prepared: dict[str, Any] = {}
        for participant in self._participants:
            prepared |= participant.prepare(deadline)
        number = self.state.prepare(
            {
                "setup": self._setup,
                **self._processor.state(),
                "history": self._history.state(),
                "positions": self.positions,
                **prepared,
                **self._processor.challengers.state(),  # last: what the champion has is stored as without them
            }
        )
        for participant in self._participants:
            participant.commit(number, self.state.session, self.positions, deadline)
        self.state.promote(number)
        self._note_commit(number, began)
        for participant in self._participants:
            participant.after_commit(number, self.positions, deadline)

    def _note_commit(self, number: int, began: float) -> None:
        """Record that a checkpoint counts."""
        state = cast(StateDirectory, self.state)
        if self._has_changes or not any(self._source.lag().values()):  # else nothing shows that records are accepted
            self._refusals = self._failures = 0
            self._written = time.monotonic()
        self._history.marks.add("checkpoint", self._history.events, f"checkpoint {number}")
        self._tried = time.monotonic()
        self._has_changes = False
        seconds = time.perf_counter() - began
        self.durations.new.append(seconds)
        is_due = self._tried - self._reported >= REPORT_SECONDS
        self._reported = self._tried if is_due else self._reported
        (log.info if is_due else log.debug)(
            "checkpoint written",
            number=number,
            learned=self._processor.outcomes["learned"],
            seconds=round(seconds, 3),
            bytes=state.size,
        )

    def commit_if_due(self) -> None:
        """Commit if the last attempt was long enough ago."""
        is_due = self._tried is not None and time.monotonic() - self._tried >= self.seconds
        is_due |= bool(self._refusals) and self._outputs.has_refused  # so that it is not found again after a return
        if is_due or (self._shared is not None and self._shared.is_due()):
            self.try_to_commit()

    def try_to_commit(self, *, last: bool = False, deadline: float = math.inf) -> bool:
        """Commit any changes, until a deadline, and return whether everything is durable.

        Raise `OSError` if the checkpoint cannot be written and it is the last one; others are tried again later, but a
        `GaveUpError` is raised at once.
        """
        if self.is_uncertain or (self.state is None and not last):
            return not self.is_uncertain
        is_durable = False
        try:
            if self.state is None:
                self._outputs.prepare()  # which waits for a service, as `close` does not
            elif self._has_changes or self._refusals:  # after a refusal only a commit shows that there can be one
                self.commit(deadline)
            elif self._shared is not None:
                self._shared.share(self.state.newest())
            is_durable = True
        except CommitRefusedError as error:
            self.mark_refused(error)
        except OSError as error:
            if last or isinstance(error, GaveUpError):
                raise
            self._health.count("checkpoint_failed")
            log.error("a checkpoint could not be written; retrying later", reason=str(error))
        self._tried = time.monotonic()
        if is_durable and self.state is not None and not self._refusals:
            self._written = self._tried
        return is_durable

    def mark_refused(self, error: CommitRefusedError) -> None:
        """Count a refused commit, after which the run has to return to the last committed checkpoint.

        Raise `OSError` if there are no transactions, so that there is nothing to return to.
        """
        if self.transactions is None:
            raise OSError(f"Expected to write the checkpoint, got an error: {error}") from error
        self.is_uncertain = True
        self._refusals += 1
        self._failures = 0 if error.kind == "record_refused" else self._failures + 1
        self._health.count(error.kind)
        log.warning(f"{REFUSALS[error.kind]}; returning to the last committed checkpoint", reason=str(error))

    def resume(self, stopping: Callable[[], bool]) -> bool:
        """Continue from the newest checkpoint, or write the first one; return false if the run is stopped first."""
        if self.state is None:
            return True
        self._source.listen(self._on_revoked, self._on_lost)
        if self.transactions is not None:  # the brokers are asked first, by `recover`
            return True
        self.state.discard()
        saved = self.state.read_newest()
        if saved is None:
            if not self._begin(stopping):
                return False
            self.commit()  # so that a crash before the next one knows where the sinks ended
            return True
        is_restored = self.state.is_restored()
        is_whole = self._load_state(saved)
        self._source.resume(self.positions, is_older=is_restored)
        if not is_whole:
            self.commit()  # the sinks end elsewhere now
        return True

    def _begin(self, stopping: Callable[[], bool]) -> bool:
        """Continue from the group's model, which may have to be waited for; return false if the run is stopped first.

        No checkpoint of this member is committed then: a prepared one that is not contains no events.
        """
        while self._shared is not None and not self._shared.begin():
            self._health.turn()
            pause(1.0, stopping)
            if stopping():
                return False
        return True

    def recover(self, stopping: Callable[[], bool]) -> bool:
        """Return to the checkpoint that the brokers have a commit of.

        The result says whether that is known; it is not if the run has to stop before the brokers answer.
        """
        if self._failures > 1:  # as by another process of the same name, or a clock that the brokers do not believe
            pause(pause_after(self._failures - 2, max(LONGEST_PAUSE, 2.0 * self.seconds)), stopping)
        state = cast(StateDirectory, self.state)
        openings = self._outputs.openings() if self._refusals else []  # a topic may be gone

        def ask() -> tuple[int, str]:
            for opening in openings:
                opening()
            return cast(Transactions, self.transactions).newest()

        committed = self._retries.ask_aside(ask, stopping)
        if committed is None:
            return False
        newest, session = committed
        saved = recover_newest(state, newest, session)
        if saved is None:
            if not self._begin(stopping):
                return False
            self.is_uncertain, self._has_changes = False, True
            return self.try_to_commit()
        self.is_uncertain = False
        is_whole = self._load_state(saved)
        is_older = 0 < saved["checkpoint"] < newest  # so that others may have learned what is after it
        self._source.resume(self.positions, is_older=is_older)
        self._has_changes = not is_whole
        return is_whole or self.try_to_commit()  # where the sinks end now

    def close(self) -> None:
        """Release the transactions and the state directory."""
        for part in (self.transactions, self.state):
            if part is not None:
                part.close()

    def _load_state(self, saved: Mapping[str, Any]) -> bool:
        """Restore a checkpoint, continue from its positions, and return whether the sinks have all lines before it."""
        self._restore(saved)
        self.restored = None
        self._tried = time.monotonic()
        if self._written is None:  # a return to an older checkpoint makes nothing durable
            self._written = self._tried
        state = cast(StateDirectory, self.state)
        is_whole = self._outputs.seek(saved, may_be_lost=state.is_restored())
        if self._shared is not None:
            self._shared.share(saved["checkpoint"], newest=state.newest())
        self._history.marks.add("resumed", self._history.events, f"resumed from checkpoint {saved['checkpoint']}")
        log.info("resumed", learned=self._processor.outcomes["learned"], positions=self.positions)
        return is_whole

    def _restore(self, saved: Mapping[str, Any]) -> None:
        """Restore the components' state from a checkpoint; files and streams do not change."""
        self._setup |= self._processor.challengers.setup(saved)
        check_setup(saved["setup"], self._setup)
        self._processor.restore(saved)
        if saved.get("history") is not None:
            self._history.restore(saved["history"])
        if self._written is None:  # the first time in this process
            self.learned_before = self._processor.outcomes["learned"]
        self.positions = saved["positions"]
        self._advanced.clear()
        self._source.restore(saved)
        self._has_changes = False

    def _on_revoked(self, streams: list[str], deadline: float = math.inf) -> None:
        """Commit the work on streams until a deadline, before other members get them.

        All that a commit waits for shares this time: a member that takes longer is evicted from the group.
        """
        if self.is_uncertain or not self.try_to_commit(deadline=deadline):
            self._on_lost(streams)
        else:
            self._forget_streams(streams)

    def _on_lost(self, streams: list[str]) -> None:
        """Return to the last commit, if there are transactions: the owners of the streams repeat the work since then.

        Without transactions, events that they repeat have been learned here too: at least once.
        """
        self.is_uncertain = self.is_uncertain or self.transactions is not None
        self._forget_streams(streams)

    def _forget_streams(self, streams: list[str]) -> None:
        """Forget the positions of streams that other members have."""
        for stream in streams:
            self.positions.pop(stream, None)
            self._advanced.discard(stream)
        self._health.count("rebalance")
        text = f"rebalance: partitions of other members now: {len(streams)}"
        self._history.marks.add("rebalance", self._history.events, text)
