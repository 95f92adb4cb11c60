"""Newton steps of 128 examples while a group has 4,096 outputs."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from streams import WAYS, content, examples, learn

from streamkernel import KernelClassifier
from streamkernel.second_order import metric, newton_step, restructuring
from streamkernel.second_order.mixture_state import Group

SINCE = newton_step.LONGEST_OF_MANY // 8 * newton_step.GROWING
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
    table[OF_MANY] = newton_step.MANY // learner.outputs, 1, learner.examples
    kept = {g: group for g, group in enumerate(now.groups) if g != OF_MANY}
    learner._live = restructuring._rearrange(
        now,
        learner._arranger,
        learner._kernel,
        table,
        kept=kept,
        newton=[OF_MANY],
        steady=[OF_MANY],
        lambdas=now.state.priors.copy(),
        own=metric.with_groups(now.state.metric, [], [OF_MANY], None),
    )
    restructuring._begin(learner._live, [OF_MANY])


@pytest.fixture(scope="module")
def large():
    """Return a model amid a long step."""
    model = learn(KernelClassifier(), XS[:SINCE], YS[:SINCE])
    assert model._learner.room == newton_step.LONGEST_BATCH
    assert model._learner._live.groups.counts.max() < newton_step.MANY
    with_large_group(model)
    learn(model, XS[SINCE:AMID], YS[SINCE:AMID])
    assert newton_step.LONGEST_BATCH < model._learner.numbers["buffered"] < newton_step.LONGEST_OF_MANY
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
    assert model._learner.room == newton_step.LONGEST_OF_MANY
    found = steps_of(model, AMID, AMID + 600)
    assert set(np.diff(found).tolist()) == {newton_step.LONGEST_OF_MANY}


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_amid_a_long_step_continues_with_the_same_bits(large, way, tmp_path):
    one, twin = copy.deepcopy(large), WAYS[way](large, tmp_path)
    for model in (one, twin):
        learn(model, XS[AMID:], YS[AMID:])
    assert content(twin) == content(one)


@pytest.mark.parametrize("way", WAYS)
def test_after_the_large_group_has_ended_the_waiting_examples_are_one_step(large, way, tmp_path):
    model = copy.deepcopy(large)
    learner = model._learner
    waiting = int(learner.numbers["buffered"])
    learner._complete()
    rows = learner._live.groups[0].rows[:waiting].copy()
    learner._live = restructuring.with_restart(learner._live, learner._arranger, learner._kernel, [OF_MANY])
    learner.is_unfinished = False
    assert learner.room < newton_step.LONGEST_OF_MANY
    assert np.array_equal(learner._live.groups[0].rows[:waiting], rows)
    twin = WAYS[way](model, tmp_path)
    found = steps_of(model, AMID, AMID + 400)
    assert found[0] == AMID + 1
    assert np.diff(found).max() <= newton_step.LONGEST_BATCH
    learn(twin, XS[AMID : AMID + 400], YS[AMID : AMID + 400])
    assert content(twin) == content(model)


def test_a_group_with_another_capacity_has_the_same_rows():
    group = Group.empty(20, columns=1, room=16)
    group.rows[:], group.panels[:] = 1.0, 2.0
    more, less = group.with_room(24), group.with_room(8)
    assert group.with_room(16) is group
    assert (more.rows[:16] == 1.0).all()
    assert (more.panels[:, :16] == 2.0).all()
    assert not more.rows[16:].any()
    assert not more.panels[:, 16:].any()
    assert less.rows.shape == (8, 20)
    assert (less.panels == 2.0).all()
