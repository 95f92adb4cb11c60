"""Calls without type checks: the same results, and a type check for unknown types."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from streamkernel.jit import compiled, direct


@compiled
def weighted(values, weights, i):  # type: ignore[no-untyped-def]
    return values[i] * weights[i]


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
def test_other_objects_may_have_other_types(kind: type) -> None:
    call, weights = direct(weighted), np.arange(3.0)
    for values in (np.ones(3), np.arange(3, dtype=kind), np.ones(6)[::2], np.full(3, 2.0, np.float32)):
        for i in range(3):
            assert call(values, weights, i) == values[i] * weights[i]


def test_objects_that_change_in_place_are_read_again() -> None:
    call, values, weights = direct(weighted), np.ones(3), np.ones(3)
    assert call(values, weights, 1) == 1.0
    values[1], weights[1] = 3.0, 5.0
    assert call(values, weights, 1) == 15.0


def test_an_error_of_the_function_is_raised_each_time() -> None:
    @compiled
    def refuse(values, weights, i):  # type: ignore[no-untyped-def]
        if i > 1:
            raise ValueError("too far")
        return values[i] + weights[i]

    call, values = direct(refuse), np.ones(3)
    assert call(values, values, 0) == 2.0
    for _ in range(2):
        with pytest.raises(ValueError, match="too far"):
            call(values, values, 2)


def test_a_function_without_machine_code_is_called_as_it_is() -> None:
    call = direct(lambda values, weights, i: values[i] - weights[i])
    assert [call([1, 2], [0, 1], i) for i in (0, 1, 0)] == [1, 1, 1]


class Pair(NamedTuple):
    """Two arrays, and a tuple of arrays."""

    values: Any
    table: Any
    more: Any


class More(NamedTuple):
    """An array."""

    weights: Any


Pair.__module__ = More.__module__ = "streamkernel.tests"


@compiled
def changed(pair, more, i):  # type: ignore[no-untyped-def]
    pair.values[i] += more.weights[i]
    return pair.values[i] * pair.table[1, i] + pair.more.weights.sum()


def test_tuples_of_arrays_are_read_once_and_their_arrays_change() -> None:
    call, more = direct(changed), More(np.arange(3.0))
    for table in (np.arange(6.0).reshape(2, 3), np.ones((2, 3))):
        pair = Pair(np.zeros(3), table, More(np.ones(2, np.float32)))
        for times in (1, 2, 3):
            assert call(pair, more, 2) == 2.0 * times * table[1, 2] + 2.0
        assert pair.values.tolist() == [0.0, 0.0, 6.0]
