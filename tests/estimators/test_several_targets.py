"""KernelMultiTargetRegressor and KernelMultiLabelClassifier: against models of one target, in River's API, in files."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from river import evaluate, metrics
from streams import as_dicts, content

from streamkernel import (
    InputError,
    KernelClassifier,
    KernelMultiLabelClassifier,
    KernelMultiTargetRegressor,
    KernelRegressor,
    learners,
    load,
    upkeep,
)

SMALL = {"max_features": 64}


def examples(n, seed=3):
    """Return inputs, numbers in three units, and labels."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 3))
    f = np.stack([np.sin(2.0 * X[:, 0]), X[:, 1] * X[:, 2], X[:, 0] - X[:, 2]], axis=1)
    f += 0.1 * generator.normal(size=f.shape)
    numbers = [dict(zip("abc", row, strict=True)) for row in (f * [1.0, 1000.0, 0.01] + [5.0, 0.0, 3.0]).tolist()]
    labels = [dict(zip("abc", row, strict=True)) for row in (f > [0.0, 0.5, 1.0]).tolist()]
    return as_dicts(X), numbers, labels


XS, NUMBERS, LABELS = examples(700)
KINDS = {"numbers": (KernelMultiTargetRegressor, NUMBERS), "labels": (KernelMultiLabelClassifier, LABELS)}


def learned(kind, n, **options):
    make, ys = KINDS[kind]
    model = make(**SMALL | options)
    for x, y in zip(XS[:n], ys, strict=False):
        model.learn_one(x, y)
    return model


