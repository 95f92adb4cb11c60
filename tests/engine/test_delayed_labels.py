"""Delayed labels equal a plain loop over lists, continue after restarts, and use bounded memory."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from cases import max_examples
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from river import compose, dummy, linear_model, metrics, preprocessing, stats
from states import state_in

from streamkernel import KernelClassifier, KernelRegressor, learners, tensor_file
from streamkernel.connectors import DeadLetters, Event, FileSink, FileSource
from streamkernel.engine import Engine, delayed_labels
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.checkpoint.state_directory import StateDirectory, checkpoints, read_newest
from streamkernel.engine.checkpoint.state_file import pack, unpack
from streamkernel.engine.config.config import ConfigError, load_config
from streamkernel.engine.delayed_labels import DelayedLabels
from streamkernel.engine.pipelines import NO_ANSWER
from streamkernel.engine.telemetry.status import EngineCollector, checkpoint_rows
from streamkernel.engine.telemetry.terminal import View
from streamkernel.errors import JoinError

Record = dict[str, Any]


class Records:
    """A source of records in memory, and a sink that stores the lines."""

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self.events: list[Event] | None = [Event("memory", i + 1, b"", record) for i, record in enumerate(records)]
        self.written: list[Mapping[str, Any]] = []

    def poll(self, timeout: float) -> list[Event] | None:
        events, self.events = self.events, None
        return events

    def lag(self) -> dict[tuple[str, str], int]:
        return {}

    def write(self, record: Mapping[str, Any], key: bytes | None = None) -> None:
        self.written.append(record)

    def open(self) -> None:
        pass

    def flush(self) -> int:
        return len(self.written)

    def seek(self, positions: Any) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


def logistic() -> Any:
    return preprocessing.StandardScaler() | linear_model.LogisticRegression()


def ran(records: Sequence[Record], labels: DelayedLabels, model: Any = None, **options: Any) -> tuple[Engine, Records]:
    """Return an engine that has processed the records, and its sink of predictions and dead letters."""
    sink = Records()
    options = {"metric": metrics.Accuracy(), "label": "y", "sink": sink, "dead_letters": DeadLetters(sink)} | options
    engine = Engine(model or logistic(), Records(records), labels=labels, **options)
    engine.run()
    return engine, sink


def reasons(sink: Records) -> list[str]:
    return [line["reason"] for line in sink.written if "reason" in line]


def predictions(sink: Records) -> list[Mapping[str, Any]]:
    return [line for line in sink.written if "reason" not in line]


def canonical(key: Any) -> str:
    return str(int(key)) if isinstance(key, float) and key.is_integer() else str(key)


class PlainLoop:
    """The expected behaviour of the engine, with lists that are searched from end to end."""

    def __init__(self, max_pending: int, timeout_seconds: float) -> None:
        self.model, self.metric = logistic(), metrics.Accuracy()
        self.max_pending, self.timeout_seconds = max_pending, timeout_seconds
        self.now = -math.inf
        self.event = -math.inf
        self.ahead: list[float] = []  # times of the latest consecutive events that were too far ahead
        self.waiting: list[list[Any]] = []
        self.early: list[list[Any]] = []
        self.done: list[tuple[Any, bool]] = []
        self.events: list[str] = []
        self.predicted: list[Any] = []

    def see(self, record: Record) -> None:
        x = {name: value for name, value in record.items() if name not in ("id", "t", "y")}
        y, key = record.get("y"), canonical(record.get("id"))
        if x and y is not None:
            self.learn(x, y, self.predict(x))
            return
        self.follow(record["t"])
        for entries, outcome in ((self.waiting, "expired"), (self.early, "unmatched")):
            self.expire(entries, outcome)
            for entry in [entry for entry in entries if entry[1] == key and self.is_over(entry[0], self.event)]:
                entries.remove(entry)
                self.give_up(entry, outcome)
        waiting = [entry for entry in self.waiting if entry[1] == key]
        early = [entry for entry in self.early if entry[1] == key]
        if x and waiting:
            self.events.append("repeated")
        elif x:
            prediction = self.predict(x)
            if early:
                self.early.remove(early[0])
                self.join(key, x, early[0][2], prediction)
            else:
                self.events.append("pending")
                self.waiting.append([max(self.now, self.event), key, x, prediction])
                if len(self.waiting) > self.max_pending:
                    self.events.append("evicted")
                    self.remember(self.waiting.pop(0)[1], False)
        elif waiting:
            self.waiting.remove(waiting[0])
            self.join(key, waiting[0][2], y, waiting[0][3])
        elif early or (key, True) in self.done:
            self.events.append("duplicate")
        elif (key, False) in self.done:
            self.events.append("late")
        else:
            self.events.append("early")
            self.early.append([max(self.now, self.event), key, y])
            if len(self.early) > self.max_pending:
                self.events.append("unmatched")
                self.early.pop(0)

    def predict(self, x: Record) -> Any:
        self.events.append("predicted")
        probabilities = self.model.predict_proba_one(x)
        self.predicted.append(max(probabilities, key=probabilities.get, default=None))
        return self.predicted[-1]

    def learn(self, x: Record, y: Any, prediction: Any) -> None:
        self.events.append("learned")
        self.model.learn_one(x, y)
        if prediction is not None:
            self.metric.update(y, prediction)

    def join(self, key: Any, x: Record, y: Any, prediction: Any) -> None:
        self.events.append("joined")
        self.learn(x, y, prediction)
        self.remember(key, True)

    def follow(self, time: float) -> None:
        self.event = time
        self.ahead = [*self.ahead, time] if time > self.now + self.timeout_seconds else []
        if self.now == -math.inf or not self.ahead:
            self.now, self.ahead = max(self.now, time), []
        elif len(self.ahead) == delayed_labels.SET_AHEAD:
            self.now, self.ahead = min(self.ahead), []

    def is_over(self, since: float, time: float) -> bool:
        return max(self.now, time) - since > self.timeout_seconds

    def expire(self, entries: list[list[Any]], outcome: str) -> None:
        while entries:
            since = entries[0][0]
            if since > self.now + self.timeout_seconds and not self.ahead:
                entries.append([self.now, *entries.pop(0)[1:]])
            elif self.is_over(since, self.now):
                self.give_up(entries.pop(0), outcome)
            else:
                return

    def give_up(self, entry: list[Any], outcome: str) -> None:
        self.events.append(outcome)
        if outcome == "expired":
            self.remember(entry[1], False)

    def remember(self, key: Any, joined: bool) -> None:
        self.done = [(other, how) for other, how in self.done if other != key] + [(key, joined)]
        self.done = self.done[-self.max_pending :]


@st.composite
def streams(draw: st.DrawFn) -> list[Record]:
    """Features and labels of a few keys in any order: some twice, some missing, some in one record."""
    now, records = 0.0, []
    for _ in range(draw(st.integers(0, 40))):
        now += draw(st.sampled_from([0.0, 0.0, 0.5, 1.0, 1.0, 4.0, -1.0, -30.0]))
        record: Record = {"id": draw(st.sampled_from([1, 2, 3, 2.0, 0.5, "a", "1", ""])), "t": now}
        kind = draw(st.sampled_from(["features", "label", "features", "label", "both"]))
        if kind != "label":
            record |= {"a": draw(st.integers(-3, 3)) / 2, "b": draw(st.integers(-3, 3))}
        if kind != "features":
            record["y"] = draw(st.booleans())
        records.append(record)
    return records


@max_examples(300)
@given(records=streams(), max_pending=st.integers(1, 5), timeout_seconds=st.sampled_from([0.5, 3.0, 1e9]))
def test_any_order_is_joined_like_the_reference(
    records: list[Record], max_pending: int, timeout_seconds: float
) -> None:
    labels = DelayedLabels("id", max_pending=max_pending, timeout_seconds=timeout_seconds, time="t")
    plain = PlainLoop(max_pending, timeout_seconds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delayed_labels, "SET_AHEAD", 3)
        engine, sink = ran(records, labels)
        for record in records:
            plain.see(record)
    assert engine.labels == {outcome: plain.events.count(outcome) for outcome in engine.labels}
    refused = sum(map(plain.events.count, ("duplicate", "late", "repeated")))
    counts = {outcome: plain.events.count(outcome) for outcome in ("learned", "predicted", "pending")}
    assert engine.outcomes == counts | {"dead_letter": refused, "passed_over": 0}
    assert len(reasons(sink)) == refused
    assert engine.pending_labels == len(plain.waiting)
    assert engine.metric.get() == plain.metric.get()
    assert [line["prediction"] for line in predictions(sink)] == plain.predicted
    x = {"a": 0.3, "b": -1}
    assert engine.model.predict_proba_one(x) == plain.model.predict_proba_one(x)


def delayed(n: int, seed: int = 1) -> list[Record]:
    """Return features of many types, and labels that arrive some records later, earlier, twice or never."""
    rng = random.Random(seed)
    timed: list[tuple[float, Record]] = []
    for i in range(n):
        town = rng.choice(["Ulm", "Köln", "\N{SNOWMAN}"])
        features = {"id": f"k{i}" if i % 3 else i, "a": rng.gauss(0, 1), "b": rng.gauss(0, 1), "n": i % 4, "town": town}
        y = rng.random() < 0.5 if i % 5 == 0 else features["a"] > features["b"]
        timed.append((float(i), features | ({"odd": True} if i % 7 == 0 else {})))
        label = {"id": features["id"], "y": y}
        delays = {0: [], 1: [-4.5], 2: [3.3, 20.0]}.get(i % 11, [rng.uniform(0.1, 30.0)])
        timed += [(i + delay, label) for delay in delays]
    timed.sort(key=lambda pair: pair[0])
    return [record | {"t": 1.7e9 + at} for at, record in timed]


def engine_in(folder: Path, model: Any, **options: Any) -> Engine:
    folder.mkdir(exist_ok=True)
    return Engine(
        model,
        FileSource(folder.parent / "events.jsonl"),
        label="y",
        metric=metrics.LogLoss(),
        sink=FileSink(folder / "predictions.jsonl"),
        dead_letters=DeadLetters(FileSink(folder / "dead_letters.jsonl")),
        baseline=compose.SelectType(float, int) | logistic(),
        labels=DelayedLabels("id", max_pending=12, timeout_seconds=14.0, time="t"),
        state=state_in(folder / "state"),
        **options,
    )


def light() -> Any:
    return (compose.SelectType(float, int) + (compose.SelectType(str) | preprocessing.OneHotEncoder())) | logistic()


def kept(folder: Path) -> tuple[Any, ...]:
    """Return the output and the state of a run."""
    description, tensors = tensor_file.read(checkpoints(folder / "state")[-1], "checkpoint")
    files = [(folder / name).read_bytes() for name in ("predictions.jsonl", "dead_letters.jsonl")]
    return description, {name: tensor.tobytes() for name, tensor in tensors.items()}, files


def asked(*calls: Callable[[], Any]) -> Callable[[], bool]:
    """Return a stop condition that makes the next call each time, and is true after the last one."""
    order = iter(calls)
    return lambda: bool(next(order, lambda: True)())


class CrashError(Exception):
    """The process ends without cleanup."""


def crash() -> bool:
    raise CrashError


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """The folder of a run that was not stopped, and its number of events."""
    folder = tmp_path_factory.mktemp("whole")
    records = delayed(45)
    (folder / "events.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    engine = engine_in(folder / "whole", light())
    engine.run()
    assert [outcome for outcome, count in engine.labels.items() if not count] == ["repeated"]
    assert engine.baseline is not None
    return folder, len(records)


def test_a_run_that_is_stopped_after_every_event_continues_with_the_same_bits(whole: tuple[Path, int]) -> None:
    folder, n = whole
    for _ in range(n + 1):
        engine_in(folder / "stopped", light()).run(stopping=asked(bool))
    engine_in(folder / "stopped", light()).run()
    assert kept(folder / "stopped") == kept(folder / "whole")


def test_a_crash_at_any_event_changes_no_result(whole: tuple[Path, int]) -> None:
    folder, n = whole
    for at in range(1, n, 2):
        name = f"crashed-{at}"
        engine = engine_in(folder / name, light())

        calls: list[Callable[[], Any]] = [bool] * at
        calls[at // 2] = engine.commit
        with pytest.raises(CrashError):
            engine.run(stopping=asked(*calls, crash))
        engine_in(folder / name, light()).run()
        assert kept(folder / name) == kept(folder / "whole")


def test_a_kernel_model_continues_with_the_same_bits(tmp_path: Path) -> None:
    records = delayed(300, seed=4)
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    engine_in(
        tmp_path / "whole", KernelClassifier(learner=learners.Newton(features_per_seed=16), max_features=64)
    ).run()
    for events in (40, 290, 10**6):
        model = KernelClassifier(learner=learners.Newton(features_per_seed=16), max_features=64)
        engine_in(tmp_path / "parts", model).run(stopping=asked(*[bool] * events))
    assert kept(tmp_path / "parts") == kept(tmp_path / "whole")


def test_quality_is_that_of_the_original_predictions() -> None:
    """The first ten predictions come from an untrained model, though it has learned all labels when they are scored."""
    n, rng = 10, random.Random(0)
    xs = [{"a": rng.gauss(0, 1)} for _ in range(n)]
    features: list[Record] = [{"id": i} | x for i, x in enumerate(xs)]
    answers: list[Record] = [{"id": i, "y": 5.0 + x["a"]} for i, x in enumerate(xs)]
    options: dict[str, Any] = {"metric": metrics.MAE(), "baseline": dummy.StatisticRegressor(stats.Mean())}
    engine, _ = ran(features + answers, DelayedLabels("id"), linear_model.LinearRegression(), **options)
    wanted = sum(abs(answer["y"]) for answer in answers) / n
    assert list(engine.quality().values()) == pytest.approx([wanted, wanted])
    together = [a | b for a, b in zip(features, answers, strict=True)]
    engine, _ = ran(together, DelayedLabels("id"), linear_model.LinearRegression(), **options)
    assert engine.quality()["MAE"] < 0.97 * wanted
    assert engine.quality()["MAE (baseline)"] < 0.2 * wanted


def test_metrics_of_probabilities() -> None:
    rng = random.Random(2)
    records: list[Record] = []
    for i in range(400):
        a = rng.gauss(0, 1)
        records += [{"id": i, "a": a}, {"id": i, "y": a > 0}]
    engine, _ = ran(records, DelayedLabels("id"), metric=metrics.ROCAUC(), sink=None)
    assert engine.metric.get() > 0.9


def test_the_prediction_is_written_when_it_is_made() -> None:
    records = [
        {"id": "p", "a": 1.5},
        {"id": "q", "y": True},
        {"id": "q", "a": -1.0},
        {"id": "p", "y": False},
        {"id": "r", "a": 0.5, "y": True},
        {"a": 0.5, "y": None, "id": "s"},
        {"a": 0.5, "y": True},
    ]
    _, sink = ran(records, DelayedLabels("id"))
    found = [(line["position"], line["key"], line["label"], line["prediction"]) for line in sink.written]
    assert [line[:3] for line in found] == [
        (1, "p", None),
        (3, "q", True),
        (5, "r", True),
        (6, "s", None),
        (7, None, True),
    ]
    assert found[0][3] is False  # an untrained logistic regression predicts its default
    assert all(set(line["probabilities"]) == {False, True} for line in sink.written)


BAD: dict[str, tuple[Record, str]] = {
    "no key": ({"a": 1}, 'Expected a string or a number as key, got no such field - at field "id"'),
    "null": ({"id": None, "a": 1}, 'Expected a string or a number as key, got null - at field "id"'),
    "a label without a key": ({"y": 1}, 'Expected a string or a number as key, got no such field - at field "id"'),
    "a list": ({"id": [1], "a": 1}, 'Expected a string or a number as key, got [1] - at field "id"'),
    "a table": ({"id": {"a": 1}, "y": 1}, "Expected a string or a number as key, got {'a': 1} - at field \"id\""),
    "NaN": ({"id": math.nan, "a": 1}, 'Expected a string or a number as key, got nan - at field "id"'),
    "a float that has lost digits": (
        {"id": float((1 << 53) + 1), "a": 1},
        "Expected a key with all its digits, got the float 9007199254740992.0, which may have lost some - "
        'at field "id"',
    ),
    "a bool": ({"id": True, "y": 1}, 'Expected a string or a number as key, got True - at field "id"'),
    "a long text": (
        {"id": "k" * 5000, "a": 1},
        'Expected a key of at most 1,000 characters, got 5,000 - at field "id"',
    ),
    "a large integer": (
        {"id": 1 << 64, "y": 1},
        'Expected an integer of 64 bits as key, got 18446744073709551616 - at field "id"',
    ),
    "the key only": (
        {"id": 3},
        'Expected features or a label besides the key, got neither: the other fields are no inputs: "t", "id"',
    ),
    "missing features": (
        {"id": 3, "y": None, "a": None, "b": float("nan")},
        'Expected features or a label besides the key, got neither: no value in "a", "b"',
    ),
    "no time": ({"id": 3, "a": 1, "t": None}, 'Expected a time in seconds or ISO 8601, got null - at field "t"'),
    "no date": ({"id": 3, "a": 1, "t": "noon"}, "Expected a time in seconds or ISO 8601, got 'noon' - at field \"t\""),
    "a bool as time": ({"id": 3, "y": 1, "t": True}, 'Expected a time in seconds or ISO 8601, got True - at field "t"'),
    "milliseconds": (
        {"id": 3, "a": 1, "t": 1_700_000_000_000},
        "Expected a time in seconds or ISO 8601, got 1700000000000, which looks like milliseconds; set "
        'delayed_labels.time_unit = "ms" - at field "t"',
    ),
    "nanoseconds as text": (
        {"id": 3, "y": 1, "t": "1700000000000000000"},
        "Expected a time in seconds or ISO 8601, got '1700000000000000000', which looks like nanoseconds; set "
        'delayed_labels.time_unit = "ns" - at field "t"',
    ),
    "a far time": ({"id": 3, "y": 1, "t": 1e90}, 'Expected a time in seconds or ISO 8601, got 1e+90 - at field "t"'),
}


@pytest.mark.parametrize(("record", "reason"), BAD.values(), ids=BAD.keys())
def test_invalid_keys_and_times(record: Record, reason: str) -> None:
    labels = DelayedLabels("id", time="t")
    engine, sink = ran([{"t": 5.0} | record], labels)
    assert reasons(sink) == [reason]
    assert engine.outcomes == {"learned": 0, "predicted": 0, "dead_letter": 1, "pending": 0, "passed_over": 0}
    assert (engine.pending_labels, set(engine.labels.values())) == (0, {0})


@pytest.mark.parametrize("number", ["int", "text", "float"])
@pytest.mark.parametrize("other", ["int", "text", "float"])
def test_keys_with_one_text_are_joined(tmp_path: Path, number: str, other: str) -> None:
    """One producer writes numbers, another one text; a column of pandas with a gap has floats."""
    forms: dict[str, Callable[[int], Any]] = {"int": int, "text": str, "float": float}
    records: list[Record] = []
    for i in range(40):
        records.append({"id": forms[number](i), "t": 1.7e9 + i, "a": i % 7})
        if i >= 5:
            records.append({"id": forms[other](i - 5), "t": 1.7e9 + i, "y": i % 2})
    engine = run_file(tmp_path, records)
    assert engine.labels == dict.fromkeys(engine.labels, 0) | {"joined": 35}


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 1000), ("us", 10**6), ("ns", 10**9)])
def test_times_have_a_unit(tmp_path: Path, unit: str, per_second: int) -> None:
    records: list[Record] = []
    for i in range(40):
        records.append({"id": i, "t": (1_700_000_000 + i) * per_second, "a": i % 7})
        if i >= 10:
            late = 20 if i == 39 else 0  # the limit is 25 seconds
            records.append({"id": i - 10, "t": (1_700_000_000 + i + late) * per_second, "y": i % 2})
    engine = run_file(tmp_path, records, f'time_unit = "{unit}"\n')
    assert engine.labels == dict.fromkeys(engine.labels, 0) | {"joined": 29, "late": 1, "expired": 5}
    engine = run_file(tmp_path / "missing", [{"id": 1, "a": 2}], f'time_unit = "{unit}"\n')
    (letter,) = engine.last_dead_letters
    assert letter["reason"].endswith('seconds or ISO 8601, got no such field - at field "t"')
    engine = run_file(tmp_path / "other", records)
    assert engine.outcomes["learned"] == (29 if unit == "s" else 0)
    assert engine.refused["join"] == (1 if unit == "s" else len(records))


def test_duplicates_are_reported() -> None:
    records = [
        {"id": 7, "a": 1.0},
        {"id": 7, "a": 2.0},
        {"id": 7, "y": True},
        {"id": 7, "y": True},
        {"id": "7", "y": 1},
    ]
    engine, sink = ran(records, DelayedLabels("id"))
    assert reasons(sink) == [
        "Expected one record of features for a key that waits for its label, got two - at key '7', the first in "
        "memory at 1",
        *["Expected one label for a key, got another one - at key '7'"] * 2,
    ]
    assert engine.labels["duplicate"] == 2  # "7" and 7 are one key


def test_a_key_may_come_again_once_its_label_was_learned() -> None:
    records = [{"id": 7, "a": 1.0}, {"id": 7, "y": True}] * 5
    engine, sink = ran(records, DelayedLabels("id"))
    assert (engine.outcomes["learned"], engine.labels["joined"], reasons(sink)) == (5, 5, [])


def test_an_invalid_label_leaves_the_features_pending() -> None:
    records = [{"id": 7, "a": 1.0}, {"id": 7, "y": "much"}, {"id": 7, "y": 2.5}]
    engine, sink = ran(records, DelayedLabels("id"), KernelRegressor(), metric=metrics.MAE())
    assert reasons(sink) == ["Expected a number as label, got the string 'much' - at field \"y\""]
    assert engine.outcomes == {"learned": 1, "predicted": 1, "dead_letter": 1, "pending": 1, "passed_over": 0}


def test_a_string_in_a_field_learned_as_a_number_since() -> None:
    numbers = [{"id": i, "a": 1.0, "y": True} for i in range(2, 42)]
    records = [{"id": 1, "a": "one"}, *numbers, {"id": 1, "y": True}]
    engine, sink = ran(records, DelayedLabels("id"), KernelClassifier())
    (reason,) = reasons(sink)
    assert reason.startswith("Expected a number as before, got the string 'one' - at field \"a\"")
    assert engine.outcomes["learned"] == 40


def test_pending_entries_are_bounded() -> None:
    features: list[Record] = [{"id": i, "a": i / 7} for i in range(5000)]
    answers: list[Record] = [{"id": i, "y": i % 2 == 0} for i in range(7000)]
    labels = DelayedLabels("id", max_pending=100)
    engine, sink = ran(features + answers, labels)
    assert engine.labels == {
        "joined": 100,
        "early": 6800,
        "duplicate": 0,
        "late": 100,
        "unmatched": 6700,
        "expired": 0,
        "evicted": 4900,
        "repeated": 0,
    }
    sizes = [len(unpack(labels.state()[name])) for name in ("waiting", "early", "done")]
    assert sizes == [0, 100, 100]
    assert len(reasons(sink)) == 100


def test_the_time_limit_is_one_of_event_time() -> None:
    times = ["2024-02-29T12:00:00Z", "2024-02-29T12:00:30+00:01", "2024-02-29T12:00:31"]
    records: list[Record] = [{"id": i, "a": 1.0, "t": t} for i, t in enumerate(times)]
    records.append({"id": 0, "y": True, "t": "2024-02-29T12:01:00.000"})
    records.append({"id": 1, "y": True, "t": "2024-02-29 13:01:00.5+01:00"})
    engine, sink = ran([*records, {"id": 2, "y": False}], DelayedLabels("id", time="t", timeout_seconds=60))
    assert engine.labels["joined"] == 2
    assert reasons(sink) == ["Expected a label for pending features, got one after they expired - at key '1'"]


NOTHING = (NO_ANSWER, NO_ANSWER)


def test_the_duration_of_a_stop_does_not_count() -> None:
    """A clock that is wrong after one of two starts does not count either."""
    shown = [1e9]

    def started(state: Mapping[str, Any] | None = None) -> DelayedLabels:
        labels = DelayedLabels("id", timeout_seconds=100, clock=lambda: shown[-1])
        if state is not None:
            labels.restore(state)
        return labels

    def after(labels: DelayedLabels, seconds: float) -> tuple[int, int]:
        shown.append(shown[-1] + seconds)
        labels.arrive({"id": 0})
        return len(labels), labels.counts["expired"]

    labels = started()
    labels.wait(labels.arrive({"id": 1}), {"a": 1}, NOTHING, "here")
    assert after(labels, 60) == (1, 0)
    for start in (2e9, 5.0):
        shown.append(start)
        labels = started(labels.state())
        assert after(labels, 0) == (1, 0)
    assert after(labels, 39) == (1, 0)
    assert after(labels, 2) == (0, 1)


JUMP = """
import time
real, jump = time.time, [0.0]
time.time = lambda: real() + jump[0]
from streamkernel.engine.delayed_labels import DelayedLabels
from streamkernel.engine.pipelines import NO_ANSWER
labels = DelayedLabels("id", timeout_seconds=3600)
for key, jump[0] in enumerate([0.0, 1e7, -1e7, 1e9]):
    labels.wait(labels.arrive({"id": key}), {"a": 1}, (NO_ANSWER, NO_ANSWER), "here")
