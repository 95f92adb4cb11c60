"""Groups that forget, and the reset of groups that are misled by the past."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest
from streams import WAYS, content, in_calls, learn, nested, predictions

from streamkernel import KernelClassifier, KernelRegressor, learners
from streamkernel.second_order import growth, mixture, newton, pairs, recency, restructuring
from streamkernel.second_order.metric import GRADIENTS
from streamkernel.second_order.mixture_state import RESTED

CHANGE, AFTER = 2400, 2400
SMALL = {"max_features": 128, "kernel": None}


@pytest.fixture(autouse=True, scope="module")
def without_pairs():
    """No block is in pairs of inputs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "BASE", np.inf)
        yield


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


@pytest.fixture
def finds_slow_changes_only(monkeypatch):
    """No evidence shows a change."""
    monkeypatch.setattr(recency, "SURELY", np.inf)


@pytest.mark.parametrize("seed", [0, 1])
def test_an_abrupt_change_is_found_at_once(seed):
    xs, ys = stream(seed)
    model = learn(KernelClassifier(**SMALL), xs[: CHANGE + 64], ys[: CHANGE + 64])
    at = restarted(model)
    assert CHANGE < at < CHANGE + 64
    assert model._learner.table[:, 2].tolist() == [at] * len(model._learner.table)
    assert not recency.has_changed(model._learner.arrays.evidence)
    accuracy = right(model, xs[CHANGE + 64 : CHANGE + 500], ys[CHANGE + 64 : CHANGE + 500]).mean()
    fresh = right(KernelClassifier(**SMALL), xs[CHANGE : CHANGE + 500], ys[CHANGE : CHANGE + 500])[64:].mean()
    assert accuracy > fresh - 0.05


def test_a_metric_survives_an_abrupt_change():
    X = np.random.default_rng(1).normal(size=(22_000, 6))
    sign = np.where(np.arange(len(X)) < 16_000, 1.0, -1.0)  # a check comes 384 examples after the change
    ys = (sign * np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.3 * X[:, 2] > 0.0).tolist()
    xs = [dict(zip("abcdef", x, strict=True)) for x in X.tolist()]
    old, fresh = (
        learn(KernelClassifier(max_features=1024), xs[:16_000], ys[:16_000]),
        KernelClassifier(max_features=1024),
    )
    scores = [right(model, xs[16_000:], ys[16_000:])[2000:].reshape(2, -1).mean(axis=1) for model in (old, fresh)]
    assert restarted(old) > 16_000
    assert (scores[0] > scores[1] - 0.01).all()


def changing(have_others, n=9500, change=8000):
    """Return inputs and classes that depend on other inputs after the change, or on the same with another sign."""
    a, b, c, *others = np.random.default_rng(2).normal(size=(6, n))
    before, d = np.sin(2.0 * a) * b + 0.3 * c, others
    after = np.sin(2.0 * d[0]) * d[1] + 0.3 * d[2] if have_others else 0.3 * c - np.sin(2.0 * a) * b
    ys = (np.where(np.arange(n) < change, before, after) > 0.0).tolist()
    return [dict(zip("abcdef", x, strict=True)) for x in zip(a, b, c, *others, strict=True)], ys


@pytest.mark.usefixtures("finds_slow_changes_only")
@pytest.mark.parametrize("have_others", [False, True])
def test_a_restart_keeps_the_metric_unless_f_changes_in_other_directions(have_others):
    xs, ys = changing(have_others)
    model = learn(KernelClassifier(max_features=1024), xs[:8000], ys[:8000])
    in_metric = model._learner._live.table[:4, 1] >= 4
    assert in_metric.sum() == 1
    assert restarted(model) == 0
    at = 8000
    while restarted(model) == 0:
        blocks = model._learner.table[:4, 0]
        model.learn_one(xs[at], ys[at])
        at += 1
    live = model._learner._live
    assert np.array_equal(live.table[:4, 1] >= 4, in_metric & (not have_others))
    assert live.state.metric.known.any() == (not have_others)
    assert live.state.metric.sums.any() == (not have_others)
    kept = [bool(group.steady.any()) for group in list(live.groups)[:4]]
    assert live.table[:4, 0].all()  # also those that had ended
    assert not any(kept) if have_others else kept == (blocks > 0).tolist()
    assert have_others or not blocks.all()


