"""The sinks of predictions and dead letters, and the last dead letters."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar, cast

import structlog

from streamkernel.connectors import (
    DeadLetters,
    Event,
    KafkaDeadLetters,
    Participant,
    RecordsRefusedError,
    Refusal,
    Sink,
    Source,
    UnavailableError,
)
from streamkernel.connectors.interfaces import as_sink
from streamkernel.connectors.kafka.clients import Headers
from streamkernel.connectors.owner import Owner
from streamkernel.engine.health import Retries, StoppedError
from streamkernel.engine.record_processor import RecordProcessor
from streamkernel.engine.telemetry.dead_letters import DeadLetterGroups, DeadLetterReports

DEAD_LETTERS, RAW_SHOWN = 8, 300
"""Number of dead letters that are shown, and of bytes of each."""

MOST_GATHERED = 64
"""Maximum number of buffered predictions."""

FIRST_RECORDS = 100
"""Number of dead letters, with no usable record, after which an error is logged."""

OF_ONE_RECORD = (TypeError, ValueError, LookupError, ArithmeticError)
"""Errors of `Sink.write` that are about its record; after any other the run ends."""

log = structlog.get_logger("streamkernel")

T = TypeVar("T")


class Outputs(Participant):
    """The sinks of a run, for predictions and for dead letters, either of which may be absent.

    `predictions` and `dead_letters` are the sinks; ``None`` for no output. Without a sink, dead letters are logged.
    `member` is the identity of the state directory, a field of predictions and dead letters. `source` is the
    source, whose repeated events are not written again to sinks that have their records. `stopping` says whether
    the run must stop, and so no longer wait for a sink. `last_dead_letters` are the last few of this process: time,
    position, reason, and the beginning of the record. `has_refused` says whether a sink has refused a prediction
    since the last commit.
    """

    def __init__(
        self,
        processor: RecordProcessor,
        predictions: Sink | None,
        dead_letters: DeadLetters | KafkaDeadLetters | None,
        member: str | None,
        retries: Retries,
        source: Source,
    ) -> None:
        self.stopping: Callable[[], bool] = lambda: False
        self.predictions = None if predictions is None else as_sink(predictions)
        self.dead_letters = None if dead_letters is None else cast(DeadLetters, as_sink(dead_letters))
        self.member = member
        self.last_dead_letters: deque[dict[str, Any]] = deque(maxlen=DEAD_LETTERS)
        self.dead_letter_groups = DeadLetterGroups()
        self.owner = Owner("run")
        self.has_refused = False
        self._reports = DeadLetterReports()
        self._processor, self._retries, self._source = processor, retries, source
        self._gathered: list[tuple[dict[str, Any], bytes | None, Headers]] = []

    def has_prediction(self, event: Event) -> bool:
        """Return whether the prediction of an event has to be written."""
        return self.predictions is not None and not self._is_there(self.predictions, event)

    def openings(self) -> list[Callable[[], Any]]:
        """Return functions that wait until the sinks' brokers and topics are available."""
        return [sink.open for sink in (self.predictions, self.dead_letters) if sink is not None]

    def write(self, line: dict[str, Any], key: bytes | None) -> None:
        """Write a prediction, if there is a sink for predictions."""
        self.gather(line, key)
        self.write_gathered()

    def gather(self, line: dict[str, Any], key: bytes | None, headers: Headers = ()) -> None:
        """Buffer a prediction for `write_gathered`, which must follow soon."""
        self._gathered.append((line, key, headers))
        if len(self._gathered) >= MOST_GATHERED:
            self.write_gathered()

    def write_gathered(self) -> None:
        """Write the buffered predictions. Raise `CommitRefusedError` if the brokers refuse them."""
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            self.write_all(*map(list, zip(*gathered, strict=True)))

    def write_all(
        self, lines: Sequence[dict[str, Any]], keys: Sequence[bytes | None], headers: Sequence[Headers] | None = None
    ) -> None:
        """Write predictions after the buffered ones, if there is a sink for them; only topics have headers."""
        self.write_gathered()
        if self.predictions is not None:
            member = self.member
            for line in lines:
                line["member"] = member
            try:
                self._pass_on(self.predictions, lines, keys, headers if headers is not None and any(headers) else None)
            except RecordsRefusedError as error:
                self._refuse_lines(error)

    def _pass_on(
        self,
        sink: Any,
        lines: Sequence[dict[str, Any]],
        keys: Sequence[bytes | None],
        headers: Sequence[Headers] | None,
    ) -> None:
        self.owner.check()
        if sink.topic is not None:
            sink.write_all(lines, keys, headers)
        elif (write_all := getattr(sink, "write_all", None)) is not None:  # a sink need not have it
            write_all(lines, keys)
        else:
            for line, key in zip(lines, keys, strict=True):
                try:
                    sink.write(line, key)
                except UnavailableError:  # it has the line
                    self._flush_predictions(sink)
                except RecordsRefusedError as error:
                    self._refuse_lines(error)
                except OF_ONE_RECORD as error:
                    self._refuse_line(line, key, f"{type(error).__name__}: {error}")

    def _refuse_lines(self, error: RecordsRefusedError) -> None:
        self.has_refused = True
        for line, key, reason in error.refused:
            self._refuse_line(line, key, reason)

    def _refuse_line(self, line: Mapping[str, Any], key: bytes | None, reason: str) -> None:
        """Write the place of a record as a dead letter, whose prediction cannot be written though it was learned."""
        if "topic" in line:
            origin = {name: line[name] for name in ("topic", "partition", "offset", "timestamp") if name in line}
            event = Event(f"{line['topic']}:{line['partition']}", line["offset"] + 1, b"", key=key, origin=origin)
        else:
            event = Event(line["stream"], line["position"], b"", key=key)
        self.refuse(event, Refusal(reason, "output", "ValueError"))

    def refuse(self, event: Event, refusal: Refusal) -> None:
        """Count, store and write a dead letter, after the buffered predictions."""
        self.owner.check()
        self.write_gathered()
        reason = refusal.reason
        self._processor.count_refusal(refusal)
        raw = event.raw[:RAW_SHOWN].decode(errors="replace")
        self.last_dead_letters.append({"time": time.time(), "stream": event.stream, "reason": reason, "raw": raw})
        self.dead_letter_groups.add(reason, event.stream, raw)
        if self.dead_letters is None:
            log.warning("dead letter", stream=event.stream, resume=event.resume, reason=reason)
        else:
            self._reports.add(reason, event.stream)
        if self.dead_letters is not None and not self._is_there(self.dead_letters, event):
            self.dead_letters.write(event, refusal, self.member)
        if self._processor.outcomes["dead_letter"] == FIRST_RECORDS and (reason := self.reason_all_refused()):
            log.error(reason)

    def reason_all_refused(self, *, is_stopped: bool = False) -> str:
        """Return the reason if every record or every prediction so far was refused, else an empty string.

        A run that is stopped may have seen too few records to tell.
        """
        outcomes, refused = self._processor.outcomes, self._processor.refused
        if is_stopped and outcomes["dead_letter"] < FIRST_RECORDS:
            return ""
        if 0 < outcomes["predicted"] <= refused["output"]:
            return f"the sink refused every prediction so far, {refused['output']:,} in all{self._last()}"
        if not outcomes["dead_letter"] or outcomes["learned"] or outcomes["predicted"]:
            return ""
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in sorted(refused.items(), key=lambda pair: -pair[1]) if n)
        return f"every record so far was refused, {outcomes['dead_letter']:,} in all ({kinds}){self._last()}"

    def _last(self) -> str:
        return f"; the last one: {self.last_dead_letters[-1]['reason']}" if self.last_dead_letters else ""

    def prepare(self, deadline: float = math.inf) -> dict[str, Any]:
        """Prepare the sinks, and return their end positions for a checkpoint."""
        self.owner.check()
        self.write_gathered()
        self._reports.report_if_due()
        letters = self.dead_letters
        return {
            "sink": self._flush_predictions(self.predictions, deadline) if self.predictions else None,
            "dead_letters": self._wait_for(lambda: letters.prepare(deadline), deadline) if letters else None,
        }

    def commit(self, number: int, session: str, positions: Mapping[str, Any], deadline: float = math.inf) -> None:
        """Commit the sinks."""
        for sink in filter(None, (self.predictions, self.dead_letters)):
            sink.commit(number, session, positions, deadline)

    def after_commit(self, number: int, positions: Mapping[str, Any], deadline: float = math.inf) -> None:
        """Pass on that a checkpoint counts."""
        self.has_refused = False
        for sink in filter(None, (self.predictions, self.dead_letters)):
            sink.after_commit(number, positions, deadline)

    def _flush_predictions(self, sink: Sink, deadline: float = math.inf) -> Any:
        while True:
            try:
                return self._wait_for(lambda: sink.prepare(deadline), deadline)
            except RecordsRefusedError as error:
                self._refuse_lines(error)

    def seek(self, ends: Mapping[str, Any], *, may_be_lost: bool = False) -> bool:
        """Truncate the sinks to their end positions of a checkpoint, and drop the buffered predictions.

        `may_be_lost` says whether a file may be shorter, as after the loss of a disk. Raise `ValueError` if a file is
        shorter and must not be. The result says whether all sinks have what they had then.
        """
        self._gathered.clear()
        is_whole = True
        for sink, end in ((self.predictions, ends["sink"]), (self.dead_letters, ends["dead_letters"])):
            if sink is None or end is None:
                continue
            try:
                sink.seek(end)
            except ValueError as error:
                if not may_be_lost:
                    raise
                is_whole = False
                log.error("lines before the checkpoint are lost; later ones are appended", reason=str(error))
        return is_whole

    def close(self) -> None:
        """Release the sinks, also after errors; predictions that are refused at the end become dead letters."""
        with ExitStack() as stack:
            if self.dead_letters is not None:
                stack.callback(self.dead_letters.close)
            stack.callback(self._reports.report)
            if self.predictions is not None:
                try:
                    self.predictions.close()
                except RecordsRefusedError as error:
                    self._refuse_lines(error)

    def _wait_for(self, call: Callable[[], T], deadline: float = math.inf) -> T:
        """Return the result of a call to a sink, which is repeated while its service is unavailable.

        Raise `StoppedError` if the run is stopped before that, or a deadline passes; with a state, the restart writes
        what no checkpoint has.
        """
        done = self._retries.ask(lambda: (call(),), lambda: self.stopping() or time.monotonic() >= deadline)
        if done is None and not self.stopping():
            raise StoppedError("the sink was unavailable until the deadline of a rebalance; nothing is committed")
        if done is None:
            lost = "lost, because there is no state directory" if self.member is None else "processed again"
            raise StoppedError(f"stopped while the sink was unavailable; what was not written is {lost}")
        return done[0]

    def _is_there(self, sink: Any, event: Event) -> bool:
        """Return whether a topic has what a run wrote for an event before; a file was cut off."""
        return sink.keeps_committed and self._source.is_repeating and self._source.was_committed(event)
