"""The papers' algorithms as they are printed, for comparison; the other modules have better ones.

`DSG` is from Dai et al. 2014, `UDSG` and `CDSG` are from Li and Póczos 2016, `DSPDC` is from Yu, Lin and Yang, and
`AsyDSSKL` is from Gu et al. 2018. Each docstring names the misprints that the class does not follow.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from streamkernel.research.doubly_stochastic import CDSG, DSG, UDSG
from streamkernel.research.gaussian_process import StochasticGaussianProcessRegressor

_SOLVERS = {"DSPDC": "streamkernel.research.primal_dual", "AsyDSSKL": "streamkernel.research.sparse"}
__all__ = ["CDSG", "DSG", "DSPDC", "UDSG", "AsyDSSKL", "StochasticGaussianProcessRegressor"]


def __getattr__(name: str) -> Any:
    """Import a solver when it is used, because few programs use one."""
    if name not in _SOLVERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_SOLVERS[name]), name)
