"""A kernel at several bandwidths: each block has one of them, and the stream determines their unit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams import WAYS, classifier, content, examples, learn, predictions, regressor

from streamkernel import ModelFileError, RandomFeatures, kernels, load, losses, rules, step_sizes, tensor_file
from streamkernel.estimators import model_file
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.kernels import Cauchy, Gaussian, Laplacian, Matern, MultiScale
from streamkernel.posterior.posteriors import FeatureMap

BASES = [Gaussian(1.5), Laplacian(1.5), Cauchy(1.5), Matern(2.5, 1.5)]
MULTIPLES = (0.25, 2.0, 0.5)
VALUES = st.dictionaries(st.sampled_from("abcd"), st.floats(-5.0, 5.0), min_size=1)


def at(kernel, multiple):
    """Return the kernel with so many times its bandwidth."""
    name = "length_scale" if isinstance(kernel, Matern) else "sigma"
    return type(kernel)(**{**vars(kernel), name: multiple * 1.5})


@pytest.mark.parametrize("kernel", BASES, ids=repr)
@given(x=VALUES, x2=VALUES)
def test_the_kernel_is_the_mean_over_its_bandwidths(kernel, x, x2):
    values = [at(kernel, m)(x, x2) for m in MULTIPLES]
    assert MultiScale(kernel, MULTIPLES)(x, x2) == pytest.approx(sum(values) / 3.0, rel=1e-9, abs=1e-12)


def expansion(kernel, block_size, cache_bytes=1 << 24):
    return FirstOrderLearner(
        kernel, losses.Square(), rules.DSG(), step_sizes.Constant(0.1), per_k_xx=True, block_size=block_size,
        max_features=13 * block_size, cache_bytes=cache_bytes, seed=3,
    )  # fmt: skip


@pytest.mark.parametrize("cache_bytes", [0, 1 << 24])
@pytest.mark.parametrize("block_size", [7, 300, 1100])
@pytest.mark.parametrize("kernel", BASES, ids=repr)
def test_block_b_is_that_of_the_kernel_with_multiple_b(kernel, block_size, cache_bytes):
    """With the same seed and the same coefficients; 13 blocks are more than a panel for all sizes but the least."""
    x = {"a": 0.3, "b": -1.2}
    multi_scale = expansion(MultiScale(kernel, MULTIPLES), block_size, cache_bytes)
    for i in range(13):
        multi_scale.learn_one(multi_scale.row({"a": math.sin(i), "b": math.cos(i)}), float(i % 3 - 1))
    total = 0.0
    for rung, multiple in enumerate(MULTIPLES):
        one = expansion(at(kernel, multiple), block_size, cache_bytes)
        for _ in range(13):
            one.learn_one(one.row(x), 1.0)  # grows to the same blocks
        coef = multi_scale.coef.copy().reshape(*multi_scale.coef.shape[:3], -1, block_size)
        panels, blocks = coef.shape[0], coef.shape[3]
        index = np.arange(panels * blocks).reshape(panels, blocks)
        coef[np.broadcast_to((index % 3 != rung)[:, None, None], coef.shape[:4])] = 0.0
        one.coef[:] = coef.reshape(multi_scale.coef.shape)
        one._arena["numbers"][0] = multi_scale.numbers
        total += float(one.score_event({**x, "late": 0.0}))
    assert float(multi_scale.score_event({**x, "late": 0.0})) == pytest.approx(total, rel=1e-5, abs=1e-6)
    assert abs(total) > 1e-3


def test_features_without_blocks_take_turns():
    x = {"a": 0.3, "b": -1.2}
    found = FeatureMap(MultiScale(Gaussian(1.5), MULTIPLES), 100, seed=1, cache_bytes=0)
    z = found(found.row(x)).reshape(100, 2)
    for rung, multiple in enumerate(MULTIPLES):
        one = FeatureMap(Gaussian(1.5 * multiple), 100, seed=1, cache_bytes=0)
        assert np.allclose(z[rung::3], one(one.row(x)).reshape(100, 2)[rung::3], atol=1e-5)


def test_one_scale_is_the_kernel():
    xs, ys = examples(200)
    multi_scale, plain = (
        learn(classifier(kernel=k), xs, ys) for k in (MultiScale(Gaussian(1.5), [1.0]), Gaussian(1.5))
    )
    assert predictions(multi_scale, xs) == predictions(plain, xs)


@pytest.mark.parametrize("base", [Gaussian("median"), Laplacian("median"), Matern(1.5, "median", median_factor=0.5)])
def test_the_bandwidth_is_that_of_the_base_kernel(base):
    xs, ys = examples(300)
    multi_scale, plain = (learn(classifier(kernel=k), xs, ys) for k in (MultiScale(base), base))
    assert multi_scale.kernel_ == MultiScale(plain.kernel_)
    features = RandomFeatures(MultiScale(base), n_features=8)
    for x in xs:
        features.learn_one(x)
    assert features.kernel_ == multi_scale.kernel_
    with pytest.raises(ValueError, match="taken from a stream"):
        MultiScale(base)({"a": 1.0}, {"a": 2.0})


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seen", [0, 5, 300])
def test_a_model_with_several_scales_is_saved_and_loaded(way, seen, tmp_path):
    xs, ys = examples(330)
    kernel = MultiScale(Gaussian("median"), (0.25, 1.0)) + MultiScale(Laplacian("median")).on("x0")
    model = learn(classifier(kernel=kernel), xs[:seen], ys[:seen])
    twin = WAYS[way](model, tmp_path)
    assert (twin.kernel, twin.kernel_) == (model.kernel, model.kernel_)
    for one in (model, twin):
        learn(one, xs[seen:], ys[seen:])
    assert content(twin) == content(model)


@pytest.mark.parametrize(
    "crafted", [[], [0.5], ["a"], None, [0.25, 0.5, 1.0, float("nan")], {"type": "Gaussian"}], ids=repr
)
def test_a_file_with_other_multiples_is_refused(crafted, tmp_path):
    xs, ys = examples(40)
    description, tensors = model_file.describe(learn(classifier(kernel=MultiScale(Gaussian())), xs, ys))
    description["state"]["kernel"]["multiples"] = crafted
    tensor_file.write(tmp_path / "model", "model", description, tensors)
    with pytest.raises(ModelFileError):
        load(tmp_path / "model")


@pytest.mark.parametrize("scale", [1e-290, 1e-3, 1e25])
def test_extreme_bandwidths_and_multiples_stay_finite(scale):
    kernel = MultiScale(Gaussian(scale), (0.001, 1000.0))
    model = regressor(kernel=kernel)
    for i in range(50):
        model.learn_one({"a": scale * (i % 7)}, float(i % 2))
    assert math.isfinite(model.predict_one({"a": 3.0 * scale}))


def test_smooth_and_fine_structure_are_learned():
    """Where one bandwidth is too wide for the one or too narrow for the other."""
    generator = np.random.default_rng(0)
    xs = [{"a": a} for a in generator.uniform(-3.0, 3.0, 6000).tolist()]
    ys = [x["a"] + math.sin(20.0 * x["a"]) for x in xs]
    errors = {}
    for name, kernel in {"multi-scale": MultiScale(Gaussian(0.5), (0.1, 0.3, 1.0, 3.0)), "wide": Gaussian(1.5)}.items():
        model = learn(regressor(kernel=kernel, max_features=512, features_per_seed=32), xs[:5000], ys[:5000])
        errors[name] = np.mean([(model.predict_one(x) - y) ** 2 for x, y in zip(xs[5000:], ys[5000:], strict=True)])
    assert errors["multi-scale"] < 0.1 < 0.3 < errors["wide"]


def test_only_a_product_of_two_is_refused():
    with pytest.raises(ValueError, match="at most one MultiScale in a product"):
        regressor(kernel=MultiScale(Gaussian(1.0)) * MultiScale(Laplacian(1.0)).on("a"))
    assert kernels.MultiScale(Gaussian(1.0), [1, 2]).multiples == (1.0, 2.0)
