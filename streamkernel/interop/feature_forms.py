"""Feature maps of a frozen function beyond projections: sums over names, products of signs, sketches.

Their formulas resemble the formulas of :mod:`streamkernel.interop.numpy_predictor`, and the ONNX graph has them too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamkernel.interop.numpy_predictor import FORMS, turned


def additive(xp: Any, part: Any, own: Any, v: Any) -> tuple[Any, Any]:
    """Return Σ √v sign(ω) exp(2πi|ω| log v)."""
    re = im = 0.0
    for j, (size, sign) in enumerate(
        zip(abs(own["directions"]), np.where(own["directions"] > 0.0, 1.0, -1.0).astype(np.float32), strict=True)
    ):
        one = xp.take(v, [j], axis=1)
        c, s = turned(xp, xp.log(xp.maximum(one, 1.2e-38)) * part["shape"] * size)
        re, im = re + xp.sqrt(one) * sign * c, im + xp.sqrt(one) * sign * s
    return re, im


def sign_products(xp: Any, part: Any, own: Any, v: Any) -> tuple[Any, Any]:
    """Return the products of projections on signs, as many factors as each feature's degree."""
    re = own["weights"]
    for i in range(int(own["degrees"].max())):
        s = v @ np.where(own["words"] >> np.uint32(i) & np.uint32(1), 1.0, -1.0).astype(np.float32)
        re = re * xp.where(own["degrees"] > i, s, 1.0)
    return re + 0.0 * xp.take(v, [0], axis=1), None


def sketch(xp: Any, part: Any, own: Any, v: Any) -> tuple[Any, Any]:
    """Return circular convolutions of count sketches, as products of their Fourier transforms."""
    blocks, size = own["buckets"].shape[2], part["block"]
    re: Any = None
    im: Any = None
    angle = 2.0 * np.pi * np.arange(size) / size
    for bucket, sign in zip(own["buckets"], own["signs"], strict=True):
        turn = np.exp(-1j * bucket[:, :, None] * angle) * sign[:, :, None]
        turn = turn.reshape(len(turn), -1) * np.append(np.ones(len(turn) - 1), part["shape"])[:, None]
        c, d = ((v @ one[:-1].astype(np.float32) + one[-1].astype(np.float32)) for one in (turn.real, turn.imag))
        re, im = (c, d) if re is None else (re * c - im * d, re * d + im * c)
    back = np.exp(1j * np.arange(size)[:, None] * angle) / size**0.5
    re, im = (spectrum.reshape((-1, blocks, size)) for spectrum in (re, im))
    out = re @ back.real.astype(np.float32) - im @ back.imag.astype(np.float32)
    return out.reshape((-1, blocks * size)), None


ALL = FORMS | {"additive": additive, "sign_products": sign_products, "sketch": sketch}
"""All forms of features."""
