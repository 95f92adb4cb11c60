"""Contributions of the fields of an example to scores, and importances of fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np

from streamkernel.errors import InputError, NotFittedError
from streamkernel.estimators.model import Model
from streamkernel.estimators.model_state import State
from streamkernel.features.counter_rng import domain_key, hash64
from streamkernel.features.directions import Directions
from streamkernel.features.numeric_names import read_fields
from streamkernel.features.rows import F64, I64, U64, Rows
from streamkernel.features.scale_table import moments_of
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.second_order.sensitivity import WEIGHT, rows_of


class Comparison(NamedTuple):
    """The names of an example's fields, with their values and their running means.

    A string is an indicator of its value. Its field also has the indicators of all other values, which are 0 in the
    example; the mean of each is the frequency of its value. Fields and names are in the order of their hashes, so the
    order of the example does not matter. `field_of` is the number of each name's field; `readers` say which parts of
    the kernel read the names. `values` are those of the example `x`, and `means` what they are compared with.
    """

    x: Mapping[Hashable, Any]
    fields: tuple[Hashable, ...]
    field_of: I64
    hashes: U64
    readers: I64
    values: F64
    means: F64

    def row(self, directions: Directions) -> Rows:
        """Return the example, with entries of value 0."""
        n = len(self.hashes)
        return directions.restore_rows(np.array([0, n]), self.hashes, self.readers, self.values, np.ones(1))

    def rows(self, directions: Directions, chosen: Any) -> Rows:
        """Return examples with some fields from the example and the others at their means.

        `chosen` is a mask of the fields, shape (examples, fields).
        """
        n, width = len(chosen), len(self.hashes)
        if directions.plan.transforms:  # these know names, not hashes; there are no means
            return Rows.stack([directions.row(self._part(mask)) for mask in chosen])
        values = np.where(chosen[:, self.field_of], self.values, self.means).ravel()
        start = np.arange(0, n * width + 1, width) if width else np.zeros(n + 1, np.int64)
        one = self.row(directions)
        tiled = np.tile(one.slots, n), np.tile(one.hashes, n), np.tile(one.readers, n)
        return Rows(start, *tiled, values, np.ones(n))

    def _part(self, chosen: Any) -> dict[Hashable, Any]:
        """Return the chosen fields of the example."""
        return {name: self.x[name] for name, is_chosen in zip(self.fields, chosen, strict=True) if is_chosen}


def compare(state: State, x: Mapping[Hashable, Any]) -> Comparison:
    """Return the comparison of an example with the running means, which are 0 if inputs are not scaled.

    A missing field of `x` that is usually present is compared with its own mean, and so does not differ. Raise an
    InputError if a value is neither a number, a string nor missing, or a string where a number was learned.
    """
    directions = state.learner.directions
    fields = tuple(sorted(x, key=hash64))
    number = {name: i for i, name in enumerate(fields)}
    row = directions.row(x, state.numeric)
    if directions.plan.transforms:
        nothing: Any = np.zeros(0)
        return Comparison(x, fields, nothing.astype(int), row.hashes[:0], row.readers[:0], nothing, nothing)
    field_of = {one: number[name] for one, name in read_fields(x).items()}
    keys, values = row.hashes.tolist(), dict(zip(row.hashes.tolist(), row.values.tolist(), strict=True))
    readers = dict(zip(keys, row.readers.tolist(), strict=True))
    means = dict.fromkeys(keys, 0.0)
    if state.scales is not None:
        for one, field in (state.numeric.fields or {}).items():
            if field in number:
                field_of.setdefault(one, number[field])
        hashes = np.array(sorted(field_of), np.uint64)
        moments = moments_of(state.scales.state, hashes)
        for one, mean, is_usual in zip(hashes.tolist(), moments.mean.tolist(), moments.is_usual, strict=True):
            if one in values or not is_usual:
                means[one] = mean
    hashes = np.array(sorted(means), np.uint64)
    names = hashes.tolist()
    return Comparison(
        x,
        fields,
        np.array([field_of[one] for one in names], np.int64),
        hashes,
        np.array([readers.get(one, 1) for one in names], np.int64),
        np.array([values.get(one, 0.0) for one in names], np.float64),
        np.array([means[one] for one in names], np.float64),
    )


METHODS = ("gradient", "sampling")

FEWEST = 256
"""Smallest number of learned examples for importances: then scales and bandwidths are known."""

GRADIENTS = 20.0
"""Smallest number of gradients for importances, with less weight of older ones; one of every fourth example."""

_ENTRIES = 1 << 20
"""Approximate number of entries of the rows that one call evaluates."""

Score = Callable[[Any], F64]
"""A function from the scores of all columns, shape (examples, columns), to those to explain, shape (examples, n)."""


def explain(
    model: Model, x: Mapping[Hashable, Any], scores_in: Callable[[State], Score], method: str, n_orders: int, seed: int
) -> tuple[dict[Hashable, list[float]], State]:
    """Return the contributions of each field of an example to some scores of one state, and the state.

    `scores_in` returns the scores to explain for a state. The other arguments are as for :func:`contributions`.
    """
    state = model.frozen()
    try:
        return contributions(state, x, scores_in(state), method, n_orders, seed), state
    except (InputError, TypeError, AttributeError, IndexError):
        model.check(x)
        raise


def contributions(
    state: State, x: Mapping[Hashable, Any], score: Score, method: str, n_orders: int, seed: int
) -> dict[Hashable, list[float]]:
    """Return the contributions of each field of an example to one or more scores, in the order of the example.

    The scores must be linear in the columns. `method` is ``"gradient"`` or ``"sampling"``, which takes `n_orders`
    random orders of the fields. Raise an InputError if a value cannot be used or the gradient of this kernel is not
    known, a ValueError if another argument is out of its range.
    """
    if method not in METHODS:
        raise ValueError(f'Expected method="gradient" or "sampling", got {method!r}')
    if not isinstance(n_orders, (int, np.integer)) or isinstance(n_orders, bool) or n_orders < 1:
        raise ValueError(f"Expected an integer n_orders >= 1, got {n_orders!r}")
    compared = compare(state, x)
    if not x:
        return {}
    if method == "gradient":
        totals = _by_gradient(state, compared, score)
    else:
        totals = _by_sampling(state, compared, score, int(n_orders), seed)
    by_field = dict(zip(compared.fields, totals.tolist(), strict=True))
    return {name: by_field[name] for name in x}


def _by_gradient(state: State, compared: Comparison, score: Score) -> F64:
    """Return for each field the gradient of each score times the difference from the mean, and the change of the part
    of f without a gradient when the field is set: the mean of the changes as the first and as the last of all fields.
    """
    learner, k = state.learner, len(compared.fields)
    row = compared.row(learner.directions)
    learner.scores(row, state.scales)  # what cannot be used is refused
    gradients = score(learner.derivatives(row, state.scales).T)
    totals = np.zeros((k, gradients.shape[1]))
    np.add.at(totals, compared.field_of, gradients * (compared.values - compared.means)[:, None])
    others = _in_parts(compared, learner.directions, lambda rows: score(learner.others(rows, state.scales)))
    alone = np.concatenate([np.zeros((1, k), bool), np.eye(k, dtype=bool)])
    first, last = others(alone), others(~alone)
    return np.asarray(totals + 0.5 * (first[1:] - first[0] + last[0] - last[1:]))


def _in_parts(compared: Comparison, directions: Directions, evaluate: Callable[[Rows], F64]) -> Callable[[Any], F64]:
    """Return a function that evaluates an example with sets of its fields, Booleans of shape (sets, fields)."""
    step = max(1, _ENTRIES // max(1, len(compared.hashes)))

    def value(sets: Any) -> F64:
        parts = [sets[first : first + step] for first in range(0, len(sets), step)]
        return np.concatenate([evaluate(compared.rows(directions, part)) for part in parts])

    return value


def _by_sampling(state: State, compared: Comparison, score: Score, n_orders: int, seed: int) -> F64:
    """Return the Shapley values of the fields: exact if that takes no more examples, else from sampled orders."""
    k, learner = len(compared.fields), state.learner
    value = _in_parts(compared, learner.directions, lambda rows: score(learner.scores(rows, state.scales)))
    return _over_sets(value, k) if 1 << min(k, 62) <= k * n_orders else _over_orders(value, k, n_orders, seed)


def _over_sets(value: Score, k: int) -> F64:
    """Return the Shapley values of k fields for functions of sets of them, Booleans of shape (sets, fields)."""
    sets = (np.arange(1 << k)[:, None] >> np.arange(k)) & 1 == 1
    values, sizes = value(sets), sets.sum(axis=1)
    weight = np.array([1.0 / (k * math.comb(k - 1, size)) for size in range(k)])
    with_it = np.where(sets, weight[np.maximum(sizes - 1, 0), None], 0.0)
    without = np.where(sets, 0.0, weight[np.minimum(sizes, k - 1), None])
    return np.asarray(np.einsum("sk,sf->kf", with_it - without, values - values[0]))


def _over_orders(value: Score, k: int, n_orders: int, seed: int) -> F64:
    """Return the mean changes of functions of sets of k fields with each, over random orders and their reverses."""
    generator = np.random.default_rng(int(domain_key(seed, "orders of fields")))
    orders = np.empty((n_orders, k), np.int64)
    for i in range(n_orders):
        orders[i] = generator.permutation(k) if i % 2 == 0 else orders[i - 1, ::-1]
    totals, step = np.zeros((k, 1)), max(1, _ENTRIES // (k * (k + 1)))
    for first in range(0, n_orders, step):
        places = np.argsort(orders[first : first + step], axis=1)
        sets = places[:, None, :] < np.arange(k + 1)[None, :, None]
        values = value(sets.reshape(-1, k))
        changes = np.diff(values.reshape(len(places), k + 1, values.shape[1]), axis=1)
        totals = totals + np.take_along_axis(changes, places[:, :, None], axis=1).sum(axis=0)
    return np.asarray(totals / n_orders)


def importances(state: State) -> dict[Hashable, float]:
    """Return the share of each field in the mean squared change of f with each deviation of its inputs, largest first.

    Raise an AttributeError if the model keeps no gradients, a NotFittedError if it has not yet learned enough examples.
    """
    learner, fields = state.learner, state.numeric.fields
    if state.scales is None or fields is None or not isinstance(learner, SecondOrderLearner):
        raise AttributeError(
            'Expected the default kernel and learner="newton" for feature_importances_, because other models '
            "keep no gradients; explain_one explains single examples"
        )
    metric = learner.arrays.metric
    sensitivities, weight = rows_of(metric.sensitivities), float(metric.totals[WEIGHT])
    if weight < GRADIENTS and not learner.has_metric:
        raise AttributeError(
            "Expected a model of four blocks of features or more, and not joint=True, for feature_importances_, "
            "because others keep no gradients; explain_one explains single examples"
        )
    sensitivities = sensitivities[[int(key) in fields for key in sensitivities["key"]]]
    if learner.examples < FEWEST:
        raise NotFittedError(
            f"Expected a model that has learned {FEWEST} examples for feature_importances_, got one of "
            f"{learner.examples}"
        )
    if weight < GRADIENTS or not len(sensitivities):
        raise NotFittedError(f"Expected {FEWEST} examples with gradients for feature_importances_, got fewer")
    moments = moments_of(state.scales.state, sensitivities["key"])
    deviations = moments.deviation / np.where(moments.rows["unit"] > 0.0, moments.rows["unit"], 1.0)
    squares = sensitivities["squares"] / np.maximum(sensitivities["present"], 1e-300) * np.square(deviations)
    totals: dict[Hashable, float] = dict.fromkeys(sorted(set(fields.values()), key=hash64), 0.0)
    for key, square in zip(sensitivities["key"].tolist(), squares.tolist(), strict=True):
        totals[fields[key]] += square
    whole = math.fsum(totals.values()) or 1.0
    return {name: total / whole for name, total in sorted(totals.items(), key=lambda item: -item[1])}
