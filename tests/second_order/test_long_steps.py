"""Newton steps of 128 examples while a group has 4,096 outputs."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from streams import WAYS, content, examples, learn

from streamkernel import InputError, KernelClassifier
from streamkernel.merging import second_order
from streamkernel.merging.groups import left_in
from streamkernel.second_order import metric, mixture, newton, restructuring
from streamkernel.second_order.mixture_state import Group, Groups

SINCE = newton.LONGEST_OF_MANY // 8 * newton.GROWING
"""The example from which steps of all groups are the longest ones."""

AMID = SINCE + 190
"""An example amid a long step."""

XS, YS = examples(AMID + 600)
OF_MANY = 5


def with_large_group(model):
    """Let a larger group of 4,096 outputs start."""
    learner = model._learner
    learner._complete()
    now = learner._live
    table = now.table.copy()
    table[OF_MANY] = newton.MANY // learner.outputs, 1, learner.examples
    kept = {g: group for g, group in enumerate(now.groups) if g != OF_MANY}
    new_metric = metric.with_groups(now.state.metric, [], [OF_MANY], None)
    learner._live = restructuring._rearrange(
        now,
        learner._arranger,
        learner._kernel,
        table,
        kept=kept,
        newton=[OF_MANY],
        steady=[OF_MANY],
        changing={"priors": now.state.priors, "metric": new_metric, "pairs": now.state.pairs},
    )
    restructuring._begin(learner._live, [OF_MANY])


@pytest.fixture(scope="module")
def large():
    """Return a model amid a long step."""
    model = learn(KernelClassifier(), XS[:SINCE], YS[:SINCE])
    assert len(model._learner.groups[0].rows) == newton.LONGEST_BATCH
    assert model._learner._live.groups.counts.max() < newton.MANY
    with_large_group(model)
    learn(model, XS[SINCE:AMID], YS[SINCE:AMID])
    assert newton.LONGEST_BATCH < model._learner.numbers["buffered"] < newton.LONGEST_OF_MANY
    return model


def steps_of(model, first, last):
    """Return the examples after which a Newton step began."""
    found = []
    for i in range(first, last):
        model.learn_one(XS[i], YS[i])
        if not model._learner.numbers["buffered"]:
            found.append(i + 1)
    return found


def test_steps_are_longer_with_a_large_group(large):
    model = copy.deepcopy(large)
    assert len(model._learner.groups[0].rows) == newton.LONGEST_OF_MANY
    found = steps_of(model, AMID, AMID + 600)
    assert set(np.diff(found).tolist()) == {newton.LONGEST_OF_MANY}


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_amid_a_long_step_continues_with_the_same_bits(large, way, tmp_path):
    one, twin = copy.deepcopy(large), WAYS[way](large, tmp_path)
    for model in (one, twin):
        learn(model, XS[AMID:], YS[AMID:])
    assert content(twin) == content(one)


@pytest.mark.parametrize("way", WAYS)
def test_after_the_large_group_has_ended_the_waiting_examples_are_one_step(large, way, tmp_path, monkeypatch):
    model = copy.deepcopy(large)
    model._learner.numbers["restarted"] = AMID + 1 - SINCE  # a check is due after the next example
    twin = WAYS[way](model, tmp_path)

    def ended(now, arranger, kernel):
        return restructuring.with_restart(now, arranger, kernel, [OF_MANY])

    monkeypatch.setattr(mixture, "with_new_groups", ended)
    for one in (model, twin):
        one.learn_one(XS[AMID], YS[AMID])
        assert one._learner._live.groups.counts.max() < newton.MANY
        assert one._learner.numbers["buffered"] == 0
    monkeypatch.undo()
    before = content(model)
    with pytest.raises(InputError):
        model.learn_one({**XS[0], "x0": 1e300}, YS[0])
    assert content(model) == before
    learn(twin, XS[AMID + 1 : AMID + 400], YS[AMID + 1 : AMID + 400])
    assert np.diff(steps_of(model, AMID + 1, AMID + 400)).max() <= newton.LONGEST_BATCH
    assert content(twin) == content(model)


def gram_of(model):
    """Return A of the group that forgets less."""
    factor = list(model._learner._live.groups)[-1].factor.astype(np.float64)
    return factor.T @ factor


@pytest.mark.parametrize("more", [300, 500])
def test_merging_knows_what_long_steps_have_left_of_a_group(large, more):
    """Examples of nearly no weight only make a group forget."""
    base = copy.deepcopy(large)
    base._learner.settle()
    part = copy.deepcopy(base)
    for x, y in zip(XS[AMID : AMID + more], YS[AMID : AMID + more], strict=True):
        part.learn_one(x, y, w=1e-12)
    part._learner.settle()
    before, after = (second_order.summarize(model._learner) for model in (base, part))
    parts = np.stack([gram_of(base).ravel(), np.eye(len(gram_of(base))).ravel()], axis=1)
    share = np.linalg.lstsq(parts, gram_of(part).ravel(), rcond=None)[0][0]
    found, _ = left_in(after, len(after.table) - 1, before.clock(-1), 1, int(before.rested[-1]))
    assert found == pytest.approx(share, rel=1e-3)


def test_a_group_with_another_capacity_has_the_same_rows():
    group = Group.empty(20, columns=1, centred=0, room=16)
    group.rows[:], group.panels[:] = 1.0, 2.0
    more, less = (Groups([20], [0], [0], columns=1, centred=0, capacity=most, groups={0: group})[0] for most in (24, 8))
    assert (more.rows[:16] == 1.0).all()
    assert (more.panels[:, :16] == 2.0).all()
    assert not more.rows[16:].any()
    assert not more.panels[:, 16:].any()
    assert less.rows.shape == (8, 20)
    assert (less.panels == 2.0).all()
