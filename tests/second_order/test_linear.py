"""Linear functions in the mixture: against plain NumPy, for any names, and in copies, files and merges."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pandas as pd
import pytest
from cases import covering
from reference import algorithms, second_order
from river import metrics
from sklearn.linear_model import Ridge
from streams import as_dicts, content, learn, names_in_order, weights

from streamkernel import KernelClassifier, KernelRegressor, kernels, load, losses, step_sizes, tensor_file, upkeep
from streamkernel.interop import to_numpy
from streamkernel.interop.numpy_predictor import Predictor
from streamkernel.learners import state
from streamkernel.second_order.linear import merging
from streamkernel.second_order.linear import state as linear_state
from streamkernel.second_order.linear import steps as linear
from streamkernel.second_order.mixture import SecondOrderLearner

SIGMA, PER_BLOCK, BLOCKS = 0.8, 5, 4
LOSSES = {
    "logistic": (losses.Logistic(), second_order.Logistic(), 1),
    "softmax of 3": (losses.Logistic(), second_order.Softmax(), 3),
    "squared hinge": (losses.SquaredHinge(), second_order.SquaredHinge(), 1),
    "squared hinge of 3": (losses.SquaredHinge(), second_order.SquaredHinge(), 3),
    "square": (losses.Square(), second_order.Square(), 1),
    "huber": (losses.Huber(0.4), second_order.Huber(0.4), 1),
}
SMALL = {"max_features": 32}


def mixture(loss, columns=1, **options):
    return SecondOrderLearner(
        kernels.Gaussian(SIGMA),
        loss,
        step_sizes.Constant(0.75 / loss.curvature),
        block_size=PER_BLOCK,
        max_features=PER_BLOCK * BLOCKS,
        columns=columns,
        seed=5,
        is_linear=True,
        **options,
    )


def examples(n, names, columns, for_classes, seed=15):
    """Return inputs and targets, an input and a target among them that are far out."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, names))
    f = np.sin(2.0 * X[:, 0]) + 2.0 * X[:, 1] - X[:, 2] + 0.3 * generator.normal(size=n)
    X[50:51, 1] = 300.0
    if for_classes:
        return X, np.digitize(f, [0.0] if columns < 3 else [-0.7, 0.7]).astype(float)
    f[70:71] = 500.0
    return X, f + 3.0


def both(loss, names, *, intercept=0, forgetting=1.0, l2=0.0):
    """Return the compiled mixture and the plain one."""
    compiled, plain, columns = LOSSES[loss]
    own = {"forgetting": forgetting, "l2": l2, "columns": columns}
    features = algorithms.gaussian(names, SIGMA, PER_BLOCK, seed=5)
    reference = second_order.Mixture(
        lambda block, x, multiple: features(block, x),
        plain,
        blocks=BLOCKS,
        joint=False,
        outputs=2 * PER_BLOCK,
        gamma=0.75 / compiled.curvature,
        follow=0.075 / compiled.curvature,
        batch_size=1,
        intercept=bool(intercept),
        linear=second_order.Line(plain, compiled.curvature, len(names), columns, forgetting, l2),
        neighbours=second_order.Neighbours(columns, bool(intercept), isinstance(plain, second_order.Softmax)),
        **own,
    )
    return mixture(compiled, intercept=intercept, **own), reference


