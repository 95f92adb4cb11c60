"""Models that learned separately, merged: against means of functions, plain NumPy on all events, and bit by bit."""

from __future__ import annotations

import copy
import itertools
import math
import pickle

import numpy as np
import pytest
from cases import covering, max_examples, slow
from hypothesis import given
from hypothesis import strategies as st
from streams import classifier as first_order_classifier
from streams import content, frame, learn, nested, predictions, saved_and_loaded
from streams import examples as labelled

from streamkernel import (
    GaussianProcessRegressor,
    KernelClassifier,
    KernelNoveltyDetector,
    KernelRegressor,
    MergeError,
    errors,
    kernels,
    learners,
    losses,
    rules,
    step_sizes,
    upkeep,
)
from streamkernel.estimators import internals, model_merging
from streamkernel.features import scaling
from streamkernel.features.directions import Directions
from streamkernel.features.frames import table_blocks
from streamkernel.kernels.program import KernelProgram
from streamkernel.learners import schedule, state
from streamkernel.merging import second_order, summaries
from streamkernel.second_order import square_root
from streamkernel.second_order.mixture import SecondOrderLearner

RULES = {"DSG": rules.DSG(), "UDSG": rules.UDSG(1, 2), "CDSG": rules.CDSG(math.inf)}
SMALL = {"kernel": kernels.Gaussian(1.0), "features_per_seed": 8, "max_features": 64}


