"""Features and labels that never find each other: their shares, the likely cause, and a warning."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import structlog

from streamkernel.engine.delayed_labels import DelayedLabels
from streamkernel.engine.health import REPORT_SECONDS

MANY = 100
"""Lost features or labels that are reported, where none is joined or they are more than `SHARE`."""

SHARE = 0.05
"""A share of lost features or labels that is reported."""

FEATURES, LABELS = ("expired", "evicted"), ("late", "unmatched")
"""Outcomes of lost features, and of lost labels."""

LATER = "raise delayed_labels.timeout_seconds or max_pending, or send labels sooner"
OTHER_KEYS = "compare their keys, unless the run has not seen the features of these labels"
"""Advice."""

log = structlog.get_logger("streamkernel")


def shares_of(counts: Mapping[str, int]) -> dict[str, float]:
    """Return the share of each outcome of a loss, among the features or labels that are joined or lost.

    Examples
    --------
    >>> shares_of({"joined": 60, "expired": 20, "evicted": 20, "late": 0, "unmatched": 0})
    {'expired': 0.2, 'evicted': 0.2, 'late': 0.0, 'unmatched': 0.0}
    """
    shares: dict[str, float] = {}
    for outcomes in (FEATURES, LABELS):
        n = counts["joined"] + sum(counts[outcome] for outcome in outcomes)
        shares |= {outcome: counts[outcome] / max(1, n) for outcome in outcomes}
    return shares


def why_none_joins(since_joined: Mapping[str, int]) -> str:
    """Return why no label has been joined for long, or an empty text if one has, or none is missing yet.

    Examples
    --------
    >>> why_none_joins({"features": 500, "early": 0, "late": 0, "lost": 400})
    'no label has come for the last 500 features, and 400 were dropped unlearned: look for the source of labels'
    """
    features, early, late, lost = (since_joined[name] for name in ("features", "early", "late", "lost"))
    if late >= MANY and lost >= late:
        return f"the last {late:,} labels came after their features were dropped: {LATER}"
    if early >= MANY and features >= MANY:
        return f"none of the last {early:,} labels has the key of one of the last {features:,} features: {OTHER_KEYS}"
    if lost >= MANY:
        came = f"{early + late:,} labels have" if early + late else "no label has"
        what = f"{came} come for the last {features:,} features, and {lost:,} were dropped unlearned"
        return f"{what}: {OTHER_KEYS if early + late else 'look for the source of labels'}"
    return ""


def _cause(lost: Mapping[str, int]) -> str:
    """Return the likely cause of the largest loss."""
    most = max(lost, key=lost.__getitem__)
    if most == "unmatched":
        return OTHER_KEYS
    if most == "late":
        return LATER
    limit = "max_pending" if most == "evicted" else "timeout_seconds"
    return f"labels are missing, have other keys, or come later than delayed_labels.{limit} allows"


class LabelLosses:
    """Reports lost features and labels, at most once a minute and at the end. `labels` is the join of both."""

    def __init__(self, labels: DelayedLabels) -> None:
        self._labels = labels
        self._before, self._next = dict(labels.counts), 0.0

    def report(self) -> None:
        """Log a warning if many features or labels have been lost since the last one, or if none is joined."""
        labels, now = self._labels, time.monotonic()
        new = {outcome: max(0, n - self._before.get(outcome, 0)) for outcome, n in labels.counts.items()}
        if now < self._next or not any(new.values()):
            return
        reason, shares = why_none_joins(labels.since_joined), shares_of(new)
        lost = {outcome: new[outcome] for outcome in shares}
        if not reason and max(shares.values()) >= SHARE and sum(lost.values()) >= MANY:
            reason = _cause(lost)
        if reason:
            self._before, self._next = dict(labels.counts), now + REPORT_SECONDS
            figures = self._figures(new["joined"], lost, labels.last_keys)
            log.warning("labels and features do not join", reason=reason, **figures)

    def report_end(self) -> None:
        """Log the features and labels that are left without each other at the end of the stream.

        Predictions that alone are left are no warning, if others have been joined: their labels may come in another
        run.
        """
        labels, counts = self._labels, self._labels.counts
        lost = {outcome: counts[outcome] for outcome in (*FEATURES, *LABELS)}
        lost["unmatched"] += labels.n_early
        if not len(labels) and not any(lost.values()):
            return
        is_usual = counts["joined"] > 0 and not any(lost.values())
        reason = _cause(lost) if any(lost.values()) else "no label has come for pending features"
        figures = self._figures(counts["joined"], lost, labels.keys_left())
        tell = log.info if is_usual else log.warning
        tell("the stream has ended without some labels or features", reason=reason, **figures)

    def _figures(self, joined: int, lost: Mapping[str, int], keys: Mapping[str, str]) -> dict[str, Any]:
        """Return the fields of a line of the log: counts that are not 0, and the last keys."""
        counts = {"joined": joined} | {name: n for name, n in lost.items() if n}
        return counts | {"pending": len(self._labels)} | {f"key_of_{name}": key for name, key in keys.items()}
