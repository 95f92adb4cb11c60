"""What is kept of a predicted example for learning it: it changes no bit, and never outlives what it depends on."""

from __future__ import annotations

import copy
import sys
import threading

import numpy as np
import pytest
from streams import content, examples, learn, predictions, targets
from waiting import LIMIT

from streamkernel import KernelClassifier, KernelRegressor, kernels
from streamkernel.second_order.last_row import AFTER, MOST_NAMES

SMALL = {"max_features": 64, "seed": 1}
KINDS = {
    "two classes": (KernelClassifier, {}, ("no", "yes")),
    "three classes": (KernelClassifier, {}, ("a", "b", "c")),
    "a number": (KernelRegressor, {}, ()),
    "a given kernel": (KernelRegressor, {"kernel": kernels.Laplacian(1.0)}, ()),
}


def stream(kind, n):
    """Return an untrained model and its examples."""
    make, options, labels = KINDS[kind]
    xs, ys = examples(n, labels or ("no", "yes"), width=4)
    return make(**SMALL, **options), xs, ys if labels else targets(xs)


def last_of(model):
    return model._learner.arrays.last


def is_kept(model):
    return bool(last_of(model).counts[AFTER] == model._learner.examples + 1)


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_before_and_between_change_no_bit(kind):
    model, xs, ys = stream(kind, 1300)
    other = stream(kind, 1)[0]
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        if i % 3:
            other.predict_one(x)
        if i % 5 == 0:
            other.predict_one(xs[i - 1])
        if i % 7 == 0:
            other.predict_one(x)
        model.learn_one(x, y)
        other.learn_one(x, y)
    assert content(model) == content(other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_predicted_example_is_not_computed_again(kind):
    model, xs, ys = stream(kind, 600)
    learn(model, xs[:500], ys[:500])
    assert not is_kept(model)
    twin = copy.deepcopy(model)
    model.predict_one(xs[500])
    assert is_kept(model)
    last_of(model).f[:] += 0.125
    model.learn_one(xs[500], ys[500])
    twin.learn_one(xs[500], ys[500])
    assert not is_kept(model)
    assert content(model) != content(twin)


CHANGES = {
    "a step": lambda model, other, xs, ys: model._model.settle(),
    "another example": lambda model, other, xs, ys: model.learn_one(xs[1], ys[1]),
    "a table": lambda model, other, xs, ys: learn(model, xs[:80], ys[:80]),
    "a merge": lambda model, other, xs, ys: model.merge(other),
    "scales": lambda model, other, xs, ys: model._model.restructure(0),
    "linear functions of another": lambda model, other, xs, ys: model._learner.adopt_linear(
        copy.deepcopy(other)._learner
    ),
    "a restart": lambda model, other, xs, ys: model._learner.restore(other._learner.tensors()),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["two classes", "a number"])
def test_after_a_change_a_row_is_computed_again(kind, change):
    model, xs, ys = stream(kind, 1100)
    learn(model, xs[:700], ys[:700])
    other = learn(copy.deepcopy(model), xs[700:], ys[700:])
    asked = [{**xs[650], "x1": 0.25}]
    before = predictions(model, asked)
    CHANGES[change](model, other, xs, ys)
    after = predictions(model, asked)
    assert after == predictions(copy.deepcopy(model), asked)
    assert after != before or change == "scales"


@pytest.mark.parametrize("kind", ["a number", "a given kernel"])
def test_values_and_names_decide(kind):
    model, xs, ys = stream(kind, 500)
    learn(model, xs, ys)
    x, apart = xs[-1], copy.deepcopy(model)
    changed = [{**x, "x1": x["x1"] + 1e-9}, {**x, "x1": -0.0}, {**x, "x1": 0.0}, {**x, "late": x["x1"]}]
    changed += [dict(list(x.items())[1:]), dict(zip(x, reversed(x.values()), strict=True)), x, {"x0": 0.5}, {"x1": 0.5}]
    for before in (x, {"x2": 0.5}):
        for one in changed:
            model.predict_one(before)
            said = model.predict_one(one)
            assert said == copy.deepcopy(apart).predict_one(one)


def test_a_row_of_many_names_is_not_kept():
    model, other = KernelRegressor(**SMALL), KernelRegressor(**SMALL)
    X = np.random.default_rng(3).normal(size=(40, MOST_NAMES + 1))
    for row in X.tolist():
        x = {f"x{j}": value for j, value in enumerate(row)}
        model.predict_one(x)
        assert not is_kept(model)
        model.learn_one(x, row[0])
        other.learn_one(x, row[0])
    assert content(model) == content(other)


def test_copies_and_files_have_no_row():
    model, xs, ys = stream("a number", 300)
    learn(model, xs, ys)
    before = content(model)
    model.predict_one(xs[0])
    assert content(model) == before
    twin = copy.deepcopy(model)
    assert not is_kept(twin)
    apart = model._learner.to_predict_apart()
    row = model._state.scales(apart.directions.row(xs[7]))
    kept = last_of(model).f.copy()
    apart.scores(row)
    assert is_kept(model)
    assert np.array_equal(last_of(model).f, kept)


def test_threads_that_predict_change_no_bit():
    model, xs, ys = stream("two classes", 900)
    other, over, errors = stream("two classes", 1)[0], threading.Event(), []

    def ask(first):
        try:
            while not over.is_set():
                for x in xs[first::4]:
                    model.predict_one(x)
        except BaseException as error:
            errors.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=ask, args=(first,)) for first in range(2)]
    try:
        for thread in threads:
            thread.start()
        for x, y in zip(xs, ys, strict=True):
            model.predict_one(x)
            model.learn_one(x, y)
    finally:
        over.set()
        for thread in threads:
            thread.join(LIMIT)
        sys.setswitchinterval(before)
    assert not errors
    learn(other, xs, ys)
    assert content(model) == content(other)
