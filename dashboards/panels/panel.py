"""A panel of a dashboard."""

from __future__ import annotations

from dataclasses import dataclass

AT = 'job=~"$job", instance=~"$instance"'
"""The labels that the variables of a dashboard choose."""


@dataclass(frozen=True)
class Panel:
    """A panel of a dashboard.

    Parameters
    ----------
    title, description
        Its title, and an explanation for the reader who is on call.
    unit
        Grafana's name of the unit.
    queries
        Expressions with their legends; ``$at`` stands for `AT`.
    above, below
        The threshold above which, or below which, it is red.
    kind
        ``"timeseries"``, or ``"stat"`` for the last number only.
    """

    title: str
    description: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    above: float | None = None
    below: float | None = None
    kind: str = "timeseries"

    @property
    def expressions(self) -> list[tuple[str, str]]:
        """The expressions as Grafana reads them, with their legends."""
        return [(query.replace("$at", AT), legend) for query, legend in self.queries]
