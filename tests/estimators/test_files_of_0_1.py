"""Model files of version 0.1: they load, predict the same bits as then, and continue learning as they would have."""

from __future__ import annotations

import json
import math
import platform
import random
from pathlib import Path

import llvmlite.binding
import numpy as np
import pytest

from streamkernel import (
    GaussianProcessRegressor,
    KernelDensityRatio,
    KernelRegressor,
    kernels,
    learners,
    load,
    tensor_file,
    vectors,
)
from streamkernel.estimators import model_file
from streamkernel.jit import compiled
from streamkernel.upkeep import Pruning, Refit

FOLDER = Path(__file__).parents[1] / "data" / "models_of_0.1"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


def stream(n, seed):
    """Return what the models of the files have learned, with seed 1, and other examples."""
    generator = random.Random(seed)
    for i in range(n):
        x = {"a": generator.gauss(0, 1), "b": generator.random(), "c": generator.choice(["u", "v", "w"])}
        yield x | ({"late": generator.gauss(5, 2)} if i > n // 2 else {})


def target(name, x):
    """Return the target that the model of the given name has learned."""
    if name == "classifier_two_classes":
        return x["a"] * (x["b"] - 0.5) > 0
    if name.startswith("classifier"):
        return "p" if x["a"] > 0.5 else "q" if x["b"] > 0.4 else "r"
    return math.sin(2 * x["a"]) + x["b"] ** 2 + (x["c"] == "u")


def answers(model):
    """Return all outputs of a model for ten examples, as lists of numbers."""
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
    """Return a stored output as a list of numbers."""
    values = list(said.values()) if isinstance(said, dict) else said if isinstance(said, list) else [said]
    return [float.fromhex(value) for value in values]


@compiled
def dot(a, b):
    return vectors.dot(a, b)


def has_wide_sums():
    """Return whether a sum of products has 32 partial sums, as on the machine that wrote the files, and not fewer.

    The compiler uses the widest vectors only on some of the processors that have them.
    """
    values = np.zeros(64)
    values[[0, 16, 32]] = 2.0**60, -(2.0**60), 1.0
    return dot(values, np.ones(64)) == 0.0


def has_the_bits_of_the_files(is_newton):
    """Return whether this machine rounds as the one that wrote the files.

    exp, log, cos and sin come from the C library, whose last digit depends on the library and on whether the processor
    has fused multiply-add. The order of the sums of models that take Newton steps depends on the width of vectors
    (`streamkernel.vectors.dot`), that of other sums does not.
    """
    library, version = platform.libc_ver()
    is_glibc = library == "glibc" and tuple(map(int, version.split("."))) >= (2, 28)
    has_fma = llvmlite.binding.get_host_cpu_features().get("fma", False)
    return is_glibc and platform.machine() == "x86_64" and has_fma and (has_wide_sums() or not is_newton)


def compare(found, expected, is_newton, rel=None):
    """Compare outputs with those of a file: bit by bit where `rel` is ``None`` and this machine rounds the same way."""
    expected = [numbers(one) for one in expected]
    if rel is None and has_the_bits_of_the_files(is_newton):
        assert found == expected
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=rel or 1e-12, abs=(rel or 1e-12) / 100.0)


AFTER = {"classifier_cdsg_hinge": 1e-6}
"""Relative tolerance after 100 more examples, for models without Newton steps whose bits differ from those of 0.1:
first-order steps of automatic size predict by an average, too, since the file was written."""

NEWTON = 1e-5
"""The same of models with Newton steps, which add the same numbers to float32 factors as in 0.1 in another order. The
largest of these differences are some 10⁻⁷ of the factors, and larger than that in the probability of a rare class."""


@pytest.mark.parametrize("name", EXPECTED)
def test_a_model_of_0_1_predicts_and_continues_learning(name, tmp_path):
    model = load(FOLDER / f"{name}.safetensors")
    is_newton = isinstance(getattr(model, "learner_", None), learners.Newton)
    compare(answers(model), EXPECTED[name]["predictions"], is_newton)
    model.save(tmp_path / "again")
    assert answers(load(tmp_path / "again")) == answers(model)
    for x in stream(100, 3):
        model.learn_one(x, *([] if name in ("novelty", "random_features") else [target(name, x)]))
    compare(answers(model), EXPECTED[name]["after_100_more"], is_newton, NEWTON if is_newton else AFTER.get(name))


@pytest.mark.parametrize(
    "model",
    [
        KernelDensityRatio(kernels.MultiScale(kernels.Gaussian(1.0)).on("a", "b"), divergence="novelty", rho=-0.5),
        KernelRegressor(kernels.MultiScale(kernels.Gaussian("median"), (0.5, 2.0)), max_features=32),
    ],
    ids=lambda model: type(model).__name__,
)
def test_old_names_of_kernels_and_divergences_are_read(model, tmp_path):
    for x in stream(70, 1):
        model.learn_one(x, x["a"] > 0.0)
    description, tensors = model_file.describe(model)
    if "divergence" in description["parameters"]:
        description["parameters"]["form"] = description["parameters"].pop("divergence")
    text = json.dumps(description).replace('"MultiScale"', '"Ladder"').replace('"OnInputs"', '"On"')
    assert text != json.dumps(description)
    tensor_file.write(tmp_path / "old", "model", json.loads(text), tensors)
    old = load(tmp_path / "old")
    assert repr(old) == repr(model)
    assert answers(old) == answers(model)


def test_old_names_of_parameters_and_classes_are_read(tmp_path):
    today = {"pruning": Pruning(every=50, window=40), "refit": Refit(every=60, window=40)}
    learner = learners.DSG(features_per_seed=4)
    model = KernelRegressor(kernels.Gaussian(1.0), learner=learner, max_features=16, **today)
    for x in stream(70, 1):
        model.learn_one(x, target("regressor", x))
    description, tensors = model_file.describe(model)
    parameters = description["parameters"]
    parameters["compaction"] = parameters.pop("pruning") | {"type": "Compaction"}
    parameters["polish"] = parameters.pop("refit") | {"type": "Polish"}
    tensor_file.write(tmp_path / "old", "model", description, tensors)
    old = load(tmp_path / "old")
    assert {name: getattr(old, name) for name in today} == today
    for x in stream(100, 3):
        for one in (model, old):
            one.learn_one(x, target("regressor", x))
    assert answers(old) == answers(model)
    assert (old.n_prunings, old.gap) == (model.n_prunings, model.gap) != (0, math.nan)
