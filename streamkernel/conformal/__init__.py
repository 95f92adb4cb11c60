"""Conformal prediction under drift: intervals and sets of labels around any River model."""

from streamkernel.conformal.classifier import ConformalClassifier
from streamkernel.conformal.regressor import ConformalRegressor, Interval

__all__ = ["ConformalClassifier", "ConformalRegressor", "Interval"]
