"""Newton steps that are spread over later events: the same result, and no event does all the work."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from streams import WAYS, content, examples, frame, nested, predictions, targets, write_parts

from streamkernel import KernelClassifier, KernelRegressor, kernels, load, losses, step_sizes
from streamkernel.estimators import model_file
from streamkernel.second_order import bandwidths, growth, mixture_state, newton
from streamkernel.second_order.mixture import SecondOrderLearner

N = 700
SMALL = {"features_per_seed": 8, "max_features": 128, "learner": "newton"}
PARTS = {"plain": {}, "forgetting": {"forgetting": 0.99}, "l2": {"l2": 1e-3}, "batches": {"batch_size": 20}}


@pytest.fixture(autouse=True)
def spread(monkeypatch):
    """Steps are spread, and larger groups begin, early."""
    monkeypatch.setattr(mixture_state, "SPREAD", 0)
    monkeypatch.setattr(growth, "FROM", 256)
    monkeypatch.setattr(bandwidths, "PROBED", 256)


def stream(n=N):
    xs, _ = examples(n, seed=5)
    return xs, targets(xs)


def learned(model, xs, ys, sizes):
    """Learn in calls of so many rows each, in turns."""
    first, turn = 0, 0
    while first < len(xs):
        last = first + sizes[turn % len(sizes)]
        if last == first + 1:
            model.learn_one(xs[first], ys[first])
        else:
            model.learn_many(frame(xs[first:last]), np.array(ys[first:last]))
        first, turn = last, turn + 1
    return model


@pytest.mark.parametrize("options", PARTS.values(), ids=PARTS)
def test_the_schedule_of_units_changes_no_bit(options):
    xs, ys = stream()
    one = learned(KernelRegressor(**nested(**SMALL | options)), xs, ys, [1])
    for sizes in ([N], [1, 7, 100], [64]):
        twin = learned(KernelRegressor(**nested(**SMALL | options)), xs, ys, sizes)
        assert content(twin) == content(one)
        assert predictions(twin, xs[:20]) == predictions(one, xs[:20])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("after", [300, 333, 509, 511, 530, 600])
def test_a_copy_in_the_middle_of_a_step_continues_with_the_same_bits(way, after, tmp_path):
    xs, ys = stream()
    model = learned(KernelRegressor(**nested(**SMALL)), xs[:after], ys[:after], [1])
    assert (model._learner.numbers["working"] > 0) == (after != 511)  # then the step has just been applied
    twin, before = WAYS[way](model, tmp_path), predictions(model, xs[:20])
    assert predictions(twin, xs[:20]) == before
    for other in (model, twin):
        learned(other, xs[after:], ys[after:], [1, 30])
    assert content(twin) == content(model)


def test_a_new_class_during_a_step():
    xs, labels = examples(400, labels=("a", "b", "c"), seed=3)
    one, many = (KernelClassifier(**nested(**SMALL)) for _ in range(2))
    learned(one, xs, labels, [1])
    many.learn_many(frame(xs), labels)
    assert content(one) == content(many)
    assert len(one.predict_proba_one(xs[0])) == 3


def test_no_event_has_to_complete_a_step():
    """All units are done before the step is applied, and some are left for the event before."""
    xs, ys = stream()
    model, left = learned(KernelRegressor(**nested(**SMALL)), xs[:512], ys[:512], [512]), []
    for x, y in zip(xs[512:], ys[512:], strict=True):
        numbers = model._learner.numbers
        if numbers["working"]:
            left.append((int(numbers["buffered"]), int(numbers["unit"]) == newton.DONE))
        model.learn_one(x, y)
    assert max(waiting for waiting, _ in left) == newton.applied_after(16) - 1 == 13
    assert {is_done for waiting, is_done in left if waiting >= 12} == {True}
    assert {is_done for waiting, is_done in left if waiting < 12} == {False}


def test_calls_of_three_events_compute_units_whatever_number_they_begin_with():
    xs, ys = stream()
    model = learned(KernelRegressor(**nested(**SMALL)), xs[:512], ys[:512], [512])
    learned(model, xs[512:513], ys[512:513], [1])
    at = {}
    for first in range(513, N - 3, 3):
        numbers = model._learner.numbers
        if numbers["working"]:
            at.setdefault(int(numbers["buffered"]), set()).add(int(numbers["unit"]))
        learned(model, xs[first : first + 3], ys[first : first + 3], [3])
    assert set(at) == set(range(newton.applied_after(16)))
    assert max(at[0]) < min(at[7]) < min(at[10]) < min(at[13])
    assert max(at[2]) < min(at[8]) < min(at[11])


def mixture(batch):
    return SecondOrderLearner(
        kernels.Gaussian(1.0),
        losses.Square(),
        step_sizes.Constant(0.5),
        joint=True,
        block_size=32,
        max_features=32,
        batch_size=batch,
    )


@pytest.mark.parametrize("batch", [16, 1])
def test_square_loss_is_ridge_regression_one_step_behind(batch):
    """The closed form of all examples but those that wait and those of the step that is worked on; and of all once
    both are settled."""
    f, generator = mixture(batch), np.random.default_rng(2)
    X = generator.normal(size=(900, 3))
    y = np.sin(X[:, 0]) * X[:, 1] + 0.1 * generator.normal(size=900)
    rows = f.directions.rows(["a", "b", "c"], X)
    f.arrays.bounds[:] = 1e9  # nothing is clipped
    f.learn(rows, y)
    phi, numbers = f.embed_rows(rows), f.numbers
    assert numbers["working"] > 0

    def wanted(n):
        ridge = Ridge(alpha=0.03, fit_intercept=False, solver="cholesky").fit(phi[:n].astype(float), y[:n])
        return phi @ ridge.coef_

    waiting = int(numbers["buffered"])
    before = phi @ f.groups[0].newton[0]
    assert np.abs(before - wanted(900 - waiting - int(numbers["working"]))).max() < 2e-3
    f.settle()
    assert np.abs(phi @ f.groups[0].newton[0] - wanted(900)).max() < 2e-3
    assert np.abs(before - wanted(900)).max() > 2e-3


def test_a_file_whose_step_does_not_fit_is_refused(tmp_path):
    xs, ys = stream(300)
    parts = model_file.describe(learned(KernelRegressor(**nested(**SMALL)), xs, ys, [1]))
    assert "change" in parts[1]
    assert load(write_parts(tmp_path, parts)).predict_one(xs[0]) == copy.deepcopy(load(tmp_path / "model")).predict_one(
        xs[0]
    )
    for change in (lambda t: t.update(change=t["change"][1:]), lambda t: t.update(change=t["change"].astype("f4"))):
        with pytest.raises(ValueError, match="change"):
            load(write_parts(tmp_path, parts, change))
