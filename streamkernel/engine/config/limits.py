"""Upper limits of numbers in a configuration file, beyond which a run would not fit into memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB")


class Limit(NamedTuple):
    """The largest value of a parameter, and the least number of bytes per unit."""

    most: int
    n_bytes: Callable[[int], float]
    of: str = ""


def _one_each(n: int) -> float:
    return 8.0 * n


LIMITS = {
    "batch_size": Limit(1_000_000, _one_each),
    "cache_bytes": Limit(1 << 36, float),
    "features_per_seed": Limit(1 << 20, _one_each),
    "max_classes": Limit(10_000, _one_each, " for each feature"),
    "max_features": Limit(1 << 20, _one_each),
    "maximum_size_vocabulary": Limit(1 << 24, _one_each),
    "n_components": Limit(1 << 16, _one_each, " for each input"),
    "n_features": Limit(1 << 20, _one_each),
    "ngram_range": Limit(16, lambda n: 3.0 * n**2, " for each word"),
    "number_of_samples": Limit(1 << 16, _one_each),
    "window": Limit(10_000_000, _one_each),
    "window_size": Limit(10_000_000, _one_each, " for each input"),
    "FeatureHasher.n_features": Limit(1 << 32, _one_each),
    "GaussianProcessRegressor.n_features": Limit(1 << 14, lambda n: 8.0 * n**2),
    "PolynomialExtender.degree": Limit(8, lambda n: 8.0 * math.comb(n + 10, 10), " for a record of 10 inputs"),
}
"""Limits by parameter, or by class and parameter if it is another class's."""


def problem_with(kind: type, name: str, value: Any) -> str | None:
    """Return the reason why a value of a parameter is too large, if it is.

    Examples
    --------
    >>> from river.feature_extraction import PolynomialExtender
    >>> problem_with(PolynomialExtender, "degree", 40)
    'expected at most 8, got 40, which takes 82 GB or more for a record of 10 inputs'
    >>> problem_with(PolynomialExtender, "degree", 2)
    """
    limit = LIMITS.get(f"{kind.__name__}.{name}") or LIMITS.get(name)
    numbers = value if isinstance(value, (list, tuple)) else (value,)
    largest = max((number for number in numbers if type(number) is int), default=0)
    if limit is None or largest <= limit.most:
        return None
    memory = f"{_format_bytes(limit.n_bytes(largest))} or more{limit.of}"
    return f"expected at most {limit.most:,}, got {largest:,}, which takes {memory}"


def _format_bytes(n_bytes: float) -> str:
    i = min(int(math.log10(n_bytes) // 3), len(_UNITS) - 1)
    return f"{n_bytes / 1000.0**i:,.0f} {_UNITS[i]}"
