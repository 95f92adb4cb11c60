"""Variants from the papers, for comparison; the other modules have better ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamkernel.estimators.stochastic_gaussian_process import StochasticGaussianProcessRegressor

if TYPE_CHECKING:
    from streamkernel.solvers.asy_dsskl import PaperAsyDSSKL

__all__ = ["PaperAsyDSSKL", "StochasticGaussianProcessRegressor"]


def __getattr__(name: str) -> Any:
    """Import the solver when it is used: it needs scikit-learn."""
    if name != "PaperAsyDSSKL":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from streamkernel.solvers.asy_dsskl import PaperAsyDSSKL

    return PaperAsyDSSKL
