"""Kernels: the exact k(x, x'), and what one seeded feature of each is."""

from streamkernel.kernels.stationary import Gaussian

__all__ = ["Gaussian"]
