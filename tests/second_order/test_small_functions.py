"""Small functions: each follows the targets as its formula says, and is in files, merged models and exports."""

import copy
import itertools

import numpy as np
import pytest

from streamkernel import KernelRegressor, kernels, load, losses, save, step_sizes
from streamkernel.interop import to_numpy
from streamkernel.interop.numpy_predictor import Predictor
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.second_order.small_functions import FUNCTIONS


def mean_of_recent(ys):
    """Return the mean of targets of exponentially decreasing weights."""
    return list(itertools.accumulate(ys, lambda level, y: level + 0.075 * (y - level), initial=0.0))[-1]


AFTER = [
    lambda xs, ys: mean_of_recent(ys),
]
"""The score of each function at the last x after some examples with the square loss."""


@pytest.mark.parametrize("j", range(len(AFTER)))
def test_a_small_function_follows_the_targets(j):
    generator = np.random.default_rng(0)
    xs, ys = generator.normal(size=300), generator.normal(2.0, 0.1, 300)
    f = SecondOrderLearner(kernels.Gaussian(1.0), losses.Square(), step_sizes.Constant(0.75), max_features=1024)
    for x, y in zip(xs, ys, strict=True):
        f.learn(f.row({"x": x}), np.array([y]))
    assert f.scores_of_others(f.row({"x": xs[-1]}))[0, j, 0] == pytest.approx(AFTER[j](xs, ys), rel=1e-9)


def test_each_small_function_is_tested():
    assert len(AFTER) == len(FUNCTIONS)


def test_small_functions_are_in_files_merged_models_and_exports(tmp_path):
    generator = np.random.default_rng(1)
    xs = [{"a": a} for a in generator.normal(size=800)]
    ys = np.cumsum(generator.normal(size=800))  # a random walk, which they follow
    model = KernelRegressor(max_features=256)
    for x, y in zip(xs, ys, strict=True):
        model.learn_one(x, y)
    numbers = model._learner.arrays.small
    assert all(model._learner.shares[function.NAME] for function in FUNCTIONS)
    save(model, tmp_path / "model.safetensors")
    stored = load(tmp_path / "model.safetensors")
    assert stored._learner.arrays.small.tobytes() == numbers.tobytes()
    assert [stored.predict_one(x) for x in xs[:5]] == [model.predict_one(x) for x in xs[:5]]
    to_numpy(model, tmp_path / "model.npz")
    exported = Predictor(tmp_path / "model.npz").predict(np.array([[x["a"]] for x in xs[:5]]))
    np.testing.assert_allclose(exported, [model.predict_one(x) for x in xs[:5]], rtol=1e-4, atol=1e-4)
    twin = copy.deepcopy(model)
    twin._learner.arrays.small[:] += 1.0
    merged = copy.deepcopy(model).merge(twin)
    np.testing.assert_allclose(merged._learner.arrays.small, numbers + 0.5)
