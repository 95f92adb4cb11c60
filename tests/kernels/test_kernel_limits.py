"""Kernels, steps and tables at the limits of their inputs."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import integrate

from streamkernel import InputError, KernelRegressor, kernels, learners, load, rules
from streamkernel.kernels.program import KernelProgram
from streamkernel.posterior.posteriors import FeatureMap
from streamkernel.research import StochasticGaussianProcessRegressor


def estimate(kernel, x, x2):
    features = FeatureMap(kernel, 4000, seed=1, cache_bytes=0)
    return float((features(features.row(x)) @ features(features.row(x2)).T)[0, 0])


@pytest.mark.parametrize("distance", [1e-3, 0.2, 1.0, 3.0])
@pytest.mark.parametrize("nu", [51.0, 200.0, 1e4, 1e6])
def test_a_smooth_matern_is_the_mixture_of_gaussians_that_it_is(nu, distance):
    """K_ν overflows here; k(x, x') = E exp(-νd²/2G) with one Gamma(ν) variable G."""

    def density(t):
        return math.exp(nu * (t - math.expm1(t)))  # of log(G/ν), not normalised

    end = 8.0 / math.sqrt(nu)
    found = [
        integrate.quad(lambda t, d=d: math.exp(-0.5 * d * d * math.exp(-t)) * density(t), -end, end, epsrel=1e-12)[0]
        for d in (distance, 0.0)
    ]
    assert kernels.Matern(nu, 1.0)({"a": 0.0}, {"a": distance}) == pytest.approx(found[0] / found[1], rel=1e-6)


def test_nu_too_large_for_float32_is_refused():
    with pytest.raises(ValueError, match=r"Expected 0\.01 <= nu <= 1e10"):
        kernels.Matern(nu=1e39)


@pytest.mark.parametrize("value", [5e-324, 1e-300, 1e-46, 1e-40])
@pytest.mark.parametrize("kernel", [kernels.ChiSquared(), kernels.Intersection(), kernels.JensenShannon()], ids=repr)
def test_a_tiny_factor_is_negligible(kernel, value):
    assert estimate(kernel, {"a": value, "b": 1.0}, {"b": 1.0}) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("factor", [1e-100, 1e100])
def test_a_factor_that_float32_cannot_hold_is_refused(factor):
    for kernel in (factor * kernels.Gaussian(1.0), kernels.DotProduct([factor]), factor * kernels.Hellinger()):
        with pytest.raises(ValueError, match="constant factors are from 1e-60 to 1e"):
            KernelProgram(kernel, seed=0)
    with pytest.raises(ValueError, match="Expected 0 < beta <= 1e100"):
        kernels.ExponentialSemigroup(1e200)


@pytest.mark.parametrize("number", [np.int64, np.float32, np.float64])
def test_numpys_numbers_are_parameters_and_can_be_saved(number, tmp_path):
    kernel = kernels.Gaussian(number(2)) + kernels.Polynomial(np.int64(2), c=number(1)) * number(3)
    model = KernelRegressor(kernel + kernels.ArcCosine(np.int32(1)) + kernels.Matern(number(1), number(2)))
    model.learn_one({"a": 1.0}, 2.0)
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").predict_one({"a": 2.0}) == model.predict_one({"a": 2.0})
    with pytest.raises(ValueError, match="Expected order to be 0, 1 or 2"):
        kernels.ArcCosine(1.0)


def test_a_tuple_name_is_distinct_from_a_transforms_output():
    """Inside a kernel outputs are told apart from the example's names by the number of their transform."""
    kernel = kernels.Gaussian(1.0).of("absolute") + 0.01 * kernels.Gaussian(1.0)
    x, x2 = {(1, "a"): 3.0, "a": 2.0}, {(1, "a"): 3.0, "a": 1.0}
    assert estimate(kernel, x, x2) == pytest.approx(kernel(x, x2), abs=0.05)


def test_a_kernel_on_an_indicator_reads_its_string():
    kernel = kernels.Gaussian(1.0).on("colour=red")
    x, x2 = {"colour": "red"}, {"colour": "blue"}
    assert kernel(x, x2) == pytest.approx(math.exp(-0.5))
    assert estimate(kernel, x, x2) == pytest.approx(kernel(x, x2), abs=0.05)


def test_equal_examples_can_be_preconditioned_with_any_epsilon():
    for epsilon in (1e-300, 1e-20, 1e-16):
        model = KernelRegressor(kernels.Gaussian(1.0), learner=learners.DSG(batch_size=4, preconditioner=epsilon))
        for _ in range(40):
            model.learn_one({"a": 1.0}, 1.0)
        assert model.predict_one({"a": 1.0}) == pytest.approx(1.0)


def test_an_example_that_a_new_block_cannot_read_does_not_stop_every_batch():
    """Its features are of usable size in the blocks so far; later steps continue without it."""
    model = KernelRegressor(
        kernels.ArcCosine(2),
        learner=learners.DSG(rule=rules.DSG(), batch_size=4, features_per_seed=16),
        max_features=3200,
    )
    refused = []
    for i in range(400):
        try:
            model.learn_one({"a": 1e7 if i % 4 == 0 else 1.0}, 1.0)
        except InputError:
            refused.append(i)
    assert 0 < len(refused) < 200
    assert model.n_steps > 40


def test_an_example_without_usable_features_does_not_wait_for_the_batch_of_a_process():
    model = StochasticGaussianProcessRegressor(
        kernels.Polynomial(2), noise=1.0, n_features=8, variance="operator", batch_size=4
    )
    model.learn_one({"a": 1.0}, 1.0)
    with pytest.raises(InputError, match="usable size"):
        model.learn_one({"a": 1e12}, 1.0)
    for _ in range(7):
        model.learn_one({"a": 1.0}, 1.0)
    assert model._seen.posterior._learned.steps == 2


def test_a_transform_sees_the_same_values_in_a_frame():
    kernel = kernels.Gaussian(1.0).of(lambda x: {"told": str(x["a"])})
    one, many = KernelRegressor(kernel), KernelRegressor(kernel)
    for i in range(6):
        one.learn_one({"a": i % 2}, float(i % 2))
    many.learn_many(pd.DataFrame({"a": [i % 2 for i in range(6)]}), pd.Series([float(i % 2) for i in range(6)]))
    assert one.predict_one({"a": 1}) == many.predict_one({"a": 1})


def test_a_frame_for_a_transform_can_be_empty_and_errors_name_the_row():
    model = KernelRegressor(kernels.Gaussian(1.0).of("simplex"))
    assert len(model.predict_many(pd.DataFrame({"a": np.zeros(0)}))) == 0
    with pytest.raises(InputError, match=r"at X\['a'\], row 2"):
        model.predict_many(pd.DataFrame({"a": [1.0, 2.0, -1.0]}))