@pytest.fixture(scope="module")
def in_metric():
    """Return a learner whose last single block is in a metric."""
    learner = learn(KernelClassifier(max_features=1024), *changing(False, 3000))._learner
    learner._complete()
    assert learner._live.table[:, 1].tolist() == [0, 1, 2, 4, 1]
    return learner


def restart(learner, steady, nothing=0.5):
    """Return the groups of a restart where the constant steps of the single blocks have these losses."""
    live = learner._live
    losses = live.state.losses.copy()
    losses[5:9], losses[10] = steady, nothing
    now = live._replace(state=live.state._replace(losses=losses))
    return restructuring.with_restart(now, learner._arranger, learner._kernel, [0, 1, 2, 3])


@pytest.mark.parametrize("steady", [[0.6, 0.4, 0.6, 0.45], [0.6, 0.7, 0.6, 0.55]], ids=["explains", "is best"])
def test_a_restart_keeps_a_metric_whose_block_explains_something_or_is_the_best(in_metric, steady):
    found = restart(in_metric, steady)
    assert found.table[:4, 1].tolist() == [0, 1, 2, 4]
    assert all(group.steady.any() for group in found.groups)
    assert not any(group.newton.any() for group in list(found.groups)[:4])
    assert found.state.metric.sums.any()


@pytest.mark.parametrize("steady", [[0.6, 0.4, 0.6, 0.6], [0.6, 0.55, 0.6, 0.6]])
def test_a_restart_drops_what_is_worse_than_nothing_with_the_metric(in_metric, steady):
    found, priors = restart(in_metric, steady), in_metric._live.state.priors
    useless = [loss > 0.5 for loss in steady]
    useless.append(useless[1])  # the group that forgets shares the second block
    assert found.table[:, 1].tolist() == [0, 1, 2, 3, 1]
    assert found.table[:4, 2].tolist() == [3000] * 4
    assert [not group.steady.any() for group in found.groups] == useless
    assert all(group.newton.any() for group in list(found.groups)[4:])
    assert not found.state.metric.known.any()
    assert not found.state.metric.sums.any()
    assert found.state.priors[3] == priors[2] != priors[3]
    assert (found.state.losses[5:10] == 0.0).tolist() == useless


def test_after_an_abrupt_change_a_model_is_as_good_as_one_that_starts_there():
    """Means of six streams: of one, the difference has a deviation of 0.012."""
    scores = []
    for seed in range(6):
        xs, ys = stream(seed)
        old, keeps_all = (KernelClassifier(**nested(**SMALL, forgetting=f)) for f in ("auto", 1.0))
        for model in (old, keeps_all):
            learn(model, xs[:CHANGE], ys[:CHANGE])
        assert restarted(old) == 0
        models = old, keeps_all, KernelClassifier(**SMALL)
        scores.append([right(model, xs[CHANGE:], ys[CHANGE:])[800:].mean() for model in models])
        assert CHANGE < restarted(old) <= CHANGE + 3 * recency.EVERY
    of_old, of_all, of_fresh = np.mean(scores, axis=0)
    assert of_old > of_fresh - 0.01
    assert of_all < of_old - 0.01


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


def test_a_group_that_forgets_is_the_block_of_a_model_that_forgets():
    xs, ys = stream(before=1500, after=0)
    options = {**SMALL, "batch_size": 16}
    model = learn(KernelClassifier(**nested(**options)), xs, ys)
    other = learn(KernelClassifier(**nested(**options, forgetting=recency.KEPT)), xs, ys)
    own = model._learner
    blocks, block, born = own.table[-1].tolist()
    assert (blocks, born) == (1, 0)
    assert own.groups[len(own.groups) - 1].newton.tobytes() == other._learner.groups[block].newton.tobytes()
    assert own.groups[len(own.groups) - 1].factor.tobytes() == other._learner.groups[block].factor.tobytes()


def forgetting(model):
    """Return the group of a model that forgets, and the number of examples that it left out."""
    learner = model._learner
    return learner.groups[len(learner.groups) - 1], int(learner.arrays.sampled[-1, RESTED])


def steps_between(model, xs, ys):
    """Learn, and return the numbers of examples from one step of the group that forgets to the next."""
    at = []
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        before = forgetting(model)[0].factor.copy()
        model.learn_one(x, y)
        if not np.array_equal(before, forgetting(model)[0].factor):
            at.append(i)
    return np.diff(at).tolist()


