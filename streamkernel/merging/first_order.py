"""Merging of functions of blocks of features: the mean of their coefficients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from streamkernel.errors import MergeError
from streamkernel.features.rows import F64, I64
from streamkernel.first_order import bandwidths
from streamkernel.first_order import expanded_function as coefficients_of
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.learners import state
from streamkernel.learners.mixing import PULL, factor_of
from streamkernel.learners.scoring import GRADIENTS2, MIXTURE, SCALE, SCALE_SUM, SURE
from streamkernel.merging.summaries import FirstOrderSummary, add_parts, merge_numbers, merge_spans


def summarize(f: FirstOrderLearner) -> FirstOrderSummary:
    """Return the summary of a function."""
    numbers, functions, members = f.parts()
    return FirstOrderSummary(
        numbers=numbers.copy(),
        is_mean=bool(f.numbers["intercept"] == state.MEAN),
        functions=functions,
        beta=f.numbers["scale"] * f.beta[: f.n_blocks],
        drawn=f.features_at(np.arange(f.n_blocks * f.block_size)).reshape(f.n_blocks, f.block_size, 3),
        next=f.next_number,
        most=f.most_blocks,
        pending=f.pending,
        span=f.span.reshape(1, -1).copy(),
        members=members,
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
    shares = _shares(parts, places, weights)
    for i, (part, at, steps, w) in enumerate(zip(parts, places, t, weights.tolist(), strict=True)):
        last, earlier = part.functions[:, :, :columns], part.functions[:, :, columns:]
        if shares is not None:
            of_now, of_average = shares[i].reshape(2, -1)[:, bandwidths.member_of(len(at), shares[i]), None, None]
            now[at] += of_now * last
            average[at] += of_average * earlier
        elif is_mixture:
            predicting = coefficients_of.predicting(part.numbers, part.functions, part.members)
            now[at] += w * (predicting if part.members else last)
            average[at] += w * predicting
        else:
            now[at] += w * last
            average[at] += steps * earlier
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
    tensors |= {"beta": beta, "span": merge_spans(parts, base)}
    return tensors if shares is None else tensors | _merge_members(parts, base, weights)


def _shares(parts: Sequence[FirstOrderSummary], places: Sequence[Sequence[int]], weights: F64) -> F64 | None:
    """Return the shares of parts in each of several functions, shape (parts, 2 × bandwidths), or ``None``.

    With a_i the factors of functions in the prediction of a part, they are w_i a_i/a, so that Σ a f is the mean of the
    predictions with the factors a from the mean of v_i. Blocks have to belong to the same bandwidth in all parts; else
    the merged model is a single function of all bandwidths.
    """
    if not all(part.members for part in parts):
        return None
    v = np.array([part.members["member_weights"][1] for part in parts])
    count = v.shape[1] // 2
    if any(place % count != block % count for at in places for block, place in enumerate(at)):
        return None
    factors, mean = np.array([bandwidths.factors(one) for one in v]), bandwidths.factors(weights @ v)
    return np.where(mean > 0.0, weights[:, None] * factors / np.where(mean > 0.0, mean, 1.0), weights[:, None])


def _merge_members(parts: Sequence[FirstOrderSummary], base: FirstOrderSummary, weights: F64) -> dict[str, F64]:
    """Return the state of several functions that are means of the parts'."""
    arrays = {name: np.array([part.members[name] for part in parts]) for name in parts[0].members}
    merged = {name: np.tensordot(weights, array, 1) for name, array in arrays.items()}
    steps, sizes, mixer = merged["member_steps"], merged["sizes"], arrays["mixer"]
    root = base.members["member_steps"][:, GRADIENTS2] if base.members else np.zeros(len(steps))
    steps[:, GRADIENTS2] = add_parts([*arrays["member_steps"][:, :, GRADIENTS2]], root)
    steps[:, SCALE], steps[:, SCALE_SUM] = 1.0, 0.0
    largest = arrays["sizes"][:, 1].max()
    pull = math.sqrt(PULL * max(largest - sizes[1], 0.0)) * np.eye(mixer.shape[2])
    sizes[1] = largest
    rows = np.concatenate([*(np.sqrt(weights)[:, None, None] * mixer), pull])
    return merged | {"mixer": factor_of(rows)}


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