def same(f, reference, X, y, names, rtol=1e-6, w=None):
    w = np.ones(len(y)) if w is None else w
    rows = f.directions.rows(names, X)._replace(weights=w)
    for i in range(len(y)):
        row = rows.part(i, i + 1)
        assert np.allclose(f.scores(row)[0], reference.scores(X[i]), rtol=1e-4, atol=1e-4), i
        f.learn_one(row, y[i])
        reference.learn(X[i], y[i], w[i])
    own = f.arrays.linear
    (line,) = reference.linear
    assert np.allclose(own.w[:, : len(line.w)], line.w.T, rtol=rtol, atol=rtol * np.abs(line.w).max())
    gram = own.factor.T @ own.factor
    n = min(len(line.w), len(gram))
    assert np.allclose(gram[:n, :n], line.A[:n, :n], rtol=rtol, atol=rtol * line.A.diagonal().max())
    assert np.allclose(own.diagonal[n : len(line.w)], line.A.diagonal()[n:], rtol=rtol)
    assert own.errors[0] == pytest.approx(line.error)
    assert np.allclose(f.arrays.weights, reference.v, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("loss", "past"), covering(itertools.product(LOSSES, [(1.0, 0.0), (0.99, 0.0), (0.995, 0.05)]), together=1)
)
def test_compiled_functions_match_the_reference(loss, past):
    (compiled, _, columns), (forgetting, l2) = LOSSES[loss], past
    names = names_in_order(mixture(losses.Square()), 5)
    intercept = 0 if compiled.for_classes else state.MEAN
    f, reference = both(loss, names, intercept=intercept, forgetting=forgetting, l2=l2)
    same(f, reference, *examples(200, len(names), columns, compiled.for_classes), names)


@pytest.mark.parametrize("loss", LOSSES)
def test_weighted_examples_match_the_reference(loss):
    compiled, _, columns = LOSSES[loss]
    names = names_in_order(mixture(losses.Square()), 5)
    f, reference = both(loss, names, intercept=0 if compiled.for_classes else state.MEAN)
    X, y = examples(200, len(names), columns, compiled.for_classes)
    same(f, reference, X, y, names, w=weights(len(y)))


@pytest.mark.parametrize("forgetting", [1.0, 0.99])
def test_only_the_diagonal_is_kept_beyond_the_dense_names(forgetting):
    names = names_in_order(mixture(losses.Square()), linear_state.DENSE + 20)
    f, reference = both("square", names, intercept=state.MEAN, forgetting=forgetting)
    same(f, reference, *examples(90, len(names), 1, False), names, rtol=1e-5)


def test_without_outliers_it_is_ridge_regression():
    names = names_in_order(mixture(losses.Square()), 6)
    f = mixture(losses.Square())
    X, y = examples(500, len(names), 1, False)
    X[50], y[70] = 0.0, 0.0
    f.arrays.bounds[:-1] = 1e9  # nothing is clipped
    f.learn(f.directions.rows(names, X), y)
    own = f.arrays.linear
    ridge = Ridge(alpha=linear_state.PRIOR, fit_intercept=False, solver="cholesky").fit(
        np.c_[np.full(len(X), linear_state.CONSTANT**-0.5), X], y
    )
    expected = np.r_[ridge.coef_[0] * linear_state.CONSTANT**-0.5, ridge.coef_[1:]]
    assert np.allclose(own.w[0, : len(names) + 1], expected, rtol=1e-9)


