"""The learned metric: gradients and features against NumPy, its benefit, and the same bits in any calls."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from streams import WAYS, go_on_alike, learn, write_parts

from streamkernel import KernelClassifier, KernelRegressor, MergeError, ModelFileError, learners, load
from streamkernel.estimators import model_file
from streamkernel.features.rows import Rows
from streamkernel.second_order import bandwidths, growth, metric, pairs
from streamkernel.second_order.gradients import embed_rows
from streamkernel.second_order.metric import GRADIENTS, NAMES
from streamkernel.upkeep.work import prune

SMALL = {"learner": learners.Newton(features_per_seed=16), "max_features": 256}


@pytest.fixture(autouse=True)
def early(monkeypatch):
    """Groups in a metric and larger ones begin early, for fewer examples."""
    monkeypatch.setattr(growth, "FROM", 512)
    monkeypatch.setattr(bandwidths, "TRUSTED", 2.0)


def few(n, width=8, seed=0):
    """Return a regression on two of several inputs."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, width))
    y = np.sin(2.0 * X[:, 0]) * np.cos(X[:, 1]) + 0.05 * generator.normal(size=n)
    return [dict(zip([f"x{i}" for i in range(width)], x, strict=True)) for x in X.tolist()], y.tolist()


def grown(n=1040, **options):
    """Return a model with groups in a metric, and its stream."""
    xs, ys = few(n)
    model = learn(KernelRegressor(**SMALL | options), xs, ys)
    assert model._learner.arrays.metric.known[[0, 3, 5]].tolist() in ([8, 0, 8], [0, 8, 8])
    return model, xs, ys


def test_gradients_match_finite_differences():
    """The sums after one more gradient, against differences of predictions."""
    model, xs, ys = grown(1043)
    learner, scales = model._learner, model._state.scales
    known = learner.arrays.metric
    known.sums[:] = 0.0
    learner.arrays.weights[2 * len(learner.groups) + 1 :] = 0.0  # the metric is not of the linear functions
    row = scales(learner.directions.row(xs[7]))
    found = np.empty(8)
    for j in range(8):
        values = [row.values.copy(), row.values.copy()]
        values[0][j] += 1e-3
        values[1][j] -= 1e-3
        up, down = (learner.scores(row._replace(values=v))[0, 0] for v in values)
        found[j] = (up - down) / 2e-3
    model.learn_one(xs[7], ys[7])  # the 1,044th example: every fourth has a gradient, of f before it is learned
    numbers = [known.names.tolist().index(name) for name in row.hashes.tolist()]
    unit = 2.0 * np.pi * learner.directions.plan.parts_compiled["scale"][0]  # of phases in the unit of the inputs
    sums = known.sums[np.ix_(numbers, numbers)] * unit**2
    np.testing.assert_allclose(sums, np.outer(found, found), rtol=2e-2, atol=2e-3 * np.square(found).max())


def test_features_of_a_group_are_those_of_the_row_in_its_metric():
    model, xs, _ = grown()
    learner = model._learner
    arrays, directions = learner.arrays, learner.directions
    row = model._state.scales(directions.row(xs[3]))
    found = embed_rows(arrays, directions, row, learner.n_positions)[0]
    isotropic = arrays._replace(metric=metric.empty(len(arrays.layout)))
    for g in np.flatnonzero(arrays.metric.known).tolist():
        known, (first, n, *_) = int(arrays.metric.known[g]), arrays.layout[g]
        numbers = [arrays.metric.names.tolist().index(name) for name in row.hashes.tolist()]
        root = arrays.metric.roots[g, :known, :known][np.ix_(numbers, numbers)]
        changed = row._replace(values=root @ row.values)
        expected = embed_rows(isotropic, directions, changed, learner.n_positions)[0]
        np.testing.assert_allclose(found[first : first + n], expected[first : first + n], atol=2e-5)


def test_the_root_is_that_of_the_mean_outer_product():
    sums, known = np.diag([9.0, 4.0, 3.0]), metric.of_names(np.arange(1, 4, dtype=np.uint64), 6)
    known.sums[:3, :3] = sums
    root = metric.root_of(known, 0.25, probe=3)
    np.testing.assert_allclose(root @ root, (1.0 - 0.25**3) * 3.0 * sums / 16.0 + 0.25**3 * np.eye(3))
    assert np.trace(root @ root) == pytest.approx(3.0)


