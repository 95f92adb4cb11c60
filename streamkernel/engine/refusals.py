"""Reasons of dead letters."""

from __future__ import annotations

from streamkernel.connectors import Event, Refusal
from streamkernel.errors import DivergedError, InputError, JoinError, LabelError, TooManyClassesError

REASONS = {
    "classes": TooManyClassesError,
    "label": LabelError,
    "join": JoinError,
    "diverged": DivergedError,
    "value": InputError,
    "error": Exception,
}
"""Kinds of refused records by their error; unreadable ones are ``unreadable``."""

KINDS = ("unreadable", *REASONS, "output")
"""Kinds of dead letters."""


def refusal_of(event: Event, error: Exception) -> Refusal:
    """Return the dead letter's reason for an error that a record raised."""
    kind = next(kind for kind, of in REASONS.items() if isinstance(error, of))
    name = type(error).__name__
    text = str(error) if isinstance(error, InputError) else f"{name}: {error}"
    return Refusal(text, "unreadable" if event.record is None else kind, f"{type(error).__module__}.{name}")
