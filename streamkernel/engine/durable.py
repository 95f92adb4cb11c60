"""What a run has learnt and written, made durable all at once, and gone back to after a crash or a refusal."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import structlog

from connectors import (
    CommitRefusedError,
    DeadLetters,
    GroupSource,
    KafkaDeadLetters,
    KafkaSource,
    Sink,
    Source,
    Transactions,
)
from streamkernel.engine.checkpoint.commit_recovery import settled
from streamkernel.engine.checkpoint.state_directory import StateDirectory, check_setup
from streamkernel.engine.learning import Learner
from streamkernel.engine.retrying import (
    LONGEST_PAUSE,
    REPORT_SECONDS,
    TroubleReports,
    aside,
    asked,
    gave_up,
    pause,
    pause_after,
)
from streamkernel.engine.telemetry.histogram import CHECKPOINT_BOUNDS, Durations
from streamkernel.engine.telemetry.history import History

log = structlog.get_logger("streamkernel")

T = TypeVar("T")

INCIDENTS = (
    "rebalance", "commit_refused", "unreachable", "topic_missing", "checkpoint_failed", "stalled", "worker_lost",
)  # fmt: skip
"""What may happen to a run that goes on, by what it is counted as."""


class DurableLearner(Learner):
    """A learner whose state, and where its source and sinks stand, can be made durable and gone back to.

    Parameters
    ----------
    source, sink, dead_letters, state, transactions, checkpoint_seconds, give_up_after, setup
        As for :class:`~streamkernel.engine.runner.Engine`.
    model, **options
        As for :class:`~streamkernel.engine.learning.Learner`.

    Attributes
    ----------
    member : str or None
        The name of the state directory, which predictions and dead letters have.
    """

    _is_divided = False
    """Whether workers read the streams, without a consumer group."""

    def __init__(
        self,
        model: Any,
        *,
        source: Source,
        sink: Sink | None,
        dead_letters: DeadLetters | KafkaDeadLetters | None,
        state: StateDirectory | None,
        transactions: Transactions | None,
        checkpoint_seconds: float,
        give_up_after: float | None,
        setup: Mapping[str, Any] | None,
        **options: Any,
    ) -> None:
        super().__init__(model, with_probabilities=sink is not None, **options)
        self.source = source
        self.incidents = dict.fromkeys(INCIDENTS, 0)
        self.checkpoints = Durations(CHECKPOINT_BOUNDS)
        self.checkpoint_every = None if state is None else checkpoint_seconds
        self._sink = sink
        self._dead_letters = dead_letters
        self.history = History()
        self._state = state
        self.member = None if state is None else state.identity
        self._transactions = transactions
        self._every = checkpoint_seconds
        self._give_up_after = give_up_after
        self._troubles = TroubleReports(self._count)
        self._setup = dict(setup or {})
        self._positions: dict[str, Any] = {}
        self._written: float | None = None  # when all was durable
        self._tried: float | None = None
        self._reported = -math.inf  # when a checkpoint was last reported at the level info
        self._changed = True
        self.learned_before = 0
        self._in_doubt = transactions is not None
        self._refusals = 0  # in a row
        self.alive = time.monotonic()
        self._checkpoint: int | None = None  # whose state this is, until it is known whether there is a newer one
        if state is not None and (saved := state.read_newest()) is not None:
            self._restore(saved)
            self._checkpoint = saved["checkpoint"]

    @property
    def checkpoint_age(self) -> float | None:
        """Seconds since the last checkpoint was durable."""
        written = self._written
        return None if written is None else time.monotonic() - written

    @property
    def checkpoint_bytes(self) -> int | None:
        """Size of the last checkpoint of this process."""
        return None if self._state is None else self._state.size

    def commit(self) -> None:
        """Make everything durable, in this order.

        1. Flush predictions and dead letters. In files their ends are positions; in topics nobody sees them yet.
        2. Prepare one checkpoint: model, metrics, counters, the source's positions, and the ends of 1.
        3. Commit one transaction of Kafka, if it is used: what was written in 1, the offsets read, and the number of 2.
        4. Let the checkpoint count.

        A crash before 3 leaves lines in files after the ends of the last checkpoint, which the restart cuts off, and an
        open transaction, which it voids; the same events are then read again. After a crash between 3 and 4, and where
        the answer to 3 is not known, Kafka is asked which number it has: :meth:`_settle`.

        Raises
        ------
        CommitRefusedError
            If Kafka did not do 3, or 1, or nobody knows.
        """
        if self._state is None:
            return
        began = time.perf_counter()
        sink = self._sink.flush() if self._sink else None
        dead_letters = self._dead_letters.flush() if self._dead_letters else None
        number = self._state.prepare(
            {
                "setup": self._setup,
                "model": self.model,
                "metric": self.metric,
                "baseline": self.baseline,
                "baseline_metric": self._quality.baseline_metric,
                "quality": self._quality.state(),
                "outcomes": self.outcomes,
                "refused": self.refused,
                "numbers": sorted(self._examples.numbers),
                "classes": self._classes,
                "history": self.history.state(),
                "labels": None if self._labels is None else self._labels.state(),
                "positions": self._positions,
                "is_divided": self._is_divided,
                "sink": sink,
                "dead_letters": dead_letters,
            }
        )
        if self._transactions is not None:
            self._transactions.commit(number, self._positions)
        self._state.promote(number)
        self._refusals = 0
        if self._transactions is None and isinstance(self.source, KafkaSource):
            self.source.acknowledge(self._positions)
        self._written = self._tried = time.monotonic()
        self._changed = False
        seconds = time.perf_counter() - began
        self.checkpoints.new.append(seconds)
        is_due = self._written - self._reported >= REPORT_SECONDS
        self._reported = self._written if is_due else self._reported
        (log.info if is_due else log.debug)(
            "checkpoint written",
            number=number,
            learned=self.outcomes["learned"],
            seconds=round(seconds, 3),
            bytes=self._state.size,
        )

    def close(self) -> None:
        """Release the source, the sinks and the state directory."""
        for part in (self.source, self._sink, self._dead_letters, self._transactions, self._state):
            if part is not None:
                part.close()

    def _ask(self, call: Callable[[], T], stopping: Callable[[], bool]) -> T | None:
        """Return the answer of brokers, ``None`` if we have to stop before there is one."""
        return asked(aside(call, stopping), stopping, self._count, self._give_up_after)

    def _open(self, stopping: Callable[[], bool]) -> bool:
        """Wait until brokers and topics are there; return whether they are, which is not known if we have to stop."""
        parts = [part for part in (self._sink, self._dead_letters) if part is not None]
        opens = [part.open for part in parts] + ([self.source.open] if isinstance(self.source, KafkaSource) else [])
        return self._ask(lambda: [open_it() for open_it in opens], stopping) is not None

    def _heed(self) -> None:
        """Report what the source finds wrong with brokers and topics.

        Raises
        ------
        GaveUpError
            If that has lasted for longer than the user wants to wait.
        """
        trouble = self.source.trouble if isinstance(self.source, KafkaSource) else None
        self._troubles.report(trouble)
        limit = self._give_up_after
        if trouble is not None and limit is not None and time.monotonic() - trouble.since >= limit:
            self._try_to_commit(last=True)
            raise gave_up(trouble.error, limit)

    def _resume(self) -> None:
        if self._state is None:
            return
        if self._transactions is not None:  # it is asked first
            cast(GroupSource, self.source).listen(self._revoked, self._lost)
            return
        if isinstance(self.source, KafkaSource):
            self.source.listen(self._revoked, lambda streams: None)
        self._state.discard()
        saved = self._state.read_newest()
        if saved is None:
            self.commit()  # so that a crash before the next one knows where the sinks ended
            return
        self._load(saved)
        if self._positions:
            if saved.get("is_divided") and isinstance(self.source, KafkaSource):  # what the group has committed is old
                self.source.rewind(self._positions)
            else:
                self.source.seek(self._positions)

    def _load(self, saved: Mapping[str, Any]) -> None:
        """Resume from a checkpoint."""
        self._restore(saved)
        self._checkpoint = None
        self._written = self._tried = time.monotonic()
        for part, position in ((self._sink, saved["sink"]), (self._dead_letters, saved["dead_letters"])):
            if part is not None and position is not None:
                part.seek(position)
        log.info("resumed", learned=self.outcomes["learned"], positions=self._positions)

    def _restore(self, saved: Mapping[str, Any]) -> None:
        """Become what a checkpoint holds, and leave files and streams alone."""
        check_setup(saved["setup"], self._setup)
        self.model, self.baseline = saved["model"], saved["baseline"]
        self._quality.restore(saved["metric"], saved["baseline_metric"], saved.get("quality"))
        self.outcomes, self.refused = saved["outcomes"], self.refused | saved.get("refused", {})
        self._examples.restore(saved["numbers"])
        self._classes = set(saved.get("classes", ()))
        if saved.get("history") is not None:
            self.history.restore(saved["history"])
        if self._labels is not None and saved.get("labels") is not None:
            self._labels.restore(saved["labels"])
        if self._written is None:  # the first time in this process
            self.learned_before = self.outcomes["learned"]
        self._positions = saved["positions"]
        self._changed = False

    def _settle(self, stopping: Callable[[], bool]) -> bool:
        """Go on from the checkpoint that counts; return whether it is known, which it is not if we have to stop."""
        if self._refusals > 1:  # as by another process of the same name, or a clock that the brokers do not believe
            pause(pause_after(self._refusals - 2, max(LONGEST_PAUSE, 2.0 * self._every)), stopping)
        state, source = cast(StateDirectory, self._state), cast(GroupSource, self.source)
        newest = self._ask(cast(Transactions, self._transactions).newest, stopping)
        if newest is None:
            return False
        saved = settled(state, newest)
        self._in_doubt = False
        if saved is None:
            self._changed = True
            return self._try_to_commit()
        self._load(saved)
        if 0 < saved["checkpoint"] < newest or saved.get("is_divided"):
            source.rewind(self._positions)
        source.again(self._positions)
        return True

    def _revoked(self, streams: list[str]) -> None:
        """Commit what was done with streams before others get them."""
        self._count("rebalance")
        if not self._in_doubt and not self._try_to_commit():
            self._in_doubt = True
        for stream in streams:
            self._positions.pop(stream, None)

    def _lost(self, streams: list[str]) -> None:
        """Go back to the last commit: others have the streams and do again what was done since."""
        self._count("rebalance")
        self._in_doubt = True

    def _commit_if_due(self) -> None:
        if self._tried is not None and time.monotonic() - self._tried >= self._every:
            self._try_to_commit()

    def _try_to_commit(self, *, last: bool = False) -> bool:
        """Commit if something has changed, and return whether all is durable."""
        if self._in_doubt or self._state is None:
            return not self._in_doubt
        is_durable = False
        try:
            if self._changed:
                self.commit()
            is_durable = True
        except CommitRefusedError as error:
            self._doubt(error)
        except OSError as error:
            if last:
                raise
            self._count("checkpoint_failed")
            log.error("a checkpoint could not be written and is tried again later", reason=str(error))
        self._tried = time.monotonic()
        if is_durable:
            self._written = self._tried
        return is_durable

    def _doubt(self, error: CommitRefusedError) -> None:
        """Count a refusal, after which the last checkpoint that counts has to be gone back to."""
        if self._transactions is None:
            raise OSError(f"Expected to write what was learnt, got a refusal: {error}") from error
        self._in_doubt = True
        self._refusals += 1
        self._count("commit_refused")
        log.warning("a commit was refused or got no answer: back to the last one that counts", reason=str(error))

    def _count(self, incident: str) -> None:
        self.incidents[incident] += 1
        self.alive = time.monotonic()
