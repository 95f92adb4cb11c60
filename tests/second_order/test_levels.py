"""Levels: each follows the targets as its formula says, and is in files, merged models and exports."""

import copy
import itertools

import numpy as np
import pytest

from streamkernel import KernelRegressor, kernels, load, losses, save, step_sizes
from streamkernel.interop import to_numpy
from streamkernel.interop.numpy_predictor import Predictor
from streamkernel.second_order.levels import LEVELS
from streamkernel.second_order.mixture import SecondOrderLearner


def mean_of_recent(ys):
    """Return the mean of targets of exponentially decreasing weights."""
    return list(itertools.accumulate(ys, lambda level, y: level + 0.075 * (y - level), initial=0.0))[-1]


AFTER = [
    mean_of_recent,
]
"""The value of each level after some targets with the square loss."""


@pytest.mark.parametrize("j", range(len(AFTER)))
def test_a_level_follows_the_targets(j):
    ys = np.random.default_rng(0).normal(2.0, 0.1, 300)
    f = SecondOrderLearner(kernels.Gaussian(1.0), losses.Square(), step_sizes.Constant(0.75), max_features=1024)
    for y in ys:
        f.learn(f.row({"x": 1.0}), np.array([y]))
    assert f.arrays.level[0, j] == pytest.approx(AFTER[j](ys.tolist()), rel=1e-9)


def test_each_level_is_tested():
    assert len(AFTER) == len(LEVELS)


def test_levels_are_in_files_merged_models_and_exports(tmp_path):
    generator = np.random.default_rng(1)
    xs = [{"a": a} for a in generator.normal(size=800)]
    ys = np.cumsum(generator.normal(size=800))  # a random walk, which levels follow
    model = KernelRegressor(max_features=256)
    for x, y in zip(xs, ys, strict=True):
        model.learn_one(x, y)
    levels = model._learner.arrays.level
    assert model._learner.shares["level"] != 0.0
    assert (levels != 0.0).all()
    save(model, tmp_path / "model.safetensors")
    stored = load(tmp_path / "model.safetensors")
    assert stored._learner.arrays.level.tobytes() == levels.tobytes()
    assert [stored.predict_one(x) for x in xs[:5]] == [model.predict_one(x) for x in xs[:5]]
    to_numpy(model, tmp_path / "model.npz")
    exported = Predictor(tmp_path / "model.npz").predict(np.array([[x["a"]] for x in xs[:5]]))
    np.testing.assert_allclose(exported, [model.predict_one(x) for x in xs[:5]], rtol=1e-4, atol=1e-4)
    twin = copy.deepcopy(model)
    twin._learner.arrays.level[:] += 1.0
    merged = copy.deepcopy(model).merge(twin)
    np.testing.assert_allclose(merged._learner.arrays.level, levels + 0.5)
