"""Groups of features that several functions have, as one group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from streamkernel.errors import MergeError
from streamkernel.features.rows import F64, I64
from streamkernel.jit import compiled
from streamkernel.learners import schedule
from streamkernel.merging.summaries import SecondOrderSummary
from streamkernel.second_order import growth, metric, newton, pairs
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.second_order.mixture_state import Group, MixtureState
from streamkernel.second_order.square_root import factor_of, solution

NOTHING_LEFT = -750.0
"""The logarithm of a share that is 0 as a number: steps before do not matter."""


def grams_of(part: SecondOrderSummary) -> list[F64]:
    """Return the Gram matrices of a function that has learned something."""
    return part.grams or []


def is_of_base(part: SecondOrderSummary, base: SecondOrderSummary, g: int) -> bool:
    """Return whether the base had this group."""
    is_same = base.grams is not None and bool((part.table[g] == base.table[g]).all())
    return is_same and has_same_features(part, base, g)


def has_same_features(part: SecondOrderSummary, other: SecondOrderSummary, g: int) -> bool:
    """Return whether a group of two functions is in the same metric and in the same pairs of inputs, if in any."""
    return are_same_pairs(part, other, g) and metric.is_same(part.metric, other.metric, g)


def are_same_pairs(one: MixtureState | SecondOrderSummary, other: MixtureState | SecondOrderSummary, g: int) -> bool:
    """Return whether a group of two functions is in the same pairs of inputs, or in both in none."""
    places = one.pairs.group[0], other.pairs.group[0]
    return g not in places or (
        places[0] == places[1]
        and np.array_equal(one.pairs.gains, other.pairs.gains)
        and np.array_equal(one.metric.names[one.pairs.chosen], other.metric.names[other.pairs.chosen])
    )


def merge_group(
    fresh: SecondOrderLearner,
    parts: Sequence[SecondOrderSummary],
    base: SecondOrderSummary,
    weights: F64,
    g: int,
    offsets: F64 | None,
) -> Group:
    """Return one group, merged over the parts that have it, of functions that are added to the offsets of the targets,
    shape (targets,), from now on; ``None`` if these stay as they are.
    """
    n = len(grams_of(parts[0])[g])
    merged = fresh.groups[0].emptied(n)
    if not n:
        return merged
    units = np.array([part.units[g] for part in parts])
    faded, returned = np.transpose([_left_in(part, base, g, fresh.batch_size) for part in parts])
    since = sum(part.clock(g) - base.clock(g) for part in parts)
    left = float(parts[0].forgetting[g]) ** since if (faded > 0.0).sum() > 1 else float(faded.max())
    prior = float(units.mean())
    gram: Any = sum(grams_of(part)[g] for part in parts)
    moments: Any = sum(part.moments[g] for part in parts)
    centring: Any = sum(part.centring[g] for part in parts)
    if faded.sum() != left:
        gram -= (faded.sum() - left) * grams_of(base)[g]
        moments = moments - (faded.sum() - left) * base.moments[g]
        centring = centring - (faded.sum() - left) * base.centring[g]
    if offsets is not None:
        of_offsets = np.outer(offsets, centring[0])
        moments, centring[1:] = moments + centring[1:] - of_offsets, of_offsets
    gone = (1.0 - faded).sum()
    back = (1.0 - left) * returned.sum() / gone if gone > 0.0 else 0.0
    gram.flat[:: n + 1] += back * prior - (returned * units).sum()
    factor = factor_of(gram, prior)
    merged.factor[:] = factor
    merged.centring[: len(centring)], merged.newton[:] = centring, moments
    merged.newton[:] = solution(factor, merged.newton.T).T
    merged.steady[:] = sum(w * part.steady[g] for w, part in zip(weights, parts, strict=True))
    return merged


def _left_in(part: SecondOrderSummary, base: SecondOrderSummary, g: int, batch: int) -> tuple[float, float]:
    """Return the fraction of the Gram matrix of the base that is left in that of a group, and the multiple of λI beside
    it.
    """
    if is_of_base(part, base, g):
        return left_in(part, g, base.clock(g), batch, int(base.rested[g]))
    return 0.0, sum(left_in(part, g, int(part.table[g, 2]), batch, int(part.rested[g])))


def rested_together(parts: Sequence[SecondOrderSummary], base: SecondOrderSummary, g: int) -> int:
    """Return the number of examples that a merged group has left out at rest; examples of the base count once."""
    times = sum(is_of_base(part, base, g) for part in parts)
    return int(sum(part.rested[g] for part in parts) - max(times - 1, 0) * base.rested[g])


def groups_together(parts: Sequence[SecondOrderSummary], weights: F64) -> tuple[I64, Any]:
    """Return the table of all groups, the larger one of two that differ in a place, and which part has which group.

    Groups are the same if their blocks, bandwidths and features are. Parts without events decide nothing: they may have
    groups that others have ended.
    """
    tables = [part.table for part in parts]
    weighted = zip(weights.tolist(), tables, strict=True)
    rows = [[(blocks * (w > 0.0), w, -rung, -born) for blocks, rung, born in table.tolist()] for w, table in weighted]
    best = [max(places) for places in zip(*rows, strict=True)]
    merged: I64 = np.array([[blocks, -rung, -born] for blocks, _, rung, born in best], np.int64)
    for kind in (1, growth.IN_PAIRS):  # one block in a metric, and one in pairs: of the heaviest part
        least = kind * growth.ALONE
        singles = range(min(growth.ALONE, len(merged)))
        there = [g for g in singles if least <= merged[g, 1] < least + growth.ALONE]
        for g in sorted(there, key=lambda g: -best[g][1])[1:]:
            merged[g] = max(
                ([blocks, rung, born] for blocks, rung, born in (t[g].tolist() for t in tables) if rung == g),
                default=[0, g, merged[g, 2]],
            )
    has = np.stack([(table[:, :2] == merged[:, :2]).all(axis=1) & (table[:, 0] > 0) for table in tables])
    for g in range(len(merged)):
        first = parts[int((has[:, g] & (np.array([table[g, 2] for table in tables]) == merged[g, 2])).argmax())]
        for i, part in enumerate(parts):
            has[i, g] &= has_same_features(part, first, g)
    return merged, has


def merge_pairs(
    parts: Sequence[SecondOrderSummary], base: SecondOrderSummary, merged: metric.Metric, has: Any
) -> pairs.Pairs:
    """Return the pairs of inputs of several functions, with the sums over the examples of all.

    `merged` is their metric together, and `has` a mask of the groups that each part has, shape (parts, groups). Raise a
    MergeError if an input of a pair is not in the merged metric.
    """
    count = int(merged.counts[metric.NAMES])
    new, number = pairs.empty(count), {name: i for i, name in enumerate(merged.names[:count].tolist())}
    from_base = sum(_is_since_same_check(part, base) for part in parts)
    factors = [(1.0, 1.0)] * len(parts) + [(min(from_base, 1.0) - from_base, 1.0 - len(parts))]
    for part, (of_sums, of_moments) in zip([*parts, base], factors, strict=True):
        sums, names = part.pairs, part.metric.names[: len(part.pairs.moments)].tolist()
        shared = [i for i, name in enumerate(names[: part.metric.counts[metric.NAMES]]) if name in number]
        inputs = np.array([number[names[i]] for i in shared], np.int64)
        of, at = (np.ravel(np.stack([2 * i, 2 * i + 1], axis=1)) for i in (np.array(shared, np.int64), inputs))
        moments = sums.moments[shared].copy()
        moments[:, -1] = sums.totals[pairs.SEEN] - moments[:, -1]  # the examples after
        new.moments[inputs] += of_moments * moments
        totals = np.append(np.full(pairs.SEEN, of_sums), of_moments) * sums.totals
        new.totals[:] += totals
        for array, added in ((new.sums, sums.sums), (new.squares, sums.squares)):
            whole = np.triu(added) + np.triu(added, 1).T
            array[np.ix_(at, at)] += of_sums * whole[np.ix_(of, of)]
    new.moments[:, -1] = new.totals[pairs.SEEN] - new.moments[:, -1]
    squares = (new.moments[:, k] for k in (2, 4, 5))
    for array in (new.totals[: pairs.SLOPES], new.squares, *squares):  # rounding leaves nothing below 0
        np.maximum(array, 0.0, out=array)
    for part, there in zip(parts, has, strict=True):
        g = int(part.pairs.group[0])
        if g != pairs.NOWHERE and there[g]:
            chosen = part.metric.names[part.pairs.chosen].tolist()
            if not {name for pair in chosen for name in pair} <= number.keys():
                raise MergeError(f"Expected pairs of at most {metric.MOST_NAMES} inputs together, got more")
            numbers = np.sort([[number[name] for name in pair] for pair in chosen], axis=1)
            return new._replace(group=part.pairs.group, chosen=numbers, gains=part.pairs.gains)
    return new


def _begun(since: int) -> int:
    """Return after how many examples the sums over pairs began, `since` examples after the model was last reset.

    Examples
    --------
    >>> [_begun(since) for since in (300, 512, 513, 1024, 1025)]
    [0, 0, 512, 512, 1024]
    """
    return schedule.last_due(since - 1) if since > pairs.FROM else 0


def _is_since_same_check(part: SecondOrderSummary, base: SecondOrderSummary) -> bool:
    """Return whether the sums over pairs of a part began with the sums of the base."""
    begun = [
        (int(one["restarted"]), _begun(int(one["examples"] - one["restarted"]))) for one in (part.numbers, base.numbers)
    ]
    return begun[0] == begun[1]


def left_in(part: SecondOrderSummary, g: int, first: int, batch: int, rested: int) -> tuple[float, float]:
    """Return the fraction that is left in a group of an earlier Gram matrix of it, and the multiple of λI that has been
    added since then.

    `first` is the time of the earlier matrix by the clock of the group, which had left out `rested` examples by then.
    """
    kept, targets = float(part.forgetting[g]), len(part.of_targets)
    if kept == 1.0:
        return 1.0, 0.0
    forgetting, n, last = float(part.numbers["forgetting"]), part.newton[g].shape[1], part.clock(g)
    outputs = np.array([w.shape[1] for w in part.newton])
    of_many = int(part.table[outputs >= newton.MANY, 2].min(initial=1 << 62))
    first = max(first, last - math.ceil(NOTHING_LEFT / math.log(kept)))
    restarted = int(part.numbers["restarted"])
    left, returned = _follow((first, last, restarted), of_many, rested, batch, forgetting, kept, n, targets)
    return float(left), float(returned)


@compiled
def _follow(times, of_many, rested, batch, forgetting, kept, n, targets):  # type: ignore[no-untyped-def]
    """Return the share that the steps of a time have left of A, and the multiple of λI that they added.

    `times` are the first example and the last one by the clock of the group, which had `rested` examples less than the
    model by the first one, and the example of the model at its last reset; after example `of_many` of the model steps
    are as for a large group.
    """
    first, last, restarted = times
    left, returned, waiting = 1.0, 0.0, 0
    for seen in range(first + 1, last + 1):
        waiting, of_model = waiting + 1, seen + rested
        most = newton.LONGEST_OF_MANY if of_model > of_many else newton.LONGEST_BATCH
        since = of_model - restarted if of_model > restarted else of_model
        if waiting >= newton.compiled_due(since, batch, forgetting, targets, most) or seen == last:
            fading, returning = newton.turns(n, waiting, kept)
            if newton.is_turn(seen, waiting, fading):
                left, returned = left * kept**fading, returned * kept**fading
            if newton.is_turn(seen, waiting, returning):
                returned += 1.0 - kept**returning
            waiting = 0
    return left, returned
