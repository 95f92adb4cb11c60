"""Threads beside the one that learns: an error in one is answered or reported, and nothing waits for a dead thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import pytest
from waiting import wait_for

from streamkernel import KernelRegressor
from streamkernel.connectors import HttpSource
from streamkernel.connectors.http.request_log import Request, RequestLog
from streamkernel.engine.http.predictions import Worker
from streamkernel.upkeep import Pruning, work


def test_a_prediction_that_is_interrupted_is_answered_and_the_next_one_too() -> None:
    def ended() -> int:
        raise SystemExit

    async def ask() -> int:
        worker = Worker()
        with pytest.raises(RuntimeError, match="interrupted by SystemExit"):
            await asyncio.wait_for(worker.run(ended, is_short=False), 60.0)
        return await asyncio.wait_for(worker.run(lambda: 42, is_short=False), 60.0)

    assert asyncio.run(ask()) == 42


def test_events_without_memory_to_store_them_are_refused_and_stored_when_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, request = HttpSource(tmp_path), Request("key", b'[{"a":1}]')
    assert source.poll(0.0) == []
    with monkeypatch.context() as patch:
        patch.setattr(RequestLog, "_write", raise_memory_error)
        with pytest.raises(MemoryError):
            source.submit(request).result(60.0)
    assert not source.submit(request).result(60.0).is_repeated
    assert [event.record for event in source.poll(60.0) or []] == [{"a": 1}]
    source.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_run_ends_if_the_thread_that_stores_requests_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = HttpSource(tmp_path)
    source.poll(0.0)
    monkeypatch.setattr(RequestLog, "append", raise_system_exit)
    source.submit(Request(None, b'[{"a":1}]'))
    with pytest.raises(RuntimeError, match="it has ended"):
        wait_for(lambda: source.poll(0.01))
    source.close()


def test_a_task_that_ends_its_thread_is_reported_and_learning_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(work, "do_task", raise_system_exit)
    model = KernelRegressor(learner="dsg", max_features=64, pruning=Pruning(every=200))
    with caplog.at_level(logging.ERROR):
        for i in range(600):
            model.learn_one({"a": i % 7 / 7}, float(i % 7))
    assert "pruning has failed; the model is unchanged" in caplog.text
    assert abs(model.predict_one({"a": 3 / 7}) - 3.0) < 1.0


def raise_memory_error(*arguments: object) -> None:
    raise MemoryError


def raise_system_exit(*arguments: object) -> None:
    if threading.current_thread() is not threading.main_thread():
        raise SystemExit
