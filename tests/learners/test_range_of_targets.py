"""Predictions of first-order functions and Gaussian processes stay in a range of targets that follows trends."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from streams import as_dicts, frame, write_parts

from streamkernel import GaussianProcessRegressor, KernelRegressor, kernels, learners, load
from streamkernel.estimators import model_file
from streamkernel.interop.frozen_function import freeze
from streamkernel.interop.numpy_predictor import outputs
from streamkernel.learners.span import NO_SPAN, limits
from streamkernel.research import StochasticGaussianProcessRegressor
from streamkernel.upkeep import Refit

CODE = -200.0

SQUARES = kernels.Polynomial(2)

MODELS = {
    "dsg": lambda kernel: KernelRegressor(kernel, learner="dsg", max_features=256),
    "averaged": lambda kernel: KernelRegressor(kernel, learner=learners.DSG(averaging=True), max_features=256),
    "batches": lambda kernel: KernelRegressor(kernel, learner=learners.DSG(batch_size=4), max_features=256),
    "absolute": lambda kernel: KernelRegressor(kernel, loss="absolute", learner="dsg", max_features=256),
    "process": lambda kernel: GaussianProcessRegressor(kernel, n_features=48),
    "noise": lambda kernel: GaussianProcessRegressor(kernel, noise=0.01, n_features=48),
    "stochastic": lambda kernel: StochasticGaussianProcessRegressor(
        kernel, noise=0.01, n_features=48, batch_size=8, step_size=0.02
    ),
}
every_model = pytest.mark.parametrize("name", MODELS)


def air(n=400):
    """Return thirteen inputs and a target near 0.3 that is nearly linear in them."""
    generator = np.random.default_rng(0)
    X = 0.3 * generator.normal(size=(n, 13))
    y = 0.3 + 0.1 * (X @ np.linspace(-1.0, 1.0, 13)) + 0.005 * generator.normal(size=n)
    return as_dicts(X), y.tolist()


def coded(xs):
    """Return inputs of which nine, the next ones each time, have the code for missing values."""
    return [x | {f"x{(i + j) % 13}": CODE for j in range(9)} for i, x in enumerate(xs)]


def learned(name, kernel=SQUARES):
    xs, ys = air()
    model = MODELS[name](kernel)
    for x, y in zip(xs, ys, strict=True):
        model.learn_one(x, y)
    return model


def progressive(model, xs, ys):
    """Return predictions, each made before its example is learned."""
    predictions = []
    for x, y in zip(xs, ys, strict=True):
        predictions.append(model.predict_one(x))
        model.learn_one(x, y)
    return np.array(predictions)


@every_model
def test_inputs_that_jump_to_a_code_leave_predictions_in_range(name, tmp_path):
    """Without limits they were from -5,100 to -1,600 with dsg, and from -700 to 1,300 with a process."""
    xs, ys = air()
    model, inputs = learned(name), coded(xs[:40])
    predictions = [model.predict_one(x) for x in inputs]
    low, high = min(ys), max(ys)
    more = 0.2001 * (high - low)
    if isinstance(model, GaussianProcessRegressor):
        low = min(low, 0.0)  # the prior mean
        more = 0.2001 * (high - low)
    assert low - more <= min(predictions) <= max(predictions) <= high + more
    assert min(predictions) < low or max(predictions) > high
    assert list(model.predict_many(frame(inputs))) == predictions
    assert [copy.deepcopy(model).predict_one(x) for x in inputs] == predictions
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert [again.predict_one(x) for x in inputs] == predictions
    assert progressive(again, inputs, ys[:40]).tolist() == progressive(model, inputs, ys[:40]).tolist()


def without_range(tensors):
    """Let a target of any size be in the range of the targets."""
    tensors["span"] = np.array([-NO_SPAN, NO_SPAN, *[0.0] * (len(tensors["span"]) - 2)])


@every_model
def test_predictions_in_range_are_as_without_limits(name, tmp_path):
    xs, _ = air()
    model = learned(name)
    usual = [model.predict_one(x) for x in xs]
    path = write_parts(tmp_path, model_file.describe(model), without_range)
    free = load(path)
    assert [free.predict_one(x) for x in xs] == usual
    assert np.abs([free.predict_one(x) for x in coded(xs)]).max() > 10.0
    assert (free.n_bounded_predictions, free.n_outlying_targets) == (0, 0)


def ranged(free, ys, first):
    """Return predictions limited to the range of the targets before each, from unlimited ones and a first value."""
    low = high = first
    below = above = 0.0
    predictions = []
    for n, (prediction, y) in enumerate(zip(free, ys, strict=True), 1):
        more = 0.2 * (high - low)
        predictions.append(min(max(prediction, low - max(more, 2.0 * below)), high + max(more, 2.0 * above)))
        kept = 1.0 - 1.0 / min(n, 1000)
        below, above = kept * below + max(low - y, 0.0), kept * above + max(y - high, 0.0)
        low, high = min(low, y), max(high, y)
    return np.array(predictions)


@pytest.mark.parametrize("name", ["dsg", "averaged", "absolute", "noise"])
def test_each_prediction_and_the_count_are_those_of_a_plain_loop(name, tmp_path):
    xs, ys = air(300)
    xs[100:300:10] = coded(xs[100:300:10])
    model = MODELS[name](SQUARES)
    begins_at_0 = name == "noise"  # the prior mean
    if not begins_at_0:
        model.learn_one(xs.pop(0), first := ys.pop(0))
    free = load(write_parts(tmp_path, model_file.describe(model), without_range))
    raw = progressive(free, xs, ys)
    expected = ranged(raw, ys, 0.0) if begins_at_0 else ranged([first, *raw], [first, *ys], first)[1:]
    assert progressive(model, xs, ys) == pytest.approx(expected, rel=1e-12)
    assert model.n_bounded_predictions == (expected != raw).sum() > 10
    assert model.n_outlying_targets == 0


@pytest.mark.parametrize("name", ["dsg", "absolute", "process"])
def test_an_isolated_outlier_does_not_extend_the_range_and_a_second_one_does(name):
    xs, _ = air()
    model = learned(name)
    model.learn_one(xs[0], 1000.0)
    assert model.n_outlying_targets == 1
    assert max(model.predict_one(x) for x in coded(xs)) < 1.0
    model.learn_one(xs[1], 1000.0)
    assert model.n_outlying_targets == 2  # the same value again may be a sensor that fails
    model.learn_one(xs[2], 1001.0)
    assert model.n_outlying_targets == 2
    limit = model_file.describe(model)[1]["span"][1]
    assert limit > 990.0


def test_merged_models_have_the_range_of_all_and_the_sums_of_counts():
    xs, ys = air(500)
    base = MODELS["dsg"](SQUARES)
    progressive(base, xs[:300], ys[:300])
    parts = [copy.deepcopy(base) for _ in range(2)]
    parts[0].learn_many(frame(coded(xs[300:310])), np.array(ys[300:310]))
    parts[1].learn_many(frame(xs[310:320]), 0.2 + np.array(ys[310:320]))
    counts = [model.n_bounded_predictions for model in (base, *parts)]
    merged = parts[0].merge(parts[1], base=base)
    assert merged.n_bounded_predictions == counts[1] + counts[2] - counts[0] > counts[0]
    seen = [*ys[:310], *(0.2 + np.array(ys[310:320]))]
    assert model_file.describe(merged)[1]["span"][:2].tolist() == [min(seen), max(seen)]


def test_a_refit_extends_the_range_by_its_targets():
    model = KernelRegressor(kernels.Gaussian(1.0), learner="dsg", max_features=256)
    for i in range(100):
        model.learn_one({"x": i % 7 / 7.0}, 1.0)
    model.run_task(Refit(), [({"x": i % 7 / 7.0}, 4.0) for i in range(100)])
    assert model.predict_one({"x": 0.5}) == pytest.approx(4.0, abs=0.1)


def test_an_exported_function_has_the_same_limits():
    xs, _ = air()
    model = MODELS["dsg"](kernels.Gaussian(5.0))
    progressive(model, *air())
    model._learner.span[:4] = 0.29, 0.3, 0.0, 0.0  # a function of cosines would stay in the range of its targets
    frozen = freeze(model, features=list(xs[0]))
    rows = np.array([list(x.values()) for x in xs[:50]])
    predictions = [model.predict_one(x) for x in xs[:50]]
    assert (min(predictions), max(predictions)) == limits(model._learner.span)
    assert outputs(np, frozen.about, frozen.arrays, rows)[:, 0] == pytest.approx(predictions, abs=1e-6)


@pytest.mark.parametrize("name", ["dsg", "process", "stochastic"])
@pytest.mark.parametrize("entries", [[1.0, 0.0, *[0.0] * 8], [-1e301, *[0.0] * 9], [0.0, 1.0, -1.0, *[0.0] * 7], [0.0]])
def test_a_crafted_range_is_refused(name, entries, tmp_path):
    parts = model_file.describe(learned(name))
    path = write_parts(tmp_path, parts, lambda tensors: tensors.update(span=np.array(entries)))
    with pytest.raises(ValueError, match="span"):
        load(path)


@every_model
def test_bounded_predictions_are_counted_when_they_are_learned(name):
    xs, ys = air()
    model = learned(name)
    before = model.n_bounded_predictions
    inputs = coded(xs[:8])
    for x in inputs:
        model.predict_one(x)
    assert model.n_bounded_predictions == before
    for x, y in zip(inputs, ys, strict=False):
        model.learn_one(x, y)
    assert before < model.n_bounded_predictions <= before + 8
    for x, y in zip(xs, ys, strict=True):
        model.learn_one(x, y)
    assert model.n_outlying_targets == 0


@every_model
def test_tables_and_single_examples_have_the_same_range(name):
    xs, ys = air(200)
    xs[150:160] = coded(xs[150:160])
    one, many = MODELS[name](SQUARES), MODELS[name](SQUARES)
    progressive(one, xs, ys)
    many.learn_many(frame(xs), np.array(ys))
    spans = [model_file.describe(model)[1]["span"] for model in (one, many)]
    assert np.allclose(*spans, rtol=1e-6)
    assert one.n_bounded_predictions == many.n_bounded_predictions > 0


@pytest.mark.parametrize("name", ["dsg", "batches", "absolute", "process"])
def test_a_trend_that_continues_is_followed(name):
    """The kernel is that of linear functions; all targets from some time on are beyond the range of those before."""
    generator = np.random.default_rng(0)
    ys = np.arange(600.0) + generator.normal(size=600)
    model = MODELS[name](kernels.Polynomial(1))
    predictions = progressive(model, [{"t": i / 100.0} for i in range(600)], ys.tolist())
    assert np.abs(predictions - ys)[200:].mean() < 3.0
    assert model.n_bounded_predictions < 10
    assert model.predict_one({"t": 6.5}) > ys.max() + 10.0
