"""Model files of version 0.1: they load, predict as they did, and learn on as they would have."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from streamkernel import GaussianProcessRegressor, load

FOLDER = Path(__file__).parents[1] / "data" / "models_of_0.1"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


def stream(n, seed):
    """Return what the models of the files have learned, with seed 1, and other examples."""
    generator = random.Random(seed)
    for i in range(n):
        x = {"a": generator.gauss(0, 1), "b": generator.random(), "c": generator.choice(["u", "v", "w"])}
        yield x | ({"late": generator.gauss(5, 2)} if i > n // 2 else {})


def target(name, x):
    """Return the target that the model of a name has learned."""
    if name == "classifier_two_classes":
        return x["a"] * (x["b"] - 0.5) > 0
    if name.startswith("classifier"):
        return "p" if x["a"] > 0.5 else "q" if x["b"] > 0.4 else "r"
    return math.sin(2 * x["a"]) + x["b"] ** 2 + (x["c"] == "u")


def answers(model):
    """Return all that a model says of ten examples, as lists of numbers."""
    found = []
    for x in stream(10, 2):
        if hasattr(model, "predict_proba_one"):
            found.append(list(model.predict_proba_one(x).values()))
        elif hasattr(model, "score_one"):
            found.append([model.score_one(x)])
        elif hasattr(model, "transform_one"):
            found.append(list(model.transform_one(x).values()))
        elif isinstance(model, GaussianProcessRegressor):
            said = model.predict_one(x, with_dist=True)
            found.append([said.mu, said.sigma])
        else:
            found.append([model.predict_one(x)])
    return found


def numbers(said):
    """Return an answer as it was written down, as a list of numbers."""
    values = list(said.values()) if isinstance(said, dict) else said if isinstance(said, list) else [said]
    return [float.fromhex(value) for value in values]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_model_of_0_1_predicts_and_learns_on(name):
    """To rounding, which depends on the processor that the file was written on."""
    model = load(FOLDER / f"{name}.safetensors")
    for found, expected in zip(answers(model), EXPECTED[name]["predictions"], strict=True):
        assert found == pytest.approx(numbers(expected), rel=1e-6, abs=1e-9)
    for x in stream(100, 3):
        model.learn_one(x, *([] if name in ("novelty", "random_features") else [target(name, x)]))
    for found, expected in zip(answers(model), EXPECTED[name]["after_100_more"], strict=True):
        assert found == pytest.approx(numbers(expected), rel=1e-3, abs=1e-5)
