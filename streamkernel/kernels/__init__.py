"""Kernels: the exact k(x, x'), and the form of their random features."""

from streamkernel.kernels.base import Kernel
from streamkernel.kernels.composite import OnInputs, Product, Scaled, Sum, Transformed
from streamkernel.kernels.dot_product import ArcCosine, DotProduct, Polynomial
from streamkernel.kernels.histograms import (
    ChiSquared,
    ExponentialSemigroup,
    Hellinger,
    Intersection,
    JensenShannon,
    ReciprocalSemigroup,
    SkewedChiSquared,
    SkewedIntersection,
)
from streamkernel.kernels.stationary import Cauchy, Gaussian, Laplacian, Matern, MultiScale

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
