"""A single event in one compiled call: the arguments are addresses, explained in `streamkernel.places`."""

from __future__ import annotations

import numpy as np
from numba import njit

from streamkernel import forms, places, scoring, state, stepping
from streamkernel.places import example_at, f32_at, f64_at, ints_at, read

UNREAD, NO_ROOM = -2, -1
"""What is returned where an example could not be read from its dictionary, or, by :func:`learn_event`, where the arrays
have no room for another block; nothing is changed then."""


@njit(inline="always")
def _opened(model):  # type: ignore[no-untyped-def]
    """Return the table of a model, and its arrays as `streamkernel.stepping` knows them."""
    table = ints_at(model, places.N_PLACES)
    ints = ints_at(table[places.INTS], state.N_INTS)
    reals = f64_at(table[places.REALS], state.N_REALS)
    columns, outputs, parts = ints[state.COLUMNS], ints[state.OUTPUTS], ints[state.PARTS]
    width, panels = table[places.WIDTH], table[places.PANELS]
    where, cached_panels, cached_names = ints_at(table[places.CACHE], 3)
    kernel = (
        ints_at(table[places.PROGRAM], (parts, forms.TERMS + ints[state.TERMS])),
        f64_at(table[places.CONSTANTS], (parts + 1, forms.N_CONSTANTS)),
        f32_at(where, (cached_panels, cached_names, parts, width)),
        ints_at(table[places.KEPT], (table[places.KEPT_ROWS], 3)),
    )
    return (
        table,
        (ints, reals, kernel),
        f64_at(table[places.COEF], (panels, table[places.SUMMED], outputs, width)),
        f32_at(table[places.PHI], (panels, outputs, width)),
        f64_at(table[places.SCORES], (2, columns)),
    )


@njit(inline="always")
def _work(table, ints, of_parts):  # type: ignore[no-untyped-def]
    """Return the room that `streamkernel.stepping` works in; the entries' is in the example's record."""
    columns, outputs, width = ints[state.COLUMNS], ints[state.OUTPUTS], table[places.WIDTH]
    counts, room = of_parts
    entries = room[0], room[1].view(np.uint64), room[2].view(np.float32), counts
    vectors = f32_at(table[places.ROOM], (forms.ROOM + 2 * ints[state.PARTS], width))
    sums = f64_at(table[places.SUMS], (table[places.SUMMED], width))
    gradients = f64_at(table[places.GRADIENTS], (2, 1, columns))
    move = f64_at(table[places.MOVE], (columns, outputs, ints[state.PER_BLOCK]))
    return entries, vectors, sums, gradients, move


@njit(inline="always")
def _sort(n, columns):  # type: ignore[no-untyped-def]
    """Sort the values of an example by its names, and say whether the same bits were there before."""
    same = True
    for j in range(n):
        bits = columns[4, columns[3, j]]
        same &= columns[5, j] == bits
        columns[5, j] = bits
    return same


@njit(inline="always")
def _rows(n, columns):  # type: ignore[no-untyped-def]
    """Return the one row of an example."""
    start = np.zeros(2, np.int64)
    start[1] = n
    return start, columns[0], columns[1].view(np.uint64), columns[2], columns[5].view(np.float64)


@njit(cache=True)
def score_event(model, example, x):  # type: ignore[no-untyped-def]
    """Set the model's scores to those of an example, if they are not; return a status of `streamkernel.stepping`.

    `x` is the address of a dictionary with the example's values, or 0 if its record has them; else ``UNREAD``.
    """
    if x != 0 and not (example != 0 and read(example, x)):
        return UNREAD
    serial, n, columns, of_parts = example_at(example)
    table, (ints, reals, kernel), coef, phi, scores = _opened(model)
    if _sort(n, columns) and table[places.LAST] == serial:
        return state.DONE
    work = _work(table, ints, of_parts)
    usable = scoring.score(ints, reals, kernel, _rows(n, columns), np.int64(0), coef, phi, work, scores)
    table[places.LAST] = serial if usable else 0
    return state.DONE if usable else state.BAD_VALUE


@njit(cache=True)
def learn_event(model, example, x, y):  # type: ignore[no-untyped-def]
    """Take one step on an example as :func:`score_event` reads it; return a status of it, or ``NO_ROOM``.

    If it is the example that was scored last, its scores and features are at hand.
    """
    if x != 0 and not (example != 0 and read(example, x)):
        return UNREAD
    serial, n, columns, of_parts = example_at(example)
    table, (ints, reals, kernel), coef, phi, scores = _opened(model)
    if table[places.BETAS] == ints[state.BLOCKS] < ints[state.MOST_BLOCKS]:
        return NO_ROOM
    known = np.int64(_sort(n, columns) and table[places.LAST] == serial)
    table[places.LAST] = 0
    beta = f64_at(table[places.BETA], (table[places.BETAS], ints[state.COLUMNS]))
    gamma = f64_at(table[places.STEP], 1)[0]
    work, rows = _work(table, ints, of_parts), _rows(n, columns)
    target = np.full(1, y)
    status, _ = stepping.step(
        ints, reals, kernel, rows, np.int64(0), target, known, scores, gamma, coef, beta, phi, work
    )
    return status
