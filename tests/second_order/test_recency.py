"""Groups that forget, and the reset of groups that are misled by the past."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest
from streams import WAYS, content, in_calls, learn, nested, predictions

from streamkernel import KernelClassifier, KernelRegressor, learners
from streamkernel.second_order import growth, mixture, recency

CHANGE, AFTER = 2400, 2400
SMALL = {"max_features": 128, "kernel": None}


def stream(seed=0, before=CHANGE, after=AFTER):
    """Return inputs and classes that depend on an interaction, whose sign changes."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(before + after, 4))
    sign = np.where(np.arange(len(X)) < before, 1.0, -1.0)
    y = sign * np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.3 * X[:, 2] > 0.0
    return [dict(zip("abcd", x, strict=True)) for x in X.tolist()], y.tolist()


def turning(n):
    """Return inputs and targets that benefit from more features, and whose sign changes after 5,000."""
    X = np.random.default_rng(0).normal(size=(n, 3))
    sign = np.where(np.arange(n) < 5000, 1.0, -1.0)
    return X, sign * (np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2])


def right(model, xs, ys):
    """Return which predictions were right, each before its event was learned."""
    found = []
    for x, y in zip(xs, ys, strict=True):
        found.append(model.predict_one(x) == y)
        model.learn_one(x, y)
    return np.array(found)


def restarted(model):
    """Return the number of examples at the last reset of the model."""
    return int(model._learner.numbers["restarted"])


@pytest.mark.parametrize("seed", [0, 1])
def test_after_an_abrupt_change_a_model_is_as_good_as_one_that_starts_there(seed):
    xs, ys = stream(seed)
    old, keeps_all = (KernelClassifier(**nested(**SMALL, forgetting=f)) for f in ("auto", 1.0))
    for model in (old, keeps_all):
        learn(model, xs[:CHANGE], ys[:CHANGE])
    assert restarted(old) == 0
    fresh = KernelClassifier(**SMALL)
    scores = [right(model, xs[CHANGE:], ys[CHANGE:])[800:].mean() for model in (old, keeps_all, fresh)]
    assert CHANGE < restarted(old) <= CHANGE + 3 * recency.EVERY
    assert scores[0] > scores[2] - 0.01
    assert scores[1] < scores[0] - 0.01


@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_learned_after_a_shift_of_an_input_lasts(seed):
    """The shift enters the moments of the scales at the next check, at 2,048 examples."""
    X = np.random.default_rng(seed).normal(size=(2548, 3))
    ys = (X[:, 0] * X[:, 1] > 0.0).tolist()
    X[1024:, 0] += 1.5
    ok = right(KernelClassifier(**SMALL), [dict(zip("abc", x, strict=True)) for x in X.tolist()], ys)
    assert ok[2048:].mean() > ok[1548:2048].mean() - 0.01


