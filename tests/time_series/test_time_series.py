"""Lags, last targets and calendars: against plain lists, in pipelines, files and runs with delayed labels."""

from __future__ import annotations

import copy
import datetime as dt
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from river import base, compose, linear_model, preprocessing
from river.checks import yield_checks

import streamkernel
from streamkernel import Calendar, InputError, KernelRegressor, Lags, LastTarget
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import load_config
from streamkernel.engine.config.messages import ConfigError
from streamkernel.time_series import with_history

N = 60
XS = [{"shop": "ab"[i % 3 > 0], "heat": i * 1.5} for i in range(N)]
YS = [math.sin(i) for i in range(N)]


class Recorder(base.Regressor):
    """Records its examples."""

    def __init__(self) -> None:
        self.learned: list[Any] = []

    def learn_one(self, x, y):
        self.learned.append((x, y))

    def predict_one(self, x):
        return 0.0


@pytest.mark.parametrize("key", [None, "shop"])
@pytest.mark.parametrize("n_lags", [1, 3])
def test_learning_and_predicting_use_the_same_earlier_values(key: str | None, n_lags: int) -> None:
    model = Lags(["heat"], n_lags, key) | LastTarget(n_lags, key) | Recorder()
    for i, (x, y) in enumerate(zip(XS, YS, strict=True)):
        before = [j for j in reversed(range(i)) if key is None or XS[j]["shop"] == x["shop"]][:n_lags]
        expected = x | {f"heat_lag_{lag}": XS[j]["heat"] for lag, j in enumerate(before, 1)}
        expected |= {f"target_lag_{lag}": YS[j] for lag, j in enumerate(before, 1)}
        assert model.transform_one(x) == expected
        model.learn_one(x, y)
        assert model["Recorder"].learned[-1] == (expected, y)


@pytest.mark.parametrize("delay", [1, 5])
def test_late_targets_are_learned_with_the_inputs_of_the_prediction(delay: int) -> None:
    model = LastTarget() | Lags(["heat"]) | Recorder()
    waiting = []
    for i, (x, y) in enumerate(zip(XS, YS, strict=True)):
        found = with_history(model, x)
        expected = {
            **x,
            "target_lag_1": YS[i - delay] if i >= delay else None,
            "heat_lag_1": XS[i - 1]["heat"] if i else None,
        }
        assert found == expected
        waiting.append((found, y))
        if len(waiting) == delay:
            seen, late = waiting.pop(0)
            model.learn_one(seen, late)
            assert model["Recorder"].learned[-1] == ({k: v for k, v in seen.items() if v is not None}, late)


def test_labels_are_strings_and_numbers_are_numbers() -> None:
    for y, options, expected in (
        ("spam", {}, "spam"), (True, {}, "True"), (3, {}, 3), (3, {"as_category": True}, "3"), (0.5, {}, 0.5)
    ):  # fmt: skip
        last = LastTarget(**options)
        last.learn_one({}, None)
        last.learn_one({}, y)
        assert last.transform_one({}) == {"target_lag_1": expected}


def test_the_oldest_keys_beyond_the_limit_are_dropped() -> None:
    last = LastTarget(key="id", max_keys=3)
    for i in (1, 2, 3, 1, 4):
        last.learn_one({"id": i}, float(i))
    assert [bool(last.transform_one({"id": i}).get("target_lag_1")) for i in (1, 2, 3, 4)] == [True, False, True, True]


@pytest.mark.parametrize(
    "steps",
    [
        lambda: LastTarget(2, key="shop") | KernelRegressor(max_features=64),
        lambda: (
            Lags(["heat"], 2)
            | compose.Discard("shop")
            | preprocessing.StandardScaler()
            | linear_model.LinearRegression()
        ),
    ],
)
@pytest.mark.parametrize("way", ["file", "deepcopy"])
def test_copies_continue_identically(steps, way: str, tmp_path: Path) -> None:
    model = steps()
    for x, y in zip(XS[:40], YS[:40], strict=True):
        model.learn_one(x, y)
    if way == "file":
        streamkernel.save(model, tmp_path / "model")
        twin = streamkernel.load(tmp_path / "model")
    else:
        twin = copy.deepcopy(model)
    for x, y in zip(XS[40:], YS[40:], strict=True):
        assert model.predict_one(x) == twin.predict_one(x)
        model.learn_one(x, y)
        twin.learn_one(x, y)


