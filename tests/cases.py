"""Which cases of a test `make test` runs, and which it leaves to `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

import pytest
from hypothesis import settings


def slow(*values: Any) -> Any:
    """Return a case that is left to `make test-all`."""
    return pytest.param(*values, marks=pytest.mark.slow)


def pairwise(cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return all cases, of which few remain for `make test`: each two values that occur together do so in one of these.

    What fails for a value, or for two values together, fails there; three at once are left to `make test-all`.
    """
    rest = {case: set(combinations(enumerate(case), 2)) for case in cases}
    found = []
    while rest:
        best = max(rest, key=lambda case: len(rest[case]))  # the first of several
        new = rest.pop(best)
        found.append(best if new else slow(*best))
        if not new:
            break
        for pairs in rest.values():
            pairs -= new
    return found + [slow(*case) for case in rest]


def max_examples(n: int) -> settings:
    """Return settings of a property test: `n` examples, and fewer in `make test`, as its profile says."""
    return settings(max_examples=max(1, n * settings.default.max_examples // settings.get_profile("all").max_examples))
