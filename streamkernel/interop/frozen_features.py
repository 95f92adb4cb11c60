"""The random features of a frozen function: the directions of each part of the kernel along each input."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamkernel.features import compiled_kernel as codes
from streamkernel.features.counter_rng import counter_bits, stream_of
from streamkernel.features.distributions import shared_stream
from streamkernel.features.rows import F32, F64, U64
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.jit import compiled
from streamkernel.learners.derivatives import directions_along, rungs
from streamkernel.second_order.metric import NAMES
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.second_order.mixture_state import COUNT, FIRST

FORMS = {
    codes.PHASE: "phase",
    codes.MULTI_SCALE: "phase",
    codes.LINEAR: "linear",
    codes.EXPONENTIAL: "exponential",
    codes.ARC_COSINE: "arc_cosine",
    codes.ADDITIVE: "additive",
    codes.SIGN_PRODUCTS: "sign_products",
    codes.SKETCH: "sketch",
}
"""The names of forms; the factors of a `MultiScale` are multiplied into its directions."""

TRANSFORMS = {codes.IDENTITY: "identity", codes.ROOT: "root", codes.LOG: "log"}

Learner = FirstOrderLearner | SecondOrderLearner


def parts_of(learner: Learner, hashes: U64, readers: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the parts of the kernel, and the arrays of each, for the inputs of these hashes.

    `readers` says which inputs each part reads, shape (parts, inputs).
    """
    directions = learner.directions
    kernel, found = directions.kernel, []
    arrays: dict[str, Any] = {}
    for p, (own, read) in enumerate(zip(directions.plan.parts_compiled, readers, strict=True)):
        form = int(own["form"])
        about: dict[str, Any] = {"form": FORMS[form], "transform": TRANSFORMS[int(own["transform"])]}
        about |= {name: float(own[name]) for name in ("scale", "shift", "shape")} | {"order": int(own["order"])}
        found.append(about)
        tensors: dict[str, Any] = {} if read.all() else {"read": read.astype(np.float64)}
        if form == codes.SKETCH:
            about["block"] = directions.block_size
            tensors |= _sketches(learner, p, hashes)
        elif form == codes.SIGN_PRODUCTS:
            tensors |= _signed(learner, p, hashes)
        else:
            drawn = _directions(learner, p, hashes)
            factors = rungs(kernel, p, directions.block_size, drawn.shape[1]) if form == codes.MULTI_SCALE else 1.0
            tensors["directions"] = (drawn * factors).astype(np.float32)
        arrays |= {f"part{p}.{name}": array for name, array in tensors.items()}
    return found, arrays


def terms_of(learner: Learner, weights: F64) -> tuple[list[list[int]], dict[str, F64]]:
    """Return the parts that are the factors of each term of the kernel, and the coefficients of its features.

    `weights` are coefficients in the order of blocks, components and features, shape (outputs, columns).
    """
    plan, size = learner.directions.plan, learner.directions.block_size
    terms = [np.flatnonzero(factors).tolist() for factors in plan.factors]
    blocks = weights.reshape(-1, plan.outputs, size, weights.shape[1]).transpose(1, 0, 2, 3)
    components = blocks.reshape(plan.outputs, -1, weights.shape[1]) / np.sqrt(size)
    each = plan.outputs // len(terms)
    found = {
        f"term{t}.{part}": components[t * each + i] * plan.weights[t]
        for t in range(len(terms))
        for i, part in enumerate(("re", "im")[:each])
    }
    return terms, found


def _features(learner: Learner) -> int:
    """Return the number of features with coefficients."""
    blocks = learner.n_positions if isinstance(learner, SecondOrderLearner) else learner.n_blocks
    return int(max(1, blocks)) * learner.directions.block_size


def _directions(learner: Learner, part: int, hashes: U64) -> Any:
    """Return directions along inputs, shape (inputs, features), transformed by the metric of their group."""
    kernel, size, n = learner.directions.kernel, learner.directions.block_size, _features(learner)
    found: Any = directions_along(kernel, size, hashes, n, part).astype(np.float64)
    if not isinstance(learner, SecondOrderLearner):
        return found
    metric, layout = learner.arrays.metric, learner.arrays.layout
    names = metric.names[: metric.counts[NAMES]]
    own: F32 = directions_along(kernel, size, names, n, part)
    per_block = size * learner.directions.plan.outputs
    for g in np.flatnonzero((metric.known > 0) & (layout[:, COUNT] > 0)).tolist():
        known, first = int(metric.known[g]), int(layout[g, FIRST]) // per_block * size
        here = slice(first, first + int(layout[g, COUNT]) // per_block * size)
        for number, name in enumerate(names[:known]):
            found[hashes == name, here] = metric.roots[g, number, :known] @ own[:known, here].astype(np.float64)
    return found


def _signed(learner: Learner, part: int, hashes: U64) -> dict[str, Any]:
    """Return the signs, degrees and weights of products of projections."""
    directions, own = learner.directions, learner.directions.plan.parts_compiled[part]
    words = directions_along(directions.kernel, directions.block_size, hashes, _features(learner), part).view(np.uint32)
    kept, size = directions.kept, directions.block_size
    at = np.arange(_features(learner))
    block, place = at // size + kept[-1, codes.BLOCK], at % size
    packed = min(len(kept) - 1, len(at))
    block[:packed], place[:packed] = kept[:packed, codes.BLOCK], kept[:packed, codes.PLACE]
    bits: U64 = np.empty(len(at), np.uint64)
    _draw_shared(own["key"], block, place, bits)
    chance = (bits >> np.uint64(11)) * 2.0**-53
    degrees = np.searchsorted(own["table"][: own["order"]], chance, side="right")
    weights = own["table"][codes.MOST_DEGREE + 1 + degrees]
    return {"words": words, "degrees": degrees.astype(np.float32), "weights": weights.astype(np.float32)}


def _sketches(learner: Learner, part: int, hashes: U64) -> dict[str, Any]:
    """Return the buckets and signs of inputs and of the constant, shape (factors, inputs + 1, blocks)."""
    directions, own = learner.directions, learner.directions.plan.parts_compiled[part]
    blocks = np.arange(_features(learner) // directions.block_size) + directions.kept[-1, codes.BLOCK]
    bits: U64 = np.empty((int(own["order"]), len(hashes) + 1, len(blocks)), np.uint64)
    _draw_sketches(own["key"], blocks, hashes, bits)
    buckets = (bits >> np.uint64(1)) % np.uint64(directions.block_size)
    return {"buckets": buckets.astype(np.float64), "signs": np.where(bits & np.uint64(1), -1.0, 1.0)}


@compiled
def _draw_shared(key, blocks, counters, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]`` to random bits that all names share."""
    for i in range(len(out)):
        out[i] = counter_bits(shared_stream(key, blocks[i]), counters[i])


@compiled
def _draw_sketches(key, blocks, hashes, out):  # type: ignore[no-untyped-def]
    """Set ``out[k, j, b]`` to the random bits of factor k of the sketch of a block along name j; the last is shared."""
    for b in range(len(blocks)):
        for j in range(len(hashes) + 1):
            stream = shared_stream(key, blocks[b])
            if j < len(hashes):
                stream = stream_of(key, blocks[b], hashes[j])
            for k in range(len(out)):
                out[k, j, b] = counter_bits(stream, k)
