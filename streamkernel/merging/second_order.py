"""Merging of groups of features: sums of their Gram matrices, and the solution of the sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streamkernel.errors import MergeError
from streamkernel.features.rows import F64, I64
from streamkernel.learners import state
from streamkernel.learners.span import ENTRIES
from streamkernel.merging.groups import are_same_pairs, groups_together, merge_group, merge_pairs, rested_together
from streamkernel.merging.summaries import PrunableSummary, SecondOrderSummary, merge_numbers, merge_spans
from streamkernel.second_order import metric, pairs, sampling, stored_mixture
from streamkernel.second_order.linear import merging as linear
from streamkernel.second_order.linear.state import NAMES, prior
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.second_order.mixture_state import RESTED, Groups
from streamkernel.second_order.neighbours import state as neighbours
from streamkernel.second_order.neighbours.state import neighbour_functions
from streamkernel.second_order.slots import LINEAR, NEIGHBOURS, SMALL, STEADY
from streamkernel.second_order.square_root import factor_of
from streamkernel.second_order.weights import mixed_weights, positive_weights, without

_ROUNDING = 1e-3
"""Tolerance for rounding in a sum of squares, relative to the sum."""


def without_forgetting(part: SecondOrderSummary) -> SecondOrderSummary:
    """Return the summary of a function without its forgetting group, which another model lacks."""
    names: tuple[str, ...] = "table", "priors", "units", "rested"
    names += "moments", "newton", "steady", "centring", "forgetting", "recent", "evidence"
    first: dict[str, Any] = {name: getattr(part, name)[:-1] for name in names}
    return replace(
        _without(part, part.slots[[STEADY, SMALL]] - 1),
        grams=part.grams and part.grams[:-1],
        metric=part.metric._replace(known=part.metric.known[:-1], roots=part.metric.roots[:-1]),
        **first,
    )


def without_linear(part: SecondOrderSummary) -> SecondOrderSummary:
    """Return the summary of a function without its linear function, which another model lacks."""
    gone = np.arange(*part.slots[[LINEAR, NEIGHBOURS]])
    return _without(replace(part, linear=replace(part.linear, w=part.linear.w[:0])), gone)


def with_capacity(part: SecondOrderSummary, stored: int) -> SecondOrderSummary:
    """Return the summary with a capacity of `stored` examples, without functions of neighbours that others lack."""
    more = neighbour_functions(part.neighbours.capacity) - neighbour_functions(stored)
    if not more:
        return part
    count, fewer = part.weights.shape[1], replace(part.neighbours, capacity=stored)
    return _without(replace(part, neighbours=fewer), np.arange(count - more, count))


def _without(part: SecondOrderSummary, gone: I64) -> SecondOrderSummary:
    """Return the summary of a function without some of the mixture's functions."""
    stays = np.setdiff1d(np.arange(part.weights.shape[1]), gone)
    mixer, signed = _mixture_without(part, gone)
    return replace(
        part,
        weights=part.weights[:, stays],
        signed=signed[:, stays],
        positive=part.positive[:, stays],
        mixer=mixer[:, stays[:, None], stays],
        bounds=np.concatenate([part.bounds[:, stays], part.bounds[:, -2:]], axis=1),
        standing=part.standing[stays],
    )


def _mixture_without(part: SecondOrderSummary, gone: I64) -> tuple[F64, F64]:
    """Return the Gram matrix of each target's mixture, and u, without some of the functions."""
    mixer, signed = part.mixer.copy(), part.signed.copy()
    for t, gram in enumerate(part.mixer if len(gone) else ()):
        if gram.any():
            factor, signed[t] = without(factor_of(gram), signed[t], gone, gram.diagonal().min())
            mixer[t] = factor.T @ factor
    return mixer, signed


