"""Unusable examples: the error names the field and the value, and the model is unchanged."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from streams import FIXED, classifier, content, examples, frame, learn, regressor

from streamkernel import InputError, KernelMultiTargetRegressor, KernelRegressor, RandomFeatures
from streamkernel.kernels import Gaussian

BAD_VALUES = [
    float("inf"),
    -float("inf"),
    1e39,
    -1e300,
    10**400,
    [1.0],
    [[1.0]],
    {},
    1j,
    b"1",
    np.array([1.0, 2.0]),
    np.array(["a"]),
]
BAD_TARGETS = [float("nan"), float("inf"), 1e95, 10**400, "1", None, [1.0], pd.NA, 1j, np.array([1.0, 2.0])]
NAMED = {repr(value) if len(repr(value)) < 30 else type(value).__name__: value for value in BAD_VALUES}
TARGETS = {repr(value) if len(repr(value)) < 30 else type(value).__name__: value for value in BAD_TARGETS}


def models(make, labels):
    """Yield models during and after the examples that decide the bandwidth, with full and partial batches."""
    xs, ys = examples(300)
    for batch_size in (1, 4):
        for kernel, n in [(FIXED, 0), (FIXED, 42), (Gaussian(), 0), (Gaussian(), 42), (Gaussian(), 300)]:
            yield learn(make(batch_size=batch_size, kernel=kernel), xs[:n], (labels or ys)[:n])


def refused(where, call, *args):
    """Check that a call raises an error with the position of the value, and no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError) as caught:
            call(*args)
    assert where in str(caught.value)


@pytest.mark.parametrize("value", NAMED.values(), ids=NAMED)
def test_a_bad_value_is_named_and_changes_nothing(value):
    """The rejected example has a known label or a new one."""
    bad = {"x0": 1.0, ("x", 1): value, "x2": 0.0}
    for model in models(classifier, None):
        before = content(model)
        refused("at x[('x', 1)]", model.learn_one, bad, "yes")
        refused("at x[('x', 1)]", model.learn_one, bad, "new")
        refused("at x[('x', 1)]", model.predict_one, bad)
        refused("at x[('x', 1)]", model.predict_proba_one, bad)
        refused("at x['only']", model.predict_one, {"only": value})
        assert content(model) == before
    for model in models(regressor, [float(i % 7) for i in range(300)]):
        before = content(model)
        refused("at x[('x', 1)]", model.learn_one, bad, 1.0)
        refused("at x[('x', 1)]", model.predict_one, bad)
        assert content(model) == before


@pytest.mark.parametrize("value", TARGETS.values(), ids=TARGETS)
def test_a_bad_target_is_refused(value):
    for model in models(regressor, [float(i % 7) for i in range(300)]):
        before = content(model)
        refused("at y", model.learn_one, {"x0": 1.0}, value)
        two = pd.DataFrame({"x0": [1.0, 2.0]})
        refused("at y, row 1", model.learn_many, two, pd.Series([1.0, value], dtype=object))
        assert content(model) == before


@pytest.mark.parametrize(
    "y",
    [1, 2.5, True, np.float64(2.0), np.float32(2.0), np.float16(2.0), np.int8(3), np.uint64(3), np.bool_(True)],
    ids=repr,
)
def test_any_real_number_is_a_target(y):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = learn(regressor(), [{"a": 1.0}], [y])
    assert model.predict_one({"zero": 1.0}) == float(y)


