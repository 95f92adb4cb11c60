"""Records that are processed together have the same results as records that are processed one by one."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from river import linear_model, metrics
from states import state_in

from streamkernel import KernelClassifier, KernelRegressor, tensor_file
from streamkernel.connectors import DeadLetters, Event, FileSink, FileSource
from streamkernel.engine import Engine, runner
from streamkernel.engine.checkpoint.state_directory import checkpoints
from streamkernel.engine.runner import RecordBatches, StreamRunner
from streamkernel.estimators.internals import predict_and_learn
from streamkernel.features.dictionaries import FAST

N = 1500


def write_events(path: Path, label: Callable[[dict[str, Any]], Any]) -> None:
    """Write records, some of them invalid in various ways; some fields and labels first occur late."""
    rng = random.Random(3)
    lines = []
    for i in range(N):
        record: dict[str, Any] = {"id": i, "a": rng.gauss(0, 1), "y": None, "b": rng.randrange(9), "note": "text"}
        record["y"] = label(record) if i < 1200 or i % 3 else "green"
        if i > 900:
            record["late"] = rng.random()
        for every, at, field, value in (
            (211, 17, "a", "broken"),
            (223, 50, "a", None),
            (227, 80, "b", 1e120),
            (229, 90, "b", 1e9),
            (233, 5, "note", [1]),
            (239, 7, "id", 1e200),
            (241, 8, "y", None),
            (251, 9, "y", [1]),
        ):
            if i % every == at and (i > 300 or value != 1e9):
                record[field] = value
        lines.append(json.dumps(record) if i % 257 != 31 else '{"id": 3, "a"')
    path.write_text("\n".join(lines) + "\n")


MODELS: dict[str, Callable[[], Any]] = {
    "classifier": lambda: KernelClassifier(learner="dsg", max_features=64),
    "regressor": lambda: KernelRegressor(learner="dsg", max_features=64),
    "newton": lambda: KernelClassifier(max_features=128),
}


def engine(folder: Path, make: Callable[[], Any], at_once: int, **options: Any) -> Engine:
    folder.mkdir(exist_ok=True)
    model = make()
    return Engine(
        model,
        FileSource(folder.parent / "events.jsonl"),
        label="y",
        ignore=["id", "note"],
        metric=metrics.MAE() if isinstance(model, KernelRegressor) else metrics.Accuracy(),
        sink=FileSink(folder / "predictions.jsonl"),
        dead_letters=DeadLetters(FileSink(folder / "dead_letters.jsonl")),
        state=state_in(folder / "state"),
        runner=partial(StreamRunner, at_once=at_once),
        **options,
    )


def left(folder: Path) -> list[Any]:
    """Return the files that a run wrote, and its last checkpoint."""
    description, tensors = tensor_file.read(checkpoints(folder / "state")[-1], "checkpoint")
    files = [(folder / name).read_bytes() for name in ("predictions.jsonl", "dead_letters.jsonl")]
    return [*files, description, {name: tensor.tobytes() for name, tensor in tensors.items()}]


def labels_of(name: str) -> Callable[[dict[str, Any]], Any]:
    if name == "regressor":
        return lambda record: 2.0 * record["a"] + record["b"]
    return lambda record: "red" if record["a"] * record["b"] > 0 else "blue"


@pytest.mark.parametrize(("name", "make"), MODELS.items(), ids=MODELS.keys())
def test_batches_have_the_results_of_single_records(
    tmp_path: Path, name: str, make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_events(tmp_path / "events.jsonl", labels_of(name))
    alone, batches = engine(tmp_path / "alone", make, 1), engine(tmp_path / "together", make, 512)
    together: list[int] = []
    process = RecordBatches.process
    monkeypatch.setattr(RecordBatches, "process", lambda *words: together.append(process(*words)) or together[-1])
    alone.run()
    assert together == []
    batches.run()
    assert left(tmp_path / "together") == left(tmp_path / "alone")
    assert batches.quality() == alone.quality()
    ranges, expected = (one.parts.processor.examples.ranges for one in (batches, alone))
    assert (ranges.limits, ranges.last, ranges.n_outside) == (expected.limits, expected.last, expected.n_outside)
    assert ranges.n_outside > 0
    assert batches.parts.monitor.n_events == alone.parts.monitor.n_events == N
    assert batches.snapshot.events.buckets[-1] == alone.snapshot.events.buckets[-1]
    if FAST is not None:
        assert sum(together) > N // 8
        assert max(together) > 8


@pytest.mark.parametrize("at_once", [3, 512])
def test_a_stopped_run_continues_with_the_next_record(tmp_path: Path, at_once: int) -> None:
    write_events(tmp_path / "events.jsonl", labels_of("classifier"))
    engine(tmp_path / "alone", MODELS["classifier"], 1).run()
    for stop in (1, 300, 7, 40):
        asked = itertools.count(1)
        running = engine(tmp_path / "together", MODELS["classifier"], at_once)
        running.run(stopping=lambda asked=asked, stop=stop: next(asked) > stop)  # type: ignore[misc]
    engine(tmp_path / "together", MODELS["classifier"], at_once).run()
    assert left(tmp_path / "together") == left(tmp_path / "alone")


def test_records_are_processed_one_by_one_beside_a_baseline_and_with_weights(tmp_path: Path) -> None:
    write_events(tmp_path / "events.jsonl", labels_of("regressor"))
    for options in ({"baseline": linear_model.LinearRegression()}, {"weight": "b"}):
        running = engine(tmp_path / "run", MODELS["regressor"], 512, **options)
        assert running.parts.processor.learned_alone is None
        running.close()


@pytest.mark.skipif(FAST is None, reason="no dictionary is read by compiled code")
def test_records_that_take_long_come_in_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(runner, "QUICK_SECONDS", 0.0)
    monkeypatch.setattr(
        runner, "predict_and_learn", lambda *words: sizes.append(len(words[1])) or predict_and_learn(*words)
    )
    write_events(tmp_path / "events.jsonl", labels_of("classifier"))
    engine(tmp_path / "run", MODELS["classifier"], 512).run()
    assert max(sizes) == runner.FEWEST


def test_a_field_that_comes_and_goes_costs_few_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []
    monkeypatch.setattr(runner, "predict_and_learn", lambda *words: attempts.append(1) or predict_and_learn(*words))
    events = [
        Event("memory", i, b"", {"a": i % 7 / 7, **({"b": 0.5} if i % 2 else {}), "y": i % 7 > 3}) for i in range(2000)
    ]

    class Source:
        def __init__(self) -> None:
            self.rest = [events]

        def poll(self, timeout: float) -> list[Event] | None:
            return self.rest.pop() if self.rest else None

        def lag(self) -> dict[tuple[str, str], int]:
            return {}

        def close(self) -> None:
            pass

    running = Engine(KernelClassifier(learner="dsg", max_features=64), Source(), label="y", metric=metrics.Accuracy())
    running.run()
    assert running.outcomes["learned"] == 2000
    assert len(attempts) < 100
