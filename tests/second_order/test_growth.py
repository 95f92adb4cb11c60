"""Larger groups that start during the stream: the same bits in any calls, copies and caches, within the cap."""

from __future__ import annotations

import copy
import gc
import itertools
import sys
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from cases import covering, max_examples
from hypothesis import given
from hypothesis import strategies as st
from streams import WAYS, content, examples, frame, in_calls, learn, nested, predictions

from streamkernel import (
    InputError,
    KernelClassifier,
    KernelMultiLabelClassifier,
    KernelMultiTargetRegressor,
    KernelRegressor,
    losses,
    step_sizes,
)
from streamkernel import kernels as k
from streamkernel.learners import schedule
from streamkernel.merging.groups import groups_together
from streamkernel.merging.second_order import summarize
from streamkernel.second_order import bandwidths, growth, pairs, restructuring
from streamkernel.second_order import weights as weights_of_mixture
from streamkernel.second_order.mixture import SecondOrderLearner

N = 1100
GROWING = {"features_per_seed": 4, "max_features": 64, "learner": "newton"}
KERNELS = {
    "default": None,
    "fixed": k.Gaussian(1.5),
    "median": k.Gaussian("median"),
    "multi-scale of 3": k.MultiScale(k.Laplacian(2.0), (2.0, 0.25, 1.0)),
    "sum of multi-scales": k.MultiScale(k.Gaussian("median")) + k.MultiScale(k.Laplacian("median")).on("x0"),
    "polynomial": k.Polynomial(2),
    "arc-cosine": k.ArcCosine(1),
}


@pytest.fixture(autouse=True)
def early(monkeypatch):
    """Start groups in a metric and larger groups early, so that few examples suffice."""
    monkeypatch.setattr(growth, "FROM", 256)
    monkeypatch.setattr(bandwidths, "PROBED", 256)


def classifier(**options):
    return KernelClassifier(**nested(**GROWING | options))


def regressor(**options):
    return KernelRegressor(**nested(**GROWING | options))


def stages(model):
    """Return the blocks of the larger groups."""
    return model._learner.table[growth.ALONE : growth.ALONE + 2, 0].tolist()


