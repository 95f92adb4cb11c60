"""Derivatives of a function of random features by its inputs, for kernels whose features are phases.

A feature of ωᵀx turns, with coefficients a of its cosine and b of its sine, has the derivative

    2π (b cos 2πωᵀx - a sin 2πωᵀx) ω.
"""

from __future__ import annotations

import numpy as np

from streamkernel.errors import InputError
from streamkernel.features.compiled_kernel import IDENTITY, MULTI_SCALE, RUNG, CompiledKernel
from streamkernel.features.feature_maps import draw_block
from streamkernel.features.rows import F32, F64, U64
from streamkernel.jit import compiled
from streamkernel.kernels.program import KernelProgram


def check(plan: KernelProgram) -> None:
    """Raise an InputError for a kernel without known derivatives."""
    if not plan.is_plain or plan.parts_compiled["transform"][0] != IDENTITY:
        raise InputError(
            f'Expected method="sampling" for {plan.kernel!r}, got "gradient"; derivatives are known for Gaussian, '
            "Matern and other stationary kernels of the inputs as they are, and for a MultiScale of one of them"
        )


@compiled
def _draw(kernel, part, block_size, hashes, out):  # type: ignore[no-untyped-def]
    """Set ``out[j]`` to the entries of all directions of a part along name j."""
    for j in range(len(hashes)):
        for block in range(out.shape[1] // block_size):
            here = out[j, block * block_size : (block + 1) * block_size]
            draw_block(kernel, part, block_size, block, hashes[j], here)


def directions_along(kernel: CompiledKernel, block_size: int, hashes: U64, features: int, part: int = 0) -> F32:
    """Return the entries of the first directions of a part along names, shape (names, features)."""
    out = np.empty((len(hashes), features), np.float32)
    _draw(kernel, part, block_size, hashes, out)
    return out


def slopes(kernel: CompiledKernel, block_size: int, z: F32, coefficients: F64) -> F64:
    """Return the derivatives of f with respect to ωᵀr of each feature, for the scaled values r.

    The kernel has one part. The features `z` are in the order of blocks, components and features, as are the
    coefficients, shape (columns, 2 × features). The result has the shape (columns, features).
    """
    part, n = kernel.parts[0], len(z) // 2
    cosine, sine = z.reshape(-1, 2, block_size).astype(np.float64).transpose(1, 0, 2)
    a, b = coefficients.reshape(len(coefficients), -1, 2, block_size).transpose(2, 0, 1, 3)
    found = 2.0 * np.pi * float(part["scale"]) * (b * cosine - a * sine).reshape(len(coefficients), n)
    if part["form"] == MULTI_SCALE:
        found *= rungs(kernel, 0, block_size, n)
    return np.asarray(found)


def rungs(kernel: CompiledKernel, part: int, block_size: int, features: int) -> F64:
    """Return the scale factors of a `MultiScale` for the first features."""
    own = kernel.parts[part]
    rung = np.arange(features) // (block_size if own["shift"] else 1)
    packed = min(len(kernel.kept) - 1, features)
    rung[:packed] = kernel.kept[:packed, RUNG]
    return np.asarray(own["table"][rung % own["order"]])
