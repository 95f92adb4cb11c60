"""Pairs of inputs: the sums and features against NumPy, which pairs are chosen, and the same bits in any calls."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from streams import WAYS, as_dicts, content, go_on_alike, learn, write_parts

from streamkernel import KernelClassifier, KernelRegressor, ModelFileError, learners, load
from streamkernel.estimators import model_file
from streamkernel.features.counter_rng import hash64
from streamkernel.features.rows import Rows
from streamkernel.interop import to_numpy
from streamkernel.interop.numpy_predictor import Predictor
from streamkernel.learners.embedding import directions_along
from streamkernel.merging.groups import groups_together
from streamkernel.merging.second_order import summarize
from streamkernel.second_order import pairs, slots
from streamkernel.second_order.gradients import embed_rows
from streamkernel.second_order.linear import further_inputs
from streamkernel.second_order.pairs import NOWHERE
from streamkernel.second_order.restructuring import _with_others, with_restart
from streamkernel.upkeep.work import prune

SMALL = {"learner": learners.Newton(features_per_seed=32), "max_features": 128}
WIDTH = 20


def interacting(n, seed=0, noise=0.1):
    """Return inputs, and targets of the product of two of them, neither of which has an effect alone."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, WIDTH))
    return as_dicts(X), (X[:, 2] * X[:, 7] + noise * generator.normal(size=n)).tolist()


def in_pairs(n=520, **options):
    """Return a model with a block in pairs, and its stream."""
    xs, ys = interacting(n)
    model = learn(KernelRegressor(**SMALL | options), xs, ys)
    assert chosen(model) == [{"x2", "x7"}]
    return model, xs, ys


def chosen(model):
    """Return the names of the chosen pairs."""
    arrays, names = model._learner.arrays, {hash64(f"x{i}"): f"x{i}" for i in range(300)}
    return [{names[int(h)] for h in arrays.metric.names[pair]} for pair in arrays.pairs.chosen]


@pytest.mark.parametrize("seed", range(3))
def test_the_only_pair_with_an_effect_is_chosen(seed):
    xs, ys = interacting(1100, seed)
    pairs_of_two = [pair for pair in chosen(learn(KernelRegressor(seed=seed), xs, ys)) if len(pair) == 2]
    assert pairs_of_two == [{"x2", "x7"}]


def test_pairs_are_chosen_for_classes():
    """With three classes, the effects on each add up to 0."""
    xs, ys = interacting(2100)
    labels = ["low" if y < -0.4 else "high" if y > 0.4 else "middle" for y in ys]
    assert {"x2", "x7"} in chosen(learn(KernelClassifier(), xs, labels))
    assert chosen(learn(KernelClassifier(**SMALL), xs[:600], [y > 0.0 for y in ys[:600]])) == [{"x2", "x7"}]


def test_an_input_whose_effect_is_not_linear_is_chosen_alone():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(1100, 40))
    model = learn(KernelRegressor(**SMALL), as_dicts(X), (np.abs(X[:, 3]) + X[:, 5]).tolist())
    assert {"x3"} in chosen(model)
    assert {"x5"} not in chosen(model)
    arrays = model._learner.arrays.pairs
    alone = arrays.inputs[0] == arrays.inputs[1]
    assert not arrays.along[1, alone].any()


@pytest.mark.parametrize("seed", range(5))
def test_no_pair_is_chosen_in_noise(seed):
    generator = np.random.default_rng(seed)
    X, y = generator.normal(size=(1100, 20)), generator.standard_t(3, size=1100)
    for model, targets in ((KernelRegressor(**SMALL), y.tolist()), (KernelClassifier(**SMALL), (y > 1.0).tolist())):
        assert learn(model, as_dicts(X), targets)._learner.arrays.pairs.group[0] == NOWHERE


