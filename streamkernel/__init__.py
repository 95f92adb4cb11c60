"""Kernel machines that learn from a stream, in bounded memory, as River estimators."""

# ruff: noqa: E402
from importlib import import_module
from typing import Any

from streamkernel.versions import check_interpreter, package_version

check_interpreter()

from streamkernel import kernels, learners, losses, research, rules, step_sizes
from streamkernel.conformal import ConformalClassifier, ConformalRegressor
from streamkernel.errors import DataWarning, InputError, MergeError, ModelFileError
from streamkernel.estimators.classifier import KernelClassifier
from streamkernel.estimators.densities import KernelDensityRatio, KernelNoveltyDetector
from streamkernel.estimators.drift import KernelDriftDetector
from streamkernel.estimators.gaussian_process import GaussianProcessRegressor
from streamkernel.estimators.random_features import RandomFeatures
from streamkernel.estimators.regressor import KernelRegressor
from streamkernel.estimators.several_targets import KernelMultiLabelClassifier, KernelMultiTargetRegressor
from streamkernel.estimators.standard_scaler import StandardScaler
from streamkernel.field_types import Fields
from streamkernel.learners.base import set_num_threads
from streamkernel.persistence import load, save
from streamkernel.time_series import Calendar, Lags, LastTarget

__version__ = package_version("streamkernel")

_WITH_EXTRAS = ("plot", "sklearn", "solvers")
"""Modules that need an extra, and are imported when they are used."""

__all__ = [
    "Calendar",
    "ConformalClassifier",
    "ConformalRegressor",
    "DataWarning",
    "Fields",
    "GaussianProcessRegressor",
    "InputError",
    "KernelClassifier",
    "KernelDensityRatio",
    "KernelDriftDetector",
    "KernelMultiLabelClassifier",
    "KernelMultiTargetRegressor",
    "KernelNoveltyDetector",
    "KernelRegressor",
    "Lags",
    "LastTarget",
    "MergeError",
    "ModelFileError",
    "RandomFeatures",
    "StandardScaler",
    "__version__",
    "kernels",
    "learners",
    "load",
    "losses",
    "research",
    "rules",
    "save",
    "set_num_threads",
    "step_sizes",
]


def __getattr__(name: str) -> Any:
    """Import a module that needs an extra when it is used."""
    if name not in _WITH_EXTRAS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
