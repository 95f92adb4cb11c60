"""The participants of a checkpoint: users' own classes, positions that go back, and the time of a revocation."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from river import linear_model, metrics

from streamkernel.connectors import (
    CommitRefusedError,
    DeadLetters,
    Event,
    KafkaDeadLetters,
    KafkaSink,
    KafkaTransactions,
    PositionError,
    Sink,
    Source,
    UnavailableError,
)
from streamkernel.connectors.kafka.clients import COMMIT_SECONDS
from streamkernel.engine import Engine
from streamkernel.engine.checkpoint.state_directory import StateDirectory, read_newest


def event(position: Any) -> Event:
    return Event("s", position, b"{}", {"a": 1.0, "y": 2.0})


class Positions(Source):
    """A source of events at these positions, one per poll; a callable is called instead."""

    def __init__(self, *positions: Any) -> None:
        self.rest = list(positions)

    def seek(self, positions: Mapping[str, Any]) -> None:
        pass

    def listen(self, revoked: Any, lost: Any) -> None:
        self.revoked, self.lost = revoked, lost

    def poll(self, timeout: float) -> Sequence[Event] | None:
        if not self.rest:
            return None
        position = self.rest.pop(0)
        if callable(position):
            position()
            return []
        return [event(position)]

    def lag(self) -> Mapping[tuple[str, str], int]:
        return {}


class Offsets(Positions):
    """A source whose positions are numbers that grow."""

    def goes_back(self, before: int, position: int) -> bool:
        return position < before


class Plain:
    """A user's own source and sink in one, of no class of ours, with a method that has the name of a step."""

    def __init__(self, n: int) -> None:
        self.n, self.records, self.calls = n, list[Mapping[str, Any]](), list[str]()

    def seek(self, positions: Any) -> None:
        self.calls.append("seek")

    def poll(self, timeout: float) -> Sequence[Event] | None:
        self.n -= 1
        return None if self.n < 0 else [event(self.n)]

    def lag(self) -> Mapping[tuple[str, str], int]:
        return {}

    def open(self) -> None:
        self.calls.append("open")

    def write(self, record: Mapping[str, Any], key: bytes | None = None) -> None:
        self.records.append(record)

    def flush(self) -> int:
        return len(self.records)

    def commit(self) -> None:
        raise AssertionError("it is not ours to call")

    prepare = after_commit = resume = commit

    def close(self) -> None:
        self.calls.append("close")


def engine(source: Any, folder: Path, **options: Any) -> Engine:
    return Engine(
        linear_model.LinearRegression(),
        source,
        label="y",
        metric=metrics.MAE(),
        state=StateDirectory(folder),
        checkpoint_seconds=options.pop("checkpoint_seconds", 1000.0),
        **options,
    )


def test_a_class_of_a_user_needs_only_four_or_five_methods(tmp_path: Path) -> None:
    both = Plain(3)
    engine(both, tmp_path, sink=both).run()
    assert [record["position"] for record in both.records] == [2, 1, 0]
    assert both.calls.count("open") == 1
    assert "seek" not in both.calls
    again = Plain(2)
    engine(again, tmp_path, sink=again).run()
    assert again.calls[:2] == ["open", "seek"]
    assert read_newest(tmp_path)["sink"] == 2  # type: ignore[index]


def test_a_position_that_goes_back_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PositionError, match="Expected a position of s after 7, got 5: the source has gone back"):
        engine(Offsets(3, 7, 7, 5), tmp_path).run()
    assert read_newest(tmp_path)["positions"] == {}  # type: ignore[index]


def test_positions_of_streams_that_come_back_may_be_earlier(tmp_path: Path) -> None:
    """Another member had the stream, without transactions, or the run has returned to its last checkpoint."""
    source = Offsets(3, 7, lambda: source.revoked(["s"], math.inf), 5, 6, lambda: source.lost(["s"]), 2, 4)
    running = engine(source, tmp_path)
    running.run()
    assert running.outcomes["learned"] == 6
    assert running.incidents["rebalance"] == 2
    engine(Offsets(1, 2), tmp_path).run()
    assert read_newest(tmp_path)["positions"] == {"s": 2}  # type: ignore[index]


