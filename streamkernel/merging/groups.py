"""Groups of features that several functions have, as one group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamkernel.features.rows import F64, I64
from streamkernel.merging.forgotten import left_in
from streamkernel.merging.summaries import SecondOrderSummary
from streamkernel.second_order import metric
from streamkernel.second_order.factors import factor_of, solve
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.second_order.mixture_state import Group


def grams_of(part: SecondOrderSummary) -> list[F64]:
    """Return the Gram matrices of a function that has learned something."""
    return part.grams or []


def is_of_base(part: SecondOrderSummary, base: SecondOrderSummary, g: int) -> bool:
    """Return whether the base had this group."""
    is_same = base.grams is not None and bool((part.table[g] == base.table[g]).all())
    return is_same and metric.is_same(part.metric, base.metric, g)


def merge_group(
    fresh: SecondOrderLearner, parts: Sequence[SecondOrderSummary], base: SecondOrderSummary, weights: F64, g: int
) -> Group:
    """Return one group, merged over the parts that have it."""
    n = len(grams_of(parts[0])[g])
    found = Group.empty(n, fresh.columns, fresh.room)
    if not n:
        return found
    units = np.array([part.units[g] for part in parts])
    faded, returned = np.transpose([_left_in(part, base, g, fresh.batch_size) for part in parts])
    since = sum(part.clock(g) - base.clock(g) for part in parts)
    left = float(parts[0].forgetting[g]) ** since if (faded > 0.0).sum() > 1 else float(faded.max())
    prior = float(units.mean())
    moments = sum(part.moments[g] for part in parts)
    gram: Any = sum(grams_of(part)[g] for part in parts)
    if faded.sum() != left:
        gram -= (faded.sum() - left) * grams_of(base)[g]
        moments = moments - (faded.sum() - left) * base.moments[g]
    gone = (1.0 - faded).sum()
    back = (1.0 - left) * returned.sum() / gone if gone > 0.0 else 0.0
    gram.flat[:: n + 1] += back * prior - (returned * units).sum()
    factor = factor_of(gram, prior)
    found.factor[:] = factor
    found.newton[:] = moments
    found.newton[:] = solve(factor, found.newton.T).T
    found.steady[:] = sum(w * part.steady[g] for w, part in zip(weights, parts, strict=True))
    return found


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

    Groups are the same if their blocks, bandwidths and metrics are.
    """
    tables = [part.table for part in parts]
    own = zip(weights.tolist(), tables, strict=True)
    rows = [[(blocks, w, -rung, -born) for blocks, rung, born in table.tolist()] for w, table in own]
    best = [max(places) for places in zip(*rows, strict=True)]
    found: I64 = np.array([[blocks, -rung, -born] for blocks, _, rung, born in best], np.int64)
    has = np.stack([(table[:, :2] == found[:, :2]).all(axis=1) & (table[:, 0] > 0) for table in tables])
    for g in range(len(found)):
        first = parts[int((has[:, g] & (np.array([table[g, 2] for table in tables]) == found[g, 2])).argmax())]
        for i, part in enumerate(parts):
            has[i, g] &= metric.is_same(part.metric, first.metric, g)
    return found, has
