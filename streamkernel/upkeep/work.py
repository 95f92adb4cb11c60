"""Execution of a task on a function, or on a whole model."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from streamkernel.errors import InputError
from streamkernel.features.rows import F64, Rows
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.solvers.progress import Tell
from streamkernel.upkeep.pruning import prune
from streamkernel.upkeep.refit import refit
from streamkernel.upkeep.tasks import Build, Function, Pruning, Refit, Task


def do_task(
    task: Task, function: Function, rows: Rows, y: F64, build: Build, tell: Tell | None = None
) -> tuple[Function, float | None]:
    """Return the result of a task for a function on some rows, and its gap if it has one.

    Raises
    ------
    ValueError
        If the task cannot be applied to this function.
    """
    if isinstance(task, Pruning):
        if isinstance(function, SecondOrderLearner) and function.is_packed:
            raise ValueError("Expected a second-order model that has not been pruned, got a pruned one")
        return prune(function, rows, y, task.keep, build, tell), None
    if not isinstance(task, Refit) or not isinstance(function, FirstOrderLearner):
        raise ValueError('Expected a model with learner="dsg" to refit, got one that takes Newton steps')
    return refit(function, rows, y, task, build, tell)


class SupportsTasks(Protocol):
    """A model to which tasks can be applied."""

    def run_task(
        self, task: Task, events: Sequence[tuple[Mapping[Hashable, Any], Any]], tell: Tell | None
    ) -> float | None:
        """Apply a task on some events, and return its gap if it has one."""


def apply(
    task: Task, model: SupportsTasks, events: Iterable[tuple[Mapping[Hashable, Any], Any]], tell: Tell | None = None
) -> float | None:
    """Apply a task to a model immediately.

    Parameters
    ----------
    task : Task
        A :class:`~streamkernel.upkeep.Pruning` or a :class:`~streamkernel.upkeep.Refit`. Its `window` is the number of
        last events that are used; its `every` has no effect.
    model : SupportsTasks
        A classifier or a regressor, which is changed.
    events : iterable of tuple of dict and target
        Features and targets.
    tell : Tell or None, default None
        Called with the progress.

    Returns
    -------
    float or None
        The primal-dual gap that a refit ended with.

    Raises
    ------
    InputError
        If there are fewer than two events, or an event has a label that the model does not know or a target that is
        not a number.
    ValueError
        If the task cannot be applied to this model.

    Examples
    --------
    >>> from streamkernel import KernelRegressor, upkeep
    >>> model = KernelRegressor(learner="dsg")
    >>> events = [({"x": i % 10}, float(i % 10)) for i in range(1000)]
    >>> for x, y in events:
    ...     model.learn_one(x, y)
    >>> upkeep.apply(upkeep.Refit(tol=1e-6), model, events) <= 1e-6
    True
    >>> upkeep.apply(upkeep.Pruning(), model, events)
    >>> model.n_features
    256
    """
    last = [*events][-task.window :]
    if len(last) < 2:
        raise InputError(f"Expected two events or more, got {len(last)}")
    return model.run_task(task, last, tell)