print(len(labels), labels.counts["expired"])
"""


def test_a_wall_clock_that_jumps_expires_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", JUMP], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["4", "0"]


def test_times_set_back_expire_nothing_immediately_and_keep_nothing_without_end() -> None:
    labels, now = DelayedLabels("id", timeout_seconds=100, time="t"), 1e9

    def wait(key: int) -> None:
        nonlocal labels
        if key % 300 == 299:  # a restart changes nothing
            state = labels.state()
            labels = DelayedLabels("id", timeout_seconds=100, time="t")
            labels.restore(state)
        labels.wait(labels.arrive({"id": key, "t": now}), {"a": 1}, NOTHING, "here")

    wait(-1)
    now += 50
    wait(-2)
    now -= 1e6
    for i in range(delayed_labels.SET_BACK):
        assert len(labels) == 2 + i
        wait(i)
    now += 51
    labels.arrive({"id": 0, "t": now})
    assert (len(labels), labels.counts["expired"]) == (delayed_labels.SET_BACK + 1, 1)
    now += 50
    labels.arrive({"id": 0, "t": now})
    assert (len(labels), labels.counts["expired"]) == (0, delayed_labels.SET_BACK + 2)


def test_occasional_wrong_times_expire_nothing() -> None:
    """A device whose clock is years ahead expires no entry of others, and its own records are joined too."""
    labels = DelayedLabels("id", timeout_seconds=3600, time="t")
    wrong = {i for i in range(2000) if i % 10 == 3}
    for i in range(2000):
        record = {"id": i, "t": 1.7e9 + i + (1e9 if i in wrong else 0.0)}
        labels.wait(labels.arrive(record), {"a": 1}, NOTHING, "here")
    for i in range(2000):
        key = labels.arrive({"id": i, "t": 1.7e9 + 2000 + i + (1e9 if i in wrong else 0.0)}, is_label=True)
        assert labels.waiting_for(key, True) is not None
        labels.discard(key)
    assert labels.counts == dict.fromkeys(labels.counts, 0) | {"joined": 2000}


def test_entries_pending_over_a_gap_in_the_stream() -> None:
    """By its own time the first label after the gap is too late; other entries expire once the clock has advanced."""
    labels = DelayedLabels("id", timeout_seconds=60, time="t")
    for i in range(50):
        labels.wait(labels.arrive({"id": i, "t": 0.0}), {"a": 1}, NOTHING, "here")
    with pytest.raises(JoinError, match="one after they expired - at key '7'"):
        labels.waiting_for(labels.arrive({"id": 7, "t": 9000.0}, is_label=True), True)
    for i in range(50, 149):
        assert len(labels) == i - 1
        labels.wait(labels.arrive({"id": i, "t": 9000.0}), {"a": 1}, NOTHING, "here")
    assert labels.waiting_for(labels.arrive({"id": 60, "t": 9030.0}, is_label=True), True) is not None
    assert (len(labels), labels.counts["expired"]) == (99, 50)


def test_a_time_out_of_order_expires_nothing() -> None:
    records: list[Record] = [{"id": 0, "a": 1.0, "t": 1000.0}]
    records += [{"id": i, "a": 1.0, "t": 0.0 if i % 2 else 1000.0} for i in range(1, 3000)]
    engine, _ = ran(records, DelayedLabels("id", time="t", timeout_seconds=10.0))
    assert engine.pending_labels == 3000
    later = [{"id": 0, "y": True, "t": 1010.5}] * delayed_labels.SET_AHEAD
    engine, _ = ran([*records, *later], DelayedLabels("id", time="t", timeout_seconds=10.0))
    assert engine.labels["expired"] == 3000


def test_a_saved_state_is_not_changed_by_later_events() -> None:
    labels = DelayedLabels("id", time="t", max_pending=12, timeout_seconds=14.0)
    records = delayed(60)
    ran(records[:50], labels)
    state = labels.state()
    before = repr(state)
    for _ in range(2):
        ran(records[50:], labels)
        assert repr(labels.state()) != before
        assert repr(state) == before
        labels.restore(state)
        assert repr(labels.state()) == before


def test_time_and_key_are_not_features() -> None:
    seen: list[Record] = []

    class Watched(linear_model.LogisticRegression):  # type: ignore[misc]
        def learn_one(self, x: Record, y: Any) -> None:
            seen.append(x)
            super().learn_one(x, y)

    records = [{"id": 1, "t": 5, "a": 2.0}, {"id": 1, "t": 9, "y": True}, {"id": 2, "t": 9, "a": 3.0, "y": False}]
    ran(records, DelayedLabels("id", time="t"), Watched())
    assert seen == [{"a": 2.0}, {"a": 3.0}]


def test_numpy_numbers_become_python_numbers() -> None:
    labels = DelayedLabels("id")
    ours = (np.float32(0.1), {True: np.float64(0.25)})
    labels.wait(1, {"a": 1}, (ours, (np.int64(3), None)), "here")
    twin = DelayedLabels("id")
    twin.restore(labels.state())
    waiting = twin.waiting_for(1, True)
    assert waiting is not None
    assert waiting.answers == ((float(np.float32(0.1)), {True: 0.25}), (3, None))
    assert [type(prediction) for prediction, _ in waiting.answers] == [float, int]
    assert repr(twin.state()) == repr(labels.state())


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None))
tables = st.dictionaries(st.text() | st.integers(0, 1) | st.booleans(), values)


def rows_of(width: int) -> st.SearchStrategy[tuple[int, list[list[Any]]]]:
    return st.tuples(st.just(width), st.lists(st.lists(values | tables, min_size=width, max_size=width)))


@given(st.integers(1, 4).flatmap(rows_of))
def test_rows_are_packed_exactly(case: tuple[int, list[list[Any]]]) -> None:
    width, rows = case
    assert repr(unpack(pack(rows, width))) == repr(list(map(tuple, rows)))


def test_inconsistent_packed_rows_are_rejected() -> None:
    packed = pack([(1, {"a": 2.0})], 2)
    for part, wrong in (("items", packed["values"]), ("values", packed["items"]), ("width", 3)):
        with pytest.raises(ValueError, match=r"Expected rows that were packed here|zip\(\)"):
            unpack(packed | {part: wrong})


def test_arrays_of_a_checkpoint_are_tensors(tmp_path: Path) -> None:
    state = {"a": np.array([1.5, math.nan]), "b": np.zeros(0), "c": np.arange(5, dtype=np.uint8), "d": np.eye(2)}
    with StateDirectory(tmp_path) as directory:
        directory.write({"twice": [state, state]})
        found = (directory.read_newest() or {})["twice"]
    assert found[0] is found[1]
    for name, array in state.items():
        assert found[0][name].dtype == array.dtype
        np.testing.assert_array_equal(found[0][name], array)
        found[0][name][:] = 1  # the array is writable, not a view of the file


CONFIG = """
label = "y"
[source]
path = "events.jsonl"
[model]
type = "KernelClassifier"
max_features = 64
[delayed_labels]
key = "id"
time = "t"
timeout_seconds = 25
[sink]
predictions = "predictions.jsonl"
[state]
directory = "state"
"""


def run_file(folder: Path, records: Sequence[Record], more: str = "") -> Engine:
    """Run a configuration on a file of records."""
    folder.mkdir(exist_ok=True)
    (folder / "events.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "config.toml").write_text(CONFIG.replace("[sink]", f"{more}[sink]"))
    engine = engine_of(load_config(folder / "config.toml"))
    engine.run()
    return engine


def test_the_configuration(tmp_path: Path) -> None:
    records = [*delayed(60), {"id": "last", "a": 1.0, "t": 1.7e9 + 80}]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "config.toml").write_text(CONFIG)
    config = load_config(tmp_path / "config.toml")
    config.check()
    engine = engine_of(config)
    engine.run()
    keys = [orjson.loads(line)["key"] for line in (tmp_path / "predictions.jsonl").read_bytes().splitlines()]
    assert keys == [record["id"] for record in records if "a" in record]
    saved = read_newest(tmp_path / "state")
    assert saved is not None
    assert ("labels joined", str(engine.labels["joined"])) in checkpoint_rows(saved)
    registry = CollectorRegistry()
    registry.register(EngineCollector(engine))
    for outcome, count in engine.labels.items():
        assert registry.get_sample_value("streamkernel_labels_total", {"outcome": outcome}) == count
    assert registry.get_sample_value("streamkernel_pending_labels") == engine.pending_labels > 0
    assert ("pending labels", str(engine.pending_labels)) in View(engine, "").rows()
    setup = config.setup()
    for old, new in (('key = "id"', 'key = "a"'), ('time = "t"', "")):
        (tmp_path / "config.toml").write_text(CONFIG.replace(old, new))
        assert load_config(tmp_path / "config.toml").setup() != setup


@pytest.mark.parametrize(
    ("table", "problems"),
    [
        ("", ["delayed_labels.key: required; expected the name of the field that features and their label have in "
              "common, got nothing"]),
        ('key = "y"\ntime = "y"', [
            'delayed_labels.key: expected a field other than the label, got "y"',
            'delayed_labels.time: expected a field other than the label, got "y"',
        ]),
        ('key = "id"\ntime_unit = "ms"', [
            "delayed_labels.time_unit: only goes with time, the field that has this unit"
        ]),
        ('key = "id"\ntime = "t"\ntime_unit = "min"', [
            'delayed_labels.time_unit: expected "s", "ms", "us" or "ns", got "min"'
        ]),
        ('key = 3\nmax_pending = 0\ntimeout_seconds = "1 day"\nkeys = 1', [
            "delayed_labels.key: expected the name of the field that features and their label have in common, got 3",
            "delayed_labels.max_pending: expected an integer from 1 to 10,000,000, got 0",
            'delayed_labels.timeout_seconds: expected a number of seconds above 0, got "1 day"',
            'delayed_labels.keys: unknown key; did you mean "key"?',
        ]),
    ],
)  # fmt: skip
def test_invalid_configurations(tmp_path: Path, table: str, problems: list[str]) -> None:
    text = CONFIG[: CONFIG.index("[delayed_labels]")] + "[delayed_labels]\n" + table
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(ConfigError) as error:
        load_config(tmp_path / "config.toml")
    assert sorted(error.value.problems) == sorted(problems)
    (tmp_path / "config.toml").write_text(
        text.replace("[delayed_labels]", "delayed_labels = 3\n[x]").replace(table, "")
    )
    with pytest.raises(ConfigError):
        load_config(tmp_path / "config.toml")
