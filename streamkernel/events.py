"""A single event in one compiled call: the arguments are addresses, explained in `streamkernel.places`."""

from __future__ import annotations

import numpy as np
from numba import njit

from streamkernel import places, stepping
from streamkernel.places import example_at, f32_at, f64_at, ints_at

NO_ROOM = -1
"""What :func:`learn_event` returns where the arrays have no room for another block; nothing is changed then."""


@njit(inline="always")
def _opened(model):  # type: ignore[no-untyped-def]
    """Return the table of a model, and its arrays as `streamkernel.stepping` knows them."""
    table = ints_at(model, places.N_PLACES)
    ints = ints_at(table[places.INTS], stepping.N_INTS)
    reals = f64_at(table[places.REALS], stepping.N_REALS)
    columns, width, panels = ints[stepping.COLUMNS], table[places.WIDTH], table[places.PANELS]
    where, cached_panels, cached_names = ints_at(table[places.CACHE], 3)
    return (
        table,
        (ints, reals, f32_at(where, (cached_panels, cached_names, width))),
        f64_at(table[places.COEF], (panels, table[places.PARTS], 2, width)),
        f32_at(table[places.PHI], (panels, 2, width)),
        f64_at(table[places.SCORES], (2, columns)),
    )


@njit(inline="always")
def _work(table, ints, n, columns):  # type: ignore[no-untyped-def]
    """Return the room that `streamkernel.stepping` works in; the entries' is in the example's record."""
    entries = columns[5], columns[6].view(np.uint64), columns[7].view(np.float32)[:n]
    turns = f32_at(table[places.TURNS], (2, table[places.WIDTH]))
    sums = f64_at(table[places.SUMS], (table[places.PARTS], table[places.WIDTH]))
    gradients = f64_at(table[places.GRADIENTS], (2, 1, ints[stepping.COLUMNS]))
    move = f64_at(table[places.MOVE], (ints[stepping.COLUMNS], 2, ints[stepping.PER_BLOCK]))
    return entries, turns, sums, gradients, move


@njit(inline="always")
def _sort(n, columns):  # type: ignore[no-untyped-def]
    """Sort the values of an example by its names, and say whether the same bits were there before."""
    same = True
    for j in range(n):
        bits = columns[3, columns[2, j]]
        same &= columns[4, j] == bits
        columns[4, j] = bits
    return same


@njit(inline="always")
def _rows(n, columns):  # type: ignore[no-untyped-def]
    """Return the one row of an example."""
    start = np.zeros(2, np.int64)
    start[1] = n
    return start, columns[0], columns[1].view(np.uint64), columns[4].view(np.float64)


@njit(cache=True)
def score_event(model, example):  # type: ignore[no-untyped-def]
    """Set the model's scores to those of an example, if they are not; return whether it is usable."""
    serial, n, columns = example_at(example)
    table, (ints, reals, cache), coef, phi, scores = _opened(model)
    if _sort(n, columns) and table[places.LAST] == serial:
        return True
    work = _work(table, ints, n, columns)
    usable = stepping.score(ints, reals, cache, _rows(n, columns), np.int64(0), coef, phi, work, scores)
    table[places.LAST] = serial if usable else 0
    return usable


@njit(cache=True)
def learn_event(model, example, y):  # type: ignore[no-untyped-def]
    """Take one step on an example; return a status of `streamkernel.stepping`, or ``NO_ROOM``.

    If it is the example that was scored last, its scores and features are at hand.
    """
    serial, n, columns = example_at(example)
    table, (ints, reals, cache), coef, phi, scores = _opened(model)
    if table[places.ROOM] == ints[stepping.BLOCKS] < ints[stepping.MOST_BLOCKS]:
        return NO_ROOM
    known = np.int64(_sort(n, columns) and table[places.LAST] == serial)
    table[places.LAST] = 0
    beta = f64_at(table[places.BETA], (table[places.ROOM], ints[stepping.COLUMNS]))
    gamma = f64_at(table[places.STEP], 1)[0]
    work, rows = _work(table, ints, n, columns), _rows(n, columns)
    target = np.full(1, y)
    status, _ = stepping.step(
        ints, reals, cache, rows, np.int64(0), target, known, scores, gamma, coef, beta, phi, work
    )
    return status