@pytest.mark.parametrize(
    "value",
    [1, True, np.float64(1.0), np.float32(1.0), np.float16(1.0), np.int8(1), np.uint64(1), np.bool_(True)],
    ids=repr,
)
def test_any_real_number_is_a_value(value):
    model, twin = classifier(), classifier()
    for label in ("a", "b", "a"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            learn(model, [{"a": value}], [label])
        learn(twin, [{"a": 1.0}], [label])
    assert content(model) == content(twin)


COLUMNS = {
    "an indicator of another column's name": (["x", "y"], "two of 'b=x' - at X['b'], row 0"),
    "infinity": ([-float("inf"), 1.0], "-inf - at X['b'], row 0"),
    "huge": ([0.0, 1e39], "1e+39 - at X['b'], row 1"),
    "list": ([[1.0], [2.0]], "at X['b'], row 0"),
    "dates": (list(pd.to_datetime(["2020-01-01", "2020-01-02"])), "at X['b'], row 0"),
    "complex": ([1.0, 1j], "at X['b'], row"),
    "huge integer": ([1, 10**400], "at X['b'], row 1"),
}


@pytest.mark.parametrize("column", COLUMNS)
def test_a_bad_column_is_named_and_nothing_is_learned(column):
    values, where = COLUMNS[column]
    X = pd.DataFrame({"a": [1.0, 2.0], "b=x": [0.0, 0.0], "b": values})
    for model in models(classifier, None):
        before = content(model)
        refused(where, model.learn_many, X, pd.Series(["no", "new"]))
        refused(where, model.predict_many, X)
        refused(where, model.predict_proba_many, X)
        assert content(model) == before


@pytest.mark.parametrize("label", [None, float("nan"), [1]], ids=repr)
def test_a_bad_label_in_a_frame_leaves_the_rows_before_unlearned(label):
    xs, _ = examples(4)
    for model in models(classifier, None):
        before = content(model)
        refused("at y, row 2", model.learn_many, frame(xs), pd.Series(["no", "new", label, "yes"], dtype=object))
        assert content(model) == before


def test_an_integer_that_python_does_not_write_as_text_is_named():
    model = KernelRegressor(max_features=64)
    for call in (model.predict_one, lambda x: model.learn_one(x, 1.0)):
        with pytest.raises(InputError, match=r"got an integer of 5001 digits - at x\['a'\]"):
            call({"a": -(10**5000)})


@pytest.mark.parametrize("kernel", [FIXED, Gaussian()], ids=repr)
@pytest.mark.parametrize("value", NAMED.values(), ids=NAMED)
def test_random_features_refuse_bad_values(value, kernel):
    model = RandomFeatures(kernel, n_features=4)
    before = content(model)
    for call in (model.transform_one, model.learn_one):
        refused("at x['b']", call, {"a": 1.0, "b": value})
    assert content(model) == before


@pytest.mark.parametrize(
    "x", [[1.0], (1.0, 2.0), np.array([1.0, 2.0]), "ab", 3, pd.Series({"a": 1.0}), pd.Series([0.0, 1.0])]
)
@pytest.mark.parametrize("learner", ["newton", "dsg"])
def test_an_example_that_is_no_dictionary_is_named(x, learner):
    model = KernelRegressor(max_features=64, learner=learner)
    model.learn_one({"a": 1.0}, 1.0)
    for call in (model.predict_one, model.explain_one, lambda x: model.learn_one(x, 1.0)):
        with pytest.raises(
            TypeError, match=f"^Expected x as a dictionary of features by name, got {type(x).__name__}$"
        ):
            call(x)


@pytest.mark.parametrize(
    ("make", "X", "y", "w", "message"),
    [
        (KernelRegressor, [1.0], [1.0], None, "Expected a data frame, an array or a sparse matrix, got list"),
        (KernelRegressor, np.eye(2), "ab", None, "Expected targets as a series, an array or a list, got str"),
        (KernelRegressor, np.eye(2), [1.0, 2.0], "ab", "Expected weights as a series, an array or a list, got str"),
        (
            KernelMultiTargetRegressor,
            np.eye(2),
            pd.Series([1.0, 2.0]),
            None,
            "with a column for each target, got Series",
        ),
    ],
)
def test_a_table_of_another_type_is_named(make, X, y, w, message):
    with pytest.raises(TypeError, match=message):
        make(max_features=64).learn_many(X, y, w=w)