def stream(n, seed=0, shift=0.0):
    """Return inputs and targets."""
    generator = np.random.default_rng(seed)
    X = generator.uniform(-1.0, 1.0, (n, 3)) + shift
    y = np.sin(3.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * generator.normal(size=n)
    return [dict(zip("abc", row, strict=True)) for row in X.tolist()], y.tolist()


def parts_of(model, xs, ys, workers, length, at, divide=True):
    """Return the replicas of a round that begins at index `at` of the stream, and the index where the round ends."""
    told, end = pickle.dumps(model), min(len(xs), at + workers * length)
    replicas = []
    for i in range(workers):
        replica = pickle.loads(told)
        if divide:
            replica._model.divide(i, workers)
        replicas.append(learn(replica, xs[at + i : end : workers], ys[at + i : end : workers]))
    return replicas, end


def rounds(model, xs, ys, workers, length, divide=True):
    """Let a model learn in rounds of replicas."""
    at = 0
    while at < len(xs):
        root = model_merging.summarize(model)
        replicas, at = parts_of(model, xs, ys, workers, length, at, divide)
        model_merging.merge_into(model, [model_merging.summarize(one) for one in replicas], root)
    return model


def blocks(model):
    """Return one random number of each block of a first-order model, which identifies the block."""
    function = model._learner
    return function.features_at(np.arange(function.n_blocks * function.block_size))[:: function.block_size, 0].tolist()


# --- first order --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_first_order_functions_are_means(rule, average):
    xs, ys = stream(400)
    options = {**SMALL, "learner": "dsg", "rule": RULES[rule], "averaging": average, "l2": 0.01}
    models = [KernelRegressor(**nested(**options)) for _ in range(3)]
    for model, (first, last) in zip(models, ((0, 50), (50, 130), (130, 400)), strict=True):
        learn(model, xs[first:last], ys[first:last])
    some = stream(20, seed=1)[0]
    steps_of = [model.n_steps for model in models]
    offsets = [(m._learner.numbers["offset"], m._learner.numbers["predicted_offset"]) for m in models]
    own = np.array([model.predict_many(frame(some)) for model in models]) - np.array(offsets)[:, 1:]
    weights = np.array(steps_of) / sum(steps_of)
    merged = models[0].merge(*models[1:])
    found = np.array(merged.predict_many(frame(some))) - merged._learner.numbers["predicted_offset"]
    assert found == pytest.approx(weights @ own, abs=1e-9)
    assert merged._learner.numbers["offset"] == pytest.approx(np.mean(ys))
    assert merged.n_steps == 400
    assert len(set(blocks(merged))) == merged.n_seeds == max(model.n_seeds for model in models)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("cap", [160, None])
def test_replicas_grow_by_blocks_of_their_own(rule, cap):
    xs, ys = stream(240)
    grow = RULES[rule] if cap else rules.CDSG(math.inf)
    model = KernelRegressor(
        kernels.Gaussian(0.5), learner=learners.DSG(rule=grow, features_per_seed=8), max_features=cap
    )
    learn(model, xs[:9], ys[:9])
    at, some = 9, stream(5, seed=1)[0]
    drawn = {}
    while at < len(xs):
        root, before = model_merging.summarize(model), blocks(model)
        replicas, at = parts_of(model, xs, ys, 3, 7, at)
        own = [set(blocks(one)) - set(before) for one in replicas]
        assert len(set().union(*own)) == sum(map(len, own)), "two replicas drew the same block"
        assert not set().union(*own) & drawn.keys()
        drawn |= dict.fromkeys(set().union(*own))
        values = [np.array(one.predict_many(frame(some))) - one._learner.numbers["offset"] for one in replicas]
        events = np.array([model_merging.summarize(one).events - root.events for one in replicas])
        model_merging.merge_into(model, [model_merging.summarize(one) for one in replicas], root)
        assert set(blocks(model)) == set(before).union(*own)
        found = np.array(model.predict_many(frame(some))) - model._learner.numbers["offset"]
        assert found == pytest.approx(events @ np.array(values) / events.sum(), abs=1e-9)
    assert model_merging.summarize(model).events == 240
    assert cap is None or model.n_features <= cap
    assert len(drawn) > 3


def test_a_single_model_at_its_cap_does_not_grow():
    xs, ys = stream(300)
    model = KernelRegressor(**nested(learner="dsg", rule=rules.DSG(), **SMALL))
    rounds(model, xs, ys, 3, 20)
    assert model.n_features == 64
    learn(model, xs, ys)
    assert model.n_features == 64


@pytest.mark.parametrize("loss", ["square", "huber", "absolute", "epsilon_insensitive"])
def test_losses_of_first_order(loss):
    """The merged intercept is the mean of the intercepts, like f."""
    xs, ys = stream(200)
    one, other = (KernelRegressor(**nested(learner="dsg", loss=loss, **SMALL)) for _ in range(2))
    learn(one, xs[:150], ys[:150])
    learn(other, xs[150:], ys[150:])
    f = [np.array(model.predict_many(frame(xs[:9]))) for model in (one, other)]
    offsets = [model._learner.numbers["offset"] for model in (one, other)]
    merged = one.merge(other)
    mean = 0.75 * f[0] + 0.25 * f[1]
    if loss in ("square", "huber"):  # the mean of the targets counts by all events, which is the same here
        assert merged._learner.numbers["offset"] == pytest.approx(0.75 * offsets[0] + 0.25 * offsets[1])
    assert np.array(merged.predict_many(frame(xs[:9]))) == pytest.approx(mean, abs=1e-9)


@pytest.mark.parametrize(
    "kernel", [kernels.Polynomial(2), kernels.MultiScale(kernels.Gaussian(1.0), (0.5, 2.0))], ids=repr
)
def test_other_kernels_of_first_order(kernel):
    xs, ys = stream(300)
    model = KernelRegressor(kernel, learner=learners.DSG(features_per_seed=8), max_features=64)
    at = 0
    while at < 300:
        root = model_merging.summarize(model)
        replicas, at = parts_of(model, xs, ys, 2, 50, at)
        values = [one.predict_one(xs[0]) - one._learner.numbers["offset"] for one in replicas]
        model_merging.merge_into(model, [model_merging.summarize(one) for one in replicas], root)
        assert model.predict_one(xs[0]) - model._learner.numbers["offset"] == pytest.approx(np.mean(values), abs=1e-9)
    twin = pickle.loads(pickle.dumps(model))
    assert content(learn(twin, xs, ys)) == content(learn(model, xs, ys))


@max_examples(20)
@given(st.integers(1, 9), st.lists(st.integers(0, 40), min_size=2, max_size=4))
def test_buffered_examples_are_not_lost(batch, lengths):
    xs, ys = stream(sum(lengths))
    models, at = [], 0
    for n in lengths:
        model = KernelRegressor(**nested(learner="dsg", batch_size=batch, **SMALL))
        models.append(learn(model, xs[at : at + n], ys[at : at + n]))
        at += n
    merged = models[0].merge(*models[1:])
    assert model_merging.summarize(merged).examples == sum(lengths)
    assert len(merged._learner.pending) < batch


@pytest.mark.parametrize("lengths", [(13, 10), (2, 1), (0, 1), (0, 0)])
def test_buffered_examples_of_a_base_are_learned_once(lengths):
    xs, ys = stream(80)
    for divide in (True, False):
        model = learn(KernelRegressor(**nested(learner="dsg", batch_size=8, **SMALL)), xs[:13], ys[:13])
        root, told, replicas, at = model_merging.summarize(model), pickle.dumps(model), [], 13
        for i, n in enumerate(lengths):
            replica = pickle.loads(told)
            if divide:
                replica._model.divide(i, 2)
            replicas.append(learn(replica, xs[at : at + n], ys[at : at + n]))
            at += n
        model_merging.merge_into(model, [model_merging.summarize(one) for one in replicas], root)
        if divide or lengths != (13, 10):  # without a division each replica has learned the buffered examples
            assert model_merging.summarize(model).examples == at


def branches(lengths, n=103):
    """Return models that continued from one base model, and the base, which learns in batches of 4."""
    xs, ys = stream(n + sum(lengths))
    base = learn(KernelRegressor(**nested(learner="dsg", batch_size=4, **SMALL)), xs[:n], ys[:n])
    models, at = [], n
    for more in lengths:
        models.append(learn(pickle.loads(pickle.dumps(base)), xs[at : at + more], ys[at : at + more]))
        at += more
    return models, base


@pytest.mark.parametrize(("lengths", "n"), [((1, 1), 2), ((5, 1, 3), 3), ((1, 0), 1), ((0, 1), 1)])
def test_a_base_with_buffered_examples_learned_since_is_rejected(lengths, n):
    models, base = branches(lengths)
    refused(models[0], f"got 3 that {n} of {len(lengths)} models have already learned", *models[1:], base=base)


@pytest.mark.parametrize(("lengths", "n"), [((5, 1, 3), 104), ((1, 0), 102), ((0, 0), 103), ((7,), 103)])
def test_events_of_branches_and_their_base_count_once(lengths, n):
    models, base = branches(lengths, n)
    empty = KernelRegressor(**nested(learner="dsg", batch_size=4, **SMALL))
    merged = models[0].merge(*models[1:], empty, base=base)
    assert model_merging.n_examples(merged) == n + sum(lengths)


def test_pending_labels_are_those_of_all():
    xs, _ = labelled(40)
    one, other = (first_order_classifier(batch_size=4) for _ in range(2))
    learn(one, xs[:7], ["a", "b"] * 3 + ["a"])
    learn(other, xs[7:13], ["b", "c"] * 3)
    one.merge(other)
    assert [*one.labels] == ["a", "b", "c"]
    assert [y for _, y in one._learner.pending] == [2.0]  # of 3 and 2 buffered examples, 4 formed a batch
    assert model_merging.summarize(one).examples == 13


# --- second order -------------------------------------------------------------------------------------------------

WIDTH = 24


def mixture(kernel=None, joint=True, block_size=WIDTH, blocks=1, **options):
    told = {"intercept": state.NOTHING, "seed": 3, **options}
    found = SecondOrderLearner(
        kernel or kernels.Gaussian(1.0), losses.Square(), step_sizes.Constant(0.3), joint=joint, block_size=block_size,
        max_features=block_size * blocks, **told,
    )  # fmt: skip
    found.arrays.bounds[:] = 1e9  # nothing is clipped
    return found


def rows_of(function, xs):
    return [function.row(x) for x in xs]


def embedded(function, xs):
    from streamkernel.features.rows import Rows

    return function.embed_rows(Rows.stack(rows_of(function, xs))).astype(np.float64)


def copied(function, **options):
    twin = mixture(**options)
    twin.restore(function.tensors())
    twin.may_restructure = False
    return twin


def feed(function, xs, ys):
    for x, y in zip(xs, ys, strict=True):
        function.learn_one(function.row(x), y)
    return function


def together(function, replicas, root, before, **options):
    """Return the function that results from merging replicas."""
    own = [second_order.summarize(one) for one in replicas]
    events = np.array([part.numbers["examples"] - before for part in own], np.float64)
    found = mixture(**options)
    base = own[0].before() if root is None else root
    found.restore(second_order.merge(found, own, base, events / events.sum()))
    return found


def ridge(phi, y, lam):
    return np.linalg.solve(phi.T @ phi + lam * np.eye(phi.shape[1]), phi.T @ y)


@max_examples(15)
@given(st.lists(st.lists(st.integers(1, 90), min_size=1, max_size=3), min_size=1, max_size=4), st.booleans())
def test_rounds_of_second_order_are_one_ridge_regression(lengths, joint):
    """After all rounds, A and w equal those of one model of all events, for any lengths of the rounds."""
    options = {"joint": joint, "block_size": 8 if not joint else WIDTH, "blocks": 4 if not joint else 1}
    xs, ys = stream(sum(map(sum, lengths)))
    model, at, seen = mixture(**options), 0, []
    for one in lengths:
        before, root = int(model.numbers["examples"]), second_order.summarize(model)
        root = None if not before else root
        replicas = []
        for n in one:
            replicas.append(feed(copied(model, **options), xs[at : at + n], ys[at : at + n]))
            at += n
            seen.extend(min(options["blocks"], before + i + 1) for i in range(n))  # number of blocks at the i-th event
        model = together(model, replicas, root, before, **options)
    assert model.numbers["examples"] == len(xs)
    groups = options["blocks"]
    phi = np.zeros((len(xs), groups, model.outputs))
    phi[:, : model.n_blocks] = embedded(model, xs).reshape(len(xs), model.n_blocks, -1)
    phi *= (np.array(seen)[:, None] > np.arange(groups))[:, :, None]
    for g, group in enumerate(model.groups):
        expected = ridge(phi[:, g], np.array(ys), model.prior(g))
        assert phi[:, g] @ group.newton[0] == pytest.approx(phi[:, g] @ expected, abs=1e-3)
        gram = phi[:, g].T @ phi[:, g] + model.prior(g) * np.eye(phi.shape[2])
        R = group.factor.astype(np.float64)
        assert pytest.approx(gram, abs=1e-4 * np.trace(gram) / len(gram) + 1e-4) == R.T @ R


def faded(function, xs, ys, gram, moment, first, kept, l2, lam):
    """Follow the printed steps of one joint group in plain NumPy; return A, Aw, and shares of the first A and of λI."""
    phi, n, left, returned, waiting, seen = embedded(function, xs), len(gram), 1.0, 0.0, 0, first
    from streamkernel.second_order import newton

    for i, y in enumerate(ys):
        seen, waiting = seen + 1, waiting + 1
        if waiting < newton.due(seen, 1, kept, 1, newton.LONGEST_BATCH) and i + 1 < len(ys):
            continue
        gone = max(1.0 - kept, 1e-9)
        fading, returning = (max(waiting, min(n, int(part / gone))) for part in (0.1, 1.0))
        rows, targets = phi[i + 1 - waiting : i + 1], np.array(ys[i + 1 - waiting : i + 1])
        w = np.linalg.solve(gram, moment)
        pull = waiting * l2
        if seen // fading > (seen - waiting) // fading:
            gram, left, returned = (kept**fading * part for part in (gram, left, returned))
        if seen // returning > (seen - waiting) // returning:
            share = 1.0 - kept**returning
            gram = gram + (share * lam + returning * l2) * np.eye(n)
            pull, returned = pull + share * lam, returned + share
        gram = gram + rows.T @ rows
        w = w - np.linalg.solve(gram, rows.T @ (rows @ w - targets) + pull * w)
        moment, waiting = gram @ w, 0
        del y
    return gram, moment, left, returned


@pytest.mark.parametrize(("kept", "l2"), [(0.99, 0.0), (0.995, 0.02), (1.0, 0.02)])
def test_forgetting_and_l2_are_those_of_the_docstring(kept, l2):
    options = {"forgetting": kept, "l2": l2}
    xs, ys = stream(900)
    model = feed(mixture(**options), xs[:300], ys[:300])
    model.settle()
    lam, n = model.prior(0), len(model.groups[0].factor)
    R = model.groups[0].factor.astype(np.float64)
    A0, m0 = R.T @ R, model.groups[0].newton[0] @ (R.T @ R)
    root = second_order.summarize(model)
    cuts = [(300, 450), (450, 520), (520, 900)]
    replicas = [feed(copied(model, **options), xs[a:b], ys[a:b]) for a, b in cuts]
    own = [faded(model, xs[a:b], ys[a:b], A0, m0, 300, kept, l2, lam) for a, b in cuts]
    rho = kept**600
    assert all(left < 1.0 for _, _, left, _ in own) == (kept < 1.0)
    eye = np.eye(n)
    back = (1.0 - rho) * sum(s for *_, s in own) / max(sum(1.0 - r for _, _, r, _ in own), 1e-300)
    gram = rho * A0 + back * lam * eye + sum(A - r * A0 - s * lam * eye for A, _, r, s in own)
    moment = rho * m0 + sum(m - r * m0 for _, m, r, _ in own)
    merged = together(model, replicas, root, 300, **options)
    R = merged.groups[0].factor.astype(np.float64)
    expected = np.linalg.solve(gram, moment)
    assert pytest.approx(gram, abs=2e-4 * np.trace(gram) / n) == R.T @ R
    assert merged.groups[0].newton[0] == pytest.approx(expected, rel=2e-3, abs=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("start", [500, 490])
def test_rounds_forget_whatever_their_length(start):
    """Steps forget several examples at once; rounds of 5 times 5 must neither miss them nor count them five times."""
    options, kept = {"forgetting": 0.98}, 0.98**25
    xs, ys = stream(start + 40 * 25)
    model, at = feed(mixture(**options), xs[:start], ys[:start]), start
    model.settle()
    while at < len(xs):
        root, replicas = second_order.summarize(model), []
        for i in range(5):
            replicas.append(feed(copied(model, **options), xs[at + i : at + 25 : 5], ys[at + i : at + 25 : 5]))
        model, at = together(model, replicas, root, at, **options), at + 25
    size = np.trace(second_order.summarize(model).grams[0])
    assert 0.8 * 25 / (1.0 - kept) < size < 1.25 * 25 / (1.0 - kept)


def gram_of(model, g):
    model._learner.settle()
    R = model._learner.groups[g].factor.astype(np.float64)
    return R.T @ R


def larger_groups(**options):
    return KernelRegressor(
        **nested(kernel=kernels.Gaussian(0.5), learner="newton", features_per_seed=8, max_features=128, **options)
    )


def test_groups_newer_than_the_base_count_fully():
    """Both models began the same larger group after the base, which therefore has no share of it to subtract."""
    xs, ys = stream(6000)
    model = learn(larger_groups(), xs[:600], ys[:600])
    told, base = pickle.dumps(model), pickle.loads(pickle.dumps(model))
    one, other = (pickle.loads(told) for _ in range(2))
    learn(one, xs[600:3300], ys[600:3300])
    learn(other, xs[3300:], ys[3300:])
    tables = one._learner.table, other._learner.table
    assert (tables[0][4:, 0] > 0).any()
    merged = copy.deepcopy(one).merge(other, base=base)
    assert merged._learner.numbers["examples"] == 6000
    assert merged.n_features >= max(one.n_features, other.n_features)
    kept = [g for g in range(6) if (merged._learner.table[g, :2] == tables[0][g, :2]).all()]
    assert len(kept) > 4
    for g in kept:
        A, B, both = (gram_of(m, g) for m in (one, other, merged))
        C = gram_of(base, g) if g < 4 else one._learner.prior(g) * np.eye(len(A))
        assert np.abs(both - (A + B - C)).max() < 1e-4 * np.trace(both) / len(both)


def test_a_group_of_only_some_models():
    xs, ys = stream(5000)
    one, other = larger_groups(), larger_groups()
    learn(one, xs[:4500], ys[:4500])
    learn(other, xs[4500:], ys[4500:])
    had = one._learner.table.copy()
    assert not (other._learner.table[:, 0] == had[:, 0]).all()
    first = copy.deepcopy(one).merge(other)
    second = copy.deepcopy(other).merge(one)
    for merged in (first, second):
        assert (merged._learner.table[:, :2] == had[:, :2]).all()
    some, truth = stream(300, seed=4)
    assert np.array(first.predict_many(frame(some))) == pytest.approx(
        np.array(second.predict_many(frame(some))), abs=1e-4
    )
    assert np.mean((np.array(first.predict_many(frame(some))) - truth) ** 2) < 0.1


@pytest.mark.parametrize("lengths", [(1, 1), (1, 2), (3, 1), (1, 1, 1, 1, 1)])
def test_models_of_a_few_events(lengths):
    xs, ys = stream(sum(lengths))
    models, at = [], 0
    for n in lengths:
        models.append(learn(KernelRegressor(**nested(learner="dsg", **SMALL)), xs[at : at + n], ys[at : at + n]))
        at += n
    merged = models[0].merge(*models[1:])
    assert merged.n_steps == at
    assert np.isfinite(merged.predict_one(xs[0]))
    learn(merged, *stream(50, seed=9))
    assert merged.n_steps == at + 50


# --- models as users build them -----------------------------------------------------------------------------------


def rising(n, rise):
    """Return inputs, targets whose level rises, and weights; no derivative is larger than the first ones."""
    xs, ys = stream(n)
    ys = (np.array(ys) + rise * np.linspace(0.0, 1.0, n)).tolist()
    ys[:2] = 12.0, -12.0
    return xs, ys, [1.0, 1.0, *np.random.default_rng(1).choice([0.5, 1.0, 3.0], n - 2).tolist()]


def learn_weighted(model, xs, ys, ws):
    for x, y, w in zip(xs, ys, ws, strict=True):
        model.learn_one(x, y, w)
    return model


def functions_and_ridges(model, xs, ys, ws, seen):
    """Return the Newton functions that forget nothing, and ridge regressions on the targets less their mean, at `xs`.

    `seen` are the numbers of each event among the events of its model; the first ones add a block each.
    """
    model._learner.settle()
    f, y, w = model._learner, np.array(ys), np.array(ws)
    offset = np.average(y, weights=w)
    assert f.numbers["offset"] == pytest.approx(offset, abs=1e-9)
    blocks, found = embedded(f, xs).reshape(len(xs), -1, f.outputs), []
    has_begun = np.array(seen)[:, None] >= np.arange(blocks.shape[1])
    phi, root = (blocks * has_begun[:, :, None]).reshape(len(xs), -1), np.sqrt(w)
    for g, group in enumerate(f.groups):
        if f.arrays.kept[g] == 1.0 and group.newton.size:
            first, n = f.groups.layout[g, :2]
            z = phi[:, first : first + n]
            found.append((z @ group.newton[0], z @ ridge(root[:, None] * z, root * (y - offset), f.prior(g))))
    assert all(np.std(expected) > 0.5 for _, expected in found)
    return found


def check_ridges(groups, model, *events):
    found = functions_and_ridges(model, *events)
    assert len(found) == groups
    for function, expected in found:
        assert function == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("in_turns", [False, True])
@pytest.mark.parametrize("rise", [0.0, 3.0])
@pytest.mark.parametrize(
    ("learner", "groups"),
    [(learners.Newton(joint=True), 1), (learners.Newton(forgetting=1.0), 4), ("newton", 4)],
    ids=["joint", "forgets nothing", "default"],
)
def test_regressors_merged_in_rounds_are_ridge_regressions(learner, groups, rise, in_turns):
    """Whichever model learned which event, and with targets that rise: replicas have other means of the targets."""
    xs, ys, ws = rising(901, rise)
    model = KernelRegressor(kernels.Gaussian(1.0), learner=learner, max_features=64)
    learn_weighted(model, xs[:301], ys[:301], ws[:301])
    for at in (301, 601):
        base, replicas = pickle.loads(pickle.dumps(model)), []
        for i in range(3):
            own = slice(at + i, at + 300, 3) if in_turns else slice(at + 100 * i, at + 100 * (i + 1))
            replicas.append(learn_weighted(pickle.loads(pickle.dumps(model)), xs[own], ys[own], ws[own]))
        model = replicas[0].merge(*replicas[1:], base=base)
    check_ridges(groups, model, xs, ys, ws, range(901))


def test_regressors_without_a_base_are_one_ridge_regression():
    xs, ys, ws = rising(780, 3.0)
    for at in (260, 520):
        ys[at : at + 2], ws[at : at + 2] = ys[:2], ws[:2]
    parts = [slice(0, 260), slice(260, 520), slice(520, 780)]
    first, *others = (
        learn_weighted(
            KernelRegressor(kernels.Gaussian(1.0), learner=learners.Newton(joint=True), max_features=64),
            xs[part], ys[part], ws[part],
        )
        for part in parts
    )  # fmt: skip
    check_ridges(1, first.merge(*others), xs, ys, ws, np.arange(780) % 260)


def test_linear_functions_merged_from_a_base_are_one_models():
    """In a model without arguments but `forgetting`: the constant follows the mean of the targets."""
    xs, ys, ws = rising(900, 3.0)
    one = KernelRegressor(learner=learners.Newton(forgetting=1.0), max_features=64)
    learn_weighted(one, xs[:300], ys[:300], ws[:300])
    told, base = pickle.dumps(one), pickle.loads(pickle.dumps(one))
    replicas = [learn_weighted(pickle.loads(told), xs[i::3], ys[i::3], ws[i::3]) for i in (300, 301, 302)]
    learn_weighted(one, xs[300:], ys[300:], ws[300:])
    merged = replicas[0].merge(*replicas[1:], base=base)
    w, expected = (model._learner.arrays.linear.w[0] for model in (merged, one))
    assert np.abs(expected).max() > 0.1
    assert w == pytest.approx(expected, abs=1e-9)


def test_one_regressor_differs_by_a_quarter_of_a_steady_rise():
    """It learns each target less the mean so far, which is on average a quarter of the rise below the mean of all."""
    xs, ys, ws = rising(901, 3.0)
    model = KernelRegressor(kernels.Gaussian(1.0), learner=learners.Newton(forgetting=1.0), max_features=64)
    for function, expected in functions_and_ridges(learn_weighted(model, xs, ys, ws), xs, ys, ws, range(901)):
        assert np.mean(function - expected) == pytest.approx(0.75, abs=0.1)


def test_sums_for_other_offsets_are_forgotten_as_the_moments_are():
    """What a group has of targets without an offset follows the printed steps, in which the targets are raw."""
    xs, ys, _ = rising(600, 3.0)
    f = feed(mixture(forgetting=0.99, intercept=state.MEAN), xs, ys)
    part = second_order.summarize(f)
    lam, n = f.prior(0), len(part.grams[0])
    eye, zeros = lam * np.eye(n), np.zeros(n)
    _, moment, *_ = faded(f, xs, ys, eye, zeros, 0, 0.99, 0.0, lam)
    _, counts, *_ = faded(f, xs, [1.0] * len(xs), eye, zeros, 0, 0.99, 0.0, lam)
    of_ones, of_offsets = part.centring[0]
    assert of_ones == pytest.approx(counts, rel=1e-6, abs=1e-5)
    assert part.moments[0][0] + of_offsets == pytest.approx(moment, rel=1e-3, abs=1e-3 * np.abs(moment).max())
    assert np.abs(of_offsets).max() > 0.1 * np.abs(moment).max()


# --- whole models -------------------------------------------------------------------------------------------------

MODELS = {
    "first order": (KernelRegressor, {**SMALL, "learner": "dsg"}),
    "batches": (KernelRegressor, {**SMALL, "learner": "dsg", "batch_size": 7, "averaging": True}),
    "second order": (KernelRegressor, SMALL),
    "joint, forgets": (KernelRegressor, {**SMALL, "learner": "newton", "joint": True, "forgetting": 0.99}),
    "arc-cosine": (KernelRegressor, {**SMALL, "kernel": kernels.ArcCosine(1)}),
    "arc-cosine, first order": (KernelRegressor, {**SMALL, "kernel": kernels.ArcCosine(1), "learner": "dsg"}),
    "classifier": (KernelClassifier, SMALL),
    "classifier, first order": (KernelClassifier, {**SMALL, "learner": "dsg"}),
    "one against the rest": (KernelClassifier, {**SMALL, "loss": "smooth_hinge"}),
    "softmax": (KernelClassifier, {**SMALL, "loss": "softmax"}),
}


def made(name, n, seed=0):
    kind, options = MODELS[name]
    xs, ys = stream(n, seed)
    if kind is KernelClassifier:
        ys = [["low", "middle", "high"][int(np.digitize(y, [-0.4, 0.4]))] for y in ys]
    return learn(kind(**nested(**options)), xs, ys)


@pytest.mark.parametrize("name", MODELS)
def test_the_order_of_models_matters_little(name):
    xs, _ = stream(50, seed=7)
    pairs = [(made(name, 400, 1), made(name, 300, 2)) for _ in range(2)]
    one, other = pairs[0][0].merge(pairs[0][1]), pairs[1][1].merge(pairs[1][0])
    if hasattr(one, "labels"):
        for x in xs:
            first, second = one.predict_proba_one(x), other.predict_proba_one(x)
            assert first == pytest.approx(second, abs=1e-3)
    else:
        assert [one.predict_one(x) for x in xs] == pytest.approx([other.predict_one(x) for x in xs], abs=1e-3)


@pytest.mark.parametrize("way", ["file", "pickle"])
@pytest.mark.parametrize("name", MODELS)
def test_merged_models_are_saved_and_continue_learning(name, way, tmp_path):
    merged = made(name, 300, 1).merge(made(name, 263, 2), made(name, 259, 3))
    twin = saved_and_loaded(merged, tmp_path) if way == "file" else pickle.loads(pickle.dumps(merged))
    assert content(twin) == content(merged)
    xs, ys = stream(120, seed=5)
    ys = ["low" if y < 0 else "new" for y in ys] if hasattr(merged, "labels") else ys
    for model in (merged, twin):
        learn(model, xs, ys)
    assert predictions(twin, xs) == predictions(merged, xs)
    assert content(twin) == content(merged)


@pytest.mark.parametrize("name", MODELS)
def test_pickled_replicas_give_the_same_bits(name):
    model = made(name, 300)
    root = model_merging.summarize(model)
    merged = []
    for is_sent in (False, True):
        told, replicas = pickle.dumps(model), []
        for i in range(3):
            replica = pickle.loads(told)
            replica._model.divide(i, 3)
            xs, ys = stream(70, seed=i)
            ys = ["low" if y < 0 else "high" for y in ys] if hasattr(model, "labels") else ys
            replicas.append(model_merging.summarize(learn(replica, xs, ys)))
        twin = pickle.loads(told)
        parts, base = (
            (replicas, root)
            if not is_sent
            else (pickle.loads(pickle.dumps(replicas)), pickle.loads(pickle.dumps(root)))
        )
        model_merging.merge_into(twin, parts, base)
        merged.append(content(twin))
    assert merged[0] == merged[1]


@pytest.mark.parametrize("name", MODELS)
def test_untrained_models_change_nothing(name):
    kind, options = MODELS[name]
    model, empty = made(name, 300), kind(**nested(**options))
    model_merging.summarize(model)  # takes the pending step of buffered examples
    before = predictions(model, stream(30)[0])
    merged = copy.deepcopy(model).merge(kind(**nested(**options)))
    assert str(predictions(merged, stream(30)[0])) == str(before) or predictions(merged, stream(30)[0]) == close(before)
    assert predictions(empty.merge(model), stream(30)[0]) == close(before)
    nothing = kind(**nested(**options))
    told = content(nothing)
    assert content(nothing.merge(kind(**nested(**options)))) == told
    alone = copy.deepcopy(model)
    told = content(alone)
    assert content(alone.merge(copy.deepcopy(model), base=copy.deepcopy(model))) == told


@pytest.mark.parametrize("name", MODELS)
def test_untrained_models_change_nothing_with_a_base(name):
    kind, options = MODELS[name]
    base, xs = made(name, 301), stream(30)[0]  # no example is buffered for a batch of 7
    model_merging.summarize(base)
    models = [pickle.loads(pickle.dumps(base)) for _ in range(2)]
    for seed, model in enumerate(models):
        events, ys = stream(70, seed)
        learn(model, events, ["low" if y < 0 else "high" for y in ys] if hasattr(model, "labels") else ys)
    one, other = models
    expected = content(copy.deepcopy(one).merge(copy.deepcopy(other), base=base))
    assert content(one.merge(other, kind(**nested(**options)), base=base)) == expected
    empty = kind(**nested(**options)).merge(copy.deepcopy(base), base=base)
    assert model_merging.n_examples(empty) == 301
    assert predictions(empty, xs) == close(predictions(base, xs))
    alone = content(nothing := kind(**nested(**options)))
    assert content(nothing.merge(kind(**nested(**options)), base=base)) == alone


def close(told):
    """Return predictions with a tolerance for factors that were rounded again."""
    if isinstance(told[0], tuple):
        return [(label, pytest.approx(shares, abs=1e-6)) for label, shares in told]
    return pytest.approx(told, abs=1e-6)


def test_an_untrained_model_adopts_bandwidths():
    xs, ys = stream(400)
    for options in ({}, {"learner": "dsg"}):
        model = learn(KernelRegressor(**nested(max_features=64, **options)), xs, ys)
        empty = KernelRegressor(**nested(max_features=64, **options)).merge(model)
        assert empty.kernel_ == model.kernel_
        assert [empty.predict_one(x) for x in xs[:9]] == pytest.approx([model.predict_one(x) for x in xs[:9]], abs=1e-5)


def test_outliers():
    xs, ys = stream(600)
    ys = [1e6 if i % 200 == 7 else y for i, y in enumerate(ys)]
    for order in ("dsg", "newton", "joint"):
        one, other = (KernelRegressor(**nested(learner=order, loss="huber", **SMALL)) for _ in range(2))
        learn(one, xs[:300], ys[:300])
        learn(other, xs[300:], ys[300:])
        ends = [m.predict_one(xs[1]) for m in (one, other)]
        offsets = [m._learner.numbers["offset"] for m in (one, other)]
        bounds = [m._learner.arrays.bounds.copy() for m in (one, other) if order != "dsg"]
        merged = one.merge(other)
        if bounds:  # a gradient that one has learned in full is learned in full
            assert not np.array_equal(*bounds)
            assert np.array_equal(merged._learner.arrays.bounds, np.maximum(*bounds))
        assert merged._learner.numbers["offset"] == pytest.approx(np.mean(offsets))
        assert min(ends) - 50.0 <= merged.predict_one(xs[1]) <= max(ends) + 50.0


# --- labels -------------------------------------------------------------------------------------------------------


def halves(labels_of_one, labels_of_other, **options):
    """Return two classifiers, of the same boundary, with labels in their own order."""
    models = []
    for seed, labels in ((1, labels_of_one), (2, labels_of_other)):
        xs, ys = stream(500, seed)
        known = sorted(labels, key=str)
        edges = np.quantile(ys, np.linspace(0, 1, len(known) + 1)[1:-1])
        names = [known[int(np.digitize(y, edges))] for y in ys]
        firsts = [names.index(label) for label in labels]  # these labels come in this order
        order = firsts + [i for i in range(500) if i not in firsts]
        models.append(
            learn(
                KernelClassifier(**nested(**options)),
                [xs[i] for i in order],
                [names[i] for i in order],
            )
        )
    return models


@pytest.mark.parametrize("order", ["newton", "dsg"])
@pytest.mark.parametrize("loss", ["logistic", "softmax", "smooth_hinge"])
@pytest.mark.parametrize("labels", ["ab", "abc", "abcd"])
def test_labels_in_another_order(labels, loss, order):
    told = {**SMALL, "loss": loss, "learner": order}
    one, other = halves(labels, labels[::-1], **told)
    same, straight = halves(labels, labels, **told)
    assert [*other.labels] == [*labels[::-1]]
    xs = stream(100, seed=3)[0]
    merged, expected = one.merge(other), same.merge(straight)
    assert [*merged.labels] == [*labels]
    found = [merged.predict_proba_one(x) for x in xs]
    for shares, x in zip(found, xs, strict=True):
        assert shares == pytest.approx(expected.predict_proba_one(x), abs=0.25)
    agree = [merged.predict_one(x) == expected.predict_one(x) for x in xs]
    assert np.mean(agree) > 0.85


@pytest.mark.parametrize(
    ("labels", "loss", "order"),
    covering(
        itertools.product(
            [("a", "b"), ("a", "a"), ("ab", "c"), ("ab", "bc"), ("abc", "cd"), ("a", "cba"), ("ab", "cdef")],
            ["logistic", "softmax", "smooth_hinge"],
            ["newton", "dsg"],
        )
    ),
)
def test_labels_of_only_one_model(labels, loss, order):
    first, second = labels
    one, other = halves(first, second, **SMALL, loss=loss, learner=order)
    xs = stream(60, seed=3)[0]
    scores = [dict(zip(m.labels, np.zeros(len(m.labels)), strict=True)) for m in (one, other)]
    merged = one.merge(other)
    assert [*merged.labels] == [*dict.fromkeys(first + second)]
    for x in xs:
        shares = merged.predict_proba_one(x)
        assert shares.keys() == {*first, *second}
        assert sum(shares.values()) == pytest.approx(1.0)
        assert merged.predict_one(x) in shares
    assert merged._learner.columns == merged._model.outputs.columns(len(merged.labels))
    assert scores
    more, names = stream(80, seed=8)
    learn(merged, more, ["z" if y > 0 else first[0] for y in names])
    assert merged.predict_proba_one(xs[0]).keys() == {*first, *second, "z"}


@pytest.mark.parametrize("order", ["newton", "dsg"])
def test_labels_in_two_forms_are_merged_as_one(order):
    one, other = halves([1, "a", 0], ["0", 1.0, "a"], **SMALL, learner=order)
    same, straight = halves([1, "a", 0], [0, 1, "a"], **SMALL, learner=order)
    merged, expected = one.merge(other), same.merge(straight)
    assert [*merged.labels] == [1, "a", 0]
    for x in stream(20, seed=3)[0]:
        assert merged.predict_proba_one(x) == expected.predict_proba_one(x)


def scores_of(model, xs):
    ((rows, _),) = table_blocks(model._learner.directions, frame(xs), model._state.numeric)
    return model._model.scores_of(rows)


@pytest.mark.parametrize("loss", ["logistic", "softmax", "smooth_hinge"])
def test_scores_of_labels_are_means(loss):
    """The margin of a model of two labels is converted to scores as it is when a third label arrives."""
    one, other = halves("ab", "cab", **SMALL, loss=loss, learner="dsg")
    xs = stream(20, seed=3)[0]
    twin = copy.deepcopy(one)
    twin._model.state = twin._model.outputs.with_label(twin._state, "c")
    own = scores_of(twin, xs)
    theirs = scores_of(other, xs)[:, [other.labels[label] for label in "abc"]]
    merged = one.merge(other)
    assert scores_of(merged, xs) == pytest.approx(0.5 * own + 0.5 * theirs, abs=1e-9)


def test_the_spread_of_replicas_with_new_labels():
    xs, ys = stream(300)
    model = learn(KernelClassifier(**nested(**SMALL)), xs, ["a" if y > 0 else "b" for y in ys])
    replicas = [pickle.loads(pickle.dumps(model)) for _ in range(2)]
    learn(replicas[0], xs[:50], ["c" if y > 0 else "b" for y in ys[:50]])
    learn(replicas[1], xs[50:100], ["a" if y > 0 else "b" for y in ys[50:100]])
    parts = [model_merging.summarize(one) for one in replicas]
    assert 0.0 < model_merging.spread_of(parts) < 2.0
    assert model_merging.spread_of(parts[:1]) == 0.0


@pytest.mark.parametrize("size", [0.0, 1e9])
def test_the_spread_of_opposite_replicas_is_finite(size):
    xs, ys = stream(40)
    told = {**SMALL, "learner": "dsg"}
    models = [learn(KernelRegressor(**nested(**told)), xs, [sign * size * y for y in ys]) for sign in (-1.0, 1.0)]
    spread = model_merging.spread_of([model_merging.summarize(model) for model in models])
    assert np.isfinite(spread)
    assert (spread > 0.0) == (size > 0.0)


# --- scales -------------------------------------------------------------------------------------------------------


def observed(table, scales=None, take=False):
    scales = scales or scaling.Scales()
    directions = Directions(KernelProgram(kernels.Gaussian(1.0), seed=0), block_size=1, cache_bytes=0)
    for row in table:
        scales.observe(directions.row(row))
        if take and schedule.is_due(scales.n):
            scales.use_moments()
    return scales


def of(tensors):
    scales = scaling.Scales()
    scales.restore(tensors)
    return scales


NUMBER = st.floats(-1e3, 1e3, allow_subnormal=False)
EVENT = st.fixed_dictionaries({}, optional={"a": NUMBER, "b": NUMBER, "c": NUMBER}).filter(bool)


@given(
    st.lists(EVENT, max_size=12),
    st.lists(st.lists(EVENT, min_size=1, max_size=12), min_size=1, max_size=3),
    st.sampled_from([0.0, 1.7e9, -1e12]),
)
def test_moments_are_those_of_all_events(first, lists, centre):
    first, *lists = ([{k: centre + v for k, v in x.items()} for x in part] for part in (first, *lists))
    base = observed(first).tensors() if first else None
    parts = []
    for events in lists:
        parts.append(observed(events, of(base) if base else None).tensors())
    found = summaries.merge_scales(parts, base)
    expected = observed([*first, *(x for events in lists for x in events)]).tensors()
    assert found["scales.n"] == expected["scales.n"]
    assert found["scales.weights"] == pytest.approx(expected["scales.weights"])
    assert (found["scales.names"] == expected["scales.names"]).all()
    count, mean, squares, *counts, _, _ = found["scales.moments"].T
    wanted_count, wanted_mean, wanted, *wanted_counts, _, _ = expected["scales.moments"].T
    assert np.array(counts) == pytest.approx(np.array(wanted_counts))
    assert count == pytest.approx(wanted_count)
    assert mean == pytest.approx(wanted_mean, abs=1e-9, rel=1e-13)
    assert squares == pytest.approx(wanted, rel=1e-6, abs=1e-7 * (1.0 + 1e-12 * centre**2))
    of(found)


@pytest.mark.parametrize("n", [5000, 16_300, 40_000])
def test_moments_halved_since_the_base(n):
    """The decayed moments of the base count once, and each replica's own events with the replica's decay."""
    generator = np.random.default_rng(0)
    values = generator.normal(1.7e9, 5.0, n + 3 * 9000)
    table = [{"a": v, **({"b": v - 1.7e9} if i % 3 else {})} for i, v in enumerate(values.tolist())]
    base = observed(table[:n], take=True).tensors()
    cuts = [(n, n + 9000), (n + 9000, n + 18_000), (n + 18_000, n + 27_000)]
    parts = [observed(table[a:b], of(base), take=True).tensors() for a, b in cuts]
    for part in parts:
        part["scales.in_use"] = base["scales.in_use"]
    found = of(summaries.merge_scales(parts, base))
    assert found.n == n + 27_000
    weight = float(found.state.counts["weight"][0])
    assert 9000 <= weight <= n + 27_000
    for (count, mean, squares, *_), share in zip(found.tensors()["scales.moments"], (1.0, 2 / 3), strict=True):
        assert count == pytest.approx(share * weight, rel=0.01) or count == pytest.approx(
            (5 / 3 - share) * weight, rel=0.01
        )
        assert abs(mean) < 0.3 or abs(mean - 1.7e9) < 0.3
        assert np.sqrt(squares / count) == pytest.approx(5.0, rel=0.02)


def test_default_models_continue_from_one():
    xs, ys = stream(3000)
    xs = [{"a": x["a"] + 1.7e9, "b": 1e-3 * x["b"], "c": x["c"]} for x in xs]
    base = learn(KernelRegressor(max_features=256), xs[:500], ys[:500])
    one, other = (pickle.loads(pickle.dumps(base)) for _ in range(2))
    learn(one, xs[500:1700], ys[500:1700])
    learn(other, xs[1700:], ys[1700:])
    some = xs[:200]
    errors_of = [np.mean((np.array(m.predict_many(frame(some))) - ys[:200]) ** 2) for m in (one, other)]
    merged = one.merge(other, base=base)
    assert merged._state.scales.n == merged.n_steps == 3000
    assert np.mean((np.array(merged.predict_many(frame(some))) - ys[:200]) ** 2) < max(errors_of)


def test_strings_that_replicas_have_not_seen_in_common_are_merged():
    """The divisor of a name without a scale depends only on the base of the replicas."""
    xs, ys = stream(900)
    xs = [{**x, "id": f"n{i}", f"late{i % 7}": x["a"]} if i >= 300 else x for i, x in enumerate(xs)]
    base = learn(KernelRegressor(max_features=64), xs[:300], ys[:300])
    one, other = (pickle.loads(pickle.dumps(base)) for _ in range(2))
    learn(one, xs[300:450], ys[300:450])
    learn(other, xs[450:600], ys[450:600])
    merged = one.merge(other, base=base)
    assert merged._state.scales.n_names == 3 + 300 + 7
    learn(merged, xs[600:], ys[600:])


# --- pruning ---------------------------------------------------------------------------------------------------


def pruned(n=600, order="dsg", seed=0, events=0):
    xs, ys = stream(n, seed)
    told = {**SMALL, "max_features": 256, **({"rule": rules.DSG()} if order == "dsg" else {})}
    model = learn(KernelRegressor(**nested(learner=order, **told)), xs, ys)
    upkeep.apply(upkeep.Pruning(window=256, keep=0.25), model, list(zip(xs, ys, strict=True))[-256:])
    return model


@pytest.mark.parametrize("order", ["dsg", "newton"])
def test_pruned_models(order):
    model = pruned(2500, order)
    base = copy.deepcopy(model)
    xs, ys = stream(200, seed=5)
    one, other = (pickle.loads(pickle.dumps(model)) for _ in range(2))
    learn(one, xs[:100], ys[:100])
    learn(other, xs[100:], ys[100:])
    features = model.n_features
    most = model._learner.most_blocks
    f = [m.predict_one(xs[0]) - m._learner.numbers["offset"] for m in (one, other)]
    merged = one.merge(other, base=base)
    found = merged.predict_one(xs[0]) - merged._learner.numbers["offset"]
    if order == "dsg":
        assert merged._learner.most_blocks == most, "the cap is as low as it was"
        assert found == pytest.approx(np.mean(f), abs=1e-9)
    assert features <= merged.n_features <= most * model._learner.block_size
    twin = pickle.loads(pickle.dumps(merged))
    assert content(learn(twin, xs, ys)) == content(learn(merged, xs, ys))
    assert merged.n_features <= most * model._learner.block_size


def test_models_that_were_pruned_differently():
    """First-order models keep the blocks of all if the cap permits it; models of other learners are rejected."""
    one, other = pruned(600, seed=1), pruned(600, seed=2)
    xs, _ = stream(9)
    f = [np.array(model.predict_many(frame(xs))) - model._learner.numbers["offset"] for model in (one, other)]
    refused(one, "features in all at most", other, pruned(600, seed=3))
    united = copy.deepcopy(one).merge(other)
    found = np.array(united.predict_many(frame(xs))) - united._learner.numbers["offset"]
    assert one.n_features < united.n_features <= one.n_features + other.n_features  # some may be the same
    assert found == pytest.approx(0.5 * f[0] + 0.5 * f[1], abs=1e-9)
    model, second = pruned(2500, "newton", seed=1), pruned(2500, "newton", seed=2)
    refused(model, "pruned differently", second)
    xs, ys = stream(2500)
    plain = learn(KernelRegressor(**nested(**{**SMALL, "max_features": 256})), xs, ys)
    model_merging.summarize(plain)
    refused(model, "pruned differently", model, base=plain)


def test_a_running_job_is_abandoned():
    xs, ys = stream(400)
    told = {**SMALL, "learner": "dsg", "pruning": upkeep.Pruning(every=256, window=128, keep=0.25)}
    one, other = (KernelRegressor(**nested(**told)) for _ in range(2))
    learn(one, xs[:300], ys[:300])
    learn(other, xs[:20], ys[:20])
    assert one._state.upkeep.job is not None
    f = one.merge(other).predict_one(xs[0])
    assert one._state.upkeep.job is None
    assert one.predict_one(xs[0]) == f
    learn(one, xs, ys)
    assert one.n_prunings >= 0
    assert one._state.upkeep.seen == 700


# --- refusals -----------------------------------------------------------------------------------------------------


def refused(model, text, *others, base=None):
    """Assert that a merge is refused, and that nothing has changed."""
    everything = [model, *others, *([] if base is None else [base])]
    before = [content(one) if hasattr(one, "_tensors") else None for one in everything]
    with pytest.raises(MergeError, match=text):
        model.merge(*others, base=base)
    assert [content(one) if hasattr(one, "_tensors") else None for one in everything] == before


OTHERS = {
    "seed": {"seed": 4},
    "kernel": {"kernel": kernels.Gaussian(1.1)},
    "kernel ": {"kernel": kernels.Laplacian(1.0)},
    "loss": {"loss": "huber"},
    "max_features": {"max_features": 128},
    "l2": {"l2": 0.1},
    "learner": {"features_per_seed": 16},
    "learner ": {"batch_size": 4},
    "learner  ": {"step_size": step_sizes.Constant(0.1)},
    "learner   ": {"joint": True},
    "learner    ": {"forgetting": 0.9},
    "learner     ": {"learner": "dsg"},
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_parameters_are_refused(name):
    xs, ys = stream(303)
    model = learn(KernelRegressor(**nested(**SMALL)), xs, ys)
    other = learn(KernelRegressor(**nested(**{**SMALL, **OTHERS[name]})), xs, ys)
    refused(model, f"the same {name.strip()}, got", other)


@pytest.mark.parametrize("order", ["dsg", "newton"])
def test_one_model_twice_is_refused(order):
    xs, ys = stream(303)
    one, other = (learn(KernelRegressor(**nested(**SMALL, learner=order)), xs, ys) for _ in range(2))
    refused(one, "got one twice", one)
    refused(one, "got one twice", other, other)


@pytest.mark.parametrize("order", ["dsg", "newton"])
def test_models_that_merge_each_other_again_and_again_are_refused_in_the_end(order):
    xs, ys = stream(303)
    models = [learn(KernelRegressor(**nested(**SMALL, learner=order)), xs, ys) for _ in range(2)]
    i = 0
    while sum(map(model_merging.n_examples, models)) <= model_merging.MOST_EVENTS:
        models[i % 2].merge(models[1 - i % 2])
        i += 1
    refused(models[0], r"9e\+15 events in all at most, .* with base=", models[1])
    for model in models:
        model.learn_one(xs[0], ys[0])
        assert math.isfinite(model.predict_one(xs[0]))
        assert content(pickle.loads(pickle.dumps(model))) == content(model)


@pytest.mark.parametrize("order", ["dsg", "newton"])
def test_an_untrained_model_refuses_a_kernel_that_its_own_cannot_become(order):
    xs, ys = stream(303)
    median, fixed = kernels.Gaussian("median"), kernels.Gaussian(1.0)
    for own, other in ((fixed, median), (median, kernels.Laplacian("median"))):
        empty, model = (KernelRegressor(**nested(**SMALL | {"kernel": one, "learner": order})) for one in (own, other))
        refused(empty, "the same kernel", learn(model, xs, ys))


def test_other_classes_are_refused():
    xs, ys = stream(303)
    model = learn(KernelRegressor(**nested(**SMALL)), xs, ys)
    refused(
        model,
        "the same class, got 'KernelRegressor' and 'KernelClassifier'",
        KernelClassifier(**nested(**SMALL)),
    )
    refused(model, "got a GaussianProcessRegressor", GaussianProcessRegressor())
    novelty = KernelNoveltyDetector(kernels.Gaussian(1.0))
    novelty.learn_one({"a": 1.0})
    refused(novelty, "got a KernelNoveltyDetector", novelty)
    assert issubclass(MergeError, ValueError)
    assert errors.MergeError is MergeError


def test_pending_bandwidths_are_rejected():
    xs, ys = stream(300)
    for options in ({}, {"learner": "dsg"}, {"learner": "dsg", "batch_size": 200}):
        young = learn(KernelRegressor(**nested(max_features=64, **options)), xs[:90], ys[:90])
        other = learn(KernelRegressor(**nested(max_features=64, **options)), xs, ys)
        refused(young, "256 examples or more, .* has seen 90", other)
        refused(other, "256 examples or more, .* has seen 90", young)


def test_other_bandwidths_and_scales_are_refused():
    xs, ys = stream(600)
    model = learn(KernelRegressor(max_features=64), xs[:301], ys[:301])
    other = learn(KernelRegressor(max_features=64), xs[301:], ys[301:])
    refused(model, "the same kernel", other)
    other = pickle.loads(pickle.dumps(model))
    base = pickle.loads(pickle.dumps(model))
    for one, factor in ((model, 50.0), (other, 500.0)):
        learn(one, [{k: factor * v for k, v in x.items()} for x in xs * 2], ys * 2)
    refused(model, "equal scales of their inputs, got 3 of 3", other, base=base)
    given = learn(KernelRegressor(model.kernel_, max_features=64), xs[:300], ys[:300])
    refused(model, "scale their inputs or none", given)


def test_a_model_is_merged_with_one_whose_scales_have_changed_since_their_base():
    """A member of a group has learned from the model before the change."""
    xs, ys = stream(1200)
    base = learn(KernelRegressor(max_features=64), xs[:300], ys[:300])
    other, late = (pickle.loads(pickle.dumps(base)) for _ in range(2))
    wide = [{**{name: 50.0 * value for name, value in x.items()}, "new": 7.0 * y} for x, y in zip(xs, ys, strict=True)]
    learn(other, wide, ys)
    internals.become_replica(late, 0, 1)
    learn(late, [{**x, "new": 7.0} for x in xs[:100]], ys[:100])
    before, changed = (one._state.scales.tensors()["scales.in_use"] for one in (base, other))
    assert set(before.ravel()).isdisjoint(changed.ravel())
    one, two = pickle.loads(pickle.dumps(other)), pickle.loads(pickle.dumps(late))
    one.merge(late, base=base)
    two.merge(other, base=base)
    for merged in (one, two):
        assert merged.n_steps == 300 + 1200 + 100
        assert (merged._state.scales.tensors()["scales.in_use"] == changed).all()
        assert all(np.isfinite(merged.predict_one(x)) for x in wide[:20])


def test_a_wrong_base_is_rejected():
    xs, ys = stream(400)
    for order in ("newton", "dsg"):
        one, other = (learn(KernelRegressor(**nested(learner=order, **SMALL)), xs[:307], ys[:307]) for _ in range(2))
        later = learn(KernelRegressor(**nested(learner=order, **SMALL)), xs, ys)
        refused(one, "continued from one of 400 examples, got one of 307", other, base=later)
        refused(one, "same seed", other, base=KernelRegressor(**nested(learner=order, seed=4, **SMALL)))
    stranger = learn(KernelRegressor(**nested(learner="dsg", rule=rules.DSG(), **SMALL)), xs[:7], ys[:7])
    slow = [
        learn(
            KernelRegressor(**nested(learner="dsg", rule=rules.DSG(), **SMALL)),
            xs[:3],
            ys[:3],
        )
        for _ in range(2)
    ]
    refused(slow[0], "continued from one of 7", slow[1], base=stranger)
    stranger._model.divide(1, 2)
    learn(stranger, xs[:8], ys[:8])
    long = [learn(KernelRegressor(**nested(learner="dsg", rule=rules.DSG(), **SMALL)), xs, ys) for _ in range(2)]
    for one in long:
        one._learner.numbers["blocks"] = min(6, one._learner.numbers["blocks"])
    refused(long[0], "features that they do not have", long[1], base=stranger)


@pytest.mark.parametrize("order", ["newton", "joint"])
def test_a_base_of_other_events_is_refused_of_second_order(order):
    told = {**SMALL, "learner": order}
    one, other, stranger = (
        learn(KernelRegressor(**nested(**told)), *stream(400, seed, 2.0 * seed)) for seed in range(3)
    )
    refused(one, "continued from the base, got one whose Gram matrix is smaller", other, base=stranger)
    refused(one, "continued from the base, got one whose Gram matrix is smaller", base=stranger)
    forgets = [learn(KernelRegressor(**nested(forgetting=0.99, **told)), *stream(400, seed)) for seed in range(3)]
    forgets[0].merge(forgets[1], base=forgets[2])  # forgetting may have removed nearly all of the base


BRANCHES = {
    "block": {"learner": "newton"},
    "full": {"learner": "newton", "joint": True},
    "l2": {"learner": "newton", "joint": True, "l2": 0.02},
    "forgets": {"learner": "newton", "joint": True, "forgetting": 0.98},
    "forgets, l2": {"learner": "newton", "forgetting": 0.98, "l2": 0.02},
    "batches": {"learner": "newton", "batch_size": 5},
    "arc-cosine": {"kernel": kernels.ArcCosine(1)},
    "multi-scale": {"kernel": kernels.MultiScale(kernels.Gaussian(1.0), (0.5, 2.0))},
}
RARE = ("l2", "forgets", "arc-cosine", "multi-scale")


@pytest.mark.parametrize("name", [slow(name) if name in RARE else name for name in BRANCHES])
def test_models_that_continued_from_a_base_are_recognised(name):
    """With buffered examples in the models or in the base, few new events, and models that were merged before."""
    xs, ys = stream(3100)
    still = ([xs[0]] * 3100, ys)
    for n in (300, 1003, 2603):  # at 2603 events the model samples rows
        told = pickle.dumps(learn(KernelRegressor(**nested(**{**SMALL, **BRANCHES[name]})), xs[:n], ys[:n]))
        for more, (us, vs), which in (
            (1, still, 0),
            (3, still, 1),
            (30, still, 2),
            (400, still, 3),
            (400, (xs, ys), 0),
        ):
            base, one, other, third = (pickle.loads(told) for _ in range(4))
            for i, model in enumerate((one, other, third)):
                learn(model, us[i : i + more], vs[i : i + more])
            for settled in (base, one)[:which]:
                settled._learner.settle()
            one.merge(other, base=base).merge(third, base=base)
            assert model_merging.n_examples(one) == n + 3 * more
            one.merge(base, base=base)


def test_models_with_nan_are_refused():
    with pytest.raises(MergeError, match="finite Gram matrices, got NaN or infinity"):
        square_root.factor_of(np.array([[1.0, 0.0], [0.0, np.nan]]))
    for other in (np.full((2, 2), -1e300), np.diag([1.0, -1.0]), np.diag([1.0, -2.0]), np.zeros((2, 2))):
        with pytest.raises(MergeError, match="positive Gram matrices"):
            square_root.factor_of(other)
    assert np.allclose(square_root.factor_of(np.ones((2, 2))), [[1.0, 1.0], [0.0, 0.0]], atol=1e-5)
    one, other = made("second order", 300, 1), made("second order", 300, 2)
    for model in (one, other):
        model_merging.summarize(model)  # takes the step that examples wait for
    other._learner.groups[0].factor[0, 3] = np.nan
    refused(one, "got NaN or infinity", other)


def test_models_over_the_cap_together_are_rejected():
    xs, ys = stream(300)
    models = []
    for i in range(2):
        model = KernelRegressor(**nested(learner="dsg", rule=rules.DSG(), **SMALL))
        learn(model, xs[:2], ys[:2])
        model._model.divide(i, 2)
        learn(model, xs, ys)
        models.append(model)
    models[1]._learner.most_blocks = models[0]._learner.most_blocks = 4
    refused(models[0], "features in all at most", models[1])
