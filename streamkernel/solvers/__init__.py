"""Batch solvers for a window of a stream or any table: with a certificate (DSPDC), or sparse (AsyDSSKL).

The estimators are scikit-learn's and need it: ``pip install 'streamkernel[solvers]'``. The functions underneath them
do not.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_CLASSES: dict[str, str] = {
    "DSPDC": "streamkernel.solvers.dspdc",
    "AsyDSSKL": "streamkernel.solvers.asy_dsskl",
    "MultiTaskLMNN": "streamkernel.solvers.metric_learning",
}
__all__ = list(_CLASSES)


def __getattr__(name: str) -> Any:
    """Import an estimator when it is used, because importing scikit-learn takes long."""
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_CLASSES[name]), name)
