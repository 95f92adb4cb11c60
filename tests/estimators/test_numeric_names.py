"""A string under a name with numbers is refused; predictions do not determine the type of a name."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from river import metrics

from benchmarks.common import InMemory
from connectors import Event
from streamkernel import InputError, KernelClassifier, KernelNoveltyDetector, KernelRegressor, kernels, learners, load
from streamkernel.engine import Engine

MODELS: dict[str, Callable[[], Any]] = {
    "scaled": lambda: KernelClassifier(learner=learners.Newton(features_per_seed=1), max_features=6),
    "Newton steps on inputs as they are": lambda: KernelClassifier(kernels.Gaussian(1.0), max_features=64),
    "first order": lambda: KernelClassifier(kernels.Gaussian(1.0), learner="dsg", max_features=64),
    "mini-batches": lambda: KernelRegressor(kernels.Gaussian(1.0), learner=learners.DSG(batch_size=4), max_features=64),
    "a transform": lambda: KernelRegressor(kernels.Gaussian(1.0).of("unit"), learner="dsg", max_features=64),
}
GOOD = {"age": 31.0, "colour": "red", "weight": None}
STRING = "Expected a number as learned before, or None if it is missing, got str 'NA' - at x['age']"
BAD = {"age": "NA", "colour": "red"}


def refused(text: str) -> Any:
    return pytest.raises(InputError, match=re.escape(text))


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def model(request: pytest.FixtureRequest) -> Any:
    """Return a model that has learned a number and a string."""
    model = request.param()
    for i in range(9):
        model.learn_one({**GOOD, "age": float(i)}, i % 2)
    return model


def test_a_string_is_refused_and_nothing_is_learned(model: Any) -> None:
    before = model.predict_one(GOOD)
    with refused(STRING):
        model.learn_one(BAD, 1)
    with refused(STRING):
        model.predict_one(BAD)
    assert model.predict_one(GOOD) == before
    model.learn_one({"weight": 2, "colour": None}, 1)  # a missing value determines no type
    with refused("at x['weight']"):
        model.predict_one({"weight": "heavy"})


def test_a_fast_event_after_a_prediction_is_noted() -> None:
    model = KernelClassifier(kernels.Gaussian(1.0), learner="dsg", max_features=64)
    x = {"age": 31.0}
    for _ in range(3):
        model.predict_one(x)
        model.learn_one(x, True)
    with refused(STRING):
        model.predict_one({"age": "NA"})


def test_a_prediction_decides_no_type() -> None:
    model = KernelClassifier(kernels.Gaussian(1.0), learner="dsg")
    model.predict_one({"age": 1.0})
    with pytest.raises(InputError):
        model.learn_one({"age": 1.0, "colour": [1]}, True)
    model.learn_one({"age": "NA"}, True)
    model.learn_one({"age": 31.0}, True)  # one invalid value does not cause later numbers to be rejected
    with refused(STRING):
        model.learn_one({"age": "NA"}, True)


@pytest.mark.parametrize(
    "copy", [lambda model, path: pickle.loads(pickle.dumps(model)), lambda model, path: load(path)]
)
def test_a_restored_model_refuses_the_same(model: Any, copy: Callable[..., Any], tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    twin = copy(model, tmp_path / "model")
    with refused(STRING):
        twin.predict_one(BAD)
    twin.learn_one(GOOD, 1)


def test_a_merged_model_knows_the_types_of_all_names() -> None:
    kernel = kernels.Gaussian(1.0)
    first, second = (KernelRegressor(kernel, learner="dsg", max_features=64) for _ in range(2))
    first.learn_one({"age": 31.0}, 1.0)
    second.learn_one({"colour": "red"}, 1.0)
    merged = first.merge(second)
    with refused(STRING):
        merged.predict_one(BAD)


@pytest.mark.parametrize("make", [KernelClassifier, KernelRegressor, KernelNoveltyDetector])
def test_tables_are_refused_as_examples_are(make: type[Any]) -> None:
    model = make(kernel=kernels.Gaussian(1.0), max_features=64)
    y = [] if make is KernelNoveltyDetector else [[0, 1]]
    predict = getattr(model, "predict_many", None) or model.score_many
    with refused("at X['age'], row 1"):
        model.learn_many(pd.DataFrame({"age": [1.0, "NA"], "colour": ["red", None]}), *y)
    model.learn_many(pd.DataFrame({"age": [1.0, np.nan], "colour": ["red", None], "gap": [np.nan, np.nan]}), *y)
    for call in (predict, lambda X: model.learn_many(X, *y)):
        with refused(", row 0"):
            call(pd.DataFrame({"age": ["NA", 2.0]}))
    model.learn_many(pd.DataFrame({"age": [3, 4], "gap": ["wide", "narrow"]}), *y)
    with refused("at X[0], row 1"):
        model.learn_many(np.array([[1.0], [2.0]]), *y)
        predict(pd.DataFrame({0: [1.0, "NA"]}))


def test_an_engine_accepts_numbers_after_one_invalid_value() -> None:
    records = [{"age": "NA", "y": 1.0}] + [{"age": float(i), "y": 2.0} for i in range(9)] + [{"age": "NA", "y": 1.0}]
    events = [Event("records", i, b"", record) for i, record in enumerate(records)]
    engine = Engine(
        KernelRegressor(kernels.Gaussian(1.0), max_features=64), InMemory(events, 4), label="y", metric=metrics.MAE()
    )
    engine.run()
    assert engine.outcomes["learned"] == 10
    assert engine.outcomes["dead_letter"] == 1