def test_pairs_help_where_many_inputs_have_no_effect(monkeypatch):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(3000, 30))
    y = X[:, 15] * (np.abs(X[:, 4]) - 0.4) + 0.1 * generator.normal(size=3000)
    xs = as_dicts(X)

    def error():
        model = learn(KernelRegressor(), xs[:2500], y[:2500].tolist())
        return np.square([model.predict_one(x) for x in xs[2500:]] - y[2500:]).mean()

    with_pairs = error()
    monkeypatch.setattr(pairs, "BASE", np.inf)
    assert with_pairs < 0.5 * error()


def test_the_sums_are_those_of_numpy():
    """S = Σ ℓ' u u and V = Σ ℓ'² u² u² over the examples after 512; f is what is said before an example is learned."""
    model, _, _ = in_pairs(512)
    more, targets = interacting(40, seed=1)
    learner, arrays = model._learner, model._learner.arrays
    names = [f"x{i}" for i in range(WIDTH)]
    order = np.array([arrays.metric.names.tolist().index(hash64(name)) for name in names])
    at = (2 * order[:, None] + [0, 1]).ravel()
    sums, squares = np.zeros((2, 2 * WIDTH, 2 * WIDTH))
    moments, n, total = arrays.pairs.moments[order].copy(), arrays.pairs.totals[pairs.SEEN], 0.0
    for k, (x, y) in enumerate(zip(more, targets, strict=True), 1):
        row = model._state.scales(learner.directions.row(x))
        value = dict(zip(row.hashes.tolist(), row.values.tolist(), strict=True))
        t, n = np.array([value[hash64(name)] for name in names]), n + 1
        moments[:, :2] += np.transpose(phi := [np.sin(t), 1.0 - np.cos(t)])
        a, b = np.array(phi) - moments[:, :2].T / n
        moments[:, 2:5] += np.transpose([a * a, a * b, b * b])
        u = np.stack([a, b - moments[:, 3] / moments[:, 2] * a], axis=1).ravel()
        slope = model.predict_one(x) - y
        total, slope = total + slope, slope - (total + slope) / k
        sums, squares = sums + slope * np.outer(u, u), squares + slope**2 * np.outer(u**2, u**2)
        model.learn_one(x, y)
    ours = model._learner.arrays.pairs
    for array, expected in ((ours.sums, sums), (ours.squares, squares)):
        whole = np.triu(array) + np.triu(array, 1).T
        np.testing.assert_allclose(
            whole[np.ix_(at, at)], expected, rtol=1e-2, atol=1e-2 * np.abs(expected).max()
        )  # ȳ moves
    np.testing.assert_allclose(ours.moments[order], moments, rtol=1e-4, atol=1e-3)
    assert ours.totals[[pairs.EXAMPLES, pairs.CURVATURES]].tolist() == [40.0, 40.0]


@pytest.mark.parametrize("values", [[-1.0, 1.0], [0.0, 1.0, 1.0, 1.0]])
def test_inputs_of_two_values_have_one_trial_function(values):
    """Else one product would count four times."""
    generator = np.random.default_rng(0)
    X = generator.choice(values, size=(1100, 20))
    model = learn(KernelRegressor(**SMALL), as_dicts(X), generator.normal(size=1100).tolist())
    arrays = model._learner.arrays.pairs
    assert arrays.group[0] == NOWHERE
    assert np.triu(arrays.squares)[::2, ::2].any()
    assert not np.triu(arrays.squares)[1::2, 1::2].any()
    y = X[:, 3] * X[:, 5] + 0.1 * generator.normal(size=1100)
    model = learn(KernelRegressor(**SMALL), as_dicts(X), (y - X[:, 3] * y.mean()).tolist())
    assert {"x3", "x5"} in chosen(model)


