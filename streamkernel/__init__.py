"""Kernel machines that learn from a stream, in bounded memory, as River estimators."""

# ruff: noqa: E402
from streamkernel.interpreter import check_interpreter

check_interpreter()

from streamkernel import kernels, losses, rules, steps
from streamkernel.classification import KernelClassifier
from streamkernel.density_ratio import KernelDensityRatio
from streamkernel.drift import KernelDriftDetector
from streamkernel.errors import InputError, MergeError, ModelFileError
from streamkernel.gaussian_process import GaussianProcessRegressor
from streamkernel.novelty import KernelNoveltyDetector
from streamkernel.random_features import RandomFeatures
from streamkernel.regression import KernelRegressor
from streamkernel.saved import load, save
from streamkernel.threads import set_num_threads
from streamkernel.versions import package_version

__version__ = package_version("streamkernel")

__all__ = [
    "GaussianProcessRegressor",
    "InputError",
    "KernelClassifier",
    "KernelDensityRatio",
    "KernelDriftDetector",
    "KernelNoveltyDetector",
    "KernelRegressor",
    "MergeError",
    "ModelFileError",
    "RandomFeatures",
    "__version__",
    "kernels",
    "load",
    "losses",
    "rules",
    "save",
    "set_num_threads",
    "steps",
]
