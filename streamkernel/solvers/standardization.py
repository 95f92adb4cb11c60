"""Numbers brought to mean 0 and deviation 1, or to the median and the deviation that goes with it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamkernel.features.rows import F64

_NORMAL = 1.4826
"""The ratio of a normal distribution's standard deviation to its median absolute deviation."""


class Standard(NamedTuple):
    """An offset that is subtracted from numbers, and the unit by which they are divided."""

    center: Any = 0.0
    unit: Any = 1.0

    @classmethod
    def of(cls, values: F64, *, robust: bool = False) -> Standard:
        """Return the scale of mean and deviation, or of median and its deviation; the unit is 1 for a constant."""
        center = np.median(values, axis=0) if robust else values.mean(axis=0)
        unit = _NORMAL * np.median(np.abs(values - center), axis=0) if robust else values.std(axis=0)
        return cls(center, np.where(unit > 1e-12 * np.maximum(np.abs(center), 1e-300), unit, 1.0))

    def __call__(self, values: F64) -> F64:
        """Return the scaled numbers."""
        return np.asarray((values - self.center) / self.unit)