@pytest.mark.parametrize(
    ("model", "check"),
    [
        pytest.param(model, check, id=f"{type(model).__name__}-{check.__name__}")
        for model in (LastTarget(), Lags(["a"], 2), Calendar("at"))
        for check in yield_checks(model)
    ],
)
def test_river_check(model, check) -> None:
    check(model.clone())


def test_cyclic_calendar_features() -> None:
    calendar = Calendar("at", ["hour", "weekday", "day", "month"])
    for hours in range(0, 24 * 370, 7):
        moment = dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=hours)
        found = calendar.transform_one({"at": moment, "a": 1})
        assert found == calendar.transform_one({"at": moment.isoformat(), "a": 1})
        assert found == calendar.transform_one({"at": moment.timestamp(), "a": 1})
        assert found.pop("a") == 1
        week = (moment - dt.datetime(2024, 1, 1, tzinfo=dt.UTC)) / dt.timedelta(days=7)  # a Monday
        assert found["at_weekday_sin"] == pytest.approx(math.sin(2 * math.pi * week), abs=1e-6)
        assert found["at_hour_cos"] == pytest.approx(math.cos(2 * math.pi * moment.hour / 24), abs=1e-9)
        for part in ("hour", "weekday", "day", "month"):
            assert found[f"at_{part}_sin"] ** 2 + found[f"at_{part}_cos"] ** 2 == pytest.approx(1.0)
    categories = Calendar("at", ["hour", "weekday", "month"], "category")
    assert categories.transform_one({"at": "2026-11-24T06:30:00"}) == {
        "at_hour": "6",
        "at_weekday": "Tuesday",
        "at_month": "11",
    }
    assert calendar.transform_one({"a": 1}) == {"a": 1}


@pytest.mark.parametrize("bad", ["yesterday", True, [1], 1e300])
def test_invalid_times_are_rejected(bad) -> None:
    with pytest.raises(InputError, match=r"Expected a time in seconds or ISO 8601, got .* - at x\['at'\]"):
        Calendar("at").transform_one({"at": bad})


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 1000), ("us", 10**6), ("ns", 10**9)])
def test_numbers_have_a_unit(unit: str, per_second: int) -> None:
    seconds = dt.datetime(2026, 11, 24, 6, tzinfo=dt.UTC).timestamp()
    calendar = Calendar("at", ["hour"], "category", unit)  # type: ignore[arg-type]
    for number in (int(seconds * per_second), np.int64(seconds * per_second), str(int(seconds) * per_second)):
        assert calendar.transform_one({"at": number}) == {"at_hour": "6"}
    if unit != "s":
        with pytest.raises(InputError, match=rf'seconds; set unit="{unit}" - at x\[\'at\'\]'):
            Calendar("at").transform_one({"at": seconds * per_second})


@pytest.mark.parametrize("missing", [None, math.nan, np.float32("nan"), pd.NaT, pd.NA, np.datetime64("NaT")])
def test_a_missing_time_has_no_parts(missing: Any) -> None:
    assert Calendar("at").transform_one({"at": missing, "b": 1}) == {"b": 1}


def test_an_offset_is_local_time() -> None:
    calendar = Calendar("at", ["hour"], "category")
    for text in ("2026-11-24T06:00", "2026-11-24T06:00+02:00", "2026-11-24 06:00Z", "20261124T06"):
        assert calendar.transform_one({"at": text}) == {"at_hour": "6"}


