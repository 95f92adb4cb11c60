"""Merging of functions of blocks of features: the mean of their coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamkernel.errors import MergeError
from streamkernel.features.rows import F64, I64
from streamkernel.first_order import expanded_function as coefficients_of
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.learners import state
from streamkernel.learners.scoring import MIXTURE, SURE
from streamkernel.merging.summaries import FirstOrderSummary, merge_numbers, merge_spans


def summarize(f: FirstOrderLearner) -> FirstOrderSummary:
    """Return the summary of a function."""
    features, outputs = f.n_blocks * f.block_size, f.directions.plan.outputs
    return FirstOrderSummary(
        numbers=f.numbers.copy(),
        is_mean=bool(f.numbers["intercept"] == state.MEAN),
        functions=f.functions().reshape(f.n_blocks, outputs * f.block_size, f.n_functions),
        beta=f.numbers["scale"] * f.beta[: f.n_blocks],
        drawn=f.features_at(np.arange(features)).reshape(f.n_blocks, f.block_size, 3),
        next=f.next_number,
        most=f.most_blocks,
        pending=f.pending,
        span=f.span.reshape(1, -1).copy(),
    )


def merge(
    fresh: FirstOrderLearner, parts: Sequence[FirstOrderSummary], base: FirstOrderSummary, weights: F64
) -> dict[str, Any]:
    """Return the tensors from which the untrained function `fresh` is restored.

    `fresh` has as many columns as all parts have; `weights` are n_i/n. Raise a MergeError if the parts have more
    features together than one may have.
    """
    drawn, places = _together(parts)
    n = len(drawn)
    most = base.most or max(part.most for part in parts)
    if n > most:
        raise MergeError(
            f"Expected models with {most * fresh.block_size} features in all at most, got "
            f"{n * fresh.block_size}; they grew or were pruned differently"
        )
    columns, height = fresh.columns, parts[0].functions.shape[1]
    functions, beta = np.zeros((n, height, fresh.n_functions)), np.zeros((n, columns))
    now, average = functions[:, :, :columns], functions[:, :, columns:]
    t = [int(part.numbers["steps"]) for part in parts]
    is_mixture = fresh.numbers["averaging"] == MIXTURE  # the average is then the mean of all predictions
    for part, at, steps, w in zip(parts, places, t, weights.tolist(), strict=True):
        now[at] += w * part.functions[:, :, :columns]
        if is_mixture:
            average[at] += w * coefficients_of.predicting(part.numbers, part.functions)
        else:
            average[at] += steps * part.functions[:, :, columns:]
        beta[at] += w * part.beta
    numbers = merge_numbers(parts, base, weights)
    numbers["blocks"] = n
    place_of = {block.tobytes(): place for place, block in enumerate(drawn)}
    at = [place_of.get(block.tobytes(), n) for block in base.drawn]
    if n in at:
        raise MergeError("Expected a base from which the models continued, got one with features that they do not have")
    if is_mixture:
        numbers["log_odds"] = SURE
    else:
        average[at] -= (len(parts) - 1) * int(base.numbers["steps"]) * base.functions[:, :, columns:]
        average /= max(1, int(numbers["steps"]))
    for name in (*state.LEARNED_INTS, *state.LEARNED_REALS):
        fresh.numbers[name] = numbers[name]
    kept = _kept_features(fresh, drawn, max(part.next for part in parts), most)
    merged = functions.reshape(n * height, fresh.n_functions)
    tensors = fresh.with_functions(merged, kept, float(numbers["distance2"]))
    return tensors | {"beta": beta, "span": merge_spans(parts, base)}


def coefficients(parts: Sequence[FirstOrderSummary]) -> list[F64]:
    """Return the coefficients of the functions, in a common order."""
    drawn, places = _together(parts)
    matrices = []
    for part, at in zip(parts, places, strict=True):
        columns = part.beta.shape[1]
        matrix = np.zeros((len(drawn), part.functions.shape[1], columns))
        matrix[at] = part.functions[:, :, :columns]
        matrices.append(matrix)
    return matrices


def _together(parts: Sequence[FirstOrderSummary]) -> tuple[list[I64], list[list[int]]]:
    """Return the features of all blocks, and the positions of each part's blocks among them."""
    place: dict[bytes, int] = {}
    for part in parts:
        for block in part.drawn:
            place.setdefault(block.tobytes(), len(place))
    shape = parts[0].drawn.shape[1:]
    drawn = [np.frombuffer(block, np.int64).reshape(shape) for block in place]
    return drawn, [[place[block.tobytes()] for block in part.drawn] for part in parts]


def _kept_features(fresh: FirstOrderLearner, drawn: Sequence[I64], following: int, most: int) -> I64 | None:
    """Return the features in the form of a function's kept features, or ``None`` if they are the first ones."""
    features = np.concatenate(drawn) if drawn else np.zeros((0, 3), np.int64)
    simple = FirstOrderLearner.features_at(fresh, np.arange(len(features)))
    if following == len(drawn) and most == fresh.most_blocks and (features == simple).all():
        return None
    last = [[following - len(drawn), most, 0]]
    return np.concatenate([features, last])