def test_features_of_the_block_depend_on_its_pairs():
    """They are cos and sin of ω_p x_p + ω_q x_q with the directions of the seed, and a bandwidth of √2."""
    model, xs, _ = in_pairs()
    learner, arrays = model._learner, model._learner.arrays
    row = model._state.scales(learner.directions.row(xs[3]))
    g, size = int(arrays.pairs.group[0]), learner.block_size
    features = embed_rows(arrays, learner.directions, row, learner.n_positions)[0]
    value = dict(zip(row.hashes.tolist(), row.values.tolist(), strict=True))
    both = np.array([hash64("x2"), hash64("x7")], np.uint64)
    omega = directions_along(learner.directions.kernel, size, both, (g + 1) * size)[:, g * size :]
    phase = np.array([value[int(h)] for h in both]) @ omega / np.sqrt(2.0)
    first = arrays.layout[g, 0]
    expected = np.concatenate([np.cos(phase), np.sin(phase)]) / np.sqrt(size)
    np.testing.assert_allclose(features[first : first + 2 * size], expected, atol=1e-5)


def test_derivatives_match_differences():
    model, xs, _ = in_pairs()
    learner = model._learner
    learner.arrays.weights[2 * len(learner.groups) :] = 0.0  # derivatives are of the groups
    row = learner.directions.row(xs[5])
    exact = learner.derivatives(row, model._state.scales)[0]
    for j in range(WIDTH):
        values = [row.values.copy(), row.values.copy()]
        values[0][j] += 1e-3
        values[1][j] -= 1e-3
        up, down = (learner.scores(row._replace(values=v), model._state.scales)[0, 0] for v in values)
        np.testing.assert_allclose(exact[j], (up - down) / 2e-3, rtol=2e-2, atol=2e-3)


def test_new_pairs_change_only_the_features_that_they_take():
    """And what the other features have learned stays: their w minimises the loss without the changed ones."""
    model, _, _ = in_pairs(700)
    learner = model._learner
    learner.settle()
    known, arrays = learner.arrays.pairs, learner.arrays
    gains = np.zeros((WIDTH, WIDTH))
    gains[0, 3] = known.gains[0]
    g = int(known.group[0])
    new = pairs.with_group(known, g, gains, arrays.metric, learner.directions)
    changed = pairs.changed_features(known, new)
    assert 0.2 < changed.mean() < 0.8
    assert (new.inputs[:, changed] == np.array([[0], [3]])).all()
    old, gone = learner.groups[g], np.tile(changed, 2)
    after = _with_others(old, changed, learner.prior(g))
    A = old.factor.astype(float).T @ old.factor
    np.testing.assert_allclose(
        after.newton[0, ~gone], np.linalg.solve(A[~gone][:, ~gone], (A @ old.newton[0])[~gone]), rtol=1e-3, atol=1e-4
    )
    whole = after.factor.astype(float).T @ after.factor
    np.testing.assert_allclose(whole[~gone][:, ~gone], A[~gone][:, ~gone], rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(whole[gone], learner.prior(g) * np.eye(len(A))[gone], rtol=1e-5)
    assert not after.newton[:, gone].any()
    assert not after.steady[:, gone].any()


def test_a_block_gets_pairs_that_appear_later():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(2100, WIDTH))
    effect = X[:, 2] * X[:, 7] + (np.arange(2100) > 600) * X[:, 0] * X[:, 5]
    model = learn(KernelRegressor(**SMALL), as_dicts(X), effect.tolist())
    assert chosen(model)[:2] in ([{"x2", "x7"}, {"x0", "x5"}], [{"x0", "x5"}, {"x2", "x7"}])
    assert model._learner.table[int(model._learner.arrays.pairs.group[0]), 2] == 512  # it has not begun again


