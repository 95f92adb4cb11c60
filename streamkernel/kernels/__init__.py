"""Kernels: the exact k(x, x'), and the form of their random features."""

from typing import Any

from streamkernel.kernels.additive import ChiSquared, Hellinger, Intersection, JensenShannon
from streamkernel.kernels.base import Kernel
from streamkernel.kernels.composite import OnInputs, Product, Scaled, Sum, Transformed
from streamkernel.kernels.dot_product import ArcCosine, DotProduct, Polynomial
from streamkernel.kernels.multi_scale import MultiScale
from streamkernel.kernels.semigroup import ExponentialSemigroup, ReciprocalSemigroup
from streamkernel.kernels.skewed import SkewedChiSquared, SkewedIntersection
from streamkernel.kernels.stationary import Cauchy, Gaussian, Laplacian, Matern

__all__ = [
    "ArcCosine",
    "Cauchy",
    "ChiSquared",
    "DotProduct",
    "ExponentialSemigroup",
    "Gaussian",
    "Hellinger",
    "Intersection",
    "JensenShannon",
    "Kernel",
    "Laplacian",
    "Matern",
    "MultiScale",
    "OnInputs",
    "Polynomial",
    "Product",
    "ReciprocalSemigroup",
    "Scaled",
    "SkewedChiSquared",
    "SkewedIntersection",
    "Sum",
    "Transformed",
]

_OLD_NAMES = {"Ladder": "MultiScale", "On": "OnInputs"}


def __getattr__(name: str) -> Any:
    """Raise the error that names today's name of a kernel of 0.1."""
    now = f", which is now {_OLD_NAMES[name]}" if name in _OLD_NAMES else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{now}")
