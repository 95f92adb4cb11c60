"""Names in the state directories of version 0.1, with today's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamkernel.estimators.older_files import renamed, with_learner_table

SETUP = {"labels.key": "delayed_labels.key", "labels.time": "delayed_labels.time"}


def translate_setup(setup: Mapping[str, Any]) -> dict[str, Any]:
    """Return the setup that a checkpoint holds under today's names.

    Examples
    --------
    >>> setup = translate_setup({"labels.key": "id", "model": {"type": "KernelClassifier", "rule": "DSG"}})
    >>> setup["delayed_labels.key"], setup["model"]["learner"]
    ('id', {'type': 'DSG', 'rule': {'type': 'DSG'}})
    """
    found = {SETUP.get(key, key): renamed(value) for key, value in setup.items()}
    if isinstance(found.get("model"), dict):
        found["model"] = with_learner_table(found["model"])
    return found