def test_a_restart_keeps_the_pairs_and_begins_the_sums_again():
    model, _, _ = in_pairs()
    learner = model._learner
    learner._complete()
    before, g = learner.arrays.pairs, int(learner.arrays.pairs.group[0])
    learner.arrays.losses[: learner.arrays.slots[slots.SMALL]] = 0.5
    learner.arrays.losses[learner.arrays.slots[slots.SMALL]] = 1.0  # of f = 0
    after = with_restart(learner._live, learner._arranger, learner._kernel, [0, 1, 2, 3])
    assert after.table[g].tolist() == [1, learner.table[g, 1], 520]
    assert after.state.pairs.chosen.tolist() == before.chosen.tolist()
    assert after.state.pairs.totals.tolist() == [0.0, 0.0, 0.0, 0.0, 520.0 - pairs.AFTER]
    assert not after.state.pairs.sums.any()
    assert not np.triu(after.groups[g].newton).any()


def test_a_restart_of_useless_blocks_leaves_the_pairs():
    """f = 0 is better than their constant steps, but not than the constant steps of another block."""
    model, _, _ = in_pairs()
    learner = model._learner
    learner._complete()
    live, g = learner._live, int(learner.arrays.pairs.group[0])
    state, steady = live.state, int(live.state.slots[slots.STEADY])
    state.losses[steady : steady + 4], state.losses[int(state.slots[slots.SMALL])] = 2.0, 1.0
    state.losses[steady + (g + 1) % 4] = 0.5
    after = with_restart(live, learner._arranger, learner._kernel, [0, 1, 2, 3])
    assert after.table[g].tolist() == [1, g, 520]
    assert after.state.pairs.group[0] == NOWHERE
    assert not after.state.pairs.inputs.size
    assert after.state.priors[g] in np.delete(after.state.priors[:4], g)


@pytest.mark.parametrize("unit", [1e-30, 1e-8])
def test_the_unit_of_targets_does_not_matter(unit):
    xs, ys = interacting(530)
    model, other = KernelRegressor(**SMALL), KernelRegressor(**SMALL)
    learn(model, xs, ys)
    learn(other, xs, [unit * y for y in ys])
    assert chosen(other) == chosen(model)
    assert other.predict_one(xs[0]) == pytest.approx(unit * model.predict_one(xs[0]), rel=1e-3)


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_predicts_and_learns_the_same_bits(way, tmp_path):
    model, xs, ys = in_pairs()
    go_on_alike(model, WAYS[way](model, tmp_path), xs[:520], ys[:520])


def test_the_cache_and_the_order_of_keys_change_no_bit():
    model, xs, ys = in_pairs()
    other = learn(KernelRegressor(**SMALL, cache_bytes=0), [dict(reversed(x.items())) for x in xs], ys)
    assert [other.predict_one(x) for x in xs[:50]] == [model.predict_one(x) for x in xs[:50]]


def test_an_input_of_the_first_example_alone_can_be_saved(tmp_path):
    xs, ys = interacting(300)
    model = learn(KernelRegressor(**SMALL), [xs[0] | {"once": 1.0}, *xs[1:]], ys)
    model.save(tmp_path / "model")
    assert content(load(tmp_path / "model")) == content(model)


def test_many_inputs_have_no_pairs():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(560, 140))
    model = learn(KernelRegressor(**SMALL), as_dicts(X), (X[:, 0] * X[:, 1]).tolist())
    assert model._learner.arrays.pairs.group[0] == NOWHERE


def test_an_exported_model_has_the_features(tmp_path):
    model, xs, _ = in_pairs()
    to_numpy(model, tmp_path / "model.npz")
    predictor = Predictor(tmp_path / "model.npz")
    ours = np.array([model.predict_one(x) for x in xs[:50]])
    np.testing.assert_allclose([predictor.predict_one(x) for x in xs[:50]], ours, atol=1e-4 * ours.std())


def test_a_model_that_is_pruned_keeps_its_pairs():
    model, xs, ys = in_pairs()
    learner = model._learner
    rows = Rows.stack([model._state.scales(learner.directions.row(x)) for x in xs])
    small = prune(learner, rows, np.array(ys), 0.5, model._model.with_columns)
    assert small.block_size == 16
    assert small.arrays.pairs.chosen.tolist() == learner.arrays.pairs.chosen.tolist()
    assert np.square(small.scores(rows) - learner.scores(rows)).mean() < 0.05 * np.var(ys)


