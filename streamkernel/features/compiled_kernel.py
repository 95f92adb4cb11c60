"""The compiled form of a kernel and of a row of an example."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype, types

from streamkernel.features.rows import F32, F64, I64

PHASE, LINEAR, ADDITIVE, EXPONENTIAL, ARC_COSINE, SIGN_PRODUCTS, SKETCH, MULTI_SCALE = range(8)
"""Forms, with s = Σ ω_i v_i over the transformed inputs: exp(2πis); s; Σ √v_i sign(ω_i) exp(2πi|ω_i| log v_i);
exp(-s); √2 sⁿ for s > 0; products of as many s as are drawn; circular convolutions of count sketches; exp(2πis r) with
factors r of the table in turns."""

IDENTITY, ROOT, LOG = range(3)
"""Transforms of an input x: x, √x, log(1 + x/c). All are 0 at 0, so a missing input contributes nothing."""

MOST_DEGREE = 31
TABLE_SIZE = 2 * (MOST_DEGREE + 1)
"""The table of a power series: cumulative probabilities of its degrees, and √(aₙ/P[n]). That of several scales:
factors, as many as its order; its shift says how they take turns."""

BY_FEATURES, BY_BLOCKS, SHARED = 0.0, 1.0, 2.0
"""How the factors of several scales take turns: by features, or by blocks, of which as many as there are factors may
share their directions."""

PART = np.dtype(
    [
        ("distribution", "i8"),
        ("form", "i8"),
        ("transform", "i8"),
        ("order", "i8"),  # n of a form, or a degree
        ("key", "u8"),  # of the random numbers of its directions
        ("scale", "f8"),  # transformed inputs are multiplied by it
        ("shape", "f8"),  # a number of the distribution or of the form
        ("shift", "f8"),  # a number of the transform
        ("least", "f8"),  # smaller inputs are refused
        ("unit", "f8"),  # inputs are multiplied by it before they are compared with the largest usable value
        ("table", "f8", (TABLE_SIZE,)),
    ]
)
"""One part of a kernel."""

BLOCK, PLACE, RUNG = range(3)
"""Columns of `kept`, which has a row for each of the first features of a model that was pruned: the block it was drawn
in, its position there, and its factor of a scale, modulo their number. One row more has the number by which the blocks
after them are ahead of their positions, and how many blocks there may be in all."""

LARGEST_VALUE = 1e30
"""Inputs beyond this (in units of the kernel's length) would overflow float32 on the way to a feature."""

LARGEST_FEATURE = np.float32(1e15)
"""Features beyond this are refused: their squares would not be exact enough to learn from."""

SMALLEST = np.float32(1.2e-38)
"""The least normal float32."""

ROOM = 3
"""Vectors of a panel's width that one part needs to work in; with several parts each keeps two more."""


class CompiledKernel(NamedTuple):
    """A kernel in compiled form, k = Σ_t w_t ∏ parts of the term t.

    `parts` is an array of `PART`, `weights` are √w_t of each term, and `terms` is a mask of the parts that are factors
    of each term, shape (terms, parts). `cache` has entries of directions, shape (panels, names, parts, features), and
    `kept` the features that a pruned model kept.
    """

    parts: Any
    weights: F64
    terms: Any
    cache: F32
    kept: I64


class Entries(NamedTuple):
    """The values that each part reads from a row: non-zero, transformed, shape (parts, entries); and their number."""

    slots: I64
    hashes: Any
    values: F32
    counts: I64


class Span(NamedTuple):
    """A range of features, ``first <= i < last`` of a panel, whose blocks have `block_size` features each."""

    block_size: int
    panel: int
    first: int
    last: int


KERNEL = types.NamedTuple(
    [
        types.Array(from_dtype(PART), 1, "C"),
        types.float64[::1],
        types.uint8[:, ::1],
        types.float32[:, :, :, ::1],
        types.int64[:, ::1],
    ],
    CompiledKernel,
)
ENTRIES = types.NamedTuple(
    [types.int64[:, ::1], types.uint64[:, ::1], types.float32[:, ::1], types.int64[::1]], Entries
)
SPAN = types.NamedUniTuple(types.int64, len(Span._fields), Span)
VECTOR, VECTORS = types.float32[::1], types.float32[:, ::1]