def sine(x, generator):
    return np.sin(2.0 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * generator.normal(size=len(x))


def noise(x, generator):
    return generator.normal(size=len(x))


def skewed(x, generator):
    return np.exp(x[:, 0] + generator.normal(size=len(x)))


@pytest.mark.parametrize("target", [sine, noise, skewed])
def test_on_a_stationary_stream_nothing_restarts(target):
    generator = np.random.default_rng(3)
    X = generator.normal(size=(9000, 4))
    model = KernelRegressor(**SMALL)
    model.learn_many(pd.DataFrame(X, columns=list("abcd")), pd.Series(target(X, generator)))
    assert restarted(model) == 0


@pytest.mark.parametrize("g", range(len(recency.KEPT)))
def test_a_group_that_forgets_is_the_block_of_a_model_that_forgets(g):
    xs, ys = stream(before=1500, after=0)
    options = {**SMALL, "batch_size": 16}
    model = learn(KernelClassifier(**nested(**options)), xs, ys)
    other = learn(KernelClassifier(**nested(**options, forgetting=recency.KEPT[g])), xs, ys)
    own = model._learner
    at = len(own.table) - len(recency.KEPT) + g
    blocks, block, born = own.table[at].tolist()
    assert (blocks, born) == (1, 0)
    assert own.groups[at].newton.tobytes() == other._learner.groups[block].newton.tobytes()
    assert own.groups[at].factor.tobytes() == other._learner.groups[block].factor.tobytes()


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_continues_with_the_same_bits_around_a_restart(way, tmp_path):
    xs, ys = stream()
    whole = learn(KernelClassifier(**SMALL), xs, ys)
    at = restarted(whole)
    assert at > CHANGE
    for first in (at - 300, at - 1, at, at + 70):
        model = learn(KernelClassifier(**SMALL), xs[:first], ys[:first])
        twin = WAYS[way](model, tmp_path)
        learn(twin, xs[first:], ys[first:])
        assert content(twin) == content(whole)


@pytest.mark.parametrize("sizes", [[1200], [256, 1, 255], [7, 300, 5]])
def test_any_grouping_into_calls_has_the_same_bits(sizes):
    xs, ys = stream()
    one, model = learn(KernelClassifier(**SMALL), xs, ys), in_calls(KernelClassifier(**SMALL), xs, ys, sizes)
    assert restarted(one) > CHANGE
    assert content(model) == content(one)


def test_an_interrupted_restart_is_completed(monkeypatch):
    xs, ys = stream()
    whole = learn(KernelClassifier(**SMALL), xs, ys)
    at, model, real = restarted(whole), KernelClassifier(**SMALL), mixture.with_restart
    learn(model, xs[: at - 1], ys[: at - 1])

    def interrupted(*args):
        monkeypatch.setattr(mixture, "with_restart", real)
        raise KeyboardInterrupt

    monkeypatch.setattr(mixture, "with_restart", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.learn_one(xs[at - 1], ys[at - 1])
    learn(model, xs[model._learner.examples :], ys[model._learner.examples :])
    assert content(model) == content(whole)


def test_larger_groups_end_at_a_restart_and_begin_again_as_in_a_new_model():
    X, targets = turning(9000)
    y = pd.Series(targets)
    frames, sizes = pd.DataFrame(X, columns=list("abc")), []
    model = KernelRegressor(max_features=1024, learner=learners.Newton(features_per_seed=32))
    for first in range(0, len(X), 250):
        model.learn_many(frames[first : first + 250], y[first : first + 250])
        sizes.append(model.n_features)
    larger = slice(growth.ALONE, growth.ALONE + 2)
    assert 5000 < restarted(model) < 6500
    assert min(sizes[22:]) < max(sizes[:20])
    assert model._learner.table[larger, 2].max() > restarted(model)


def test_replicas_restart_when_they_are_merged():
    xs, ys = stream(after=4000)
    base = learn(KernelClassifier(**SMALL), xs[:CHANGE], ys[:CHANGE])
    rounds = [xs[first : first + 500] for first in range(CHANGE, len(xs), 500)]
    labels = [ys[first : first + 500] for first in range(CHANGE, len(ys), 500)]
    whole = base
    for part, classes in zip(rounds, labels, strict=True):
        replicas = []
        for k in range(2):
            replica = WAYS["deepcopy"](whole, None)
            replica._learner.divide(k, 2)
            replicas.append(learn(replica, part[k::2], classes[k::2]))
        whole = replicas[0].merge(replicas[1], base=whole)
    assert restarted(whole) > CHANGE
    xs, ys = stream(seed=9, before=0, after=1000)
    assert np.mean([whole.predict_one(x) == y for x, y in zip(xs, ys, strict=True)]) > 0.85


def test_crafted_states_are_rejected(tmp_path):
    model = learn(KernelClassifier(**SMALL), *stream(before=300, after=0))
    good = model._learner.tensors()
    for name, value in (
        ("recency", np.array([400, 0])),
        ("recency", np.array([0, -1])),
        ("recency", np.array([0])),
        ("recent", np.zeros(3)),
        ("table", good["table"] + np.array([0, 0, 1000])),
        ("table", np.where(np.arange(len(good["table"]))[:, None] == len(good["table"]) - 1, 9, good["table"])),
    ):
        fresh = KernelClassifier(**SMALL)._new_learner(model._learner.kernel, model._learner.columns)
        with pytest.raises(ValueError, match=r"expected|Expected"):
            fresh.restore({**good, name: value})
    fresh.restore(good)
    assert predictions(model, [{"a": 1.0}])


def test_a_model_without_its_larger_groups_is_restored(tmp_path):
    X, targets = turning(7000)
    ys = targets.tolist()
    xs = [dict(zip("abc", x, strict=True)) for x in X.tolist()]
    model = KernelRegressor(max_features=1024, learner=learners.Newton(features_per_seed=32))
    learn(model, xs[:5000], ys[:5000])
    before, first = model.n_features, 5000
    while not restarted(model):
        model.learn_one(xs[first], ys[first])
        first += 1
    assert model.n_features < before
    twin = WAYS["file"](model, tmp_path)
    assert content(learn(twin, xs[first:], ys[first:])) == content(learn(model, xs[first:], ys[first:]))


def test_groups_that_begin_are_compared_over_the_same_examples(monkeypatch):
    """A forgetting group that has just changed its block is compared on as many examples as others."""
    monkeypatch.setattr(recency, "block_for", lambda own, singles, since: 2 if since >= 1024 else own)
    xs, ys = stream(before=1200, after=0)
    model = learn(KernelClassifier(**SMALL), xs[:1024], ys[:1024])
    learner = model._learner
    assert learner.table[-2:, 1:].tolist() == [[2, 1024], [2, 1024]]
    assert learner.numbers["compared_at"] == 1024
    assert not learner.arrays.recent.any()


def test_the_penalty_is_that_of_the_coefficients_of_shared_features_together():
    xs, ys = stream(before=1200, after=0)
    model = learn(KernelClassifier(**SMALL, l2=0.01), xs, ys)
    learner = model._learner
    v, u = learner.arrays.weights[: 2 * len(learner.groups)].reshape(2, -1)
    w = [v[g] * group.newton + u[g] * group.steady for g, group in enumerate(learner.groups)]
    block = int(learner.table[-1, 1])
    w[block] = w[block] + w[-1] + w[-2]
    expected = 0.005 * sum(np.square(part).sum() for part in w[:-2])
    assert learner.penalty == pytest.approx(expected)
    assert learner.to_predict_apart().penalty == pytest.approx(expected)


def without_forgetting(model):
    """Return the model as stored by a version without groups that forget."""
    parts = copy.deepcopy(model)
    learner = parts._learner
    tensors, count = learner.tensors(), len(learner.table)
    kept = count - len(recency.KEPT)
    functions = [k for k in range(len(tensors["weights"])) if k >= 2 * count or k % count < kept]
    sizes = learner.groups.counts
    for name in ("newton", "steady", "sums"):
        tensors[name] = tensors[name][: learner.columns * int(sizes[:kept].sum())]
    tensors["rows"] = tensors["rows"][: int(learner.numbers["buffered"]) * int(sizes[:kept].sum())]
    tensors["factor"] = tensors["factor"][: int((sizes[:kept] * (sizes[:kept] + 1) // 2).sum())]
    tensors["mixer"] = tensors["mixer"][np.ix_(functions, functions)]
    tensors["weights"], tensors["standing"] = tensors["weights"][functions], tensors["standing"][functions]
    tensors["bounds"] = np.append(tensors["bounds"][functions], tensors["bounds"][-2:])
    for name in ("priors", "table", "metric.known"):
        tensors[name] = tensors[name][:kept]
    del tensors["recency"], tensors["recent"], tensors["sketch"], tensors["sketched_at"]
    learner.restore(tensors)
    return parts


def test_models_with_and_without_forgetting_groups_merge():
    xs, ys = stream(before=1500, after=0)
    model = learn(KernelClassifier(**SMALL), xs[:800], ys[:800])
    older = without_forgetting(model)
    assert len(older._learner.table) == len(model._learner.table) - len(recency.KEPT)
    learn(older, xs[800:], ys[800:])
    learn(model, xs[800:], ys[800:])
    assert restarted(older) == 0
    for first, second in ((model, older), (older, model)):
        merged = copy.deepcopy(first).merge(copy.deepcopy(second))
        assert len(merged._learner.table) == len(older._learner.table)
        assert np.mean([merged.predict_one(x) == y for x, y in zip(xs, ys, strict=True)]) > 0.85
