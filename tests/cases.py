"""The selection of cases that `make test` runs; `make test-all` runs all of them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

import pytest
from hypothesis import settings


def slow(*values: Any) -> Any:
    """Return a case that only `make test-all` runs."""
    return pytest.param(*values, marks=pytest.mark.slow)


def covering(cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return some of many cases: for `make test` each two values that occur together, for `make test-all` each three.

    What fails for a value, or for two or three together, fails in one of these; no case is for four at once alone.
    """
    few, rest = _choose(list(cases), 2, [])
    more, _ = _choose(rest, 3, few)
    return few + [slow(*case) for case in more]


def _choose(cases: list[Any], n: int, chosen: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return few cases that have each `n` values that occur together but not in those already chosen, and the rest."""
    known = {some for case in chosen for some in combinations(enumerate(case), n)}
    rest = {case: set(combinations(enumerate(case), n)) - known for case in cases}
    found = []
    while rest:
        best = max(rest, key=lambda case: len(rest[case]))  # the first of several
        if not rest[best]:
            break
        new = rest.pop(best)
        found.append(best)
        for others in rest.values():
            others -= new
    return found, list(rest)


def max_examples(n: int) -> settings:
    """Return settings of a property test: `n` examples, and fewer in `make test`, as its profile says."""
    return settings(max_examples=max(1, n * settings.default.max_examples // settings.get_profile("all").max_examples))
