"""A scaler in front of first-order models: missing values, strings and infinities do not spoil it."""

from __future__ import annotations

import copy
import math
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from river import evaluate, metrics, preprocessing

from streamkernel import InputError, KernelNoveltyDetector, KernelRegressor, StandardScaler, kernels, load, save

PIPELINES = {
    "first order": lambda: StandardScaler() | KernelRegressor(learner="dsg"),
    "quantiles": lambda: StandardScaler() | KernelRegressor(loss="quantile", tau=0.5, learner="dsg"),
    "a kernel": lambda: StandardScaler() | KernelRegressor(kernels.Gaussian(1.0), max_features=64),
    "no scaler": lambda: KernelRegressor(max_features=64),
}
GAPS = {"None": None, "NaN": math.nan, "NA": pd.NA, "absent": ...}


def last_error(model: Any, gap: Any) -> float:
    """Return the mean error of the last third, after one missing value at example 50."""
    generator, errors = random.Random(1), []
    for i in range(1500):
        x = {"a": generator.gauss(0, 1), "b": generator.gauss(0, 1)}
        y = 3 * x["a"] + x["b"]
        if i == 50:
            x["a"] = gap
            x = {name: value for name, value in x.items() if value is not ...}
        if i > 1000:
            errors.append(abs(model.predict_one(x) - y))
        model.learn_one(x, y)
    return sum(errors) / len(errors)


@pytest.mark.parametrize("make", PIPELINES.values(), ids=PIPELINES)
def test_one_missing_value_does_not_spoil_a_pipeline(make: Any) -> None:
    errors = [last_error(make(), gap) for gap in GAPS.values()]
    assert max(errors) == pytest.approx(min(errors), rel=1e-9)
    assert errors[0] < 0.6


def test_numbers_are_scaled_as_by_river() -> None:
    pairs = [(StandardScaler(one), preprocessing.StandardScaler(one)) for one in (True, False)]
    generator = random.Random(2)
    for _ in range(50):
        x = {"a": generator.gauss(5, 2), "b": generator.randint(0, 9), "constant": 4.0}
        for one, other in pairs:
            one.learn_one(x)
            other.learn_one(x)
            assert one.transform_one(x) == other.transform_one(x)


@pytest.mark.parametrize("scaler", [StandardScaler(), StandardScaler(with_std=False)])
@pytest.mark.parametrize("frame", [pd.DataFrame, lambda X: pa.table({k: v.tolist() for k, v in X.items()})])
def test_a_table_is_scaled_as_its_rows(scaler: StandardScaler, frame: Any) -> None:
    generator = np.random.default_rng(3)
    a = [None if i % 4 == 0 else float(v) for i, v in enumerate(generator.normal(3.0, 2.0, 40))]
    X = pd.DataFrame({"a": pd.Series(a, dtype="object"), "t": ["ab"[i % 2] for i in range(40)], "n": range(40)})
    X["gap"] = pd.Series([None] * 40, dtype="object")
    rows, many = copy.deepcopy(scaler), copy.deepcopy(scaler)
    for x in X.to_dict("records"):
        rows.learn_one(x)
    many.learn_many(frame(X[:15]))
    many.learn_many(frame(X[15:]))
    assert many.counts == rows.counts
    table = many.transform_many(frame(X))
    found = table.to_pylist() if isinstance(table, pa.Table) else table.to_dict("records")
    for x, y in zip(X.to_dict("records"), found, strict=True):
        expected = rows.transform_one(x)
        assert y["t"] == x["t"]
        assert all(pd.isna(y[name]) == pd.isna(expected[name]) for name in y)
        assert [y[k] for k in "an" if not pd.isna(y[k])] == pytest.approx(
            [expected[k] for k in "an" if not pd.isna(expected[k])]
        )


@pytest.mark.parametrize("bad", [math.inf, -math.inf, 1e300, [1.0]])
def test_what_no_model_reads_is_refused_and_not_learned(bad: Any) -> None:
    model = StandardScaler() | KernelRegressor(learner="dsg")
    for i in range(9):
        model.learn_one({"a": float(i)}, 1.0)
    before = pickle.dumps(model["StandardScaler"])
    with pytest.raises(InputError, match=r"got .* - at x\['a'\]"):
        model.learn_one({"b": 1.0, "a": bad}, 1.0)
    with pytest.raises(InputError, match=r"at X\['a'\], row 1"):
        model["StandardScaler"].learn_many(pd.DataFrame({"a": pd.Series([1.0, bad], dtype="object")}))
    assert pickle.dumps(model["StandardScaler"]) == before


def test_a_prediction_leaves_the_scaler_as_it_is() -> None:
    scaler = StandardScaler()
    scaler.learn_one({"a": 1.0})
    before = pickle.dumps(scaler)
    assert scaler.transform_one({"new": 7.0, "a": 2.0}) == {"new": 0.0, "a": 0.0}
    assert pickle.dumps(scaler) == before


def test_it_works_in_pipelines_and_evaluations() -> None:
    generator = random.Random(4)
    stream = [({"a": generator.gauss(100, 9), "t": generator.choice("ab")}, 0.0) for _ in range(400)]
    stream = [({**x, "a": None} if i % 9 == 0 else x, (x["a"] - 100) / 9) for i, (x, _) in enumerate(stream)]
    model = StandardScaler() | KernelRegressor(learner="dsg")
    assert evaluate.progressive_val_score(stream, model, metrics.MAE()).get() < 0.7
    detector = StandardScaler() | KernelNoveltyDetector()
    for x, _ in stream:
        detector.score_one(x)
        detector.learn_one(x)
    assert math.isfinite(detector.score_one({"a": None, "t": "a"}))


def test_a_pipeline_is_saved_with_it(tmp_path: Path) -> None:
    model = StandardScaler() | KernelRegressor(learner="dsg")
    for i in range(40):
        model.learn_one({"a": None if i % 3 else float(i), "t": "x"}, float(i))
    save(model, tmp_path / "model")
    x = {"a": 5.0, "t": "x"}
    assert load(tmp_path / "model").predict_one(x) == model.predict_one(x)
