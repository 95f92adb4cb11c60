"""Functions of several bandwidths: against plain NumPy, beside one of them, and whole through all that models do."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from reference.bandwidths import Mixed
from streams import content

from streamkernel import KernelRegressor, kernels, learners, load, losses, rules, step_sizes, upkeep
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.learners.scoring import GRADIENTS2, MIXTURE
from streamkernel.learners.span import limits
from streamkernel.learners.state import MEAN, NOTHING

HALVES = kernels.MultiScale(kernels.Gaussian(1.0), (2.0, 1.0, 0.5))
OTHERS = kernels.MultiScale(kernels.Gaussian(1.0), (2.0, 1.0, 0.4))
"""With the directions of the first bandwidth in the blocks of all, and with other ones in each block."""

SMALL = {"kernel": HALVES, "learner": learners.DSG(features_per_seed=8), "max_features": 48}


def square(f, y):
    """Return the derivatives of (f - y)²/2."""
    return f - y, np.ones(1)


def logistic(f, y):
    """Return the derivatives of log(1 + exp(-f)) for y = 1."""
    p = 1 / (1 + np.exp(-f))
    return p - y, np.maximum(p * (1 - p), 0.25 * (p - y) ** 2)


def softmax(f, y):
    """Return the derivatives of the softmax, with what a Newton step takes for the second one."""
    p = np.exp(f - f.max())
    p /= p.sum()
    g = p - (np.arange(len(f)) == y)
    return g, np.maximum(p * (1 - p), 0.25 * g**2)


CASES = {
    "square": (losses.Square(), square, 1),
    "logistic": (losses.Logistic(), logistic, 1),
    "softmax": (losses.Logistic(), softmax, 3),
}


def stream(name, n=240):
    """Return inputs of two names, targets, and weights."""
    generator = np.random.default_rng(3)
    X = generator.normal(size=(n, 2))
    value = np.sin(2 * X[:, 0]) + X[:, 1] ** 2
    y = {"square": 3.0 + value, "logistic": value > 0.5, "softmax": np.digitize(value, [0.5, 1.5])}[name]
    return [dict(zip("ab", row, strict=True)) for row in X.tolist()], y.astype(float), generator.uniform(0.5, 2.0, n)


@pytest.mark.parametrize("kernel", [HALVES, OTHERS], ids=["halves", "others"])
@pytest.mark.parametrize("l2", [0.0, 0.02])
@pytest.mark.parametrize("name", CASES)
def test_predictions_are_those_of_plain_numpy(name, l2, kernel):
    loss, derivatives, columns = CASES[name]
    f = FirstOrderLearner(
        kernel,
        loss,
        rules.UDSG(grow=1, reuse=3),
        step_sizes.Constant(0.25),
        automatic=True,
        average=MIXTURE,
        intercept=MEAN if name == "square" else NOTHING,
        columns=columns,
        block_size=8,
        max_features=48,
        l2=l2,
    )
    reference, offset, total = Mixed(3, columns, 16, loss.curvature, derivatives, l2), 0.0, 0.0
    for i, (x, target, w) in enumerate(zip(*stream(name), strict=True)):
        row = f.row(x)._replace(weights=np.array([w]))
        z = f.embed_rows(row)[0].astype(np.float64)
        expected = reference.score(z) + offset
        if name == "square" and i:
            expected = np.clip(expected, *limits(f.span))
        assert f.scores(row)[0] == pytest.approx(expected, rel=1e-4, abs=1e-4), i
        assert z @ f.predicting() + offset * (name == "square") == pytest.approx(reference.score(z) + offset, abs=1e-4)
        f.learn(row, np.array([target]))
        total += w
        if name == "square":
            offset += w * (target - offset) / total
        z = f.embed_rows(row)[0].astype(np.float64)
        reference.grow(len(z))
        reference.learn(z, target - offset if name == "square" else target, w, name == "square")
    assert f.n_blocks == 6
    assert f.penalty == pytest.approx(0.5 * l2 * reference.norm2.sum(), rel=1e-4)


def test_blocks_of_halved_bandwidths_have_twice_the_angles():
    for kernel, is_shared in ((HALVES, True), (OTHERS, False)):
        model = KernelRegressor(**{**SMALL, "kernel": kernel})
        for x, target in zip(*stream("square", 30)[:2], strict=True):
            model.learn_one(x, target)
        f = model._learner
        z = f.embed_rows(f.row({"a": 0.3, "b": -0.8}))[0].reshape(6, 2, 8) * 8**0.5
        for wide, narrow in ((0, 1), (1, 2), (3, 4), (4, 5)):
            is_double = np.allclose(z[narrow], [1.0 - 2.0 * z[wide, 1] ** 2, 2.0 * z[wide, 0] * z[wide, 1]], atol=1e-5)
            assert is_double == is_shared


def learned(n=300, **options):
    """Return a model of a third of the cap's blocks for each bandwidth, and the events after those that it learned."""
    xs, y, _ = stream("square", n + 200)
    model = KernelRegressor(**SMALL, **options)
    for x, target in zip(xs[:n], y[:n].tolist(), strict=True):
        model.learn_one(x, target)
    return model, [*zip(xs[n:], y[n:].tolist(), strict=True)]


