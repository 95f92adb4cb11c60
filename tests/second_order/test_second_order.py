"""The compiled second-order learner, example by example against the plain NumPy one, and against closed forms."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from cases import covering, slow
from reference import algorithms, second_order
from sklearn.linear_model import LogisticRegression, Ridge
from streams import weights

from streamkernel import losses, step_sizes
from streamkernel.kernels import Gaussian, MultiScale
from streamkernel.learners import state
from streamkernel.learners.embedding import embed_rows
from streamkernel.second_order import growth
from streamkernel.second_order.mixture import SecondOrderLearner

NAMES = ["height", "width", ("a", 1)]
SIGMA, PER_BLOCK, BLOCKS = 0.8, 5, 4
MULTIPLES = (0.25, 0.6, 1.5, 6.0)
TOLERANCE = 1e-4

LOSSES = {
    "logistic": (losses.Logistic(), second_order.Logistic(), 1),
    "logistic of 3": (losses.Logistic(), second_order.Softmax(), 3),
    "softmax of 2": (losses.Softmax(), second_order.Softmax(), 2),
    "squared hinge": (losses.SquaredHinge(), second_order.SquaredHinge(), 1),
    "squared hinge of 3": (losses.SquaredHinge(), second_order.SquaredHinge(), 3),
    "smooth hinge": (losses.SmoothHinge(), second_order.SmoothHinge(), 1),
    "smooth hinge of 3": (losses.SmoothHinge(), second_order.SmoothHinge(), 3),
    "square": (losses.Square(), second_order.Square(), 1),
    "huber": (losses.Huber(0.4), second_order.Huber(0.4), 1),
}


@pytest.fixture(autouse=True)
def early(monkeypatch):
    """Larger groups begin early, for what plain NumPy can follow."""
    monkeypatch.setattr(growth, "FROM", second_order.FROM)


def examples(n, columns, for_classes, seed=15):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, len(NAMES)))
    f = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * generator.normal(size=n)
    if not for_classes:
        f[70] = 500.0  # an outlier
        return X, f
    return X, np.digitize(f, [0.0] if columns < 3 else [-0.5, 0.7]).astype(float)


def mixture(loss, *, kernel=None, columns=1, block_size=PER_BLOCK, blocks=BLOCKS, intercept=0, sigma=SIGMA, **options):
    return SecondOrderLearner(
        kernel or Gaussian(sigma),
        loss,
        step_sizes.Constant(0.75 / loss.curvature),
        block_size=block_size,
        max_features=block_size * blocks,
        columns=columns,
        intercept=intercept,
        seed=5,
        **options,
    )


def features(f, rows):
    """Return φ of the first four blocks."""
    return embed_rows(f.numbers, f.directions, rows, BLOCKS).astype(np.float64)


def plain_mixture(compiled, plain, **told):
    """Return the plain learner with the steps and the features of :func:`mixture`."""
    return second_order.Mixture(
        lambda block, X, multiple: algorithms.gaussian(NAMES, SIGMA * multiple, PER_BLOCK, seed=5)(block, X),
        plain,
        outputs=2 * PER_BLOCK,
        gamma=0.75 / compiled.curvature,
        follow=second_order.FOLLOW / compiled.curvature,
        **told,
    )


@pytest.mark.parametrize(
    ("loss", "joint", "forgetting", "l2", "batch", "is_weighted"),
    covering(itertools.product(LOSSES, [False, True], [1.0, 0.99], [0.0, 0.05], [1, 16], [False, True])),
)
def test_the_compiled_learner_matches_the_reference(loss, joint, forgetting, l2, batch, is_weighted):
    """Through the growing steps: of 8 examples, of 16 from 512 on, of 24 from 768 on."""
    compiled, plain, columns = LOSSES[loss]
    intercept = 0 if compiled.for_classes else state.MEAN
    told = {"joint": joint, "columns": columns, "batch_size": batch, "forgetting": forgetting, "l2": l2}
    f = mixture(compiled, intercept=intercept, **told)
    reference = plain_mixture(compiled, plain, blocks=BLOCKS, intercept=bool(intercept), **told)
    X, y = examples(820, columns, compiled.for_classes)
    learn_both(f, reference, X, y, weights(len(y)) if is_weighted else None)
    assert_same(f, reference)


GROWN = [
    slow("square", None, {}, [(256, 1, 2), (512, 2, 2), (1024, 3, 3)]),
    ("square", None, {"blocks": 9}, [(256, 1, 2)]),
    ("square", 1200, {"batch_size": 16}, [(256, 1, 2), (512, 2, 2), (1024, 3, 3), (2048, 1, 0)]),
    slow("square", 1200, {"forgetting": 0.995, "l2": 0.001}, [(256, 1, 2), (512, 2, 2), (1024, 3, 3), (2048, 1, 0)]),
    ("huber", None, {}, [(256, 1, 2), (512, 2, 2), (1024, 3, 2)]),
    slow("logistic", None, {}, [(256, 1, 2), (512, 2, 2), (1024, 3, 2)]),
    ("logistic", 1200, {"forgetting": 0.995}, [(256, 1, 2), (512, 2, 2), (1024, 3, 2), (2048, 1, 0)]),
    slow("logistic of 3", None, {"blocks": 10}, [(256, 1, 2), (512, 2, 2)]),
    slow("logistic of 3", None, {"batch_size": 16}, [(256, 1, 2), (512, 2, 2), (2048, 3, 2)]),
    ("logistic of 3", 1200, {}, [(256, 1, 2), (512, 2, 2), (2048, 1, 1)]),  # block 0 has ended
    ("softmax of 2", None, {"l2": 0.001}, [(256, 1, 2), (512, 2, 1)]),  # which ends
    slow("squared hinge", None, {}, [(256, 1, 2), (1024, 2, 2), (2048, 3, 2)]),
    ("smooth hinge of 3", 1200, {}, [(256, 1, 2), (512, 2, 2), (1024, 3, 2), (2048, 1, 3)]),
]
"""Loss, where another stream begins, options, and (examples, stage, bandwidth) of the larger groups that begin."""


@pytest.mark.parametrize(("loss", "moves", "options", "history"), GROWN)
def test_growth_matches_the_reference(loss, moves, options, history):
    """Where every decision is further from another than what float32 rounds."""
    compiled, plain, columns = LOSSES[loss]
    intercept = 0 if compiled.for_classes else state.MEAN
    told = {"joint": False, "blocks": 16, "columns": columns, "batch_size": 1, "forgetting": 1.0, "l2": 0.0, **options}
    f = mixture(compiled, kernel=MultiScale(Gaussian(SIGMA), MULTIPLES), intercept=intercept, **told)
    reference = plain_mixture(compiled, plain, multiples=MULTIPLES, intercept=bool(intercept), **told)
    X, y = moving(2300, moves, columns, compiled.for_classes)
    learn_both(f, reference, X, y)
    assert reference.history == history
    assert min(reference.margins) > 1e-3
    groups = enumerate(reference.groups)
    assert f.table.tolist() == [
        [group.own, group.rung, group.born] if group else [0, *f.table[g, 1:2], reference.ended.get(g, 0)]
        for g, group in groups
    ]
    assert_same(f, reference)
    for ours, theirs in zip(f.arrays.losses[:-1].reshape(2, -1).T, reference.groups, strict=True):
        assert theirs is None or np.allclose(ours, theirs.standing, rtol=TOLERANCE)
    assert f.arrays.losses[-1] == pytest.approx(reference.nothing)


def moving(n, moves, columns, for_classes):
    """Return a function of several scales that is another one from an example on."""
    generator = np.random.default_rng(15)
    X = generator.normal(size=(n, len(NAMES)))
    f = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2]
    if moves:
        f[moves:] = 1.5 * np.cos(3.0 * X[moves:, 1])
    f += 0.1 * generator.normal(size=n)
    return X, np.digitize(f, [0.0] if columns < 3 else [-0.5, 0.7]).astype(float) if for_classes else f


def learn_both(f, reference, X, y, w=None):
    w = np.ones(len(y)) if w is None else w
    rows = f.directions.rows(NAMES, X)._replace(weights=w)
    for i in range(len(y)):
        row = rows.part(i, i + 1)
        assert np.allclose(f.scores(row)[0], reference.scores(X[i]), rtol=TOLERANCE, atol=TOLERANCE), i
        f.learn_one(row, y[i])
        reference.learn(X[i], y[i], w[i])


def assert_same(f, reference):
    for ours, theirs in zip(f.groups, reference.groups, strict=True):
        newton = theirs.newton.T if theirs else np.zeros((f.columns, 0))
        most = np.abs(newton).max(initial=0.0)
        assert ours.newton.shape == newton.shape
        assert np.allclose(ours.newton, newton, rtol=TOLERANCE, atol=TOLERANCE * most)
    assert np.allclose(f.arrays.weights, reference.v, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("batch", [1, 16])
def test_square_loss_is_ridge_regression(batch):
    """With the closed form, of what whole steps have learned."""
    f = mixture(losses.Square(), joint=True, block_size=32, batch_size=batch)
    X, y = examples(2048, 1, False)
    y[70] = 0.0
    rows = f.directions.rows(NAMES, X)
    f.arrays.bounds[:] = 1e9  # nothing is clipped
    phi = features(f, rows)
    for i in range(BLOCKS - 1):
        phi[i, (i + 1) * 2 * 32 :] = 0.0  # blocks that come later
    for first, last, most in ((0, 256, 1e-5), (256, 1024, 1e-5), (1024, 2048, 0.02)):  # some of the last rows are added
        f.learn(rows.part(first, last), y[first:last])
        done = last - f.numbers["buffered"]
        ridge = Ridge(alpha=0.03 * BLOCKS, fit_intercept=False, solver="cholesky").fit(phi[:done], y[:done])
        ours, theirs = phi @ f.groups[0].newton[0], phi @ ridge.coef_
        assert np.sqrt(np.mean((ours - theirs) ** 2)) < most * theirs.std()


@pytest.mark.parametrize("n", [24_000, slow(1_000_000)])
def test_rounding_does_not_add_up_over_a_long_stream(n):
    """Float32 factors against float64 sums of the same features, which only the drawn examples differ from."""
    f = mixture(losses.Square(), joint=True, block_size=32, batch_size=1)
    f.arrays.bounds[:] = 1e9
    generator, gram, moments, off = np.random.default_rng(5), 0.0, 0.0, []
    probes = f.directions.rows(NAMES, generator.normal(size=(300, len(NAMES))))
    for _ in range(n // 8000):
        X = generator.normal(size=(8000, len(NAMES)))
        y, rows = np.sin(2.0 * X[:, 0]) + X[:, 1] + 3.0, f.directions.rows(NAMES, X)
        f.learn(rows, y)
        phi = features(f, rows)
        gram, moments = gram + phi.T @ phi, moments + phi.T @ y
        at = features(f, probes)
        expected = at @ np.linalg.solve(gram + f.prior(0) * np.eye(len(gram)), moments)
        off.append(np.sqrt(np.mean((at @ f.groups[0].newton[0] - expected) ** 2) / np.mean(expected**2)))
    assert max(off) < 0.01


def test_one_pass_of_logistic_regression_is_near_the_optimum():
    f = mixture(losses.Logistic(), joint=True, block_size=16, sigma=1.5)
    X, y = examples(12_000, 1, True)
    rows = f.directions.rows(NAMES, X)
    f.learn(rows.part(0, 10_000), y[:10_000])
    phi = features(f, rows)
    best = LogisticRegression(C=1.0 / (0.03 * BLOCKS), fit_intercept=False, solver="newton-cholesky")
    best.fit(phi[:10_000], y[:10_000])

    def log_loss(scores):
        return np.log1p(np.exp(-np.where(y[10_000:] > 0.0, scores, -scores))).mean()

    ours = log_loss(phi[10_000:] @ f.groups[0].newton[0])
    optimum = log_loss(phi[10_000:] @ best.coef_[0])
    assert optimum < 0.55
    assert ours < 1.05 * optimum


def curves(n, flip=None, seed=3):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, len(NAMES)))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1]
    if flip is not None:
        y[flip:] *= -1.0
    return X, y + 0.1 * generator.normal(size=n)


def errors(f, X, y):
    """Return the squared errors of the mixture, and of all its functions, each before it learns."""
    rows = f.directions.rows(NAMES, X)
    z = features(f, rows).reshape(len(y), len(f.groups), -1)
    mixed, single = [], []
    for i in range(len(y)):
        parts = f.groups.flat.newton, f.groups.flat.steady
        scores = [np.einsum("gn,gn->g", z[i], part.reshape(z[i].shape)) for part in parts]
        single.append((np.concatenate(scores) - y[i]) ** 2)
        mixed.append((f.scores(rows.part(i, i + 1))[0, 0] - y[i]) ** 2)
        f.learn_one(rows.part(i, i + 1), y[i])
    return np.array(mixed), np.array(single)


@pytest.fixture
def all_blocks_stay(monkeypatch):
    monkeypatch.setattr(growth, "NEEDLESS", 0.0)


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.usefixtures("all_blocks_stay")
def test_the_mixture_is_as_good_as_its_best_function(joint):
    f = mixture(losses.Square(), joint=joint, block_size=16, sigma=1.5)
    mixed, single = errors(f, *curves(3000))
    assert mixed[1000:].mean() < 1.1 * single[1000:].mean(axis=0).min()


@pytest.mark.usefixtures("all_blocks_stay")
def test_constant_steps_take_over_where_the_function_changes():
    f = mixture(losses.Square(), block_size=16, sigma=1.5)
    X, y = curves(6000, flip=4000)
    old, _ = errors(f, X[:4000], y[:4000])
    before = f.arrays.weights[:-1].reshape(2, -1).sum(axis=1)
    mixed, _ = errors(f, X[4000:], y[4000:])
    after = f.arrays.weights[:-1].reshape(2, -1).sum(axis=1)
    assert old[2000:].mean() < 0.1 * y.var()
    assert before[0] > before[1]
    assert after[1] > after[0]
    assert mixed[:20].mean() > y.var()
    assert mixed[300:].mean() < 0.3 * y.var()