def summarize(f: SecondOrderLearner) -> SecondOrderSummary:
    """Return the summary of a function, after it has learned its buffered examples."""
    f.settle()
    grams, moments = [], []
    for g, group in enumerate(f.groups):
        grams.append(_gram(group.factor))
        moments.append(group.newton @ grams[g])
    function = f.arrays
    mixer, targets = function.mixer.reshape(f.n_targets, -1, function.mixer.shape[1]), f.n_targets
    return SecondOrderSummary(
        of_targets=function.numbers.copy(),
        is_mean=bool(f.numbers["intercept"] == state.MEAN),
        table=f.table.copy(),
        kept=f.directions.kept.copy(),
        priors=function.priors.copy(),
        units=np.array([f.prior(g) for g in range(len(f.groups))]),
        rested=function.sampled[:, RESTED].astype(np.int64),
        grams=grams,
        moments=moments,
        newton=[group.newton.copy() for group in f.groups],
        steady=[group.steady.copy() for group in f.groups],
        centring=[group.centring[: len(group.centring) // 2].copy() for group in f.groups],
        small=function.small.copy(),
        weights=function.weights.reshape(targets, -1).copy(),
        signed=function.signed.reshape(targets, -1).copy(),
        positive=function.positive.reshape(targets, -1).copy(),
        lead=function.lead.copy(),
        mixer=mixer.transpose(0, 2, 1) @ mixer,
        bounds=function.bounds.reshape(targets, -1).copy(),
        standing=function.losses.copy(),
        metric=metric.Metric._make(array.copy() for array in function.metric),
        pairs=pairs.Pairs._make(array.copy() for array in function.pairs),
        linear=linear.summarize(function.linear),
        neighbours=neighbours.summarize(function.neighbours, function.linear),
        span=function.span.reshape(targets, ENTRIES).copy(),
        forgetting=function.kept.copy(),
        recent=function.recent.copy(),
        evidence=function.evidence.copy(),
    )


def merge(
    fresh: SecondOrderLearner, parts: Sequence[SecondOrderSummary], base: SecondOrderSummary, weights: F64
) -> dict[str, Any]:
    """Return the tensors from which the untrained function `fresh` is restored.

    Let A = RᵀR. A_i still contains the fraction ρ_i of A_0, and σ_iλI in place of what was forgotten, as each part
    forgets separately. One model that forgets by γ per example would still contain the fraction ρ after n examples,
    without those that a group left out at rest. Then

    A = ρA_0 + σλI + Σ (A_i - ρ_iA_0 - σ_iλI),   ρ = γⁿ,   σ = (1 - ρ) Σ σ_i / Σ (1 - ρ_i)
        w = A⁻¹(ρb_0 + Σ (b_i - ρ_ib_0) - cs),   b = Aw + m

    The sums m and s, of wℓ''c_tφ with the offset c_t at each example and of wℓ''φ, are merged like A; c is the merged
    offset (:mod:`streamkernel.merging`). If there is only one part, its offset and w stay. A group that the base did
    not have has ρ = ρ_i = 0, and σ_iλI is all that A_i has without examples. The weights u of the mixture, which
    forgets quickly, solve M u = Σ (n_i/n) M_i u_i with M = Σ (n_i/n) M_i, and v follows from u. `fresh` has as many
    columns as all parts have; `weights` are n_i/n. Raise a MergeError if their features differ.
    """
    check([*parts, *([base] if base.grams else [])])
    has_linear, forgetting = (
        all(len(part.linear.w) > 0 for part in parts),
        all(part.has_forgetting for part in parts),
    )
    parts = [without_forgetting(part) if part.has_forgetting > forgetting else part for part in parts]
    parts = parts if has_linear else [without_linear(part) for part in parts]
    stored = min(part.neighbours.capacity for part in parts)
    parts = [with_capacity(part, stored) for part in parts]
    table, has = groups_together(parts, weights)
    count = len(table)
    of_targets = np.array(
        [
            merge_numbers([part.of_target(t) for part in parts], base.of_target(t), weights)
            for t in range(len(parts[0].of_targets))
        ]
    )
    numbers = of_targets[0]
    offsets = of_targets["offset"] if parts[0].is_mean and len(parts) > 1 else None
    groups, priors = [], np.zeros(count)
    for g in range(count):
        at = np.flatnonzero(has[:, g]).tolist() or list(range(len(parts)))
        priors[g] = np.mean([parts[i].priors[g] for i in at])
        of_group = [parts[i] for i in at]
        groups.append(merge_group(fresh, of_group, base, weights[at] / weights[at].sum(), g, offsets))
    own_blocks = fresh.table[: count - forgetting, 0].sum()
    rested = [rested_together(parts, base, g) for g in range(count)]
    numbers["blocks"] = max(numbers["blocks"], min(numbers["examples"], own_blocks))
    kept = {} if len(parts[0].kept) < 2 else {"kept": parts[0].kept}
    small: Any = sum(w * part.small for w, part in zip(weights, parts, strict=True))
    others = len(parts[0].standing) - 2 * count
    share = weights[:, None] * np.c_[has, has, np.repeat(has.any(axis=1)[:, None], others, axis=1)]
    standing = (share * [part.standing for part in parts]).sum(axis=0) / np.maximum(share.sum(axis=0), 1e-300)
    return {
        **state.pack_learned(numbers),
        **stored_mixture.pack_targets(of_targets),
        "table": table,
        "priors": priors,
        **_mixture(parts, weights, has),
        "bounds": np.max([part.bounds for part in parts], axis=0).ravel(),
        "level": small,
        "standing": standing,
        "span": merge_spans(parts, base),
        stored_mixture.LEFT_OUT: np.array(rested, np.float64),
        **kept,
        **(_recency(parts, has) if forgetting else {}),
        **_features(parts, base, has),
        **_linear(fresh, parts, base, weights, of_targets["offset"]),
        **Groups.of(groups).tensors(0),
    }


def _features(parts: Sequence[SecondOrderSummary], base: SecondOrderSummary, has: Any) -> dict[str, Any]:
    """Return the merged metric and pairs of inputs as tensors."""
    merged = metric.merge_metrics([part.metric for part in parts], has)
    together = merge_pairs(parts, base, merged, has)
    return metric.tensors(merged) | pairs.tensors_to_predict(together) | pairs.tensors_to_learn(together)


def _recency(parts: Sequence[SecondOrderSummary], has: Any) -> dict[str, Any]:
    """Return the merged recent losses of the groups, as tensors; as if each part had all groups, like the first one."""
    restarted, compared = zip(*[part.numbers[["restarted", "compared_at"]].item() for part in parts], strict=True)
    recent, evidence = (np.array([getattr(part, name) for part in parts]) for name in ("recent", "evidence"))
    losses, first = recent.sum(axis=0), recent[:, 0]
    there = np.where(has, first[:, None], 0.0).sum(axis=0)
    losses = np.divide(losses * first.sum(), there, out=losses, where=there > 0.0)
    return stored_mixture.recency_tensors(max(restarted), min(compared), losses, evidence.max(axis=0))


def _mixture(parts: Sequence[SecondOrderSummary], weights: F64, has: Any) -> dict[str, F64]:
    """Return the weights of each target and the factor of its A; `has` records which part has which groups."""
    absent = [np.flatnonzero(~there & (part.table[:, 0] > 0)) for part, there in zip(parts, has, strict=True)]
    mixers = [
        _mixture_without(part, np.concatenate([gone, gone + part.slots[STEADY]]))
        for part, gone in zip(parts, absent, strict=True)
    ]
    factors: F64 = np.zeros_like(parts[0].mixer)
    signed = np.stack([part.signed for part in parts], axis=-1) @ weights
    lead = np.stack([part.lead for part in parts], axis=-1) @ weights
    positive = np.stack([part.positive for part in parts], axis=-1) @ weights
    for t in range(len(signed)):
        gram: Any = sum(w * mixer[t] for w, (mixer, _) in zip(weights, mixers, strict=True))
        if gram.any():
            factors[t] = factor_of(gram)
            moments = sum(w * (mixer[t] @ each[t]) for w, (mixer, each) in zip(weights, mixers, strict=True))
            signed[t] = np.linalg.solve(gram, moments)
        if weights.max() < 1.0:  # otherwise the other models have learned nothing
            positive[t] = positive_weights(factors[t], signed[t])
    return {
        "weights": mixed_weights(signed, positive, lead).ravel(),
        "signed": signed.ravel(),
        "positive": positive.ravel(),
        "lead": lead,
        "mixer": factors.reshape(-1, factors.shape[2]),
    }


def coefficients(parts: Sequence[SecondOrderSummary]) -> list[F64]:
    """Return the coefficients of the mixed functions; for several targets, each in the unit of its target."""
    matrices, unit = [], np.ones((1, 1))
    if len(parts[0].of_targets) > 1:
        sizes = np.mean([part.of_targets["error_scale"] for part in parts], axis=0)[:, None]
        unit = np.sqrt(np.where(sizes > 0.0, sizes, 1.0))
    for part in parts:
        newton, steady, *_ = np.split(part.weights.T, part.slots[1:])
        mixed = zip(newton[:, :, None], part.newton, steady[:, :, None], part.steady, strict=True)
        matrices.append(np.concatenate([v * a + u * b for v, a, u, b in mixed], axis=1) / unit)
    return matrices


def check(parts: Sequence[PrunableSummary]) -> None:
    """Raise an error if functions have different features."""
    if any(not np.array_equal(part.kept, parts[0].kept) for part in parts):
        raise MergeError("Expected models of the same features, got some that were pruned differently")


def check_base(parts: Sequence[SecondOrderLearner], base: SecondOrderLearner) -> None:
    """Raise an error if functions have not continued from a base: without forgetting, no sum of squares shrinks.

    Buffered examples count as after their step. That step may also add l2 for as many examples as there are outputs,
    or postpone this.
    """
    if base.numbers["forgetting"] < 1.0:
        return
    learned = [f for f in parts if f.examples]
    for f in (base, *learned):
        f.advance(is_all=True)
    for g in range(len(base.groups)):
        least = (1.0 - _ROUNDING) * _diagonal(base, g)
        for f in learned:
            more = f.l2 * (len(least) + int(f.numbers["buffered"]))
            is_same = base.arrays.kept[g] == 1.0 and (f.table[g] == base.table[g]).all()
            is_same &= are_same_pairs(f.arrays, base.arrays, g)
            if is_same and (_diagonal(f, g) + more < least).any():
                raise MergeError(
                    "Expected models that continued from the base, got one whose Gram matrix is smaller than the base's"
                )


def _diagonal(f: SecondOrderLearner, g: int) -> F64:
    """Return the diagonal of the Gram matrix of a group, with the buffered examples as they will count."""
    group, shares = f.groups[g], sampling.waiting_shares(f.arrays, g)
    factor = np.einsum("ij,ij->j", group.factor, group.factor, dtype=np.float64)
    return np.asarray(factor + shares @ np.square(group.rows[: len(shares)], dtype=np.float64))


def _linear(
    fresh: SecondOrderLearner, parts: Sequence[SecondOrderSummary], base: SecondOrderSummary, weights: F64, offsets: F64
) -> dict[str, Any]:
    """Return the tensors of the merged linear function and neighbours; `offsets` are the new offsets of f."""
    root = [] if base.grams is None or len(base.linear.w) < len(parts[0].linear.w) else [base]
    before = np.array([part.of_targets["offset"] for part in (*parts, *root)])
    events = [float(part.numbers["examples"] - base.numbers["examples"]) for part in parts]
    merged = linear.merge(
        [part.linear for part in parts],
        root[0].linear if root else None,
        weights,
        moved=before - offsets if parts[0].is_mean else np.zeros((len(before), 1)),
        kept=fresh.linear_forgetting ** np.array(events),
        least=prior(fresh.loss),
    )
    names, near = merged[NAMES].view(np.uint64), [part.neighbours for part in parts]
    return merged | neighbours.merge(near, root[0].neighbours if root else None, names)


def _gram(factor: Any) -> F64:
    """Return RᵀR of an upper triangle R, by LAPACK's LᵀL of a lower triangle: R with rows and columns reversed."""
    from scipy.linalg.lapack import dlauum

    if not len(factor):
        return np.zeros((0, 0))
    lower, _ = dlauum(factor[::-1, ::-1].astype(np.float64, order="F"), lower=1, overwrite_c=1)
    upper = lower[::-1, ::-1]
    gram: F64 = np.triu(upper)
    gram += np.triu(upper, 1).T
    return gram