def test_replicas_merge_with_the_examples_of_each_once():
    """Merged sums are those of the base once, and what each replica added; another order of names changes nothing."""
    model, xs, ys = in_pairs()
    base, parts = copy.deepcopy(model), [copy.deepcopy(model) for _ in range(2)]
    for number, part in enumerate(parts):
        part._model.divide(number, 2)
        learn(part, xs[number:200:2], ys[number:200:2])
    before, one, other = (copy.deepcopy(part._learner.arrays.pairs) for part in (base, *parts))
    merged = parts[0].merge(parts[1], base=base)._learner.arrays.pairs
    for name in ("totals", "moments"):
        expected = getattr(one, name) + getattr(other, name) - getattr(before, name)
        np.testing.assert_allclose(getattr(merged, name), expected, atol=1e-9)
    expected = np.triu(one.sums + other.sums - before.sums)
    np.testing.assert_allclose(np.triu(merged.sums), expected, atol=1e-6 * np.abs(expected).max())
    assert merged.group[0] == before.group[0]
    assert merged.chosen.tolist() == before.chosen.tolist()
    np.testing.assert_array_equal(merged.along, before.along)


def test_replicas_merge_with_inputs_that_others_lack():
    """One replica knows an input more since a check, and the other one has a check and begins its sums again."""
    model, xs, ys = in_pairs()
    base, parts = copy.deepcopy(model), [copy.deepcopy(model) for _ in range(2)]
    more = [x | {"late": float(i % 3)} for i, x in enumerate(xs)]
    for number, part in enumerate(parts):
        part._model.divide(number, 2)
        learn(part, more if number else xs[:100], ys if number else ys[:100])
    assert parts[1]._learner.arrays.pairs.totals[pairs.EXAMPLES] == 16  # since the check at 1,024
    one, other = (copy.deepcopy(part._learner.arrays) for part in parts)
    merged = parts[0].merge(parts[1], base=base)._learner.arrays

    def sum_of(arrays, first, second):
        at = sorted(2 * arrays.metric.names.tolist().index(hash64(name)) for name in (first, second))
        return arrays.pairs.sums[at[0], at[1]]

    assert merged.pairs.totals[pairs.EXAMPLES] == 108 + 16
    assert sum_of(merged, "x2", "x7") == pytest.approx(sum_of(one, "x2", "x7") + sum_of(other, "x2", "x7"))
    assert len(merged.pairs.moments) == WIDTH + 1


def test_a_replica_whose_pairs_have_changed_merges():
    """Its block is another one than the base's, although it began at the same example."""
    model, _, _ = in_pairs()
    base, parts = copy.deepcopy(model), [copy.deepcopy(model) for _ in range(2)]
    generator = np.random.default_rng(1)
    X = generator.normal(size=(600, WIDTH))
    learn(parts[0], as_dicts(X), (X[:, 0] * X[:, 5]).tolist())
    assert len(chosen(parts[0])) == 2
    learn(parts[1], *interacting(200, seed=2))
    assert parts[0].merge(parts[1], base=base).n_steps == 520 + 600 + 200


def test_merged_models_have_one_block_in_pairs():
    """The one of the heavier part, also if that part has ended the block in whose place the other one has its own."""
    model, _, _ = in_pairs()
    parts = [summarize(model._learner) for _ in range(2)]
    g = int(parts[0].pairs.group[0])
    other = (g + 1) % 3
    parts[0].table[other] = 0, other, 512
    parts[1].table[[g, other]] = [[1, g, 0], [1, 2 * 4 + 2, 512]]
    parts[1] = replace(parts[1], pairs=parts[1].pairs._replace(group=np.array([other])))
    table, has = groups_together(parts, np.array([0.6, 0.4]))
    assert table[g].tolist() == parts[0].table[g].tolist()
    assert table[other].tolist() == [0, other, 512]
    assert has[:, g].tolist() == [True, False]
    assert not has[:, other].any()