@pytest.mark.usefixtures("finds_slow_changes_only")
@pytest.mark.parametrize("seed", [0, 1])
def test_a_group_that_forgets_rests_until_the_stream_changes(seed):
    """Of as many outputs as examples that it remembers, so that its block is clearly better."""
    xs, ys = stream(seed, before=4000, after=600)
    model = learn(KernelClassifier(**SMALL | {"max_features": 512}), xs[:2040], ys[:2040])
    assert not forgetting(model)[1]
    learn(model, xs[2040:2500], ys[2040:2500])
    before = forgetting(model)[1]
    assert set(steps_between(model, xs[2500:4000], ys[2500:4000])) == {64 * newton.RESTS}
    assert forgetting(model)[1] - before > 1000
    learn(model, xs[4000:4300], ys[4000:4300])
    steps = steps_between(model, xs[4300:], ys[4300:])
    assert max(steps) == steps[0] == 64
    assert restarted(model) or set(steps) == {64}  # steps after a restart are as short as in a new model


def test_a_group_at_rest_forgets_by_the_examples_that_it_learns():
    """After a step, and without what is left of A and the other rows, the row of the last example remains."""
    xs, ys = stream(before=4000, after=0)
    model = learn(KernelClassifier(**SMALL), xs[:2600], ys[:2600])
    assert forgetting(model)[1] > 0
    for x, y in zip(xs[2600:], ys[2600:], strict=True):
        group, learner = forgetting(model)[0], model._learner
        before, rows = group.factor.astype(np.float64), group.rows[:63].astype(np.float64)
        model.learn_one(x, y)
        after = group.factor.astype(np.float64)
        if not np.array_equal(before, after):
            break
    left = recency.KEPT**64
    expected = left * before.T @ before + rows.T @ rows
    expected += (1.0 - left) * learner.prior(len(learner.table) - 1) * np.eye(len(before))
    values = np.linalg.eigvalsh(after.T @ after - expected)
    assert values[-1] > 1e-3
    assert np.abs(values[:-1]).max() < 1e-3 * values[-1]


def test_a_file_without_the_examples_left_out_is_of_groups_that_never_rested():
    xs, ys = stream(before=2600, after=0)
    model = learn(KernelClassifier(**SMALL), xs, ys)
    assert forgetting(model)[1]
    twin, tensors = copy.deepcopy(model), model._learner.tensors()
    twin._learner.restore({name: tensor for name, tensor in tensors.items() if name != "rested"})
    assert not forgetting(twin)[1]
    assert predictions(twin, xs[:20]) == predictions(model, xs[:20])
    learn(twin, xs[:128], ys[:128])


def share_of(model, gram):
    """Return the share of an earlier Gram matrix in the matrix of the group that forgets, beside a multiple of I."""
    factor = forgetting(model)[0].factor.astype(np.float64)
    parts = np.stack([gram.ravel(), np.eye(len(gram)).ravel()], axis=1)
    return np.linalg.lstsq(parts, (factor.T @ factor).ravel(), rcond=None)[0][0]


def test_a_merged_group_has_of_its_base_what_the_examples_that_were_not_left_out_leave():
    """Two copies rest, and one only in the step that was decided before; examples of nearly no weight only make them
    forget.
    """
    xs, ys = stream(before=4000, after=0)
    base = learn(KernelClassifier(**SMALL), xs[:2600], ys[:2600])
    base._learner.settle()
    factor = forgetting(base)[0].factor.astype(np.float64)
    left_out, gram = forgetting(base)[1], factor.T @ factor
    copies = [copy.deepcopy(base) for _ in range(3)]
    recent = copies[2]._learner.arrays.recent
    recent[-1] = recent[base._learner.table[-1, 1]]  # neither rests nor restarts
    for model in copies:
        for x, y in zip(xs[2600:3000], ys[2600:3000], strict=True):
            model.learn_one(x, y, w=1e-12)
        model._learner.settle()
    shares = [share_of(model, gram) for model in copies]
    assert shares[0] == shares[1] > 0.5 > 0.3 > shares[2] > 0.1
    learned = sum(400 + left_out - forgetting(model)[1] for model in copies)
    assert 3 * 400 - learned == 2 * 336 + 64
    first, second, third = copies
    merged = first.merge(second, base=base).merge(third, base=base)
    assert share_of(merged, gram) == pytest.approx(recency.KEPT**learned, rel=1e-3)


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_continues_with_the_same_bits_around_a_restart(way, tmp_path):
    xs, ys = stream()
    whole = learn(KernelClassifier(**SMALL), xs, ys)
    at = restarted(whole)
    assert at > CHANGE
    assert forgetting(whole)[1]
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
        ("evidence", np.zeros(2 * len(good["table"]))),
        ("evidence", np.full(len(good["table"]), -1.0)),
        ("rested", np.full(len(good["table"]), -1.0)),
        ("rests_from", np.full(len(good["table"]), 1e9)),
        ("table", good["table"] + np.array([0, 0, 1000])),
        ("table", np.where(np.arange(len(good["table"]))[:, None] == len(good["table"]) - 1, 9, good["table"])),
    ):
        fresh = KernelClassifier(**SMALL)._model.new_learner(model._learner.kernel, model._learner.columns)
        with pytest.raises(ValueError, match=r"expected|Expected"):
            fresh.restore({**good, name: value})
    fresh.restore(good)
    assert predictions(model, [{"a": 1.0}])


