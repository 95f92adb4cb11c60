"""Missing values: ``None``, NaN and pandas' NA equal an absent key, in examples and in tables."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from river import evaluate, feature_extraction, metrics
from streams import FIXED, classifier, content, examples, learn, nested, regressor

from streamkernel import KernelClassifier, KernelRegressor

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