def test_a_block_in_pairs_may_end_where_others_gain():
    """It is then in no pairs, and neither is its file: of 8,300 events, at 2,048."""
    generator = np.random.default_rng(2)
    X, i = generator.normal(size=(2060, WIDTH)), np.arange(2060)
    ys = np.where(i < 1000, X[:, 2] * X[:, 7], X[:, 0] * X[:, 5]).tolist()
    model = KernelRegressor(**SMALL)
    for x, y in zip(as_dicts(X), ys, strict=True):
        model.learn_one(x, y)
        table, g = model._learner.table[:4], model._learner.arrays.pairs.group[0]
        assert np.flatnonzero(table[:, 1] >= 8).tolist() == ([g] if g != NOWHERE else [])
        assert g == NOWHERE or table[g, 0]


def test_an_effect_of_one_input_is_no_effect_of_all(monkeypatch):
    """Where f is wrong on average, products of trial functions, whose mean is not 0, are not wrong for it."""
    monkeypatch.setattr(further_inputs, "SURE", 1e9)  # no squares, which the pairs would include
    generator = np.random.default_rng(0)
    X = generator.normal(size=(2100, 16))
    y = X[:, 2] * X[:, 7] + np.abs(X[:, 3]) + 0.1 * generator.normal(size=2100)
    model = learn(KernelRegressor(learner=learners.Newton(features_per_seed=64)), as_dicts(X), y.tolist())
    assert sorted(map(sorted, chosen(model))) == [["x2", "x7"], ["x3"]]


CRAFTED = {
    "no pairs": lambda t: t.pop("pairs.chosen"),
    "no gains": lambda t: t.pop("pairs.gains"),
    "no moments": lambda t: t.pop("pairs.moments"),
    "an input that is not there": lambda t: t["pairs.chosen"].fill(WIDTH),
    "an input below 0": lambda t: t["pairs.chosen"].fill(-1),
    "a pair in the other order": lambda t: t["pairs.chosen"].__setitem__(0, t["pairs.chosen"][0, ::-1].copy()),
    "a pair twice": lambda t: t.update({n: np.repeat(t[n], 2, axis=0) for n in ("pairs.chosen", "pairs.gains")}),
    "no gain": lambda t: t["pairs.gains"].fill(0.0),
    "gains without end": lambda t: t["pairs.gains"].fill(np.inf),
    "sums that are not numbers": lambda t: t["pairs.sums"].fill(np.nan),
    "squares below 0": lambda t: t["pairs.squares"].fill(-1.0),
    "fewer examples than none": lambda t: t["pairs.totals"].fill(-1.0),
    "more inputs than the metric has": lambda t: t.update(
        {"pairs.moments": np.zeros((60, 6)), "pairs.sums": np.ones(60 * 121), "pairs.squares": np.ones(60 * 121)}
    ),
    "pairs of no block": lambda t: t["table"][:4, 1].__setitem__(slice(None), range(4)),
    "sums of other inputs": lambda t: t.update({"pairs.moments": t["pairs.moments"][:-1].copy()}),
    "more inputs than there may be": lambda t: t.update({"pairs.moments": np.zeros((200, 6))}),
    "moments of more examples": lambda t: t["pairs.moments"].fill(1e6),
    "two blocks in pairs": lambda t: t["table"][:3, 1].fill(8),
}


@pytest.fixture(scope="module")
def parts():
    return model_file.describe(in_pairs()[0])


@pytest.mark.parametrize("change", CRAFTED)
def test_a_crafted_file_is_refused(change, parts, tmp_path):
    assert load(write_parts(tmp_path, parts)).n_steps == 520
    with pytest.raises(ModelFileError):
        load(write_parts(tmp_path, parts, CRAFTED[change]))