@pytest.mark.usefixtures("finds_slow_changes_only")
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
    assert learner.table[-1, 1:].tolist() == [2, 1024]
    assert learner.numbers["compared_at"] == 1024
    assert not learner.arrays.recent.any()


def test_the_penalty_is_that_of_the_coefficients_of_shared_features_together():
    xs, ys = stream(before=1200, after=0)
    model = learn(KernelClassifier(**SMALL, l2=0.01), xs, ys)
    learner = model._learner
    v, u = learner.arrays.weights[: 2 * len(learner.groups)].reshape(2, -1)
    w = [v[g] * group.newton + u[g] * group.steady for g, group in enumerate(learner.groups)]
    block = int(learner.table[-1, 1])
    w[block] = w[block] + w[-1]
    expected = 0.005 * sum(np.square(part).sum() for part in w[:-1])
    assert learner.penalty == pytest.approx(expected)
    assert learner.to_predict_apart().penalty == pytest.approx(expected)


def without_forgetting(model):
    """Return the model without its groups that forget."""
    parts = copy.deepcopy(model)
    learner = parts._learner
    tensors, count = learner.tensors(), len(learner.table)
    kept = count - 1
    functions = [k for k in range(len(tensors["weights"])) if k >= 2 * count or k % count < kept]
    sizes = learner.groups.counts
    for name in ("newton", "steady", "sums"):
        tensors[name] = tensors[name][: learner.columns * int(sizes[:kept].sum())]
    tensors["rows"] = tensors["rows"][: int(learner.numbers["buffered"]) * int(sizes[:kept].sum())]
    tensors["factor"] = tensors["factor"][: int((sizes[:kept] * (sizes[:kept] + 1) // 2).sum())]
    tensors["mixer"] = tensors["mixer"][np.ix_(functions, functions)]
    for name in ("weights", "signed", "positive", "standing"):
        tensors[name] = tensors[name][functions]
    tensors["bounds"] = np.append(tensors["bounds"][functions], tensors["bounds"][-2:])
    for name in ("priors", "table", "metric.known"):
        tensors[name] = tensors[name][:kept]
    tensors["diagonal"] = tensors["diagonal"][:kept]
    for name in ("recency", "recent", "sketch", "sketched_at", "rested", "rests_from"):
        tensors.pop(name, None)
    learner.restore(tensors)
    return parts


def test_models_with_and_without_forgetting_groups_merge():
    xs, ys = stream(before=1500, after=0)
    model = learn(KernelClassifier(**SMALL), xs[:800], ys[:800])
    older = without_forgetting(model)
    assert len(older._learner.table) == len(model._learner.table) - 1
    learn(older, xs[800:], ys[800:])
    learn(model, xs[800:], ys[800:])
    assert restarted(older) == 0
    for first, second in ((model, older), (older, model)):
        merged = copy.deepcopy(first).merge(copy.deepcopy(second))
        assert len(merged._learner.table) == len(older._learner.table)
        assert np.mean([merged.predict_one(x) == y for x, y in zip(xs, ys, strict=True)]) > 0.85


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_after_any_restart_the_gradients_are_those_since_the_last_check(after):
    xs, ys = changing(False, 540)
    model = learn(KernelClassifier(max_features=1024), xs[:300], ys[:300])
    model._learner.numbers["restarted"] = after
    learn(model, xs[300 : 532 + after], ys[300 : 532 + after])
    assert 4 <= model._learner._live.state.metric.counts[GRADIENTS] <= 6  # 20 examples, every fourth