def late(n, seed=3, names=40):
    """Return examples of names that come one after the other, and in any order of keys."""
    generator = np.random.default_rng(seed)
    X = generator.normal(3.0, 2.0, size=(n, names))
    xs = []
    for i, x in enumerate(as_dicts(X)):
        present = [name for j, name in enumerate(x) if j < 3 + i // 20 and generator.random() < 0.9]
        xs.append({name: x[name] for name in present or ["x0"]})
    return xs, [sum(x.values()) + float(generator.normal()) for x in xs]


@pytest.mark.parametrize("options", [{}, {"cache_bytes": 0}])
def test_the_order_of_fields_and_the_grouping_of_events_change_no_bit(options):
    xs, ys = late(700)
    model = learn(KernelRegressor(**SMALL), xs, ys)
    turned = learn(KernelRegressor(**SMALL, **options), [dict(reversed(x.items())) for x in xs], ys)
    grouped = KernelRegressor(**SMALL)
    for first, last in ((0, 3), (3, 300), (300, 700)):
        grouped.learn_many(pd.DataFrame(xs[first:last]), ys[first:last])
    assert model._learner.arrays.linear.counts[0] > 20
    assert content(model)[1] == content(turned)[1] == content(grouped)[1]


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
@pytest.mark.parametrize("names", [6, 300])
def test_saving_and_loading_changes_no_bit(names, kind, tmp_path):
    """While the scales are still taken anew, and after it."""
    X, y = examples(420, names, 3, kind == "classifier")
    model = KernelRegressor(**SMALL) if kind == "regressor" else KernelClassifier(**SMALL)
    copy = type(model)(**SMALL)
    for i, (x, target) in enumerate(zip(as_dicts(X), y.tolist(), strict=True)):
        if i in (1, 100, 300, 400):
            copy.save(tmp_path / "model")
            copy = load(tmp_path / "model")
        model.learn_one(x, target)
        copy.learn_one(x, target)
    assert model._learner.arrays.linear.counts[0] == names + 1 + len(model._learner.arrays.linear.squares)
    assert content(model) == content(copy)


def without_saturation(model):
    """Turn a classifier into one whose scores of linear functions are not saturated."""
    f = model._learner
    f.restore({name: part for name, part in f.tensors().items() if name != linear_state.BOUND_OF_SCORES})


def test_noisy_labels_of_a_linear_boundary():
    """A tenth of the labels are wrong, so the odds of a label are bounded and features must not fit the rest."""
    generator = np.random.default_rng(6)
    X = generator.normal(size=(7000, 8))
    is_above = X @ generator.normal(size=8) > 0.0
    y = is_above ^ (generator.random(7000) < 0.1)
    scores = []
    for rule in (without_saturation, lambda model: None):
        model, xs = KernelClassifier(max_features=64), as_dicts(X)
        learn(model, xs[:300], y[:300].tolist())
        rule(model)
        learn(model, xs[300:5000], y[300:5000].tolist())
        found = np.array([model.predict_proba_one(x)[True] for x in xs[5000:]])
        truth = np.where(is_above[5000:], 0.9, 0.1)
        scores.append((((found > 0.5) == is_above[5000:]).mean(), np.abs(found - truth).mean()))
    (accuracy_before, off_before), (accuracy, off) = scores
    assert accuracy > max(0.975, accuracy_before + 0.005)
    assert off < 0.8 * off_before


CRAFTED = {
    "linear.names": (np.array([0, 5, 5, 7, 8], np.int64), "hashes of names"),
    "linear.scales": (np.ones((5, 1)), "linear.scales"),
    "linear.w": (np.ones((2, 5)), "linear.w"),
    "linear.factor": (np.zeros(15), "factors and scales"),
    "linear.diagonal": (np.zeros(1), "linear.diagonal"),
    "linear.errors": (-np.ones(1), "factors and scales"),
    linear_state.BOUND_OF_SCORES: (np.array([3]), "expected 2 or 4 as linear.bound"),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_file_is_refused(name):
    X, y = examples(20, 4, 1, False)
    tensors = learn(KernelRegressor(**SMALL), as_dicts(X), y.tolist())._learner.tensors()
    tensor, text = CRAFTED[name]
    with pytest.raises(ValueError, match=text):
        linear_state.unpack({**tensors, name: tensor}, 1)
    tensors.pop(name, None)
    if name != "linear.names" and name != linear_state.BOUND_OF_SCORES:
        with pytest.raises((ValueError, KeyError)):
            linear_state.unpack(tensors, 1)


def test_names_beyond_the_capacity_are_ignored():
    f = mixture(losses.Square())
    row = f.row({f"x{i}": 1.0 for i in range(linear.MOST + 5)})
    for _ in range(3):
        f.learn_one(row, 1.0)
    own = f.arrays.linear
    assert own.counts[0] == linear.MOST == own.w.shape[1]
    assert np.isfinite(f.scores(row)).all()


def test_a_constant_input_is_not_stored():
    X, y = examples(100, 3, 1, False)
    model = learn(KernelRegressor(**SMALL), [{**x, "one": 1.0} for x in as_dicts(X)], y.tolist())
    assert model._learner.arrays.linear.counts[0] == 4


def r2_of(model, xs, ys):
    score = metrics.R2()
    for x, y in zip(xs, ys, strict=True):
        score.update(y, model.predict_one(x))
        model.learn_one(x, y)
    return score.get()


def test_linear_targets_extrapolate():
    X = np.random.default_rng(0).standard_cauchy(size=(2500, 2))
    y = X[:, 0] + X[:, 1] / 2.0
    assert r2_of(KernelRegressor(max_features=64), as_dicts(X), y.tolist()) > 0.8


def test_a_few_corrupt_values_cost_little():
    generator = np.random.default_rng(1)
    X = generator.normal(size=(2000, 4))
    y = (X[:, 0] + 0.5 * X[:, 1] + np.sin(3.0 * X[:, 2])).tolist()
    clean = r2_of(KernelRegressor(max_features=256), as_dicts(X), y)
    for i in range(100, 2000, 200):
        X[i, generator.integers(4)] = 1e9
    assert r2_of(KernelRegressor(max_features=256), as_dicts(X), y) > clean - 0.05


def test_many_inputs_and_a_linear_target():
    generator = np.random.default_rng(2)
    X = generator.normal(size=(800, 100))
    y = X @ generator.normal(size=100)
    model = KernelRegressor(max_features=64)
    xs = as_dicts(X)
    learn(model, xs[:600], y[:600].tolist())
    assert r2_of(model, xs[600:], y[600:].tolist()) > 0.98


def test_drift_is_followed():
    generator = np.random.default_rng(4)
    X = generator.normal(size=(6000, 5))
    w = generator.normal(size=5)
    y = np.where(np.arange(6000) < 3000, X @ w, -X @ w) + 0.1 * generator.normal(size=6000)
    model, xs = KernelRegressor(max_features=64), as_dicts(X)
    learn(model, xs[:5000], y[:5000].tolist())
    assert r2_of(model, xs[5000:], y[5000:].tolist()) > 0.95


def values(summary, X, names):
    """Return what functions say of values by name."""
    at = [names.index(name) for name in summary.names[1:].tolist()]
    s = np.c_[np.ones(len(X)), (X[:, at] - summary.scales[1:, 0]) / summary.scales[1:, 1]]
    return summary.w @ s.T


def summary_of(names, w, seed, scales=None):
    generator = np.random.default_rng(seed)
    n = len(names) + 1
    rows = generator.normal(size=(50, n))
    gram = rows.T @ rows + np.eye(n)
    scales = np.c_[generator.normal(size=n), generator.uniform(0.5, 2.0, size=n)] if scales is None else scales
    return merging.LinearSummary(np.array([0, *names], np.uint64), scales, w, gram, np.diagonal(gram), np.ones(1))


def test_rescaled_inputs_give_the_same_predictions():
    generator = np.random.default_rng(6)
    names, more = [11, 5, 9], [5, 11, 9, 2]
    part = summary_of(names, generator.normal(size=(3, 4)), 1)
    other = summary_of(more, np.zeros((3, 5)), 2)
    X = generator.normal(size=(20, 4))
    gram, _, w = merging._on(part, other.names, other.scales.copy(), 0.25, 1.0)
    moved = merging.LinearSummary(other.names, other.scales, w, gram, np.zeros(5), np.ones(1))
    assert np.allclose(values(moved, X, more), values(part, X, more) + 0.25)
    s = np.c_[np.ones(20), (X[:, [1, 0, 2]] - part.scales[1:, 0]) / part.scales[1:, 1]].T
    t = np.c_[np.ones(20), (X[:, :3] - other.scales[1:4, 0]) / other.scales[1:4, 1]].T
    leverages = (s * np.linalg.solve(part.gram, s)).sum(axis=0)
    assert np.allclose((t * np.linalg.solve(gram[:4, :4], t)).sum(axis=0), leverages)


@pytest.mark.parametrize("has_base", [False, True])
def test_merged_replicas_equal_one_function_of_all_events(has_base):
    """Where all learn without clipping, and two know names that the third does not."""
    names = names_in_order(mixture(losses.Square()), 8)
    X, y = examples(900, len(names), 1, False)
    X[50], y[70] = 0.0, 0.0
    X[:300, 6:] = X[300:600, 7:] = 0.0

    def learn_parts(*parts):
        f = mixture(losses.Square())
        f.arrays.bounds[:-1] = 1e9
        for first, last in parts:
            for i in range(first, last):
                x = {name: value for name, value in zip(names, X[i].tolist(), strict=True) if value}
                f.learn_one(f.row(x or {names[0]: 0.0}), y[i])
        return merging.summarize(f.arrays.linear)

    base = learn_parts((0, 300)) if has_base else None
    start = [(0, 300)] if has_base else []
    parts = [learn_parts(*start, (300, 600)), learn_parts(*start, (600, 900))]
    merged = merging.merge(
        parts,
        base,
        np.array([0.5, 0.5]),
        moved=np.zeros(2 + has_base),
        kept=np.ones(2),
        least=linear_state.PRIOR,
    )
    found = linear_state.unpack(merged, 1)
    expected = learn_parts(*start, (300, 900))
    own = dict(zip(found.names.tolist()[:9], found.w[0, :9].tolist(), strict=True))
    theirs = dict(zip(expected.names.tolist(), expected.w[0].tolist(), strict=True))
    assert own.keys() == theirs.keys()
    assert [own[name] for name in own] == pytest.approx([theirs[name] for name in own], rel=1e-6, abs=1e-9)


def test_a_third_label_halves_the_bound_of_scores(tmp_path):
    X, y = examples(1000, 4, 3, True)
    xs, first = as_dicts(X), np.flatnonzero((y[:600] < 2.0) | (np.arange(600) < 256))  # the same scales
    early = learn(KernelClassifier(**SMALL), xs[:800], y[:800].tolist())
    late = learn(KernelClassifier(**SMALL), [xs[i] for i in first], y[first].clip(0.0, 1.0).tolist())
    binary = copy.deepcopy(late)
    learn(late, xs[600:800], y[600:800].tolist())
    late.save(tmp_path / "late")
    found = [early, late, load(tmp_path / "late"), binary]
    assert [int(one._learner.arrays.linear.counts[linear_state.BOUND]) for one in found] == [4, 2, 2, 4]
    to_numpy(late, tmp_path / "late.npz")
    assert Predictor(tmp_path / "late.npz").predict_proba(X[800:]) == pytest.approx(
        late.predict_proba_many(pd.DataFrame(xs[800:])).to_numpy(), abs=1e-5
    )
    for other, bound in ((early, 4), (binary, 2)):
        merged = copy.deepcopy(late).merge(other)
        assert merged._learner.arrays.linear.counts[linear_state.BOUND] == bound
        assert np.mean(np.array([merged.predict_one(x) for x in xs[800:]]) == y[800:]) > 0.7


def test_pruning_keeps_the_linear_function():
    X, y = examples(1500, 4, 1, False)
    xs, ys = as_dicts(X), y.tolist()
    model = learn(KernelRegressor(max_features=64), xs[:1000], ys[:1000])
    before = model._learner.arrays.linear.w.copy()
    upkeep.apply(upkeep.Pruning(window=500), model, list(zip(xs[500:1000], ys[500:1000], strict=True)))
    assert np.array_equal(model._learner.arrays.linear.w, before)
    assert r2_of(model, xs[1000:], ys[1000:]) > 0.7
    model = KernelRegressor(max_features=64, pruning=upkeep.Pruning(every=600, window=400))
    same = learn(KernelRegressor(max_features=64), xs, ys)
    learn(model, xs, ys)
    assert model.n_prunings == 2 or model.n_prunings == 1
    assert np.array_equal(model._learner.arrays.linear.w, same._learner.arrays.linear.w)


def test_a_file_contains_only_the_used_columns(tmp_path):
    X, y = examples(50, 3, 1, False)
    learn(KernelRegressor(**SMALL), as_dicts(X), y.tolist()).save(tmp_path / "model")
    _, tensors = tensor_file.read(tmp_path / "model", "model")
    assert tensors["linear.w"].shape == (1, 4)
