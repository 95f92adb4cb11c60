"""What a run watches besides its metric; predictions are collected here, and evaluated many at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from streamkernel.engine.monitoring.several_metrics import SeveralMetrics, SeveralScores, text_of
from streamkernel.engine.pipelines import Answer


class MonitoringSnapshot(NamedTuple):
    """What is watched, at one moment; any thread may read it."""

    quality: SeveralScores | None

    def rows(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {"quality": None if self.quality is None else self.quality.rows()}


class Monitoring:
    """Collects predictions and their labels, and passes them on to what is watched.

    Parameters
    ----------
    quality
        More metrics, and metrics by segment.
    segment_field
        The input whose values are the segments.
    """

    def __init__(self, *, quality: SeveralMetrics | None = None, segment_field: str | None = None) -> None:
        self.quality, self._segment_field = quality, segment_field
        self._new: list[tuple[dict[str, Any], Any, Answer, bool]] = []

    @property
    def needs_probabilities(self) -> bool:
        """Whether anything is computed of probabilities."""
        return self.quality is not None and self.quality.needs_probabilities

    def add(self, x: dict[str, Any], y: Any, answer: Answer, is_new: bool) -> None:
        """Collect the features of a record, the label if it is known, and the answer, which may be an earlier one."""
        self._new.append((x, y, answer, is_new))

    def add_all(self, xs: Sequence[dict[str, Any]], ys: Sequence[Any], answers: Sequence[Answer]) -> None:
        """Collect records with their labels and new answers."""
        self._new += zip(xs, ys, answers, repeat(True))

    def fold(self) -> None:
        """Evaluate what was collected; how much at once changes no bit."""
        new, self._new = self._new, []
        if self.quality is not None:
            field = self._segment_field
            self.quality.fold(
                [
                    (y, answer[0], answer[1], None if field is None else text_of(x.get(field, "(missing)")))
                    for x, y, answer, _ in new
                    if y is not None
                ]
            )

    def snapshot(self) -> MonitoringSnapshot:
        """Return the current figures."""
        self.fold()
        return MonitoringSnapshot(None if self.quality is None else self.quality.scores())

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        self.fold()
        return {"quality": None if self.quality is None else self.quality.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, of which parts may be missing; what was collected since is dropped."""
        self._new = []
        if self.quality is not None and state.get("quality") is not None:
            self.quality.restore(state["quality"])
