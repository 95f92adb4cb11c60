"""A mixture of several targets: against plain NumPy, and against a mixture of each target alone."""

from __future__ import annotations

import numpy as np
import pytest
from reference import algorithms, second_order
from streams import names_in_order, weights

from streamkernel import kernels, losses, step_sizes
from streamkernel.learners import state
from streamkernel.second_order import growth
from streamkernel.second_order.mixture import SecondOrderLearner

SIGMA, PER_BLOCK, BLOCKS, TARGETS = 0.8, 5, 4, 3
LOSSES = {
    "logistic": (losses.Logistic(), second_order.Logistic()),
    "squared hinge": (losses.SquaredHinge(), second_order.SquaredHinge()),
    "square": (losses.Square(), second_order.Square()),
    "huber": (losses.Huber(0.4), second_order.Huber(0.4)),
}


def mixture(loss, targets, **options):
    f = SecondOrderLearner(
        kernels.Gaussian(SIGMA),
        loss,
        step_sizes.Constant(0.75 / loss.curvature),
        block_size=PER_BLOCK,
        max_features=PER_BLOCK * BLOCKS,
        seed=5,
        is_linear=True,
        **options,
    )
    return f.with_targets(targets)


def plain_mixture(name, names, intercept, joint, forgetting, l2, batch_size):
    """Return the plain learner of one target."""
    compiled, plain = LOSSES[name]
    features = algorithms.gaussian(names, SIGMA, PER_BLOCK, seed=5)
    return second_order.Mixture(
        lambda block, x, multiple: features(block, x),
        plain,
        blocks=BLOCKS,
        joint=joint,
        outputs=2 * PER_BLOCK,
        columns=1,
        gamma=0.75 / compiled.curvature,
        follow=second_order.FOLLOW / compiled.curvature,
        batch_size=batch_size,
        forgetting=forgetting,
        l2=l2,
        intercept=bool(intercept),
        linear=second_order.Line(plain, compiled.curvature, len(names), 1, forgetting, l2),
        neighbours=second_order.Neighbours(1, bool(intercept), False),
    )


def examples(n, names, for_classes, scales=(1.0, 50.0, 0.02), seed=15):
    """Return inputs and targets of different scales, some of which are far out."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, names))
    f = np.stack([np.sin(2.0 * X[:, 0]) + X[:, 1], X[:, 1] * X[:, 2], np.abs(X[:, 0]) - X[:, 2]], axis=1)
    f += 0.3 * generator.normal(size=f.shape)
    X[50:51, 1] = 300.0
    if for_classes:
        return X, (f > [0.0, 0.5, 1.0]).astype(float)
    f[70, 0], f[80, 1] = 300.0, -100.0
    return X, scales * f + [3.0, -20.0, 0.0]


@pytest.mark.parametrize(
    ("loss", "joint", "forgetting", "l2", "batch", "is_weighted"),
    [
        ("square", False, 1.0, 0.0, 1, False),
        ("square", True, 0.99, 0.05, 16, True),
        ("huber", False, 1.0, 0.0, 1, True),
        ("logistic", False, 1.0, 0.05, 1, False),
        ("logistic", True, 0.99, 0.0, 16, True),
        ("squared hinge", False, 0.99, 0.0, 1, False),
    ],
)
def test_the_compiled_learner_is_the_printed_one(monkeypatch, loss, joint, forgetting, l2, batch, is_weighted):
    monkeypatch.setattr(second_order, "FROM", growth.FROM)
    compiled, _ = LOSSES[loss]
    intercept = 0 if compiled.for_classes else state.MEAN
    names = names_in_order(mixture(losses.Square(), 1), 4)
    options = {"joint": joint, "forgetting": forgetting, "l2": l2, "batch_size": batch}
    f = mixture(compiled, TARGETS, intercept=intercept, **options)
    reference = second_order.SeveralTargets([plain_mixture(loss, names, intercept, **options) for _ in range(TARGETS)])
    X, y = examples(420, len(names), compiled.for_classes)
    w = weights(len(y)) if is_weighted else np.ones(len(y))
    rows, sizes = f.directions.rows(names, X)._replace(weights=w), np.maximum(1.0, y.std(axis=0))
    for i in range(len(y)):
        row = rows.part(i, i + 1)
        assert np.allclose(f.scores(row)[0] / sizes, reference.scores(X[i]) / sizes, rtol=1e-4, atol=1e-4), i
        f.learn(row, y[i : i + 1])
        reference.learn(X[i], y[i], w[i])
    v, w, newton = np.split(f.arrays.weights, TARGETS), f.arrays.linear.w, [group.newton for group in f.groups]
    for t, own in enumerate(reference.mixtures):
        assert np.allclose(v[t], own.v, rtol=1e-4, atol=1e-4)
        (line,) = own.linear
        assert np.allclose(w[t, : len(line.w)], line.w[:, 0], rtol=1e-5, atol=1e-5 * np.abs(line.w).max())
        for ours, theirs in zip(newton, own.groups, strict=True):
            assert np.allclose(ours[t], theirs.newton[:, 0], rtol=1e-4, atol=1e-4 * np.abs(theirs.newton).max())


def test_each_target_is_learned_as_if_it_were_alone():
    """With the square loss, steps of equal length, where nothing is clipped and before groups are added, to the bit."""
    options = {"intercept": state.MEAN, "forgetting": 1.0, "batch_size": 16}
    names = names_in_order(mixture(losses.Square(), 1), 4)
    together = unclipped(mixture(losses.Square(), TARGETS, **options))
    X, y = examples(500, len(names), False)
    X[50], y[70], y[80] = 0.0, 3.0, -20.0
    rows = together.directions.rows(names, X)
    together.learn(rows, y)
    for t in range(TARGETS):
        alone = unclipped(mixture(losses.Square(), 1, **options))
        alone.learn(rows, y[:, t])
        assert np.array_equal(together.scores(rows)[:, t], alone.scores(rows)[:, 0])


def unclipped(f):
    """Let no derivative be clipped."""
    f.arrays.bounds.reshape(f.n_targets, -1)[:, :-1] = 1e9
    return f
