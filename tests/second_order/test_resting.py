"""Groups that rest while a larger one is much better."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
from streams import learn, nested

from streamkernel import KernelRegressor
from streamkernel.merging import second_order
from streamkernel.second_order import pairs, recency
from streamkernel.second_order.mixture_state import RESTED

CHANGE, NARROW = 4200, 1
LARGE = {"max_features": 1024, "features_per_seed": 64}


@pytest.fixture(autouse=True, scope="module")
def without_pairs():
    """No block is in pairs of inputs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "BASE", np.inf)
        yield


def stream(seed, after=0):
    """Return inputs, and targets that depend on one direction, in which larger groups are drawn; then on all inputs."""
    X = np.random.default_rng(seed).normal(size=(CHANGE + after, 6))
    y = np.where(np.arange(len(X)) < CHANGE, np.sin(2.0 * X[:, 0] + X[:, 1]), 5.0 * np.sign(X).prod(axis=1))
    return [dict(zip("abcdef", x, strict=True)) for x in X.tolist()], y.tolist()


def regressor(**options):
    return KernelRegressor(**nested(**LARGE | options))


def left_out(model):
    """Return how many examples each group left out."""
    return model._learner.arrays.sampled[:, RESTED].astype(int).tolist()


def gram(model, g):
    """Return A of a group."""
    factor = np.triu(model._learner.groups[g].factor).astype(np.float64)
    return factor.T @ factor


def steps_of(model, xs, ys):
    """Learn, and return the numbers of examples after which a narrow block took a step."""
    at = []
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        before = model._learner.groups[NARROW].factor.copy()
        model.learn_one(x, y)
        if not np.array_equal(before, model._learner.groups[NARROW].factor):
            at.append(i)
    return np.diff(at).tolist()


@pytest.mark.parametrize("seed", [0, 1])
def test_a_block_rests_while_a_larger_group_is_much_better(seed, monkeypatch):
    xs, ys = stream(seed, after=600)
    model = learn(regressor(), xs[:2040], ys[:2040])
    assert not any(left_out(model))
    learn(model, xs[2040:3000], ys[2040:3000])
    assert set(steps_of(model, xs[3000:CHANGE], ys[3000:CHANGE])) == {4 * 64}
    assert left_out(model)[NARROW] > 1000
    assert model._learner.numbers["restarted"] == 0  # f is much better than before: no change
    monkeypatch.setattr(recency, "SURELY", np.inf)
    learn(model, xs[CHANGE : CHANGE + 200], ys[CHANGE : CHANGE + 200])
    assert set(steps_of(model, xs[CHANGE + 200 :], ys[CHANGE + 200 :])) == {64}


@pytest.mark.parametrize("forgetting", [1.0, 0.9995])
def test_nothing_rests_if_it_is_given_what_is_forgotten(forgetting):
    xs, ys = stream(0)
    assert not any(left_out(learn(regressor(forgetting=forgetting), xs, ys)))


def test_copies_agree_on_the_buffered_rows(monkeypatch):
    """So the A of a copy that learned more is never below that of one which only took the step for them."""
    monkeypatch.setattr(recency, "SURELY", np.inf)
    xs, ys = stream(0)
    model, grew = learn(regressor(), xs[:3000], ys[:3000]), set()
    for first, is_changed in zip(range(3000, 3400, 25), itertools.cycle([False, True])):
        base, other = copy.deepcopy(model), copy.deepcopy(model)
        before = [gram(base, g) for g in range(4)]
        base._learner.settle()
        # after other targets larger groups are no better, so that groups no longer rest
        learn(other, xs[first : first + 70], [50.0] * 70 if is_changed else ys[first : first + 70])
        other._learner.settle()
        for g in range(4):
            least = np.linalg.eigvalsh(gram(other, g) - gram(base, g))[0]
            assert least > -1e-5 * np.trace(gram(base, g))
            grew.add((g, bool(np.abs(gram(base, g) - before[g]).max() > 0.0)))
        learn(model, xs[first : first + 25], ys[first : first + 25])
    assert {(NARROW, False), (NARROW, True)} <= grew


def test_a_copy_that_only_predicts_knows_how_many_examples_a_group_represents():
    """Pruning in another thread reads it there."""
    xs, ys = stream(0)
    model = learn(regressor(), xs, ys)
    learner = model._learner
    copied = regressor()._model.new_learner(learner.kernel, learner.columns)
    copied.restore(learner.to_predict(), to_learn=False)
    own = [learner.memory(g) for g in range(len(learner.table))]
    assert own[NARROW] == len(xs) - left_out(model)[NARROW] < 0.75 * len(xs)
    assert [copied.memory(g) for g in range(len(copied.table))] == own


def test_merged_losses_of_a_group_that_not_all_models_have_compare_with_those_of_others():
    xs, ys = stream(0)
    base = learn(regressor(), xs[:900], ys[:900])
    one, other = copy.deepcopy(base), copy.deepcopy(base)
    learn(one, xs[900:2500], ys[900:2500])
    learn(other, xs[2500:2600], ys[2500:2600])
    larger = [g for g, (blocks, *_) in enumerate(one._learner.table.tolist()) if blocks > 1]
    assert larger
    assert not other._learner.table[larger].any()
    fresh = regressor()._model.new_learner(base._learner.kernel, base._learner.columns)
    whole, *parts = (second_order.summarize(model._learner) for model in (base, one, other))
    after, before = second_order.merge(fresh, parts, whole, np.array([0.9, 0.1]))["recent"], parts[0].recent
    assert (before[[0, *larger]] > 0.0).all()
    assert before[0] < after[0]
    share = parts[0].recent[0] / after[0]
    assert after[larger] == pytest.approx(before[larger] / share, rel=1e-9)


def test_replicas_compare_the_losses_of_their_last_examples():
    xs, ys = stream(0)
    model = learn(regressor(), xs[:2000], ys[:2000])
    model._model.divide(0, 2)
    learn(model, xs[2000:], ys[2000:])
    assert len(xs) - model._learner.numbers["compared_at"] < 2 * recency.EVERY