@pytest.mark.parametrize("sums", [np.zeros((3, 3)), np.full((3, 3), np.inf), np.full((3, 3), np.nan)], ids=repr)
def test_there_is_no_metric_without_gradients(sums):
    known = metric.of_names(np.arange(1, 4, dtype=np.uint64), 6)
    known.sums[:3, :3] = sums
    assert metric.root_of(known, 0.5, probe=3) is None


def in_metric(squares, gradients):
    """Return the metric in which block 3 has a root with these squared eigenvalues, and Σ ∇f ∇fᵀ is diagonal."""
    known = metric.of_names(np.arange(1, 4, dtype=np.uint64), 6)
    known.sums[:3, :3] = np.diag(gradients)
    return metric.with_groups(known, [3], [], np.diag(np.sqrt(squares)))


def test_a_metric_is_trusted_no_less_when_little_is_explained():
    known = in_metric([2.6, 0.2, 0.2], gradients=[9.0, 4.0, 3.0])
    root = metric.root_of(known, 0.9, probe=3)
    np.testing.assert_allclose(np.diag(root @ root), 0.8 * 3.0 * np.array([9.0, 4.0, 3.0]) / 16.0 + 0.2)
    np.testing.assert_array_equal(metric.root_of(known, 0.1, probe=3), metric.root_of(known, 0.1, probe=0))


@pytest.mark.parametrize(
    ("squares", "if_best", "if_not"),
    [([1.4, 0.8, 0.8], False, True), ([0.1, 2.8, 0.1], True, True), ([2.5, 0.3, 0.2], False, False)],
)
def test_only_a_more_decided_metric_replaces_that_of_the_best_block(squares, if_best, if_not):
    known, root = in_metric([2.6, 0.2, 0.2], gradients=[1.0, 1.0, 1.0]), np.diag(np.sqrt(squares))
    assert metric.is_replaced(known, 3, root, is_best=True) == if_best
    assert metric.is_replaced(known, 3, root, is_best=False) == if_not
    assert metric.is_replaced(known, 0, root, is_best=True)  # isotropic until now


def test_a_metric_helps_with_few_relevant_inputs(monkeypatch):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(3000, 12))
    y = np.tanh(3.0 * X[:, 0] * X[:, 1]) + 0.05 * generator.normal(size=3000)
    xs = [dict(zip([f"x{i}" for i in range(12)], x, strict=True)) for x in X.tolist()]

    def error():
        model = learn(KernelRegressor(), xs[:2500], y[:2500].tolist())
        return np.square([model.predict_one(x) for x in xs[2500:]] - y[2500:]).mean()

    monkeypatch.setattr(pairs, "BASE", np.inf)
    learned = error()
    monkeypatch.setattr(metric, "root_of", lambda *given: None)
    assert learned < 0.8 * error()


def test_too_many_names_disable_the_metric():
    generator = np.random.default_rng(0)
    xs = [{f"x{i}": float(v) for i, v in enumerate(row)} for row in generator.normal(size=(560, metric.MOST_NAMES + 9))]
    model = learn(KernelRegressor(**SMALL), xs, [x["x0"] for x in xs])
    known = model._learner.arrays.metric
    assert known.counts[NAMES] == metric.MOST_NAMES
    assert not known.known.any()


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_predicts_and_learns_the_same_bits(way, tmp_path):
    model, xs, ys = grown()
    go_on_alike(model, WAYS[way](model, tmp_path), xs[:300], ys[:300])


def test_the_cache_and_the_order_of_keys_change_no_bit():
    model, xs, ys = grown()
    other = KernelRegressor(**SMALL, cache_bytes=0)
    learn(other, [dict(reversed(x.items())) for x in xs], ys)
    assert [other.predict_one(x) for x in xs[:50]] == [model.predict_one(x) for x in xs[:50]]


def test_late_names_are_left_untransformed():
    model, xs, ys = grown()
    more = [x | {"late": float(i % 2)} for i, x in enumerate(xs)]
    for _ in range(2):  # its scale is taken at 2,048 examples
        learn(model, more, [y + 3.0 * x["late"] for x, y in zip(more, ys, strict=True)])
    assert model.predict_one(xs[0] | {"late": 1.0}) - model.predict_one(xs[0] | {"late": 0.0}) > 2.0
    assert model.predict_one({"x0": 0.5}) != model.predict_one({"x0": 0.5, "new": 1.0})


