"""The parts of a frozen function: its features, its mixture, and the scalers in front of it."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from river import preprocessing

from streamkernel.estimators.standard_scaler import StandardScaler
from streamkernel.features import compiled_kernel as codes
from streamkernel.features.counter_rng import counter_bits, stream_of
from streamkernel.features.distributions import shared_stream
from streamkernel.features.rows import F32, F64, I64, U64
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.jit import compiled
from streamkernel.learners.embedding import directions_along, rungs
from streamkernel.learners.state import MEAN
from streamkernel.second_order import slots
from streamkernel.second_order.evaluation import coefficients_of_groups, weights_by_column
from streamkernel.second_order.linear.further_inputs import columns_of_values
from streamkernel.second_order.linear.state import BOUND, PLACES, Linear, places_of
from streamkernel.second_order.linear.steps import LARGEST_SCORE, REACH, SMALLEST_SHARE
from streamkernel.second_order.metric import NAMES
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.second_order.mixture_state import COUNT, FIRST
from streamkernel.second_order.neighbours import search as neighbours
from streamkernel.second_order.pairs import NOWHERE, along_inputs
from streamkernel.second_order.small_functions import FIRST_NUMBERS, FUNCTIONS
from streamkernel.second_order.targets import limits

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
SAME = 1e-6
"""Largest distance of an input from a value that it has, in standard deviations."""
Learner = FirstOrderLearner | SecondOrderLearner


def parts_of(learner: Learner, hashes: U64, readers: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the parts of the kernel, and the arrays of each, for the inputs of these hashes.

    `readers` says which inputs each part reads, shape (parts, inputs).
    """
    directions = learner.directions
    kernel, descriptions = directions.kernel, []
    arrays: dict[str, Any] = {}
    for p, (entry, read) in enumerate(zip(directions.plan.parts_compiled, readers, strict=True)):
        form = int(entry["form"])
        about: dict[str, Any] = {"form": FORMS[form], "transform": TRANSFORMS[int(entry["transform"])]}
        about |= {name: float(entry[name]) for name in ("scale", "shift", "shape")} | {"order": int(entry["order"])}
        descriptions.append(about)
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
    return descriptions, arrays


def terms_of(learner: Learner, weights: F64) -> tuple[list[list[int]], dict[str, F64]]:
    """Return the parts that are the factors of each term of the kernel, and the coefficients of its features.

    `weights` are coefficients in the order of blocks, components and features, shape (outputs, columns).
    """
    plan, size = learner.directions.plan, learner.directions.block_size
    terms = [np.flatnonzero(factors).tolist() for factors in plan.factors]
    blocks = weights.reshape(-1, plan.outputs, size, weights.shape[1]).transpose(1, 0, 2, 3)
    components = blocks.reshape(plan.outputs, -1, weights.shape[1]) / np.sqrt(size)
    each = plan.outputs // len(terms)
    arrays = {
        f"term{t}.{part}": components[t * each + i] * plan.weights[t]
        for t in range(len(terms))
        for i, part in enumerate(("re", "im")[:each])
    }
    return terms, arrays


def _features(learner: Learner) -> int:
    """Return the number of features with coefficients."""
    blocks = learner.n_positions if isinstance(learner, SecondOrderLearner) else learner.n_blocks
    return int(max(1, blocks)) * learner.directions.block_size


