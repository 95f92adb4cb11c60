"""Names in the state directories of version 0.1, with today's names; a model without a learner is of 0.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamkernel.estimators.older_files import translate_names, with_learner_table

SETUP = {"labels.key": "delayed_labels.key", "labels.time": "delayed_labels.time"}


def with_learner(model: Any) -> Any:
    """Return the table of a model as a state keeps it: with its learner, which a table of 0.1 never has.

    So the two can be distinguished: without a learner, 0.1 took first-order steps where there was `l2`, and models of
    today take Newton steps.

    Examples
    --------
    >>> with_learner({"type": "KernelClassifier", "l2": 0.1})
    {'type': 'KernelClassifier', 'l2': 0.1, 'learner': {'type': 'Newton'}}
    """
    if not isinstance(model, Mapping) or model.get("type") not in ("KernelClassifier", "KernelRegressor"):
        return model
    return {**model, "learner": model.get("learner") or {"type": "Newton"}}


def translate_setup(setup: Mapping[str, Any]) -> dict[str, Any]:
    """Return the setup that a checkpoint holds under today's names.

    Examples
    --------
    >>> setup = translate_setup({"labels.key": "id", "model": {"type": "KernelClassifier", "rule": "DSG"}})
    >>> setup["delayed_labels.key"], setup["model"]["learner"]
    ('id', {'type': 'DSG', 'rule': {'type': 'DSG'}})
    """
    found = {SETUP.get(key, key): translate_names(value) for key, value in setup.items()}
    if isinstance(found.get("model"), dict):
        found["model"] = with_learner_table(found["model"])
    return found