@pytest.mark.parametrize("make", [
    lambda: Lags([]), lambda: Lags("heat"), lambda: Lags(["a"], 0), lambda: LastTarget(True),
    lambda: LastTarget(max_keys=0),
    lambda: Calendar("at", ["century"]), lambda: Calendar("at", form="round"),
    lambda: Calendar("at", unit="min"),
])  # fmt: skip
def test_options_out_of_range_are_rejected(make) -> None:
    with pytest.raises(ValueError, match="Expected"):
        make()


CONFIG = """
label = "y"
{labels}

[source]
path = "events.jsonl"

[model]
type = "KernelRegressor"
max_features = 64

[state]
directory = "state"

[[preprocessing]]
type = "Calendar"
field = "at"

[[preprocessing]]
type = "LastTarget"
n_lags = 2
key = "shop"

[[preprocessing]]
type = "Lags"
fields = ["heat"]

[sink]
predictions = "predictions.jsonl"
"""


def of_config() -> Any:
    return Calendar("at") | LastTarget(2, "shop") | Lags(["heat"]) | KernelRegressor(max_features=64)


def run(folder: Path, labels: str, records: list[dict[str, Any]], stops: tuple[int, ...]) -> list[float]:
    """Run some records at a time, and return the predictions."""
    (folder / "events.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "run.toml").write_text(CONFIG.format(labels=labels))
    for events in stops:
        calls = itertools.count()
        engine_of(load_config(folder / "run.toml")).run(
            stopping=lambda calls=calls, events=events: next(calls) >= events
        )
    return [json.loads(line)["prediction"] for line in (folder / "predictions.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("stops", [(10**6,), (7, 23, 10**6)])
def test_a_stopped_and_resumed_run_equals_the_pipeline(tmp_path: Path, stops: tuple[int, ...]) -> None:
    timed = [x | {"at": f"2026-11-24T{i % 24:02}:00"} for i, x in enumerate(XS)]
    model, expected = of_config(), []
    for x, y in zip(timed, YS, strict=True):
        expected.append(model.predict_one(x))
        model.learn_one(x, y)
    assert run(tmp_path, "", [x | {"y": y} for x, y in zip(timed, YS, strict=True)], stops) == expected


@pytest.mark.parametrize("stops", [(10**6,), (7, 23, 10**6)])
def test_delayed_labels_are_used_only_once_known(tmp_path: Path, stops: tuple[int, ...]) -> None:
    timed = [x | {"at": f"2026-11-24T{i % 24:02}:00"} for i, x in enumerate(XS)]
    model, expected, records, waiting = of_config(), [], [], []
    for i, (x, y) in enumerate(zip(timed, YS, strict=True)):
        records.append({"id": i} | x)
        found = with_history(model, x)
        expected.append(model.predict_one(found))
        waiting.append((found, y))
        if i >= 4:
            records.append({"id": i - 4, "y": YS[i - 4]})
            model.learn_one(*waiting.pop(0))
    assert run(tmp_path, '[delayed_labels]\nkey = "id"', records, stops) == expected


def test_history_steps_come_first_with_delayed_labels(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"id": 1, "a": 1.0}\n')
    scaled = CONFIG.format(labels='[delayed_labels]\nkey = "id"').replace(
        'type = "Calendar"\nfield = "at"', 'type = "StandardScaler"'
    )
    (tmp_path / "run.toml").write_text(scaled)
    from streamkernel.engine.config.checks import check_config

    with pytest.raises(ConfigError, match=r"preprocessing\[1\]: expected LastTarget before other steps"):
        check_config(load_config(tmp_path / "run.toml"))


def test_keys_and_targets_that_cannot_be_kept_are_named():
    model = LastTarget(key="shop")
    for call in (model.transform_one, lambda x: model.learn_one(x, 1.0)):
        with pytest.raises(InputError, match=r"Expected a key as a string or a number, got \[1\] - at x\['shop'\]"):
            call({"shop": [1]})
    with pytest.raises(TypeError, match="Expected one target, got a dictionary of 2 - at y"):
        model.learn_one({"shop": "a"}, {"price": 1.0, "days": 2.0})
