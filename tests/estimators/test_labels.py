"""Labels: the accepted types, and the arrival of a new label."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from streams import classifier, examples, learn, predictions

from streamkernel import InputError, KernelClassifier, kernels, load, tensor_file
from streamkernel.estimators import model_file


@pytest.mark.parametrize(
    "labels",
    [
        (False, True),
        (True, False),
        (0, 1),
        (7, -3),
        ("spam", "ham"),
        ("", " "),
        (0.5, 2.5),
        ("1", 2),
        (2**62, -(2**62)),
        (np.bool_(True), np.bool_(False)),
        (np.int8(3), np.int64(4)),
        (np.float32(0.5), np.float64(0.25)),
        (np.str_("a"), np.str_("b")),
    ],
    ids=repr,
)
def test_a_predicted_label_is_a_plain_python_object(labels):
    xs, ys = examples(120, labels)
    model = learn(classifier(), xs, ys)
    plain = [label.item() if isinstance(label, np.generic) else label for label in labels]
    assert set(model.labels) == set(plain)
    assert {type(label) for label in model.labels} == {type(label) for label in plain}
    for x in xs[:30]:
        assert any(model.predict_one(x) is label for label in model.labels)
        assert list(model.predict_proba_one(x)) == list(model.labels)
    right = [model.predict_one(x) == y for x, y in zip(xs, ys, strict=True)]
    assert np.mean(right) > 0.7
    many = classifier()
    many.learn_many(pd.DataFrame(xs), pd.Series(ys, dtype=object))
    assert predictions(many, xs) == predictions(model, xs)
    assert list(many.predict_many(pd.DataFrame(xs))) == [model.predict_one(x) for x in xs]


@pytest.mark.parametrize("loss", ["logistic", "softmax", "hinge", "squared_hinge"])
def test_the_values_of_labels_change_nothing_else(loss):
    xs, _ = examples(150)
    models = []
    for labels in [("no", "yes", "maybe"), (3, 1, 2), ("no", 1, False)]:
        ys = examples(150, labels)[1]
        models.append([list(p.values()) for _, p in predictions(learn(classifier(loss=loss), xs, ys), xs)])
    assert models[0] == models[1] == models[2]


def test_labels_that_are_equal_are_one():
    xs, _ = examples(4)
    model = learn(classifier(), xs, [True, 1, 1.0, np.int64(1)])
    assert model.labels == {True: 0}
    learn(model, xs, [0, False, np.bool_(False), np.float64(0.0)])
    assert model.labels == {True: 0, 0: 1}


@pytest.mark.parametrize(("first", "second"), [(1, "1"), ("1", 1.0), (True, "True"), ("true", True), (1e-7, "1e-07")])
def test_two_forms_of_a_label_are_refused(first, second):
    """They would be one key of a JSON object twice."""
    model = learn(classifier(), [{"a": 1.0}] * 2, ["other", first])
    before = model.predict_proba_one({"a": 1.0})
    for call in (
        lambda: model.learn_one({"a": 2.0}, second),
        lambda: model.learn_many(pd.DataFrame({"a": [2.0]}), [second]),
        lambda: classifier().learn_many(pd.DataFrame({"a": [1.0, 2.0]}), pd.Series([first, second], dtype=object)),
    ):
        with pytest.raises(InputError, match=r"Expected one form of a label, got .*, which are one key in JSON - at y"):
            call()
    assert model.predict_proba_one({"a": 1.0}) == before


@pytest.mark.parametrize("loss", ["logistic", "softmax", "hinge", "squared_hinge"])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_third_label_continues_the_function_of_two(loss, batch_size):
    """A third label leaves the odds of the two known labels nearly unchanged: one example explains the difference."""
    xs, ys = examples(101, seed=3)
    model = learn(classifier(loss=loss, batch_size=batch_size), xs[:100], ys[:100])
    before = [model.predict_proba_one(x) for x in xs]
    tops = [model.predict_one(x) for x in xs]
    model._model.state = model._model.outputs.with_label(model._state, "third")
    for x, p, top in zip(xs, before, tops, strict=True):
        after = model.predict_proba_one(x)
        assert list(after) == [*p, "third"]
        assert sum(after.values()) == pytest.approx(1.0)
        if loss in ("logistic", "softmax"):
            assert after["yes"] / after["no"] == pytest.approx(p["yes"] / p["no"], rel=1e-9)
        assert (after["yes"] > after["no"]) == (p["yes"] > p["no"])
        known = model.predict_one(x) if model.predict_one(x) != "third" else top
        assert known == top
    learn(model, xs, ["third"] * len(xs))
    assert model.predict_one(xs[0]) == "third"


@pytest.mark.parametrize("loss", ["logistic", "softmax", "hinge", "squared_hinge"])
def test_probabilities_are_those_of_the_scores(loss):
    for labels in (("no", "yes"), ("a", "b", "c", "d")):
        xs, ys = examples(200, labels)
        model = learn(classifier(loss=loss), xs, ys)
        for x in xs:
            p = list(model.predict_proba_one(x).values())
            f = np.atleast_1d(model._model.score(x)[0])
            assert sum(p) == pytest.approx(1.0)
            assert all(0.0 <= value <= 1.0 for value in p)
            if len(f) == 1:
                assert p[1] == pytest.approx(1.0 / (1.0 + math.exp(-f[0])))
            elif loss in ("logistic", "softmax"):
                assert np.allclose(p, np.exp(f) / np.exp(f).sum())
            else:
                assert np.allclose(p, (1.0 / (1.0 + np.exp(-f))) / (1.0 / (1.0 + np.exp(-f))).sum())
            assert list(model.labels)[int(np.argmax(p))] == model.predict_one(x)


@pytest.mark.parametrize("loss", ["logistic", "softmax", "hinge", "squared_hinge"])
def test_three_classes_are_learned(loss):
    generator = np.random.default_rng(1)
    X = generator.normal(size=(900, 2))
    ys = [str(int(3.0 * (math.atan2(b, a) / math.tau + 0.5))) for a, b in X]
    xs = [{"a": a, "b": b} for a, b in X.tolist()]
    model = learn(classifier(loss=loss, features_per_seed=32, max_features=128), xs[:700], ys[:700])
    assert np.mean([model.predict_one(x) == y for x, y in zip(xs[700:], ys[700:], strict=True)]) > 0.85


@pytest.mark.parametrize(
    "label", [None, float("nan"), float("inf"), [1], {}, b"a", 1j, ("a",), ([1],), pd.NA, np.array([1])], ids=repr
)
def test_invalid_labels_are_rejected(label):
    xs, ys = examples(10)
    model = learn(classifier(), xs, ys)
    with pytest.raises(InputError, match="at y"):
        model.learn_one(xs[0], label)
    with pytest.raises(InputError, match="at y"):
        model.learn_many(pd.DataFrame(xs[:2]), pd.Series(["no", label], dtype=object))
    assert set(model.labels) == {"no", "yes"}


def test_a_label_beyond_the_limit_is_rejected_and_changes_nothing():
    model = KernelClassifier(kernels.Gaussian(1.0), max_classes=3)
    for label in ("a", "b", "c", "a"):
        model.learn_one({"x": 1.0}, label)
    before = model.predict_proba_one({"x": 1.0})
    with pytest.raises(InputError, match=r"Expected at most 3 labels \(max_classes\), got one more, 'd'"):
        model.learn_one({"x": 1.0}, "d")
    with pytest.raises(InputError, match="got one more, 'e'"):
        model.learn_many(pd.DataFrame({"x": [1.0, 1.0]}), pd.Series(["a", "e"]))
    assert model.predict_proba_one({"x": 1.0}) == before
    with pytest.raises(ValueError, match="Expected an integer max_classes >= 2, got 1"):
        KernelClassifier(max_classes=1)


def test_a_model_of_a_release_without_the_limit_keeps_its_labels(tmp_path):
    model = KernelClassifier(kernels.Gaussian(1.0), max_classes=200)
    for i in range(101):
        model.learn_one({"x": 1.0}, i)
    description, tensors = model_file.describe(model)
    del description["parameters"]["max_classes"]
    tensor_file.write(tmp_path / "model", "model", description, tensors)
    old = load(tmp_path / "model")
    assert (len(old.labels), old.max_classes) == (101, 100)
    old.learn_one({"x": 1.0}, 100)
    with pytest.raises(InputError, match="Expected at most 100 labels"):
        old.learn_one({"x": 1.0}, 101)