def _directions(learner: Learner, part: int, hashes: U64) -> Any:
    """Return directions along inputs, shape (inputs, features), in the metric of their group or in pairs."""
    kernel, size, n = learner.directions.kernel, learner.directions.block_size, _features(learner)
    along: Any = directions_along(kernel, size, hashes, n, part).astype(np.float64)
    if not isinstance(learner, SecondOrderLearner):
        return along
    metric, layout = learner.arrays.metric, learner.arrays.layout
    names = metric.names[: metric.counts[NAMES]]
    named: F32 = directions_along(kernel, size, names, n, part)
    per_block = size * learner.directions.plan.outputs
    for g in np.flatnonzero((metric.known > 0) & (layout[:, COUNT] > 0)).tolist():
        count, first = int(metric.known[g]), int(layout[g, FIRST]) // per_block * size
        here = slice(first, first + int(layout[g, COUNT]) // per_block * size)
        for number, name in enumerate(names[:count]):
            along[hashes == name, here] = metric.roots[g, number, :count] @ named[:count, here].astype(np.float64)
    pairs = learner.arrays.pairs
    if pairs.group[0] != NOWHERE:
        first = int(pairs.group[0]) * size
        along[:, first : first + size] = along_inputs(pairs, metric, hashes)
    return along


def _signed(learner: Learner, part: int, hashes: U64) -> dict[str, Any]:
    """Return the signs, degrees and weights of products of projections."""
    directions, entry = learner.directions, learner.directions.plan.parts_compiled[part]
    words = directions_along(directions.kernel, directions.block_size, hashes, _features(learner), part).view(np.uint32)
    kept, size = directions.kept, directions.block_size
    at = np.arange(_features(learner))
    block, place = at // size + kept[-1, codes.BLOCK], at % size
    packed = min(len(kept) - 1, len(at))
    block[:packed], place[:packed] = kept[:packed, codes.BLOCK], kept[:packed, codes.PLACE]
    bits: U64 = np.empty(len(at), np.uint64)
    _draw_shared(entry["key"], block, place, bits)
    chance = (bits >> np.uint64(11)) * 2.0**-53
    degrees = np.searchsorted(entry["table"][: entry["order"]], chance, side="right")
    weights = entry["table"][codes.MOST_DEGREE + 1 + degrees]
    return {"words": words, "degrees": degrees.astype(np.float32), "weights": weights.astype(np.float32)}


def _sketches(learner: Learner, part: int, hashes: U64) -> dict[str, Any]:
    """Return the buckets and signs of inputs and of the constant, shape (factors, inputs + 1, blocks)."""
    directions, entry = learner.directions, learner.directions.plan.parts_compiled[part]
    blocks = np.arange(_features(learner) // directions.block_size) + directions.kept[-1, codes.BLOCK]
    bits: U64 = np.empty((int(entry["order"]), len(hashes) + 1, len(blocks)), np.uint64)
    _draw_sketches(entry["key"], blocks, hashes, bits)
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


def coefficients(learner: SecondOrderLearner) -> F64:
    """Return Σ v_k w_k over the functions of random features, shape (outputs, columns)."""
    state, n = learner.arrays, max(1, learner.n_positions) * learner.outputs
    ends = state.layout[:, FIRST] + state.layout[:, COUNT]
    sums = np.zeros((max(n, int(ends.max())), learner.columns))
    for first, w in zip(state.layout[:, FIRST].tolist(), coefficients_of_groups(state), strict=True):
        sums[first : first + w.shape[1]] += w.T
    return sums[:n]


def others(learner: SecondOrderLearner, hashes: U64, about: dict[str, Any]) -> dict[str, Any]:
    """Return the small functions, the linear function, the neighbours and the bounds, with the inputs of these hashes;
    parts and terms of small functions are added to `about`.
    """
    state, numbers, weights = learner.arrays, learner.arrays.numbers, weights_by_column(learner.arrays)
    first, first_near = state.slots[[slots.LINEAR, slots.NEIGHBOURS]].tolist()
    arrays = _small_functions(learner, hashes, about)
    if first < first_near:
        arrays |= _linear(state.linear, hashes, numbers["error_scale"])
        arrays["linear.share"] = weights[first]
    near = neighbours.freeze(state.neighbours, state.linear, hashes, state.metric.sensitivities)
    last = first_near + len(near.get("near.counts", ()))
    if near:
        arrays |= near | {"near.share": weights[first_near:last]}
    if numbers["intercept"][0] == MEAN and numbers["examples"][0] > 0:
        low, high, least, most = np.array(limits(state.span, numbers["error_scale"])) - numbers["predicted_offset"]
        if len(weights) > last:  # the others say 0
            low, high = np.minimum(low, np.maximum(least, 0.0)), np.maximum(high, np.minimum(most, 0.0))
        arrays["span"] = np.array([low, high, least, most])
    return arrays


def _small_functions(learner: SecondOrderLearner, hashes: U64, about: dict[str, Any]) -> dict[str, Any]:
    """Return the small functions: the sum of their constants, and their features."""
    numbers = np.split(learner.arrays.small, FIRST_NUMBERS[1:-1], axis=1)
    weights = weights_by_column(learner.arrays)[learner.arrays.slots[slots.SMALL] :]
    arrays: dict[str, Any] = {"constant": np.zeros(learner.columns)}
    for function, of_function, v in zip(FUNCTIONS, numbers, weights, strict=False):
        constant, features = function.freeze(of_function, hashes)
        arrays["constant"] += v * constant
        for part, directions, coefficients in features:
            p, t = len(about["parts"]), len(about["terms"])
            about["parts"].append({"transform": "identity", "scale": 1.0, **part})
            about["terms"].append([p])
            arrays |= {f"part{p}.directions": directions.astype(np.float32), f"term{t}.re": coefficients * v}
    return arrays


def _linear(linear: Linear, hashes: U64, sizes: F64) -> dict[str, Any]:
    """Return the linear function of the inputs of these hashes: an affine function, squares, and indicators of values.

    `sizes` are the mean squares of the targets.
    """
    if not len(linear.w):
        return {}
    places = places_of(linear, hashes)
    has_place, width = places > 0, len(linear.w) // len(sizes)
    units = np.where(has_place, linear.scales[places, 1], 1.0)
    return {
        "linear.centre": np.where(has_place, linear.scales[places, 0], 0.0),
        "linear.unit": units,
        "linear.w": np.where(has_place[:, None], linear.w[:, places].T, 0.0),
        "linear.constant": linear.w[:, 0],
        **_of_squares(linear, places),
        **_of_values(linear, hashes, units),
        **({"linear.bound": np.array(float(linear.counts[BOUND]))} if linear.counts[BOUND] else {}),
        "linear.reach": np.repeat(_reach(linear.errors, sizes), width),
    }


def _of_squares(linear: Linear, places: I64) -> dict[str, Any]:
    """Return the inputs with a square among the inputs at these places, and the weights of the squares."""
    square = dict(linear.squares.tolist())
    columns = [column for column, place in enumerate(places.tolist()) if place in square]
    if not columns:
        return {}
    at = [square[place] for place in places[columns].tolist()]
    return {"squares.columns": np.array(columns), "squares.w": linear.w[:, at].T}


def _of_values(linear: Linear, hashes: U64, units: F64) -> dict[str, Any]:
    """Return the inputs with few values among these, those values, and the weights of their indicators.

    `units` are the deviations of the inputs. Values are compared with a tolerance, because an affine function before
    the model may be computed in another way.
    """
    at = np.flatnonzero(linear.scales[: linear.counts[PLACES], 1] < 0.0)
    columns = columns_of_values(np.maximum(hashes, np.uint64(1)), linear.names[at], linear.scales[at, 0])
    at, columns = at[columns >= 0], columns[columns >= 0]
    if not len(at):
        return {}
    weights = (linear.w[:, at] / -linear.scales[at, 1]).T
    return {
        "values.columns": columns,
        "values.values": linear.scales[at, 0],
        "values.tolerance": SAME * units[columns],
        "values.w": weights,
    }


def _reach(errors: F64, sizes: F64) -> F64:
    """Return the bound of the linear function for each target, as :func:`second_order.linear.steps.reach` does."""
    positive = np.where(sizes > 0.0, sizes, 1.0)
    bounds = REACH * np.sqrt(positive) / np.maximum(errors / positive, SMALLEST_SHARE)
    return np.where(sizes > 0.0, bounds, LARGEST_SCORE)


def check_scalers(steps: Iterable[Any]) -> None:
    """Raise a ValueError that names a step which is not one of the scalers."""
    for step in steps:
        kind = type(_inner(step))
        if kind not in _KINDS:
            kinds = ", ".join(dict.fromkeys(one.__name__ for one in _KINDS))
            raise ValueError(f"Expected one of {kinds} in front of the model, got a {kind.__name__}")


def names_scaled_by(step: Any) -> Iterable[Hashable]:
    """Return the names that a scaler has learned."""
    inner = _inner(step)
    return getattr(inner, _KINDS[type(inner)][0])  # type: ignore[no-any-return]


def scalers_together(steps: Sequence[Any], names: Sequence[Hashable | None]) -> dict[str, Any]:
    """Return the total offset and factor of successive scalers for each input.

    Examples
    --------
    >>> scaler = preprocessing.MinMaxScaler()
    >>> for x in (2.0, 6.0):
    ...     scaler.learn_one({"x": x})
    >>> {name: array.tolist() for name, array in scalers_together([scaler], ["x", "other"]).items()}
    {'first.centre': [2.0, 0.0], 'first.factor': [0.25, 0.0]}
    """
    if not steps:
        return {}
    centre, factor = np.zeros(len(names)), np.ones(len(names))
    for step in steps:
        subtracted, multiplied = np.array([_of(step, name) for name in names]).T
        centre += np.divide(subtracted, factor, out=np.zeros(len(names)), where=factor != 0.0)
        factor = factor * multiplied
    return {"first.centre": centre, "first.factor": factor}


def _is_on_fields(step: Any) -> bool:
    """Return whether a step is limited to some fields, as in a run; only then has its module been imported."""
    fields = sys.modules.get("streamkernel.engine.fields")
    return fields is not None and isinstance(step, fields.OnFields)


def _inner(step: Any) -> Any:
    return step.transformer if _is_on_fields(step) else step


def _of(step: Any, name: Hashable | None) -> tuple[float, float]:
    """Return the offset and the factor of a step for a name."""
    if name not in names_scaled_by(step):
        passes = _is_on_fields(step) or isinstance(step, StandardScaler)
        return 0.0, float(passes)  # River's scalers return 0 for names that they have not learned
    inner = _inner(step)
    subtracted, divisor = _KINDS[type(inner)][1](inner, name)
    return subtracted, 1.0 / divisor if divisor else 0.0


def _value(number: Any) -> float:
    """Return a number, or the value of a statistic."""
    return float(number.get() if hasattr(number, "get") else number)


def _standard(step: Any, name: Hashable) -> tuple[float, float]:
    return _value(step.means[name]), _value(step.vars[name]) ** 0.5 if step.with_std else 1.0


def _least_to_most(step: Any, name: Hashable) -> tuple[float, float]:
    low = _value(step.min[name])
    return low, _value(step.max[name]) - low


def _by_largest(step: Any, name: Hashable) -> tuple[float, float]:
    return 0.0, _value(step.abs_max[name])


_KINDS: dict[type, tuple[str, Any]] = {
    preprocessing.StandardScaler: ("means", _standard),
    StandardScaler: ("means", _standard),
    preprocessing.MinMaxScaler: ("min", _least_to_most),
    preprocessing.MaxAbsScaler: ("abs_max", _by_largest),
}
"""The scalers, with the attributes that hold each name's offset and divisor."""
