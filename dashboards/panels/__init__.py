"""The panels of the dashboards, for people on call and for the owners of a model."""

from __future__ import annotations

from dashboards.panels.consumer import CONSUMER
from dashboards.panels.health import HEALTH
from dashboards.panels.learning import LEARNING

DASHBOARDS = {
    "learning": ("streamkernel: learning", "Quality of the model, and how it learns.", LEARNING),
    "consumer": ("streamkernel: consumer", "Events, their rate, the lag, and dead letters.", CONSUMER),
    "health": ("streamkernel: health", "State of the process and its checkpoints.", HEALTH),
}
"""Title, description and panels of each dashboard, by the name of its file."""
