"""Whether models that learn separately can be merged: the reasons why not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamkernel.engine.group import step_merging
from streamkernel.engine.pipelines import first_steps, last_step
from streamkernel.estimators.base import KernelModel


def merge_problems(pipeline: Any, where: str) -> Iterator[str]:
    """Yield the reasons why copies of a pipeline cannot be merged.

    Parameters
    ----------
    pipeline
        The preprocessing steps and the model, or the model alone.
    where
        Where they would be merged, for the messages.

    Examples
    --------
    >>> from streamkernel import KernelClassifier, KernelMultiTargetRegressor, upkeep
    >>> list(merge_problems(KernelMultiTargetRegressor(), "on a cluster"))
    []
    >>> list(merge_problems(KernelClassifier(pruning=upkeep.Pruning()), "on a cluster"))
    ['model.pruning: expected none on a cluster, got a Pruning']
    """
    model = last_step(pipeline)
    if not isinstance(model, KernelModel):
        yield f"model: expected KernelClassifier or KernelRegressor {where}, got {type(model).__name__}"
    else:
        for name in ("pruning", "refit"):
            if getattr(model, name) is not None:
                yield f"model.{name}: expected none {where}, got a {type(getattr(model, name)).__name__}"
    for i, step in enumerate(first_steps(pipeline).values()):
        problem = step_merging.problem(step)
        if problem:
            yield f"preprocessing[{i}]: {problem}"
