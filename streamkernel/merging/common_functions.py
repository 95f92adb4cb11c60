"""Summaries of second-order functions restricted to the functions that all models have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streamkernel.features.rows import F64, I64
from streamkernel.merging.summaries import SecondOrderSummary
from streamkernel.second_order.factors import factor_of
from streamkernel.second_order.neighbours.state import neighbour_functions
from streamkernel.second_order.slots import LINEAR, NEIGHBOURS, slots_of
from streamkernel.second_order.weights import without


def forgetting_groups(part: SecondOrderSummary) -> int:
    """Return the number of groups that forget while others do not."""
    return int((part.forgetting != part.forgetting[0]).sum())


def without_forgetting(part: SecondOrderSummary) -> SecondOrderSummary:
    """Return the summary of a function without its forgetting groups, which another model lacks."""
    groups = len(part.table)
    left = groups - forgetting_groups(part)
    names: tuple[str, ...] = "table", "priors", "units", "rested"
    names += "moments", "newton", "steady", "forgetting", "recent"
    first: dict[str, Any] = {name: getattr(part, name)[:left] for name in names}
    return replace(
        _without(part, [g for g in range(2 * groups) if g % groups >= left]),
        grams=part.grams and part.grams[:left],
        metric=part.metric._replace(known=part.metric.known[:left], roots=part.metric.roots[:left]),
        **first,
    )


def without_linear(part: SecondOrderSummary) -> SecondOrderSummary:
    """Return the summary of a function without its linear functions, which another model lacks."""
    none = {name: getattr(part.linear, name)[:0] for name in ("w", "grams", "diagonal", "errors")}
    first = slots_of(len(part.table), len(part.linear.w), neighbour_functions(part.neighbours.capacity))
    return _without(replace(part, linear=replace(part.linear, **none)), range(first[LINEAR], first[NEIGHBOURS]))


def with_capacity(part: SecondOrderSummary, stored: int) -> SecondOrderSummary:
    """Return the summary of a function that stores so many examples, without functions of the nearest neighbours that
    another model lacks.
    """
    more = neighbour_functions(part.neighbours.capacity) - neighbour_functions(stored)
    if not more:
        return part
    count, fewer = part.weights.shape[1], replace(part.neighbours, capacity=stored)
    return _without(replace(part, neighbours=fewer), range(count - more, count))


def _without(part: SecondOrderSummary, gone: Sequence[int]) -> SecondOrderSummary:
    """Return the summary of a function without some of the mixture's functions."""
    stays = np.setdiff1d(np.arange(part.weights.shape[1]), gone)
    mixer, signed = _mixture_without(part, np.array(gone))
    return replace(
        part,
        weights=part.weights[:, stays],
        signed=signed[:, stays],
        positive=part.positive[:, stays],
        mixer=mixer[:, stays[:, None], stays],
        bounds=np.concatenate([part.bounds[:, stays], part.bounds[:, -2:]], axis=1),
        standing=part.standing[stays],
    )


def without_groups(part: SecondOrderSummary, groups: I64) -> tuple[F64, F64]:
    """Return the Gram matrix of each target's mixture, and u, without the functions of some groups."""
    return _mixture_without(part, np.concatenate([groups, groups + len(part.table)]))


def _mixture_without(part: SecondOrderSummary, gone: I64) -> tuple[F64, F64]:
    """Return the Gram matrix of each target's mixture, and u, without some of the functions."""
    mixer, signed = part.mixer.copy(), part.signed.copy()
    for t, gram in enumerate(part.mixer if len(gone) else ()):
        if gram.any():
            factor, signed[t] = without(factor_of(gram), signed[t], gone, gram.diagonal().min())
            mixer[t] = factor.T @ factor
    return mixer, signed