def test_positions_without_an_order_are_not_compared(tmp_path: Path) -> None:
    running = engine(Positions("b", "a"), tmp_path)
    running.run()
    assert running.outcomes["learned"] == 2


class AwaySink(Sink):
    """A sink whose service is unavailable."""

    def __init__(self) -> None:
        self.is_away, self.deadlines = False, list[float]()

    def open(self) -> None:
        pass

    def write(self, record: Mapping[str, Any], key: bytes | None = None) -> None:
        pass

    def prepare(self, deadline: float = math.inf) -> None:
        self.deadlines.append(deadline)
        if self.is_away:
            raise UnavailableError("away")

    def close(self) -> None:
        pass


def test_a_revocation_does_not_wait_for_a_sink_beyond_its_deadline(tmp_path: Path) -> None:
    """Other members wait for this one; without transactions, they repeat its events and it goes on."""
    sink, letters = AwaySink(), AwaySink()

    def revoke() -> None:
        sink.is_away = True
        source.revoked(["s"], time.monotonic() + 0.2)
        sink.is_away = False

    source = Offsets(3, revoke, 1)
    running = engine(source, tmp_path, sink=sink, dead_letters=DeadLetters(letters))
    running.run()
    assert running.outcomes["learned"] == 2
    assert running.incidents["checkpoint_failed"] == 1
    assert read_newest(tmp_path)["positions"] == {"s": 1}  # type: ignore[index]
    (deadline,) = {one for one in sink.deadlines if one < math.inf}
    assert deadline not in letters.deadlines  # their turn would have been after the deadline


class Seconds:
    """A producer that records the timeouts of its requests, of which each takes a tenth of a second."""

    def __init__(self) -> None:
        self.undelivered: list[Any] = []
        self.seconds = list[float]()

    def flush(self, seconds: float) -> None:
        self.seconds.append(seconds)
        time.sleep(0.1)

    def commit(self, parts: Any, seconds: float) -> None:
        self.flush(seconds)

    def close(self) -> None:
        pass


def test_all_requests_of_a_revocation_share_one_time(tmp_path: Path) -> None:
    producer = Seconds()
    options = SimpleNamespace(producer=lambda *_, **__: producer)
    topics: Any = SimpleNamespace(options=options, topics=["t"], group=None)
    transactions = KafkaTransactions(topics, "name", 60.0)
    source = Offsets()
    parts: Any = {"sink": KafkaSink(transactions, "t"), "dead_letters": KafkaDeadLetters(transactions, "t")}
    running = engine(source, tmp_path, transactions=transactions, **parts)
    checkpointer = running.parts.checkpointer
    checkpointer.is_uncertain = False
    checkpointer.resume(lambda: False)
    checkpointer.advance("s", 3)
    source.revoked(["s"], time.monotonic() + 20.0)
    assert len(producer.seconds) == 3  # predictions, dead letters, and the transaction
    assert 20.0 > producer.seconds[0] > producer.seconds[1] > producer.seconds[2]
    checkpointer.advance("s", 4)
    checkpointer.commit()
    assert producer.seconds[3:] == [COMMIT_SECONDS] * 3
    running.close()


def test_a_commit_that_is_refused_in_a_revocation_is_returned_from(tmp_path: Path) -> None:
    class Refusing(AwaySink):
        def prepare(self, deadline: float = math.inf) -> None:
            if deadline < math.inf:
                raise CommitRefusedError("no")

    source = Offsets(3, lambda: source.revoked(["s"], time.monotonic()))
    with pytest.raises(OSError, match="Expected to write the checkpoint, got an error: no"):
        engine(source, tmp_path, sink=Refusing()).run()
