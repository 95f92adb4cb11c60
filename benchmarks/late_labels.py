"""Coverage of a run whose labels come late: adaptation by the order of labels, beside one by the intervals given.

The errors of a model are normal, and their deviation is constant, changes fourfold every 6,000 events, or wanders.
Intervals are judged as they were given. The threshold learns from each label when it comes: as the engine does, by
whether the label is outside the interval of now; or by whether it was outside the interval given, as in adaptive
conformal inference without delay.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterator
from typing import Any

from benchmarks.common import arguments, show
from streamkernel.conformal.adaptive_level import OFFSET_STEP
from streamkernel.engine.coverage import Coverage

TARGET = 0.9


class ByGivenInterval(Coverage):
    """The offset of the level takes its step by the interval that was given."""

    def judge(self, x: Any, y: Any, answer: Any) -> None:
        """Learn from a label."""
        level = self._scores._level
        before, is_missed = level.offset, abs(y - answer[0]) > answer[2]
        super().judge(x, y, answer)
        if level.offset != before:
            level.offset = before + OFFSET_STEP * (level.alpha - is_missed)


def deviations(drift: str, n: int) -> Iterator[float]:
    """Yield the deviation of the error of each event."""
    chance, deviation = random.Random(2), 1.0
    for i in range(n):
        if drift == "abrupt":
            deviation = 4.0 if (i // 6000) % 2 else 1.0
        elif drift == "wandering":
            deviation = max(0.2, deviation * (1.0 + chance.gauss(0.0, 0.005)))
        yield deviation


def measured(coverage: Coverage, drift: str, delay: int, n: int) -> list[str]:
    """Return the share of labels inside, and of infinite intervals after the first label."""
    chance, waiting = random.Random(1), deque[tuple[float, Any]]()
    infinite = 0
    for deviation in deviations(drift, n):
        threshold = coverage.threshold(None)
        infinite += threshold == math.inf and coverage.judged > 0
        waiting.append((chance.gauss(0.0, deviation), (0.0, None, threshold)))
        if len(waiting) > delay:
            coverage.judge(None, *waiting.popleft())
    return [f"{coverage.inside / coverage.judged:.3f}", f"{infinite / n:.3f}"]


def main() -> None:
    """Print a table."""
    options = arguments(__doc__, events=30_000)
    lines = [
        [drift, f"{delay:,}"]
        + [
            value
            for kind in (Coverage, ByGivenInterval)
            for value in measured(kind(TARGET), drift, delay, options.events)
        ]
        for drift in ("constant", "abrupt", "wandering")
        for delay in (0, 100, 1000, 5000)
    ]
    columns = ["errors", "delay", "inside", "infinite", "inside, by given", "infinite, by given"]
    show(f"coverage {TARGET}, {options.events:,} events", columns, lines)


if __name__ == "__main__":
    main()