def fine(n, seed=0, moves=None):
    """Return a regression that benefits from more features, and that changes at an example."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 3))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2]
    if moves:
        y[moves:] = 1.5 * np.cos(3.0 * X[moves:, 1])
    return [dict(zip(("x0", "x1", "x2"), x, strict=True)) for x in X.tolist()], (y + 0.05 * generator.normal(size=n))


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_every_kernel_grows_and_any_grouping_of_events_has_the_same_bits(kernel):
    xs, ys = examples(N, ("b", "a", "d"))
    one = learn(classifier(kernel=kernel), xs, ys)
    assert any(stages(one))
    assert one.n_seeds > growth.ALONE
    assert np.isfinite(one._learner.groups.flat.newton).all()
    for sizes in ([N], [256, 1, 255], [100, 7, 300]):
        assert content(in_calls(classifier(kernel=kernel), xs, ys, sizes)) == content(one)
    together = one.predict_proba_many(frame(xs[:20]))
    for i, x in enumerate(xs[:20]):
        assert together.iloc[i].to_dict() == pytest.approx(one.predict_proba_one(x), abs=1e-15)


@max_examples(10)
@given(st.lists(st.integers(1, 600), min_size=1, max_size=6), st.sampled_from([1, 7, 100]), st.booleans())
def test_calls_of_any_size_across_checks_have_the_same_bits(sizes, batch, forgets):
    xs, ys = examples(560, ("b", "a", "d"), seed=1)
    options = {"batch_size": None if batch == 1 else batch, "forgetting": 0.99 if forgets else 1.0}
    one = in_calls(classifier(**options), xs, ys, [560])
    assert any(stages(one))
    assert content(in_calls(classifier(**options), xs, ys, sizes)) == content(one)


@pytest.mark.parametrize(("name", "cache_bytes"), covering(itertools.product(KERNELS, [0, 500, 5000]), together=1))
def test_the_cache_does_not_change_a_bit(name, cache_bytes):
    kernel = KERNELS[name]
    xs, ys = examples(N, ("b", "a", "d"))
    one, twin = (in_calls(classifier(kernel=kernel, **o), xs, ys, [N]) for o in ({}, {"cache_bytes": cache_bytes}))
    assert any(stages(one))
    assert stages(twin) == stages(one)
    assert predictions(twin, xs[:50]) == predictions(one, xs[:50])


@pytest.mark.parametrize(
    ("kernel", "way"), covering(itertools.product([None, k.Gaussian(1.5), k.ArcCosine(1)], WAYS), together=1)
)
def test_a_copy_continues_with_the_same_bits_around_checks(kernel, way, tmp_path):
    """Before, at and after the start of a group; from 512 on, examples are buffered that a new group has not seen."""
    xs, ys = fine(1100)
    begun, model = [], regressor(kernel=kernel)
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        if i in (255, 256, 257, 511, 512, 515, 1023, 1024, 1025, 1050):
            twin = WAYS[way](model, tmp_path)
            assert content(twin) == content(model)
            assert predictions(twin, xs[:9]) == predictions(model, xs[:9])
            whole = copy.deepcopy(model)
            for other in (twin, whole):
                in_calls(other, xs[i : i + 300], ys[i : i + 300], [2, 100])
            assert content(twin) == content(whole)
            assert predictions(twin, xs[:9]) == predictions(whole, xs[:9])
        before = stages(model)
        model.learn_one(x, y)
        if stages(model) != before:
            begun.append((i + 1, int(model._learner.numbers["buffered"])))
    assert begun[0] == (256, 0)
    assert begun[1][1] > 0


@pytest.mark.parametrize("cap", [20, 24, 36, 40, 64, 100])
def test_features_never_exceed_the_cap_and_only_checks_change_them(cap):
    xs, ys = fine(4200, moves=2500)
    model, seen = regressor(kernel=k.Gaussian(1.5), max_features=cap), set()
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        before = model.n_seeds
        model.learn_one(x, y)
        assert model.n_features <= cap
        restarted = int(model._learner.numbers["restarted"])
        is_look = schedule.is_due(i + 1 - restarted) and i + 1 - restarted >= growth.FROM
        assert i < growth.ALONE or model.n_seeds == before or is_look or restarted == i + 1
        seen.add(model.n_seeds)
    assert (max(seen) > growth.ALONE) == (cap >= 24)
    assert max(seen) == {20: 4, 24: 6, 36: 6, 40: 10, 64: 16, 100: 16}[cap]


def test_memory_is_flat_after_growth(monkeypatch):
    """If the stream drifts, larger groups end and others start, within the same cap."""
    monkeypatch.setattr(pairs, "BASE", np.inf)
    xs, ys = fine(9000, moves=5000)
    loaded = regressor()
    loaded.learn_one(xs[0], ys[0])
    loaded.predict_one(xs[0])
    gc.collect()
    tracemalloc.start()
    model, sizes = regressor(), []
    in_calls(model, xs[:4500], ys[:4500], [500])
    assert stages(model) == [0, 8]  # the second largest has ended
    own = model._raw_memory_usage
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    for x, y in zip(xs[4500:], ys[4500:], strict=True):
        model.predict_one(x)
        model.learn_one(x, y)
        sizes.append(model.n_features)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert min(sizes) < max(sizes) == 48
    assert before > 30_000
    assert after - before < 24_000 + sys.getsizeof(sizes)
    assert model._raw_memory_usage - own < 10_000


@pytest.mark.parametrize("loss", ["logistic", "softmax", "squared_hinge", "smooth_hinge"])
def test_a_class_that_appears_after_growth_leaves_the_scores_of_the_others(loss):
    xs, ys = examples(3000, ("no", "yes"))
    model = learn(classifier(loss=loss), xs[:500], ys[:500])
    assert any(stages(model))
    before = [model.predict_proba_one(x) for x in xs[:200]]
    model._model.state = model._model.outputs.with_label(model._state, "third")
    for x, odds in zip(xs[:200], before, strict=True):
        after = model.predict_proba_one(x)
        assert (after["yes"] > after["no"]) == (odds["yes"] > odds["no"])
        if loss in ("logistic", "softmax"):
            assert after["yes"] / after["no"] == pytest.approx(odds["yes"] / odds["no"], rel=1e-9)
    ys = ["third" if x["x2"] > 0.5 else y for x, y in zip(xs, ys, strict=True)]
    right = []
    for x, y in zip(xs[500:], ys[500:], strict=True):
        right.append(model.predict_one(x) == y)
        model.learn_one(x, y)
    assert np.mean(right[-500:]) > np.mean(right[:200])
    assert np.mean(right[-500:]) > 0.75


def test_a_larger_group_that_is_no_better_ends_and_ends_no_good_group():
    """Of one bandwidth and few features: 16 blocks happen to be worse than 8, and than those by constant steps."""
    xs, y = fine(9300)
    model = regressor(kernel=k.Gaussian(1.5), max_features=256)
    in_calls(model, xs[:4000], y[:4000], [4000])
    assert stages(model) == [16, 8]
    newton, steady = model._learner.arrays.losses[:-1].reshape(2, -1)
    assert newton[4] > steady[5] > newton[5]
    in_calls(model, xs[4000:8191], y[4000:8191], [1000])
    assert stages(model) == [16, 8]
    in_calls(model, xs[8191:8300], y[8191:8300], [100])
    p = model.predict_many(frame(xs[8300:]))
    assert stages(model) == [0, 8]
    assert np.mean((p - y[8300:]) ** 2) < 0.05 * np.var(y)


def test_a_rejected_example_at_a_check_changes_nothing():
    xs, ys = fine(300)
    model, spoilt = learn(regressor(), xs[:255], ys[:255]), {**xs[0], "x1": float("inf")}
    before = content(model)
    with pytest.raises(InputError, match="x1"):
        model.learn_one(spoilt, 0.0)
    with pytest.raises(InputError, match="x1"):
        model.learn_many(frame([*xs[255:260], spoilt]), pd.Series(ys[:6]))
    assert content(model) == before
    in_calls(model, xs[255:], ys[255:], [45])
    assert any(stages(model))
    assert content(model) == content(learn(regressor(), xs, ys))


@pytest.mark.parametrize("bad", [0, 255, 256, 257, 511, 512, 599])
def test_rows_before_a_rejected_one_are_learned_across_checks(bad):
    xs, y = fine(600)
    X = np.array([list(x.values()) for x in xs])
    f, whole = (
        SecondOrderLearner(k.Gaussian(1.5), losses.Square(), step_sizes.Constant(0.75), block_size=4, max_features=64)
        for _ in range(2)
    )
    whole.learn(whole.directions.rows(list(xs[0]), X[:bad]), y[:bad])
    X[bad, 1] = np.inf
    with pytest.raises(InputError, match="size"):
        f.learn(f.directions.rows(list(xs[0]), X), y)
    assert f.n_offered == bad
    ours, theirs = f.tensors(), whole.tensors()
    assert ours.keys() == theirs.keys()
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


def test_constant_targets_begin_no_group_and_do_no_harm():
    """The mixture has learned nothing, not even a size of the targets."""
    xs, ys = fine(1500)
    model = learn(regressor(), xs[:600], [5.0] * 600)
    assert not any(stages(model))
    assert model.predict_one(xs[0]) == 5.0
    found = []
    for x, y in zip(xs[600:], ys[600:], strict=True):
        found.append(model.predict_one(x))
        model.learn_one(x, y)
    assert any(stages(model))
    assert np.isfinite(found).all()
    assert np.mean((found - ys[600:])[-300:] ** 2) < 0.6 * np.var(ys)


LEARNED = {
    "noise": lambda X, noise: noise,
    "heavy tails": lambda X, noise: noise**3,
    "a linear function": lambda X, noise: X[:, 0] - X[:, 1] + 0.3 * noise,
    "a wave of one input": lambda X, noise: np.sin(X[:, 0]) + 0.3 * noise,
}


@pytest.mark.parametrize("law", LEARNED.values(), ids=LEARNED)
@pytest.mark.parametrize("estimator", [KernelRegressor, KernelClassifier, KernelMultiTargetRegressor])
def test_nothing_grows_where_all_is_learned(monkeypatch, estimator, law):
    monkeypatch.undo()
    generator = np.random.default_rng(4)
    X, noise = generator.normal(size=(4100, 3)), generator.normal(size=4100)
    y = law(X, noise)
    if estimator is KernelClassifier:
        y = y > 0.5 * noise[::-1]
    if estimator is KernelMultiTargetRegressor:
        y = pd.DataFrame({"first": y, "other": 1000.0 * law(X[:, ::-1], noise[::-1])})
    model = estimator()
    model.learn_many(X, y)
    assert stages(model) == [0, 0]
    assert model.n_features < 1024  # a block was not needed


@pytest.mark.parametrize("way", WAYS)
def test_a_block_that_is_not_needed_ends_with_the_same_bits_in_copies(monkeypatch, way, tmp_path):
    monkeypatch.setattr(growth, "NEEDLESS", 0.01)
    xs, _ = fine(1400)
    ys = np.random.default_rng(4).normal(size=len(xs))
    options = {"forgetting": "auto", "features_per_seed": 16, "max_features": 64}
    model, ended = regressor(**options), []
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        before = model._learner.table.copy()
        if i in (255, 256, 511, 512, 1023, 1024, 1030):
            twin, whole = WAYS[way](model, tmp_path), copy.deepcopy(model)
            for other in (twin, whole):
                in_calls(other, xs[i : i + 300], ys[i : i + 300], [2, 100])
            assert content(twin) == content(whole)
            assert predictions(twin, xs[:9]) == predictions(whole, xs[:9])
        model.learn_one(x, y)
        table = model._learner.table
        gone = np.flatnonzero((before[:4, 0] > 0) & (table[:4, 0] == 0)).tolist()
        if gone:
            assert len(gone) == 1  # at a time
            assert before[gone[0], 1] == gone[0] != table[-1, 1]  # in no metric, and its features are not shared
            ended.append(i + 1)
    assert ended
    assert all(schedule.is_due(n) for n in ended)
    assert model.n_seeds == 4 - len(ended)
    parts = [summarize(model._learner), summarize(regressor(**options)._learner)]
    table, has = groups_together(parts, np.array([1.0, 0.0]))
    assert np.array_equal(table, model._learner.table)  # a model without events revives no block
    assert np.array_equal(has[0], table[:, 0] > 0)


def test_no_more_blocks_end_if_all_events_weigh_less(monkeypatch):
    """Of events with a small weight, the same share of a smaller loss is compared."""
    monkeypatch.setattr(pairs, "BASE", np.inf)
    xs, ys = fine(1100)
    blocks = []
    for w in (1.0, 0.01):
        model = regressor(features_per_seed=16, max_features=64)
        model.learn_many(frame(xs), ys, w=np.full(len(xs), w))
        blocks.append(model.n_seeds)
    assert blocks == [3, 4]


def test_a_block_is_compared_over_the_examples_since_its_reset(monkeypatch):
    """A block is needed by its last 100 examples, and not needed if it has had all 600."""
    xs, ys = fine(600)
    model = regressor(features_per_seed=16, max_features=64, kernel=k.Gaussian(1.5))
    model.learn_many(frame(xs), ys)
    now, table = model._learner._live, model._learner.table.copy()
    table[0, 2] = 500
    cost = weights_of_mixture.loss_without(now.state.mixer, now.state.signed, [0, len(table)])
    shares = [cost / n / float(now.state.numbers[0]["running_loss"]) for n in (600, 100)]
    monkeypatch.setattr(growth, "NEEDLESS", np.sqrt(np.prod(shares)))
    assert restructuring._needless(now, [0]) == 0
    assert restructuring._needless(now._replace(table=table), [0]) is None


def test_several_labels_begin_larger_groups():
    xs, f = fine(600)
    model = KernelMultiLabelClassifier(**nested(**GROWING))
    for x, value in zip(xs, f.tolist(), strict=True):
        model.learn_one(x, {"above 0": value > 0.0, "above 1": value > 1.0})
    assert any(stages(model))


@pytest.mark.parametrize("weight", [10.0, 100.0])
def test_weights_in_other_units_begin_the_same_groups(weight):
    xs, ys = fine(600)
    models = regressor(kernel=k.Gaussian(1.5)), regressor(kernel=k.Gaussian(1.5))
    for x, y in zip(xs, ys, strict=True):
        models[0].learn_one(x, y)
        models[1].learn_one(x, y, w=weight)
    assert stages(models[0]) == stages(models[1])
    assert any(stages(models[0]))


@max_examples(30)
@given(st.integers(0, 1000), st.integers(1, 9), st.integers(1, 2), st.integers(1, 3))
def test_the_expected_gain_is_what_refitting_by_the_first_half_loses(seed, features, components, columns):
    generator = np.random.default_rng(seed)
    n, ridge, unit = features * components, 0.5, 2.0
    phi, y = generator.normal(size=(5 * n, n)), generator.normal(size=(5 * n, columns))
    first = np.arange(n) % features < features // 2

    def fitted(part):
        """Return the ridge functions of these outputs, the least ½(f - y)² + λ‖w‖²/2 of each, and their freedom."""
        A = part.T @ part + ridge * np.eye(part.shape[1])
        w = np.linalg.solve(A, part.T @ y)
        least = 0.5 * (np.square(part @ w - y).sum(axis=0) + ridge * np.square(w).sum(axis=0))
        return w, least, np.trace(np.linalg.solve(A, part.T @ part))

    w, least, freedom = fitted(phi)
    _, more, less_free = fitted(phi[:, first])
    factor = np.linalg.cholesky(phi.T @ phi + ridge * np.eye(n)).T.astype(np.float32)
    gains, noise = growth.expected_gain(factor, w.T.copy(), ridge, unit, features)
    assert gains == pytest.approx(more - least, rel=1e-4, abs=1e-5)
    assert noise == pytest.approx(unit * (freedom - less_free) / np.square(phi).sum(), rel=1e-4)


def gains_of(model, X, y):
    """Return what new and old features are expected to gain after the last check, which the last example causes."""
    model.learn_many(X[:-1], y[:-1])
    copied = copy.deepcopy(model)
    model.learn_many(X[-1:], y[-1:])
    return model._learner.expected_descent, copied


def test_the_expected_gains_are_what_a_plain_solution_gains(monkeypatch):
    """Of single blocks: against ridge functions of the whole best block, and of half of its features."""
    monkeypatch.undo()
    generator = np.random.default_rng(7)
    X = generator.normal(size=(1024, 3))
    y = np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.3 * generator.normal(size=len(X))
    model = KernelRegressor(max_features=1024)
    (new, old), _ = gains_of(model, X, y)
    f = model._learner
    g = int(f.arrays.losses[:4].argmin())
    root = f.groups[g].factor.astype(np.float64)
    A, w, ridge, loss = root.T @ root, f.groups[g].newton[0], f.prior(g), f.arrays.losses[g]
    unit = ridge / f.arrays.priors[g]
    first = np.arange(len(A)) % 256 < 128
    half = np.linalg.solve(A[first][:, first], (A @ w)[first])
    learned = len(X) - f.numbers["buffered"]
    gain = 0.5 * (w @ A @ w - half @ A[first][:, first] @ half) / (learned * loss)
    freedom = [len(part) - ridge * np.trace(np.linalg.inv(part)) for part in (A[first][:, first], A)]
    examples_seen = (np.trace(A) - ridge * len(A)) / unit
    assert examples_seen == pytest.approx(learned, rel=1e-3)
    assert new == pytest.approx(gain - (freedom[1] - freedom[0]) / examples_seen, rel=1e-3)
    assert old == pytest.approx(freedom[1] / examples_seen, rel=0.1)


def test_a_larger_group_has_gained_what_its_loss_is_below_the_others(monkeypatch):
    monkeypatch.undo()
    generator = np.random.default_rng(8)
    X = generator.normal(size=(4096, 3))
    y = np.sin(3.0 * X[:, 0]) * X[:, 1] + 0.05 * generator.normal(size=len(X))
    model = KernelRegressor()
    (new, old), before = gains_of(model, X, y)
    losses_of = before._learner.arrays.losses
    largest = 4 + int(np.argmax(before._learner.table[4:6, 0]))
    assert before.n_features > 1024
    assert new == pytest.approx(1.0 - losses_of[largest] / losses_of[:4].min(), abs=0.01)
    assert new > 0.1
    assert 0.0 < old < 0.2


def test_noise_promises_nothing_and_what_was_expected_is_saved(tmp_path):
    generator = np.random.default_rng(9)
    X, y = generator.normal(size=(4096, 3)), generator.normal(size=4096)
    model = KernelRegressor()
    assert model._learner.expected_descent is None
    model.learn_many(X, y)
    new, old = model._learner.expected_descent
    assert 0.0 <= new < growth.PAYS
    assert 0.0 < old < 0.05
    for way in WAYS.values():
        assert way(model, tmp_path)._learner.expected_descent == (new, old)


@max_examples(30)
@given(st.integers(0, 1000), st.integers(2, 20), st.data())
def test_the_mixture_without_some_functions_equals_that_of_the_others(seed, n, data):
    """With what those gone said as their target: (A v)_others = A_others v_others, and A as if they never were."""
    gone = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n - 1, unique=True).map(sorted))
    generator = np.random.default_rng(seed)
    F = generator.normal(size=(3 * n, n))
    A, v = F.T @ F + np.eye(n), generator.normal(size=n)
    mixer, weights = np.linalg.cholesky(A).T.copy(), v.copy()
    found, weights = weights_of_mixture.without(mixer, weights, np.array(gone), 7.0)
    others = np.setdiff1d(np.arange(n), gone)
    expected = np.zeros((n, n))
    expected[np.ix_(others, others)] = A[np.ix_(others, others)]
    expected[gone, gone] = 7.0
    assert np.allclose(found.T @ found, expected, rtol=1e-9, atol=1e-9)
    assert np.allclose(found, np.triu(found))
    assert (found.diagonal() > 0.0).all()
    assert (weights[gone] == 0.0).all()
    ridge = np.linalg.solve(expected[np.ix_(others, others)], (A @ v)[others])
    assert np.allclose(weights[others], ridge, rtol=1e-8, atol=1e-8)
    expected_loss = 0.5 * (weights - v) @ A @ (weights - v)
    assert weights_of_mixture.loss_without(mixer, v, gone) == pytest.approx(expected_loss, rel=1e-8)
    assert np.array_equal(mixer, np.linalg.cholesky(A).T)


DUE = {
    "nothing has begun": ((0.4, None, 0.5), {"stage": 0}, 1),
    "too early": ((0.4, None, 0.5), {"stage": 0, "seen": 255}, 0),
    "no room": ((0.4, None, 0.5), {"stage": 0, "last": 0}, 0),
    "better by the margin": ((0.4, 0.38, 0.5), {}, 3),
    "better by less": ((0.4, 0.39, 0.5), {}, 0),
    "better, and the largest there may be": ((0.4, 0.38, 0.5), {"last": 2}, 0),
    "worse at the bandwidth wanted": ((0.4, 0.5, 0.6), {"rung": 1}, 0),
    "worse at another": ((0.4, 0.42, 0.6), {}, 1),
    "hardly worse at another": ((0.4, 0.41, 0.6), {}, 0),
    "all worse than constant steps": ((0.4, 0.4, 0.38), {}, 1),
    "all hardly worse than constant steps": ((0.4, 0.4, 0.39), {}, 0),
    "all worse than constant steps, and young": ((0.4, 0.4, 0.38), {"seen": 511 + 4 * 32}, 0),
    "of age": ((0.4, 0.4, 0.38), {"seen": 512 + 4 * 32}, 1),
}


@pytest.mark.parametrize(("losses", "options", "stage"), DUE.values(), ids=DUE)
def test_larger_groups_start_if_useful_and_end_if_not(losses, options, stage):
    """Losses of the best single block, the largest group, and the best constant steps on a single block."""
    single, own, steady = losses
    told = {"stage": 2, "rung": 2, "seen": 4096, "last": 3, **options}
    largest = [1 << told["stage"], told["rung"], 512] if told["stage"] else [0, 0, 0]
    table = np.array([[1, 0, 0], [1, 1, 0], [1, 2, 0], [1, 3, 0], largest, [0, 0, 0]])
    standing = np.array([[0.7, single, 0.8, 0.9, own or np.inf, np.inf], [steady, 0.9, 0.9, 0.9, 0.01, np.inf]])
    assert growth.due(told["seen"], 8 * table[:, 0], table, standing, told["last"], wanted=1) == stage


WORTHLESS = {
    "better than the best block": ((0.4, 0.395), {}, None),
    "as good": ((0.4, 0.397), {}, 4),
    "worse": ((0.4, 0.5), {}, 4),
    "worse, and young at the previous check": ((0.4, 0.5), {"seen": 1024}, None),
    "worse, and of age at the previous check": ((0.4, 0.5), {"seen": 1025}, 4),
    "as good as the smaller one": ((0.5, 0.395), {"smaller": 0.398}, 4),
    "better than the smaller one, and the largest there may be": ((0.5, 0.3), {"smaller": 0.398, "last": 2}, 5),
    "hardly better, and the largest there may be": ((0.5, 0.39), {"smaller": 0.398, "last": 2}, None),
    "better than the smaller one, and not the largest": ((0.5, 0.3), {"smaller": 0.398}, None),
}


@pytest.mark.parametrize(("losses", "options", "ended"), WORTHLESS.values(), ids=WORTHLESS)
def test_a_group_whose_features_are_worth_no_more_ends(losses, options, ended):
    """Losses of the best single block and of the largest group, of four blocks, beside one of two."""
    single, own = losses
    told = {"smaller": None, "seen": 4096, "last": 3, **options}
    beside = [2, 2, 256] if told["smaller"] else [0, 0, 0]
    table = np.array([[1, 0, 0], [1, 1, 0], [1, 2, 0], [1, 3, 0], [4, 2, 512], beside])
    standing = np.array([[0.7, single, 0.8, 0.9, own, told["smaller"] or np.inf], [0.9] * 6])
    assert growth.worthless(told["seen"], 8 * table[:, 0], table, standing, told["last"]) == ended


@pytest.mark.parametrize(("seen", "stage"), [(4095, 0), (4096, 1)])
def test_a_group_that_ended_may_begin_again_after_twice_as_many_examples(seen: int, stage: int) -> None:
    table = np.array([[1, 0, 0], [1, 1, 0], [1, 2, 0], [1, 3, 0], [0, 0, 2048], [0, 0, 0]])
    standing = np.array([[0.7, 0.4, 0.8, 0.9, np.inf, np.inf], [0.9] * 6])
    assert growth.due(seen, 8 * table[:, 0], table, standing, last=3, wanted=1) == stage


@pytest.mark.parametrize(("loss", "stage"), [(0.35, 0), (0.41, 0), (0.42, 1), (0.5, 1)])
def test_a_young_group_does_not_end_a_good_one_of_half_its_size(loss: float, stage: int) -> None:
    table = np.array([[1, 0, 0], [1, 1, 0], [1, 2, 0], [1, 3, 0], [4, 2, 2048], [2, 2, 512]])
    standing = np.array([[0.7, 0.4, 0.8, 0.9, 0.45, loss], [0.9] * 6])
    assert growth.due(4096, 8 * table[:, 0], table, standing, last=3, wanted=1) == stage


@pytest.mark.parametrize("blocks", range(70))
@pytest.mark.parametrize("numbers", [10**4, 10**5, 10**9])
def test_larger_groups_fit_in_the_blocks_and_do_not_overlap(blocks, numbers):
    last, outputs = growth.stages(blocks, 8, numbers), 8
    stands = [(growth.first_block(growth.slot(stage, last), last), 1 << stage) for stage in range(1, last + 1)]
    for first, size in stands:
        assert first >= growth.ALONE
        assert first + size <= min(blocks, growth.MOST)
    for (first, size), (second, more) in itertools.pairwise(stands):
        assert first + size <= second or second + more <= first
        assert (4 + size**2 + more**2) * outputs**2 <= numbers
    if numbers == 10**9:
        assert last == sum(blocks >= least for least in (6, 10, 16, 28, 52))