def test_gradients_cycle_through_classes():
    xs, ys = few(1040)
    labels = [("a", "b", "c")[int(np.digitize(y, [-0.7, 0.7]))] for y in ys]
    model = learn(KernelClassifier(**SMALL), xs, labels)
    known = model._learner.arrays.metric
    assert known.known.any()
    assert known.counts[GRADIENTS] == 4  # since the look at 1,024


def test_replicas_merge_with_their_metric():
    model, xs, ys = grown()
    base, parts = copy.deepcopy(model), [copy.deepcopy(model) for _ in range(2)]
    for number, part in enumerate(parts):
        part._model.divide(number, 2)
        learn(part, xs[number:200:2], ys[number:200:2])
    before = base._learner.arrays.metric
    merged = parts[0].merge(parts[1], base=base)
    after = merged._learner.arrays.metric
    assert (after.known == before.known).all()
    assert (after.names[:8] == before.names[:8]).all()
    np.testing.assert_array_equal(after.roots[:, :8, :8][after.known > 0], before.roots[before.known > 0])
    assert after.counts[GRADIENTS] > before.counts[GRADIENTS]
    assert np.square([merged.predict_one(x) for x in xs[:200]] - np.array(ys[:200])).mean() < 0.6 * np.var(ys)


def test_a_model_that_is_pruned_keeps_its_metric():
    model, xs, ys = grown()
    learner = model._learner
    rows = Rows.stack([model._state.scales(learner.directions.row(x)) for x in xs])
    small = prune(learner, rows, np.array(ys), 0.5, model._model.with_columns)
    assert small.block_size == 8
    assert small.arrays.metric.known.tolist() == learner.arrays.metric.known.tolist()
    assert np.square(small.scores(rows) - learner.scores(rows)).mean() < 0.05 * np.var(ys)


CRAFTED = {
    "no names": lambda t: t.pop("metric.names"),
    "no roots": lambda t: t.pop("metric.roots"),
    "no sums": lambda t: t.pop("metric.sums"),
    "a name twice": lambda t: t["metric.names"].__setitem__(0, t["metric.names"][1]),
    "more names than there may be": lambda t: t.update({"metric.names": np.arange(metric.MOST_NAMES + 1)}),
    "fewer names than groups know": lambda t: t.update({"metric.names": t["metric.names"][:-1].copy()}),
    "more names than there are": lambda t: t["metric.known"].__setitem__(-1, 99),
    "fewer than no names": lambda t: t["metric.known"].__setitem__(-1, -1),
    "no metric of a group in one": lambda t: t["metric.known"].fill(0),
    "a metric of a group in none": lambda t: t["metric.known"].__setitem__(0, 8),
    "roots that are not numbers": lambda t: t["metric.roots"].fill(np.nan),
    "roots without end": lambda t: t["metric.roots"].fill(1e300),
    "sums that are not numbers": lambda t: t["metric.sums"].fill(np.nan),
    "sums below 0": lambda t: t["metric.sums"].fill(-1.0),
    "fewer gradients than none": lambda t: t["metric.gradients"].fill(-1),
}


@pytest.fixture(scope="module")
def parts():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growth, "FROM", 512)
        patch.setattr(bandwidths, "TRUSTED", 2.0)
        return model_file.describe(grown()[0])


@pytest.mark.parametrize("change", CRAFTED)
def test_a_crafted_file_is_refused(change, parts, tmp_path):
    assert load(write_parts(tmp_path, parts)).n_steps == 1040
    with pytest.raises(ModelFileError):
        load(write_parts(tmp_path, parts, CRAFTED[change]))


def test_metrics_of_too_many_names_together_are_refused():
    parts = [metric.of_names(np.arange(1, 101, dtype=np.uint64) + 1000 * k, 6) for k in range(2)]
    parts = [metric.with_groups(part, [5], [], np.eye(100)) for part in parts]
    has = np.zeros((2, 6), bool)
    has[1, 5] = True
    with pytest.raises(MergeError, match="128 names"):
        metric.merge_metrics(parts, has)