def test_every_bandwidth_can_win():
    """The loss of the mixture is near the loss of the best bandwidth, on streams that suit one each."""
    generator = np.random.default_rng(5)
    X = generator.normal(size=(4000, 3))
    for target in (np.sin(6 * X[:, 0]), np.sin(0.3 * X.sum(axis=1))):
        y, losses_of = target + 0.1 * generator.normal(size=len(X)), []
        for kernel in (None, *(kernels.Gaussian(m) for m in (0.25, 0.5, 1.0, 2.0))):
            model, total = KernelRegressor(kernel, learner="dsg"), 0.0
            for i, (x, value) in enumerate(zip(X.tolist(), y.tolist(), strict=True)):
                event = dict(zip("abc", x, strict=True))
                total += (model.predict_one(event) - value) ** 2 if i >= 1000 else 0.0
                model.learn_one(event, value)
            losses_of.append(total)
        assert losses_of[0] < 1.5 * min(losses_of[1:])
        assert losses_of[0] < 0.7 * max(losses_of[1:])


def test_an_outlier_moves_no_function_far():
    model, events = learned()
    twin = pickle.loads(pickle.dumps(model))
    twin.learn_one(events[0][0], 1e9)
    for x, _ in events[1:]:
        assert (
            abs(twin.predict_one(x) - model.predict_one(x)) < 30.0
        )  # an offset of 1e9 moves all; the functions do not


@pytest.mark.parametrize("is_saved", [False, True])
def test_copies_learn_with_the_same_bits(is_saved, tmp_path):
    model, events = learned()
    if is_saved:
        model.save(tmp_path / "model")
    twin = load(tmp_path / "model") if is_saved else pickle.loads(pickle.dumps(model))
    for x, target in events:
        assert twin.predict_one(x) == model.predict_one(x)
        model.learn_one(x, target)
        twin.learn_one(x, target)
    assert content(twin) == content(model)


def test_a_merged_model_predicts_the_mean_and_learns():
    model, events = learned()
    twins = [pickle.loads(pickle.dumps(model)) for _ in range(2)]
    for twin, part in zip(twins, (events[:50], events[50:150]), strict=True):
        for x, target in part:
            twin.learn_one(x, target)
    offsets = [one._learner.numbers["predicted_offset"] for one in twins]
    expected = [[one.predict_one(x) for x, _ in events[150:]] for one in twins]
    twins[0].merge(twins[1], base=model)
    merged = (
        np.array([twins[0].predict_one(x) for x, _ in events[150:]]) - twins[0]._learner.numbers["predicted_offset"]
    )
    assert merged == pytest.approx(
        np.array([1 / 3, 2 / 3]) @ (np.array(expected) - np.array(offsets)[:, None]), abs=1e-6
    )
    gradients2 = [one._learner.tensors()["member_steps"][:, GRADIENTS2] for one in (model, twins[0])]
    assert (gradients2[1] > gradients2[0]).all()  # steps do not begin anew
    for x, target in events[150:]:
        twins[0].learn_one(x, target)


@pytest.mark.parametrize("task", [upkeep.Pruning(keep=0.5), upkeep.Refit(window=300, tol=1e-8, l2=1e-4)])
def test_upkeep_of_the_mixture(task):
    model, events = learned()
    before = [model.predict_one(x) for x, _ in events]
    upkeep.apply(task, model, [*zip(*stream("square", 300)[:2], strict=True)])
    after = [model.predict_one(x) for x, _ in events]
    y = np.array([target for _, target in events])
    assert np.mean((after - y) ** 2) < 1.5 * np.mean((before - y) ** 2)
    for x, target in events:
        model.learn_one(x, target)
    assert np.mean([(model.predict_one(x) - target) ** 2 for x, target in events]) < np.mean((before - y) ** 2)


@pytest.mark.parametrize("name", ["member_steps", "mixer", "member_weights", "sizes"])
@pytest.mark.parametrize("change", [lambda a: -np.abs(a) - 1.0, lambda a: a * np.nan, lambda a: a[:-1]])
def test_a_file_with_impossible_functions_is_refused(name, change):
    f = learned()[0]._learner
    tensors = f.tensors()
    with pytest.raises(ValueError, match="expected"):
        f.restore(tensors | {name: change(tensors[name])})


def test_the_order_of_multiples_changes_nothing():
    xs, y, _ = stream("square")
    said = []
    for multiples in ((2.0, 1.0, 0.5), (0.5, 1.0, 2.0), (1.0, 0.5, 2.0)):
        kernel = kernels.MultiScale(kernels.Gaussian(1.0), multiples)
        model = KernelRegressor(**(SMALL | {"kernel": kernel}))
        for x, target in zip(xs, y.tolist(), strict=True):
            model.learn_one(x, target)
        said.append([model.predict_one(x) for x in xs[:9]])
    assert said[0] == said[1] == said[2]
