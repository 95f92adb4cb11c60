"""Small functions: each has a few numbers per column, which follow from an example at once; compiled.

A small function is a module, and an entry of `FUNCTIONS`. The numbers of all are side by side in the state, so that
files, merged models (the mean), copies and further columns treat them alike.
"""

from __future__ import annotations

from functools import reduce
from itertools import accumulate
from typing import Any, Protocol

from streamkernel.features.rows import F64, U64
from streamkernel.jit import inlined
from streamkernel.second_order import (
    level,
    slots,
)
from streamkernel.second_order.targets import clip_derivatives


class SmallFunction(Protocol):
    """The module of a small function.

    Attributes
    ----------
    NAME
        Its name beside its weight in f.
    NUMBERS
        The number of its numbers for each column, which begin at 0.
    read
        Compiled, ``read(numbers, rows, i)`` returns its score at row i of the values that the features read.
    learn
        Compiled, ``learn(numbers, rows, example, g, h)`` changes the numbers of a column: `example` has the row, the
        weight and a step size of an example, g and h are ℓ' and ℓ'' at its score.
    """

    NAME: str
    NUMBERS: int
    read: Any
    learn: Any

    def freeze(self, numbers: F64, hashes: U64) -> tuple[F64, list[Any]]:
        """Return its export from its numbers, shape (columns, numbers), and the hashes of the inputs.

        That is a constant for each column, and lists of features: an entry of `numpy_predictor.FORMS` (its name as
        ``form``, and its options), directions, shape (inputs, features), and coefficients, shape (features, columns).
        """
        ...


FUNCTIONS: list[SmallFunction] = [
    level,
]
"""The running loss of f = 0 has the place of the first one."""

FIRST_NUMBERS = list(accumulate((function.NUMBERS for function in FUNCTIONS), initial=0))
"""The first number of each, and the number of all."""


@inlined(allocates=False)
def _nothing(state, rows, i, f):  # type: ignore[no-untyped-def]
    """Read and learn no function."""


def _and_one_more(others: tuple[Any, Any], j: int) -> tuple[Any, Any]:
    """Return the compiled functions in which others are read, or learn, and then function j."""
    (read_others, learn_others), one, (first, last) = others, FUNCTIONS[j], FIRST_NUMBERS[j : j + 2]
    read_one, learn_one = one.read, one.learn

    def read(state, rows, i, f):  # type: ignore[no-untyped-def]
        read_others(state, rows, i, f)
        for c in range(f.shape[1]):
            f[state.slots[slots.SMALL] + j, c] = read_one(state.small[c, first:last], rows, i)

    def learn(state, rows, example, work):  # type: ignore[no-untyped-def]
        learn_others(state, rows, example, work)
        k = state.slots[slots.SMALL] + j
        clip_derivatives(state, k, work.g)
        for c in range(work.g.shape[1]):
            learn_one(state.small[c, first:last], rows, example, work.g[k, c], work.h[k, c])

    read.__qualname__ += f"_{j}"
    learn.__qualname__ += f"_{j}"
    return inlined(read, allocates=False), inlined(learn, allocates=False)


read, learn = reduce(_and_one_more, range(len(FUNCTIONS)), (_nothing, _nothing))
"""``read(state, rows, i, f)`` sets the slots of all in `f`, shape (functions, columns).
``learn(state, rows, example, work)`` changes the numbers of all.
"""
