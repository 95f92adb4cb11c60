"""The parts of a run in isolation: the state of each, and the order of their calls."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from river import linear_model, metrics, preprocessing
from structlog.testing import capture_logs

from streamkernel.connectors import Event, Participant, Sink, Source, Transactions
from streamkernel.engine import Engine, health
from streamkernel.engine.checkpoint.state_directory import StateDirectory
from streamkernel.engine.delayed_labels import DelayedLabels
from streamkernel.engine.health import Health
from streamkernel.engine.record_processor import RecordProcessor
from streamkernel.engine.runner import EngineParts


class Calls:
    """A source, a sink or transactions that record their calls."""

    def __init__(self, name: str, calls: list[str], lag: int = 0) -> None:
        self.name, self.calls, self.waiting = name, calls, lag

    def flush(self) -> None:
        self.calls.append(f"{self.name}: flush")

    def lag(self) -> dict[tuple[str, str], int]:
        return {("t", "0"): self.waiting}

    def close(self) -> None:
        self.calls.append(f"{self.name}: close")


class Steps(Calls, Participant):
    """A participant of checkpoints that records its three steps, too."""

    def prepare(self, deadline: float = math.inf) -> Any:
        self.calls.append(f"{self.name}: prepare")
        return super().prepare(deadline)

    def commit(self, number: int, session: str, positions: Mapping[str, Any], deadline: float = math.inf) -> None:
        self.calls.append(f"{self.name}: commit {number} at {positions}")

    def after_commit(self, number: int, positions: Mapping[str, Any], deadline: float = math.inf) -> None:
        self.calls.append(f"{self.name}: after commit {number} at {positions}")


class SourceSteps(Steps, Source):
    """A source that records its steps."""


class SinkSteps(Steps, Sink):
    """A sink that records its steps."""


class TransactionSteps(Steps, Transactions):
    """Transactions that record their steps."""


def parts_in(folder: Path, calls: list[str]) -> EngineParts:
    parts: Any = {
        "source": SourceSteps("source", calls),
        "sink": SinkSteps("sink", calls),
        "dead_letters": Calls("letters", calls),
        "transactions": TransactionSteps("transactions", calls),
    }
    engine = Engine(
        linear_model.LinearRegression(),
        label="y",
        metric=metrics.MAE(),
        state=StateDirectory(folder),
        checkpoint_seconds=1.0,
        **parts,
    )
    return engine.parts


def test_the_order_of_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(StateDirectory, "mirror", Steps("mirror", calls), raising=False)
    parts = parts_in(tmp_path, calls)
    for name in ("prepare", "promote"):
        own = getattr(StateDirectory, name)

        def noted(state: StateDirectory, what: Any, name: str = name, own: Any = own) -> Any:
            calls.append(name)
            return own(state, what)

        monkeypatch.setattr(StateDirectory, name, noted)
    parts.checkpointer.advance("t:0", 7)
    parts.checkpointer.commit()
    parts.close()
    at = "1 at {'t:0': 7}"
    everyone = ["source", "sink", "transactions", "mirror"]
    assert calls == [
        "source: prepare", "sink: prepare", "sink: flush", "letters: flush", "transactions: prepare", "mirror: prepare",
        "prepare",
        *(f"{name}: commit {at}" for name in everyone),
        "promote",
        *(f"{name}: after commit {at}" for name in everyone),  # what is acknowledged before that can be lost
        "source: close", "sink: close", "letters: close", "transactions: close",
    ]  # fmt: skip


def test_no_commit_while_the_outcome_of_another_is_unknown(tmp_path: Path) -> None:
    calls: list[str] = []
    parts = parts_in(tmp_path, calls)
    assert parts.checkpointer.is_uncertain  # until the brokers report the outcome
    assert not parts.checkpointer.try_to_commit()
    assert calls == []
    parts.close()


def test_a_processor_that_was_restored_continues_with_the_same_bits() -> None:
    def processor() -> RecordProcessor:
        model = preprocessing.StandardScaler() | linear_model.LinearRegression()
        return RecordProcessor(model, label="y", metric=metrics.MAE(), labels=DelayedLabels("id"))

    def lines(of: RecordProcessor, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found = []
        for i, record in enumerate(records, start=1):
            event = Event("t", i, b"", record)
            step = of.process(event)
            if step is not None:
                found.append(of.line(event, step[1], step[2][0]))
                of.judge(*step)
        return found

    features = [{"id": i, "a": i * 7 % 11} for i in range(20)]
    first, second = processor(), processor()
    lines(first, [*features, *({"id": i, "y": i % 5} for i in range(8))])
    second.restore(copy.deepcopy(first.state()) | {"setup": {}})
    rest = [{"id": i, "y": i % 5} for i in range(8, 20)] + [{"id": i, "a": i % 7} for i in range(20, 30)]
    assert lines(second, rest) == lines(first, rest)
    assert (
        second.outcomes
        == first.outcomes
        == {"learned": 20, "predicted": 30, "dead_letter": 0, "pending": 30, "passed_over": 0}
    )


def test_a_source_that_returns_nothing_despite_lag_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "STALLED_SECONDS", -1.0)
    found, idle, stuck = Health(), Calls("idle", []), Calls("stuck", [], lag=3)
    with capture_logs() as logs:
        found.watch(idle, has_come=False)  # type: ignore[arg-type]
        found.watch(stuck, has_come=True)  # type: ignore[arg-type]
        assert (found.incidents["stalled"], logs) == (0, [])
        found.watch(stuck, has_come=False)  # type: ignore[arg-type]
    assert found.incidents["stalled"] == 1
    assert [(log["log_level"], log["lag"]) for log in logs] == [("error", 3)]


def test_an_engine_runs_with_another_runner(tmp_path: Path) -> None:
    class Once:
        """Learns one event, and is closed with the run."""

        def __init__(self, parts: EngineParts) -> None:
            self.parts, self.is_closed = parts, False

        def run(self, stopping: Any, watch: Any) -> None:
            step = self.parts.processor.process(Event("t:0", 1, b"", {"a": 1.0, "y": 2.0}))
            assert step is not None
            self.parts.processor.judge(*step)
            self.parts.checkpointer.advance("t:0", 1)
            watch()

        def close(self) -> None:
            self.is_closed = True

    source: Any = Calls("source", [])
    state = StateDirectory(tmp_path)
    engine = Engine(linear_model.LinearRegression(), source, label="y", metric=metrics.MAE(), state=state, runner=Once)
    seen: list[Engine] = []
    engine.run(watch=seen.append)
    assert seen == [engine, engine]
    assert (engine.outcomes["learned"], engine.snapshot.positions) == (1, {"t:0": 1})
    assert isinstance(engine.runner, Once)
    assert engine.runner.is_closed
    again = Engine(
        linear_model.LinearRegression(), source, label="y", metric=metrics.MAE(), state=StateDirectory(tmp_path)
    )
    assert again.parts.checkpointer.learned_before == 1
    again.close()
