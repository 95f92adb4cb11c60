"""First-order functions scale their inputs, so that units do not matter; every way to learn has the same bits."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from river import preprocessing

from streamkernel import KernelClassifier, KernelRegressor, learners

UNITS = np.array([2.0**20, 2.0**-20, 1.0])
DSG = {"learner": "dsg", "max_features": 64}


def table(n: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return inputs of three names and targets."""
    generator = np.random.default_rng(1)
    X = generator.normal(size=(n, 3))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * generator.normal(size=n)


def events(X: np.ndarray[Any, Any]) -> list[dict[str, float]]:
    """Return the rows as dictionaries."""
    return [dict(zip("abc", row, strict=True)) for row in X.tolist()]


def test_predictions_have_the_same_bits_in_other_units() -> None:
    X, y = table(700)
    models = KernelRegressor(**DSG), KernelRegressor(**DSG)
    for x, other, target in zip(events(X), events(X * UNITS), y.tolist(), strict=True):
        models[0].learn_one(x, target)
        models[1].learn_one(other, target)
    assert [*map(models[0].predict_one, events(X))] == [*map(models[1].predict_one, events(X * UNITS))]


def test_it_is_as_good_as_behind_a_scaler_and_better_where_inputs_have_long_tails() -> None:
    X, y = table(4000)
    errors = {}
    for tails, inputs in (("short", X * UNITS), ("long", np.sinh(3.0 * X) * UNITS)):
        ours, behind = KernelRegressor(learner="dsg"), preprocessing.StandardScaler() | KernelRegressor(learner="dsg")
        for name, model in (("ours", ours), ("behind", behind)):
            squares = []
            for x, target in zip(events(inputs), y.tolist(), strict=True):
                squares.append((model.predict_one(x) - target) ** 2)
                model.learn_one(x, target)
            errors[tails, name] = np.mean(squares[1000:]) / y.var()
    assert errors["short", "ours"] < 1.1 * errors["short", "behind"]
    assert errors["long", "ours"] < 0.9 * errors["long", "behind"]


@pytest.mark.parametrize("batch_size", [1, 8])
def test_every_way_to_learn_has_the_same_bits(batch_size: int) -> None:
    X, y = table(1200)
    names, learner = list("abc"), learners.DSG(batch_size=batch_size)
    one, many, parts = (KernelRegressor(learner=learner, max_features=64) for _ in range(3))
    frame = pd.DataFrame(X * UNITS, columns=names)
    for x, target in zip(events(X * UNITS), y.tolist(), strict=True):
        one.learn_one(x, target)
    many.learn_many(frame, pd.Series(y))
    for first in range(0, 1200, 37):
        parts.learn_many(frame[first : first + 37], pd.Series(y[first : first + 37]))
        parts = pickle.loads(pickle.dumps(parts))
    answers = one.predict_many(frame).tolist()
    assert answers == many.predict_many(frame).tolist() == parts.predict_many(frame).tolist()
    assert answers == [one.predict_one(x) for x in events(X * UNITS)]


def test_new_names_come_at_any_time() -> None:
    """The table of scales grows while single events are learned."""
    one, many = KernelClassifier(**DSG), KernelClassifier(**DSG)
    stream = [({f"x{i % (1 + i // 4)}": 1000.0 + i % 7, "b": i % 5}, i % 3) for i in range(900)]
    for x, label in stream:
        one.predict_one(x)
        one.learn_one(x, label)
    for x, label in stream:
        many.learn_one(dict(reversed(x.items())), label)
    assert [one.predict_proba_one(x) for x, _ in stream] == [many.predict_proba_one(x) for x, _ in stream]


def test_an_explanation_is_in_the_units_of_the_inputs() -> None:
    X, _ = table(2000)
    model = KernelRegressor(learner="dsg")
    for x in events(X * UNITS):
        model.learn_one(x, x["a"] / UNITS[0])
    x = events(X * UNITS)[-1]
    parts, step = model.explain_one(x), 1e-4 * UNITS[0]
    slope = (model.predict_one({**x, "a": x["a"] + step}) - model.predict_one({**x, "a": x["a"] - step})) / (2.0 * step)
    assert slope * UNITS[0] == pytest.approx(1.0, abs=0.3)
    assert abs(parts["a"]) > 5.0 * abs(parts["b"]) + 5.0 * abs(parts["c"])


def test_a_kernel_takes_inputs_as_they_are() -> None:
    from streamkernel.kernels import Gaussian

    X, y = table(300)
    models = KernelRegressor(Gaussian(1.0), **DSG), KernelRegressor(Gaussian(1.0), **DSG)
    for x, other, target in zip(events(X), events(X * UNITS), y.tolist(), strict=True):
        models[0].learn_one(x, target)
        models[1].learn_one(other, target)
    assert models[0].predict_one(events(X)[0]) != models[1].predict_one(events(X * UNITS)[0])


def test_models_merge_with_the_moments_of_their_inputs() -> None:
    X, y = table(3000)
    base = KernelRegressor(**DSG)
    stream = [*zip(events(X * UNITS), y.tolist(), strict=True)]
    for x, target in stream[:1000]:
        base.learn_one(x, target)
    first, second = (pickle.loads(pickle.dumps(base)) for _ in range(2))
    for model, part in ((first, stream[1000:2000]), (second, stream[2000:])):
        for x, target in part:
            model.learn_one(x, target)
    first.merge(second, base=base)
    residuals = [first.predict_one(x) - target for x, target in stream[1000:]]
    assert np.var(residuals) < 0.7 * y.var()
    assert first.n_steps == 3000
