"""A string is refused only under a name that has settled on numbers; predictions determine the type of no name."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from river import metrics

from benchmarks.common import InMemory
from streamkernel import (
    DataWarning,
    InputError,
    KernelClassifier,
    KernelNoveltyDetector,
    KernelRegressor,
    kernels,
    learners,
    load,
)
from streamkernel.connectors import Event
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
    """Return a model that has learned numbers and a string."""
    model = request.param()
    for i in range(16):
        model.learn_one({**GOOD, "age": float(i)}, i % 2)
    return model


def test_a_string_is_refused_and_nothing_is_learned(model: Any) -> None:
    before = model.predict_one(GOOD)
    with refused(STRING):
        model.learn_one(BAD, 1)
    with refused(STRING):
        model.predict_one(BAD)
    assert model.predict_one(GOOD) == before
    for _ in range(16):
        model.predict_one({"weight": "heavy"})
        model.learn_one({"weight": 2, "colour": None}, 1)  # a missing value determines no type
    with refused("at x['weight']"):
        model.predict_one({"weight": "heavy"})


def test_a_fast_event_after_a_prediction_is_noted() -> None:
    model = KernelClassifier(kernels.Gaussian(1.0), learner="dsg", max_features=64)
    x = {"age": 31.0}
    for _ in range(16):
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
    for _ in range(20):
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
    for _ in range(16):
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
    with refused("at X['age'], row 17"):
        late = pd.DataFrame({"age": [*range(17), "NA"], "colour": ["red", None] * 9})
        model.learn_many(late, *(9 * one for one in y))
    gaps = {"age": [1.0, np.nan], "colour": ["red", None], "gap": [np.nan, np.nan]}
    for _ in range(16):
        model.learn_many(pd.DataFrame(gaps), *y)
    for call in (predict, lambda X: model.learn_many(X, *y)):
        with refused(", row 0"):
            call(pd.DataFrame({"age": ["NA", 2.0]}))
    model.learn_many(pd.DataFrame({"age": [3, 4], "gap": ["wide", "narrow"]}), *y)
    with refused("at X[0], row 1"):
        model.learn_many(np.ones((16, 1)), *(8 * one for one in y))
        predict(pd.DataFrame({0: [1.0, "NA"]}))


def test_an_engine_accepts_numbers_after_one_invalid_value() -> None:
    ages = ["NA", *map(float, range(59)), "NA"]
    records = [{"age": age, "y": 2.0} for age in ages]
    events = [Event("records", i, b"", record) for i, record in enumerate(records)]
    engine = Engine(
        KernelRegressor(kernels.Gaussian(1.0), max_features=64), InMemory(events, 4), label="y", metric=metrics.MAE()
    )
    engine.run()
    assert engine.outcomes["learned"] == 60
    assert engine.outcomes["dead_letter"] == 1


LEARNERS = {"Newton": {}, "first order": {"learner": "dsg"}, "a kernel": {"kernel": kernels.Gaussian(1.0)}}
SMALL: dict[str, Any] = {"max_features": 64}
FRAMES = {"pandas": pd.DataFrame, "Arrow": pa.Table.from_pylist}


def of_plans(n: int, numbers: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """Return examples with a string, or a number at some places."""
    return [{"plan": 3 if i in numbers else ("basic", "pro")[i % 2], "a": float(i % 7)} for i in range(n)]


def names_of(model: Any) -> Any:
    """Return all that a model knows of names."""
    known = model._state.numeric
    return known.counts, known.fields


@pytest.mark.parametrize("options", LEARNERS.values(), ids=LEARNERS)
@pytest.mark.parametrize("odd", [(0,), (10, 11), (60,), tuple(range(20, 27))], ids=repr)
def test_numbers_among_strings_refuse_no_later_string(options: dict[str, Any], odd: tuple[int, ...]) -> None:
    xs = of_plans(120, odd)
    model, table = (KernelClassifier(**options, **SMALL) for _ in range(2))
    for i, x in enumerate(xs):
        model.learn_one(x, i % 2)
    table.learn_many(pd.DataFrame(xs), [i % 2 for i in range(len(xs))])
    assert model._events == len(xs)
    assert model.predict_one(xs[1]) is not None
    assert names_of(table) == names_of(model)


@pytest.mark.parametrize("options", LEARNERS.values(), ids=LEARNERS)
def test_a_name_of_strings_accepts_numbers_for_ever(options: dict[str, Any]) -> None:
    model = KernelRegressor(**options, **SMALL)
    for x in [*[{"plan": "pro"}] * 16, *[{"plan": 3.0}] * 500, {"plan": "basic"}]:
        model.learn_one(x, 1.0)
    assert model._events == 517


def test_codes_of_which_many_are_numbers_are_learned() -> None:
    generator = np.random.default_rng(1)
    model = KernelClassifier(learner="dsg", **SMALL)
    for i, digits in enumerate(generator.integers(0, 4, 3000).tolist()):
        code = f"{i % 50:04d}" if i % 5 else "e"
        model.learn_one({"code": code if digits or code == "e" else float(code)}, i % 2)
    assert model._events == 3000


@pytest.mark.parametrize("options", LEARNERS.values(), ids=LEARNERS)
@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_tables_count_as_examples_do(options: dict[str, Any], frame: Any) -> None:
    generator = np.random.default_rng(2)
    columns: dict[str, list[Any]] = {
        "number": generator.normal(size=60).tolist(),
        "few numbers": [float(i) if i < 10 else None for i in range(60)],
        "text": [None if i % 9 == 0 else "ab"[i % 2] for i in range(60)],
        "digits": [str(i) for i in range(60)],
        "none": [None] * 60,
    }
    xs = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    model, table = (KernelRegressor(**options, **SMALL) for _ in range(2))
    for x in xs:
        model.learn_one(x, 1.0)
    for part in (xs[:25], xs[25:]):
        table.learn_many(frame(part), [1.0] * len(part))
    assert names_of(table) == names_of(model)


def test_names_up_to_the_limit_are_the_same_in_a_table() -> None:
    generator = np.random.default_rng(3)
    xs = [{str(j): value for j, value in enumerate(row)} for row in generator.normal(size=(3, 1500)).tolist()]
    for j in range(1400):
        del xs[0][str(j)]
    model, table = (KernelRegressor(**SMALL) for _ in range(2))
    for x in xs:
        model.learn_one(x, 1.0)
    table.learn_many(pd.DataFrame(xs), [1.0] * 3)
    assert names_of(table) == names_of(model)
    assert len(names_of(model)[0]) == 1024


@pytest.mark.parametrize("options", LEARNERS.values(), ids=LEARNERS)
def test_counts_survive_a_file_and_a_refusal(options: dict[str, Any], tmp_path: Path) -> None:
    model = KernelClassifier(**options, **SMALL)
    for i, x in enumerate(of_plans(30, (4,))):
        model.learn_one(x, i % 2)
    before = names_of(model)
    with pytest.raises(InputError):
        model.learn_one({"a": "NA", "plan": "basic"}, 1)
    assert names_of(model) == before
    model.save(tmp_path / "model")
    assert names_of(load(tmp_path / "model")) == before


@pytest.mark.parametrize("options", LEARNERS.values(), ids=LEARNERS)
@pytest.mark.parametrize("many", [False, True], ids=["one by one", "a table"])
def test_numbers_that_are_text_are_warned_of_once(options: dict[str, Any], many: bool) -> None:
    xs = [{"x": f"{i / 7:.3f}", "code": f"k{i}", "mixed": str(i) if i % 2 else "low"} for i in range(200)]
    model = KernelRegressor(**options, **SMALL)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if many:
            model.learn_many(pd.DataFrame(xs[:50]), [1.0] * 50)
            model.learn_many(pd.DataFrame(xs[50:]), [1.0] * 150)
        else:
            for x in xs:
                model.predict_one(x)
                model.learn_one(x, 1.0)
    (warning,) = (found for found in caught if issubclass(found.category, DataWarning))
    assert str(warning.message).startswith("field 'x': 64 of 64 texts are numbers")
    assert "float(x['x'])" in str(warning.message)


def test_63_numbers_that_are_text_are_not_warned_of() -> None:
    model = KernelRegressor(learner="dsg")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(63):
            model.learn_one({"x": str(i)}, 1.0)
