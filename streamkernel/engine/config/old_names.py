"""Names of version 0.1 in configuration files, and messages with today's names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

KEYS: dict[str, dict[str, str]] = {
    "": {"labels": "this table is now [delayed_labels]"},
    "labels": {"max_seconds": "this key is now timeout_seconds"},
    "delayed_labels": {"max_seconds": "this key is now timeout_seconds"},
    "source": {"key_field": "this key is now key_as_field"},
    "kafka": {"delivery": "this key is now processing_guarantee"},
    "cluster": {"round_events": "this key is now events_per_round"},
    "model": {
        "compaction": 'this key is now pruning, and the type "Compaction" is now "Pruning"',
        "polish": 'this key is now refit, and the type "Polish" is now "Refit"',
        "second_order": 'this key is now learner = "newton", { type = "Newton", joint = true } or "dsg"',
        "forgetting": 'this key is now one of the learner, learner = { type = "Newton", forgetting = ... }',
        "rule": 'this key is now one of the learner, learner = { type = "DSG", rule = ... }',
        "preconditioning": 'this key is now one of the learner, learner = { type = "DSG", preconditioner = ... }',
        "average": 'this key is now one of the learner, learner = { type = "DSG", averaging = ... }',
        "step": 'this key is now one of the learner, learner = { type = "DSG", step_size = ... }',
        "features_per_seed": "this key is now one of the learner, learner = { type = ..., features_per_seed = ... }",
        "batch_size": "this key is now one of the learner, learner = { type = ..., batch_size = ... }",
    },
}
"""Messages for old keys, by the path of their table without row numbers."""

PARAMETERS = {"multiple": "this key is now median_factor", "longest": "this key is now max_step_ratio"}
"""Old parameters of kernels and rules, in any table."""

VALUES: dict[str, dict[str, str]] = {"source.order": {"free": 'the value "free" is now "arrival"'}}
"""Messages for old values, by the path of their key."""


def sentence_of_key(table: str, key: str) -> str | None:
    """Return the message for an old key, or ``None`` for any other.

    Examples
    --------
    >>> sentence_of_key("kafka", "delivery"), sentence_of_key("kafka", "servers")
    ('this key is now processing_guarantee', None)
    """
    return KEYS.get(re.sub(r"\[\d+\]", "", table), {}).get(key) or PARAMETERS.get(key)


def sentence_of_value(path: str, value: Any) -> str | None:
    """Return the message for an old value, or ``None`` for any other.

    Examples
    --------
    >>> sentence_of_value("source.order", "free"), sentence_of_value("source.order", "arrival")
    ('the value "free" is now "arrival"', None)
    """
    return VALUES.get(path, {}).get(value) if isinstance(value, str) else None


def problems_in(path: str, table: Any) -> Iterator[str]:
    """Yield the problems of old keys in a table that has an old name itself, so that all are reported at once.

    Examples
    --------
    >>> list(problems_in("labels", {"key": "id", "max_seconds": 60}))
    ['labels.max_seconds: this key is now timeout_seconds']
    """
    for key in table if isinstance(table, dict) else ():
        if sentence := sentence_of_key(path, key):
            yield f"{path}.{key}: {sentence}"
