"""The state of a drift detector."""

from __future__ import annotations

from typing import NamedTuple

from streamkernel.estimators.model import Model
from streamkernel.features.rows import F64, Rows
from streamkernel.learners.append_log import Log


class PairsJournal(NamedTuple):
    """Pairs that are being learned: after an interruption it decides what to complete.

    Attributes
    ----------
    pairs
        An old and a new event of each.
    joining
        The event after each pair, which joins the window; some may be missing.
    statistics
        The evidence before the first pair and after each.
    offered
        The number of examples that the model had been offered before.
    """

    pairs: Rows
    joining: list[Rows]
    statistics: F64
    offered: int


class SeenEvents(NamedTuple):
    """The state of a detector, which is replaced in one assignment.

    Attributes
    ----------
    model
        The model of a classifier of old against new events.
    waiting
        The events in the window.
    waits
        Whether the next event joins them.
    statistic
        The evidence M_n.
    drift_detected
        Whether the last event raised an alarm.
    journal
        The pairs that are being learned.
    """

    model: Model
    waiting: Log[Rows]
    waits: bool = True
    statistic: float = 0.0
    drift_detected: bool = False
    journal: PairsJournal | None = None