def test_one_target_is_learned_as_by_the_regressor():
    """Predictions have the same bits."""
    several, one = KernelMultiTargetRegressor(**SMALL), KernelRegressor(**SMALL)
    for x, y in zip(XS, NUMBERS, strict=True):
        assert several.predict_one(x) in ({}, {"b": one.predict_one(x)})
        several.learn_one(x, {"b": y["b"]})
        one.learn_one(x, y["b"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("names", [(1, "1"), ("True", True), ("0", 0.0)])
def test_names_of_targets_that_are_one_key_in_json_are_refused(kind, names):
    """The model is unchanged, and learns other names after."""
    model, table = KINDS[kind][0](**SMALL), pd.DataFrame([[True, False]], columns=pd.Index(names, dtype=object))
    with pytest.raises(InputError, match=f"got {names[0]!r} and {names[1]!r}, which are one key in JSON"):
        model.learn_one(XS[0], dict.fromkeys(names, True))
    with pytest.raises(InputError, match="one key in JSON"):
        model.learn_many(pd.DataFrame(XS[:1]), table)
    model.learn_one(XS[0], {1: True, "2": False})
    assert model.targets == (1, "2")


def test_one_label_is_learned_as_by_the_classifier():
    """Predictions have the same bits if false comes first: a classifier numbers labels in their order of arrival."""
    several, one = KernelMultiLabelClassifier(**SMALL), KernelClassifier(**SMALL)
    for x, y in zip(XS, [{"a": False}, *LABELS], strict=False):
        several.learn_one(x, {"a": y["a"]})
        one.learn_one(x, y["a"])
    for x in XS[:50]:
        assert several.predict_proba_one(x) == {"a": one.predict_proba_one(x)}
        assert several.predict_one(x) == {"a": one.predict_one(x)}


def test_targets_in_different_units_are_predicted_as_by_a_model_for_each():
    several, each = KernelMultiTargetRegressor(**SMALL), {name: KernelRegressor(**SMALL) for name in "abc"}
    ours, theirs = ({name: metrics.R2() for name in "abc"} for _ in range(2))
    for i, (x, y) in enumerate(zip(XS, NUMBERS, strict=True)):
        found = several.predict_one(x)
        for name, model in each.items():
            if i >= 100:
                ours[name].update(y[name], found[name])
                theirs[name].update(y[name], model.predict_one(x))
            model.learn_one(x, y[name])
        several.learn_one(x, y)
    for name in "abc":
        assert ours[name].get() > theirs[name].get() - 0.06  # all targets have the same distances of neighbours


def test_labels_are_predicted_as_by_a_model_for_each():
    several, each = KernelMultiLabelClassifier(**SMALL), {name: KernelClassifier(**SMALL) for name in "abc"}
    losses = np.zeros((2, 3))
    for i, (x, y) in enumerate(zip(XS, LABELS, strict=True)):
        found = several.predict_proba_one(x)
        for k, (name, model) in enumerate(each.items()):
            if i >= 100:
                known = found[name][y[name]], model.predict_proba_one(x).get(y[name], 0.5)
                losses[:, k] -= np.log(np.maximum(known, 1e-9))
            model.learn_one(x, y[name])
        several.learn_one(x, y)
    assert (losses[0] < 1.25 * losses[1]).all()  # the Gram matrix has the largest second derivative of all labels


def test_river_evaluates_them():
    stream = zip(XS, NUMBERS, strict=True)
    found = evaluate.progressive_val_score(
        stream, KernelMultiTargetRegressor(**SMALL), metrics.multioutput.MacroAverage(metrics.R2())
    )
    assert found.get() > 0.8
    stream = zip(XS, LABELS, strict=True)
    found = evaluate.progressive_val_score(
        stream, KernelMultiLabelClassifier(**SMALL), metrics.multioutput.MicroAverage(metrics.F1())
    )
    assert found.get() > 0.8


@pytest.mark.parametrize("kind", KINDS)
def test_many_rows_are_learned_as_one_by_one(kind):
    make, ys = KINDS[kind]
    model, one = make(**SMALL), learned(kind, 400)
    model.learn_many(pd.DataFrame(XS[:100]), pd.DataFrame(ys[:100]))
    model.learn_many(pd.DataFrame(XS[100:400]), pd.DataFrame(ys[100:400])[["c", "a", "b"]])
    assert content(model) == content(one)
    found = model.predict_many(pd.DataFrame(XS[400:450]))
    assert list(found.columns) == ["a", "b", "c"]
    assert found.to_dict("records") == [model.predict_one(x) for x in XS[400:450]]
    if kind == "labels":
        p = model.predict_proba_many(pd.DataFrame(XS[400:450]))
        expected = [model.predict_proba_one(x)["b"][True] for x in XS[400:450]]
        assert np.allclose(p["b"], expected, rtol=1e-12)


def test_columns_of_an_array_are_called_by_their_numbers():
    model = KernelMultiTargetRegressor(**SMALL)
    X, Y = (np.array([list(row.values()) for row in rows[:300]]) for rows in (XS, NUMBERS))
    model.learn_many(X, Y)
    assert model.targets == (0, 1, 2)
    assert model.predict_many(X).shape == Y.shape
    with pytest.raises(ValueError, match="column for each target"):
        model.learn_many(X, Y[:, 0])
    with pytest.raises(ValueError, match="as many targets as rows, got 299 and 300"):
        model.learn_many(X, Y[:-1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [0, 1, 100, 300, 590])
def test_files_pickles_and_clones_continue_as_the_model(kind, n, tmp_path):
    model = learned(kind, n)
    model.save(tmp_path / "model")
    copies = [load(tmp_path / "model"), pickle.loads(pickle.dumps(model)), model.clone(include_attributes=True)]
    for one in [model, *copies]:
        assert one.targets == (("a", "b", "c") if n else ())
        for x, y in zip(XS[n : n + 40], KINDS[kind][1][n : n + 40], strict=True):
            one.learn_one(x, y)
    assert all(content(one) == content(model) for one in copies)


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_of_0_changes_nothing_and_the_order_of_targets_neither(kind):
    ys = KINDS[kind][1]
    model, other = learned(kind, 300), learned(kind, 300)
    model.learn_one(XS[300], ys[300], w=0.0)
    model.learn_one(XS[301], dict(reversed(ys[301].items())), w=2.0)
    other.learn_one(XS[301], ys[301], w=2.0)
    assert content(model) == content(other)
    fresh = KINDS[kind][0]()
    fresh.learn_one(XS[0], ys[0], w=0.0)
    assert fresh.targets == ()


BAD = {
    "numbers": [
        ({"a": 1.0, "b": 2.0}, r"Expected the targets \['a', 'b', 'c'\], got \['a', 'b'\]"),
        ({"a": 1.0, "b": 2.0, "d": 2.0}, "Expected the targets"),
        ({"a": 1.0, "b": None, "c": 2.0}, r"got NoneType None - at y\['b'\]"),
        ({"a": 1.0, "b": float("nan"), "c": 2.0}, r"y\['b'\]"),
        ({"a": 1.0, "b": "2", "c": 2.0}, r"y\['b'\]"),
        ({"a": 1.0, "b": 1e99, "c": 2.0}, r"y\['b'\]"),
        ({}, "Expected at least one target"),
    ],
    "labels": [
        ({"a": True, "b": True}, "Expected the targets"),
        ({"a": True, "b": None, "c": False}, r"Expected True or False, got None - at y\['b'\]"),
        ({"a": True, "b": 2, "c": False}, r"got 2 - at y\['b'\]"),
        ({"a": True, "b": "yes", "c": False}, r"got 'yes' - at y\['b'\]"),
    ],
}


@pytest.mark.parametrize(("kind", "y", "message"), [(kind, *bad) for kind, each in BAD.items() for bad in each])
def test_other_targets_are_refused_and_change_nothing(kind, y, message):
    model = learned(kind, 30)
    before = content(model)
    with pytest.raises(InputError, match=message):
        model.learn_one(XS[30], y)
    assert content(model) == before


def test_a_rejected_first_example_leaves_a_model_without_targets():
    model = KernelMultiTargetRegressor()
    with pytest.raises(InputError, match="x0"):
        model.learn_one({"x0": float("inf")}, {"a": 1.0})
    with pytest.raises(InputError):
        model.learn_one({"x0": 1.0}, {"a": "many"})
    assert model.targets == ()
    assert model.predict_one({"x0": 1.0}) == {}
    with pytest.raises(TypeError, match="dictionary of targets by name, got float"):
        model.learn_one({"x0": 1.0}, 1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_explanations_are_those_of_each_target(kind):
    """Contributions are compared with differences of predictions along each field, from the mean to the example."""
    model, x, step = learned(kind, 500), XS[501], 1e-2
    sampled, means = model.explain_one(x, method="sampling"), np.mean([list(row.values()) for row in XS[:500]], axis=0)
    mean, weights = dict(zip(x, means.tolist(), strict=True)), model._learner.arrays.weights.reshape(3, -1)
    totals, before = model._model.score(x)[0] - model._model.score(mean)[0], weights.copy()
    groups = 2 * len(model._learner.groups) + 1

    def gradient(k):
        rise = model._model.score(x | {k: x[k] + step})[0] - model._model.score(x | {k: x[k] - step})[0]
        return rise / (2.0 * step) * (x[k] - mean[k])

    def change(k):
        alone = model._model.score(mean | {k: x[k]})[0] - model._model.score(mean)[0]
        return 0.5 * (alone + model._model.score(x)[0] - model._model.score(x | {k: mean[k]})[0])

    for part, difference in ((slice(groups, None), gradient), (slice(0, groups), change)):  # the part without weight
        weights[:, part] = 0.0
        expected = np.array([difference(k) for k in x]).T
        found = np.array([list(own.values()) for own in model.explain_one(x).values()])
        assert (np.abs(found - expected) < 0.02 * np.abs(expected).max(axis=1, keepdims=True)).all()
        weights[:] = before
    assert [sum(own.values()) for own in sampled.values()] == pytest.approx(totals, rel=1e-3)
    assert set(model.feature_importances_) == set(x)
    assert KINDS[kind][0]().explain_one(x) == {}


def test_one_target_is_explained_as_by_the_regressor():
    several, one = KernelMultiTargetRegressor(**SMALL), KernelRegressor(**SMALL)
    for x, y in zip(XS[:300], NUMBERS, strict=False):
        several.learn_one(x, {"b": y["b"]})
        one.learn_one(x, y["b"])
    for method in ("gradient", "sampling"):
        assert several.explain_one(XS[300], method=method) == {"b": one.explain_one(XS[300], method=method)}


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (KernelMultiTargetRegressor, {"learner": "dsg"}, 'learner="newton" or learners.Newton'),
        (KernelMultiTargetRegressor, {"learner": learners.DSG()}, 'learner="newton" or learners.Newton'),
        (KernelMultiTargetRegressor, {"loss": "quantile"}, "loss as one of"),
        (KernelMultiTargetRegressor, {"loss": "logistic"}, "loss for regression"),
        (KernelMultiLabelClassifier, {"loss": "softmax"}, "loss as one of"),
        (KernelMultiLabelClassifier, {"loss": "hinge"}, "loss as one of"),
    ],
)
def test_options_for_one_target_are_refused_by_name(make, options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_methods_for_one_target_are_refused():
    model = learned("numbers", 300)
    with pytest.raises(ValueError, match="a model of one target"):
        model.run_task(upkeep.Pruning(every=100, window=50), [])
