"""A sink that cannot write a prediction says so, and a restart writes it: disks that fail, services that stay away."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from odd_values import VALUES
from river import metrics
from states import state_in
from structlog.testing import capture_logs
from typer.testing import CliRunner

from streamkernel import KernelClassifier
from streamkernel.cli import app
from streamkernel.connectors import DeadLetters, Event, FileSink, GaveUpError, RecordsRefusedError, UnavailableError
from streamkernel.connectors.files.sinks import ParquetSink
from streamkernel.engine import Engine
from streamkernel.engine.delayed_labels import DelayedLabels
from streamkernel.engine.http.applications import json_answer
from streamkernel.engine.telemetry.status import status_of

RUN = """label = "y"
[source]
path = "events.jsonl"
[sink]
predictions = "predictions.jsonl"
[model]
type = "KernelClassifier"
learner = "dsg"
max_features = 8
[state]
directory = "state"
"""


class OneByOne:
    """Records, each with its number as the position."""

    def __init__(self, records: Sequence[dict[str, Any]]) -> None:
        self._events: list[Event] | None = [Event("s", i + 1, b"", record) for i, record in enumerate(records)]

    def seek(self, positions: Mapping[str, Any]) -> None:
        pass

    def poll(self, timeout: float) -> Sequence[Event] | None:
        events, self._events = self._events, None
        return events

    def lag(self) -> Mapping[tuple[str, str], int]:
        return {}

    def close(self) -> None:
        pass


class QuietSource:
    """Some events, and then none for as long as the run goes on, or a crash."""

    def __init__(self, n: int, crash: Exception | None = None) -> None:
        self._n, self._crash, self.polls = n, crash, 0

    def seek(self, positions: Mapping[str, Any]) -> None:
        pass

    def poll(self, timeout: float) -> Sequence[Event]:
        self.polls += 1
        if self.polls == 1:
            return [Event("s", i + 1, b"{}", {"a": i % 7, "y": i % 2}) for i in range(self._n)]
        if self._crash is not None:
            raise self._crash
        return []

    def lag(self) -> Mapping[tuple[str, str], int]:
        return {}

    def close(self) -> None:
        pass


class AwaySink:
    """A sink whose service stays away for longer than the user wants to wait, or refuses a record at the end."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error, self._records = error, list[Mapping[str, Any]]()

    def open(self) -> None:
        pass

    def write(self, record: Mapping[str, Any], key: bytes | None = None) -> None:
        self._records.append(record)

    def flush(self) -> None:
        if self._records and self._error is not None:
            raise self._error

    def close(self) -> None:
        if self._records:
            records, self._records = self._records, []
            raise RecordsRefusedError([(record, None, "never") for record in records])


def engine(folder: Path, source: Any, sink: Any, *, has_state: bool = True, **options: Any) -> Engine:
    return Engine(
        KernelClassifier(learner="dsg", max_features=8), source, label="y", metric=metrics.Accuracy(), sink=sink,
        dead_letters=DeadLetters(FileSink(folder / "dead.jsonl")),
        state=state_in(folder / "state") if has_state else None, checkpoint_seconds=0.0, **options,
    )  # fmt: skip


@pytest.mark.parametrize("field", ["y", "id", "a"])
@pytest.mark.parametrize("name", VALUES)
def test_each_record_with_any_value_is_a_prediction_or_a_dead_letter(tmp_path: Path, field: str, name: str) -> None:
    records = [
        {"a": float(i), "b": 1.0, "y": i % 2, "id": i} | ({field: VALUES[name]} if i == 5 else {}) for i in range(20)
    ]
    labels = DelayedLabels(key="id", max_pending=100, timeout_seconds=1e9)
    found = engine(tmp_path, OneByOne(records), FileSink(tmp_path / "predictions.jsonl"), labels=labels)
    found.run()
    places = []
    for file in ("predictions.jsonl", "dead.jsonl"):
        places += [json.loads(line)["position"] for line in (tmp_path / file).read_bytes().split(b"\n") if line]
    assert sorted(places) == list(range(1, 21))
    assert json.loads(bytes(json_answer(status_of(found)).body))["dead_letters"] is not None
    assert found.outcomes["learned"] >= 19


def test_a_sink_that_gives_up_ends_a_run_that_has_no_more_events(tmp_path: Path) -> None:
    source = QuietSource(3)
    with pytest.raises(GaveUpError, match="too long"):
        engine(tmp_path, source, AwaySink(GaveUpError("too long"))).run(stopping=lambda: source.polls > 20)
    assert source.polls <= 2  # at the first checkpoint


def test_what_a_sink_refuses_at_its_end_becomes_dead_letters_also_after_a_crash(tmp_path: Path) -> None:
    found = engine(tmp_path, QuietSource(3, RuntimeError("crash")), AwaySink(OSError("later")))
    with pytest.raises(RuntimeError, match="crash"):
        found.run()
    letters = [json.loads(line) for line in (tmp_path / "dead.jsonl").read_text().splitlines()]
    assert [(letter["kind"], letter["position"]) for letter in letters] == [("output", i) for i in (1, 2, 3)]


def test_an_error_at_the_end_does_not_hide_the_first_one(tmp_path: Path) -> None:
    sink = AwaySink(OSError("later"))
    sink.close = lambda: sink.flush()  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="crash"), capture_logs() as logs:
        engine(tmp_path, QuietSource(3, RuntimeError("crash")), sink).run()
    assert {"event": "the run also failed to end in order", "log_level": "warning", "reason": "later"} in logs


@pytest.mark.parametrize(
    ("has_state", "outcome"), [(True, "processed again"), (False, "lost, because there is no state")]
)
def test_a_stop_while_a_service_is_away_says_what_becomes_of_predictions(
    tmp_path: Path, outcome: str, *, has_state: bool
) -> None:
    found = engine(tmp_path, QuietSource(3), AwaySink(UnavailableError("away")), has_state=has_state)
    with pytest.raises(UnavailableError, match=f"what was not written is {outcome}"):
        found.run(stopping=lambda: found.source.polls > 0)


def test_a_disk_that_fails_ends_the_run_and_a_restart_writes_each_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "events.jsonl").write_text("".join(f'{{"a": {i % 7}, "y": {i % 2}}}\n' for i in range(40)))
    (tmp_path / "run.toml").write_text(RUN)
    fsync = os.fsync

    def failing(file: int) -> None:
        path = Path(f"/proc/self/fd/{file}").readlink()
        if path.name == "predictions.jsonl" and path.stat().st_size:
            os.truncate(path, 0)  # what the system could not write, it has dropped
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        answer = CliRunner().invoke(app, ["run", str(tmp_path / "run.toml")])
    assert answer.exit_code == 2
    assert "predictions.jsonl: lines after byte 0 may be lost; a restart of the run writes them again" in answer.output
    answer = CliRunner().invoke(app, ["run", str(tmp_path / "run.toml")])
    assert answer.exit_code == 0, answer.output
    lines = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    assert [line["position"][1] for line in lines] == list(range(1, 41))


def test_a_full_disk_costs_no_row_of_a_parquet_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyarrow import parquet

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    sink = ParquetSink(tmp_path)
    sink.write({"n": 1})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"No space left on device: '.*part-000001\.parquet'"):
            sink.flush()
    sink.write({"n": 2})
    assert sink.flush() == 1
    assert parquet.read_table(tmp_path / "part-000001.parquet").to_pylist() == [{"n": 1}, {"n": 2}]
