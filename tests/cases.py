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


def covering(cases: Iterable[tuple[Any, ...]], together: int = 2) -> list[Any]:
    """Return some of many cases: for `make test` each two values that occur together, for `make test-all` each three.

    With another number than two `together`, `make test` runs each combination of so many values, and `make test-all`
    of one more. A failure that depends on so few values occurs in one of these cases.
    """
    few, rest = _choose(list(cases), together, [])
    more, _ = _choose(rest, together + 1, few)
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
