"""Missing values: ``None``, NaN, NaT and pandas' NA equal an absent key, in examples and in tables."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from river import evaluate, feature_extraction, metrics
from streams import FIXED, classifier, content, examples, learn, nested, regressor

from streamkernel import (
    Calendar,
    GaussianProcessRegressor,
    InputError,
    KernelClassifier,
    KernelDensityRatio,
    KernelDriftDetector,
    KernelMultiTargetRegressor,
    KernelNoveltyDetector,
    KernelRegressor,
    Lags,
    LastTarget,
    RandomFeatures,
    StandardScaler,
    kernels,
)

MISSING = {"None": None, "NaN": math.nan, "NumPy's NaN": np.float32("nan"), "NA": pd.NA}


@pytest.mark.parametrize("learner", ["newton", "dsg"])
@pytest.mark.parametrize("missing", MISSING.values(), ids=MISSING)
def test_a_missing_value_is_an_absent_key(missing, learner):
    xs, ys = examples(40)
    gaps = [{**x, "x1": missing, "late": missing} if i % 3 else x for i, x in enumerate(xs)]
    absent = [{name: value for name, value in x.items() if i % 3 == 0 or name != "x1"} for i, x in enumerate(xs)]
    options = {"learner": learner, "max_features": 16, "features_per_seed": 4, "kernel": None}
    model, twin = (
        learn(KernelClassifier(**nested(**options)), gaps, ys),
        learn(KernelClassifier(**nested(**options)), absent, ys),
    )
    assert content(model) == content(twin)
    assert [model.predict_proba_one(x) for x in gaps] == [twin.predict_proba_one(x) for x in absent]


@pytest.mark.parametrize("dtype", ["float64", "Float64", "object"])
def test_a_table_with_gaps_is_learned(dtype):
    xs, ys = examples(30)
    X = pd.DataFrame(xs).astype(dtype)
    X.loc[::4, "x1"] = None if dtype == "object" else math.nan if dtype == "float64" else pd.NA
    X["text"] = ["a" if i % 2 else None for i in range(len(X))]
    rows = [{name: value for name, value in row.items() if not pd.isna(value)} for row in X.to_dict("records")]
    one, many = learn(classifier(kernel=FIXED), rows, ys), classifier(kernel=FIXED)
    many.learn_many(X, pd.Series(ys))
    assert content(one) == content(many)


@pytest.mark.parametrize("make", [KernelRegressor, lambda: KernelRegressor(learner="dsg")])
def test_an_empty_example_is_predicted_by_the_intercept(make):
    model = learn(make(), [{}] * 40, [3.0] * 40)
    assert model.predict_one({}) == pytest.approx(3.0)
    learn(model, [{"a": 1.0}, {"a": -1.0}] * 50, [4.0, 2.0] * 50)
    assert 2.0 < model.predict_one({}) < 4.0


def test_an_empty_text_does_not_end_an_evaluation():
    texts = [("good film", True), ("", False), ("bad film", False), ("", False)] * 20
    model = feature_extraction.BagOfWords() | KernelClassifier(max_features=64)
    assert evaluate.progressive_val_score(iter(texts), model, metrics.Accuracy()).get() > 0.8


TABLES = {
    "lists of y": lambda X, y: (pd.DataFrame(X), y.tolist()),
    "arrays": lambda X, y: (X, y),
    "Arrow": lambda X, y: (pd.DataFrame(X), pa.array(y)),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_tables_of_every_library_are_accepted(table):
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(50, 3)), generator.normal(size=50)
    model, twin = regressor(kernel=FIXED), regressor(kernel=FIXED)
    model.learn_many(*table(X, y))
    twin.learn_many(pd.DataFrame(X), pd.Series(y))
    assert content(model) == content(twin)


@pytest.mark.parametrize(("rows", "targets"), [(40, 10), (10, 40)])
def test_a_table_has_as_many_rows_as_targets(rows, targets):
    model = regressor(kernel=FIXED)
    before = content(model)
    with pytest.raises(ValueError, match=f"{rows} .*{targets}|{targets} .*{rows}"):
        model.learn_many(pd.DataFrame({"a": np.arange(float(rows))}), pd.Series(np.arange(float(targets))))
    assert content(model) == before


NAT = {
    "NaT": pd.NaT,
    "NumPy's NaT": np.datetime64("NaT"),
    "a duration": np.timedelta64("NaT"),
    "Decimal": Decimal("NaN"),
    "signalling": Decimal("sNaN"),
}
ALL = MISSING | NAT
TRAINABLE = {
    "default": KernelRegressor,
    "first order": lambda: KernelRegressor(learner="dsg"),
    "a transform": lambda: KernelRegressor(kernels.Gaussian(1.0).of("unit"), learner="dsg"),
    "classifier": KernelClassifier,
    "Gaussian process": lambda: GaussianProcessRegressor(n_features=32),
    "several targets": KernelMultiTargetRegressor,
    "behind the calendar": lambda: Calendar("at") | KernelRegressor(),
    "behind lags": lambda: Lags(["x1"], 2) | KernelRegressor(),
    "behind keyed lags": lambda: LastTarget(1, key="at") | KernelRegressor(),
    "scaled": lambda: StandardScaler() | KernelRegressor(learner="dsg"),
}


@pytest.mark.parametrize("make", TRAINABLE.values(), ids=TRAINABLE)
def test_missing_is_missing_in_every_form_and_model(make):
    xs, found = examples(40)[0], []
    for value in (..., *ALL.values()):
        model = make()
        for i, x in enumerate(xs):
            gaps = dict(x) if i % 3 else {**x, "x1": value, "at": value, "text": value}
            gaps = {name: one for name, one in gaps.items() if one is not ...}
            model.learn_one(gaps, {"y": i % 3} if isinstance(model, KernelMultiTargetRegressor) else i % 3)
        gap = {name: one for name, one in {**xs[0], "x1": value, "at": value}.items() if one is not ...}
        found.append(str(model.predict_one(gap)))
    assert set(found) == {found[0]}


@pytest.mark.parametrize("value", ALL.values(), ids=ALL)
def test_missing_is_missing_for_models_of_inputs_alone(value):
    xs, _ = examples(60)
    gaps, absent = [{**x, "x1": value} for x in xs], [{k: v for k, v in x.items() if k != "x1"} for x in xs]
    for make in (KernelNoveltyDetector, lambda: RandomFeatures(kernels.Gaussian(1.0), n_features=8)):
        one, other = make(), make()
        for x, y in zip(gaps, absent, strict=True):
            one.learn_one(x)
            other.learn_one(y)
        use = "score_one" if hasattr(one, "score_one") else "transform_one"
        assert getattr(one, use)(gaps[0]) == getattr(other, use)(absent[0])
    ratio, twin = KernelDensityRatio(), KernelDensityRatio()
    drift, other = KernelDriftDetector(), KernelDriftDetector()
    for i, (x, y) in enumerate(zip(gaps, absent, strict=True)):
        ratio.learn_one(x, i % 2 == 0)
        twin.learn_one(y, i % 2 == 0)
        drift.update(x)
        other.update(y)
    assert ratio.predict_one(gaps[0]) == twin.predict_one(absent[0])
    assert drift._seen.statistic == other._seen.statistic


DTYPES = {
    "float64": lambda values: pd.Series(values, dtype="float64"),
    "Float64": lambda values: pd.Series(values, dtype="Float64"),
    "object": lambda values: pd.Series(values, dtype="object"),
    "NaT": lambda values: pd.Series([pd.NaT if value is None else value for value in values], dtype="object"),
    "pyarrow": lambda values: pd.Series(values, dtype="double[pyarrow]"),
    "decimal": lambda values: pd.Series(
        [Decimal("NaN") if value is None else Decimal(str(value)) for value in values], dtype="object"
    ),
}


@pytest.mark.parametrize("make", [KernelRegressor, lambda: KernelRegressor(learner="dsg")], ids=["default", "dsg"])
@pytest.mark.parametrize("column", [*DTYPES.values(), None], ids=[*DTYPES, "a table of Arrow"])
def test_tables_of_every_type_have_missing_values(make, column):
    values = [None if i % 4 == 0 else float(i % 7) for i in range(60)]
    others = [float(i % 5) for i in range(60)]
    rows = [{"a": a, "b": b} if a is not None else {"b": b} for a, b in zip(values, others, strict=True)]
    one = learn(make(), rows, others)
    table = pa.table({"a": values, "b": others}) if column is None else pd.DataFrame({"a": column(values), "b": others})
    many = make()
    many.learn_many(table, pd.Series(others))
    assert content(one) == content(many)
    predicted = [one.predict_one(row) for row in rows]
    assert np.allclose(np.asarray(many.predict_many(table), float).ravel(), predicted, atol=1e-12)


def test_a_column_of_missing_times_is_absent():
    model, twin = KernelRegressor(learner="dsg"), KernelRegressor(learner="dsg")
    model.learn_many(pd.DataFrame({"a": [1.0, 2.0], "at": pd.to_datetime([None, None])}), [1.0, 2.0])
    twin.learn_many(pd.DataFrame({"a": [1.0, 2.0]}), [1.0, 2.0])
    assert content(model) == content(twin)


def test_a_time_is_refused_with_a_way_to_read_it():
    with pytest.raises(InputError, match=r"streamkernel.Calendar or streamkernel.Fields .*got datetime .*x\['at'\]"):
        KernelRegressor().learn_one({"at": dt.datetime(2026, 1, 1)}, 1.0)
    with pytest.raises(InputError, match=r"Calendar or .* got Timestamp .*X\['at'\], row 1"):
        KernelRegressor().learn_many(pd.DataFrame({"at": [pd.NaT, pd.Timestamp("2026-01-01")]}), [1.0, 2.0])


def test_the_scikit_learn_estimators_read_missing_values():
    from streamkernel.sklearn import KernelRegressor as Batch

    values = [None if i % 4 == 0 else float(i % 7) for i in range(60)]
    y = [float(i % 5) for i in range(60)]
    found = []
    for one in (math.nan, None, pd.NA, pd.NaT, Decimal("NaN")):
        column = pd.Series([one if value is None else value for value in values], dtype="object")
        X = pd.DataFrame({"a": column, "b": y})
        found.append(Batch().fit(X, y).predict(X).tolist())
    assert all(one == found[0] for one in found)
