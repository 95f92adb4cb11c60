"""At-least-once delivery on a real broker: a crash at any step of a commit loses no event."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path

import brokers
import pytest
from river import linear_model, metrics, preprocessing

from streamkernel.connectors import KafkaSource
from streamkernel.engine import Engine
from streamkernel.engine.checkpoint.state_directory import StateDirectory, read_newest

N = 40


class CrashError(BaseException):
    """The process ends without cleanup."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with brokers.noida(tmp_path_factory.mktemp("noida")) as broker:
        yield f"127.0.0.1:{broker.port}"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["prepare", "promote", "acknowledge"])
def test_a_crash_at_any_step_of_a_commit_loses_no_event(
    servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    topic, calls = uuid.uuid4().hex, itertools.count()
    brokers.make_topics(servers, names=[topic])
    brokers.produce(servers, topic, [{"id": i, "y": 1.0} for i in range(N)])
    owner = KafkaSource if step == "acknowledge" else StateDirectory
    original = getattr(owner, step)

    def crashing(*arguments: object) -> object:
        is_now = next(calls) == 3
        if is_now and when == "before":
            raise CrashError
        answer = original(*arguments)
        if is_now:
            raise CrashError
        return answer

    monkeypatch.setattr(owner, step, crashing)

    def run() -> None:
        source = KafkaSource(servers, topic, group=topic, until="latest")
        model = preprocessing.OrdinalEncoder() | linear_model.LinearRegression()  # the encoder keeps the ids
        with StateDirectory(tmp_path) as state:
            try:
                Engine(model, source, label="y", metric=metrics.MAE(), state=state, checkpoint_seconds=0.0).run()
            finally:
                source.close()

    with pytest.raises(CrashError):
        run()
    assert 0 < len(learned(tmp_path)) < N
    run()
    assert learned(tmp_path) == set(range(N))


def learned(state: Path) -> set[int]:
    """Return the ids of the events in the durable model."""
    saved = read_newest(state)
    assert saved is not None
    return set(saved["model"].steps["OrdinalEncoder"].values["id"])
