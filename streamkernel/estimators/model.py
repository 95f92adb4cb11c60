"""The model that an estimator owns: what it has learned, and the order of changes in which it learns.

Other threads and signals may interrupt it at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from streamkernel.errors import InputError
from streamkernel.estimators.model_state import Journal, State, restart
from streamkernel.estimators.outputs import Learner, ModelOutputs
from streamkernel.features import numeric_names
from streamkernel.features.directions import Directions
from streamkernel.features.rows import F64, Rows, check_dictionary
from streamkernel.features.scaling import Scales
from streamkernel.kernels import Kernel, bandwidth
from streamkernel.learners import schedule
from streamkernel.locking import OwnedLock, locked, on_copy
from streamkernel.upkeep.scheduler import BackgroundTasks
from streamkernel.upkeep.tasks import Task


class Model:
    """A function, and everything else that it has learned from a stream.

    State that other threads see changes in one compiled call or in one assignment of `state`. A journal in the state
    records the step in progress: the next call completes it, or undoes it if the example was not learned. The
    bandwidths of `kernel` may be pending; `new_function` returns an untrained function for a kernel and a number of
    columns. `max_features` is the cap as the estimator has it; `has_first` says whether the first examples decide more
    than bandwidths.
    """

    def __init__(
        self,
        name: str,
        outputs: ModelOutputs,
        kernel: Kernel,
        new_function: Callable[..., Learner],
        *,
        tasks: Sequence[Task] = (),
        max_features: int | str | None,
        is_scaled: bool,
        has_first: bool,
    ) -> None:
        self.name, self.outputs, self.kernel, self.tasks = name, outputs, kernel, tasks
        self.max_features, self._new_function, self._lock = max_features, new_function, OwnedLock()
        self.state = State(
            learner=self.new_learner(kernel, 1),
            scales=Scales() if is_scaled else None,
            first=() if kernel.is_pending or has_first else None,
            labels={},
            upkeep=None,
            numeric=numeric_names.NumericNames(fields={} if is_scaled else None),
            own=outputs.new_own(),
        )
        for task in tasks:
            self.check_task(task)
        self.state = replace(self.state, upkeep=self.new_upkeep())

    def new_learner(self, kernel: Kernel, columns: int) -> Learner:
        """Return an untrained function."""
        return self.outputs.learner(self._new_function, kernel, columns)

    def with_columns(self, columns: int) -> Learner:
        """Return an untrained function with a number of columns and the current bandwidths."""
        return self.new_learner(self.learner.kernel, columns)

    def new_upkeep(self) -> BackgroundTasks | None:
        """Return the periodic tasks of the model, or ``None`` without any."""
        return BackgroundTasks.new(self.tasks, self.with_columns) if self.tasks else None

    @property
    def learner(self) -> Learner:
        """The function."""
        return self.state.learner

    def score(self, x: Mapping[Hashable, Any]) -> tuple[Any, State]:
        """Return f(x), a float, or an array of shape (columns,) if there are several; and the state that it is from.

        Who needs more than the score takes it from this state, since another thread may have changed the model's.
        """
        try:
            while True:
                state = self.state
                if state.journal is not None or state.learner.is_unfinished:
                    state = self.complete()
                learner = state.learner
                score = learner.score_event(x, state.numeric, state.scales)
                if self.state.learner is learner:  # else it may have learned an example before it was replaced
                    return score, state
        except (InputError, TypeError, AttributeError, IndexError):
            self.check(x)
            raise

    def frozen(self) -> State:
        """Return a copy of the state at one moment that predicts, and that learning does not change."""
        while True:
            state = self.complete()
            copy, now = state.frozen(), self.state
            if now.learner is state.learner and now.labels is state.labels:  # else one of them has been replaced
                return copy

    def scores_of(self, rows: Rows) -> F64:
        """Return f of each row, shape (rows, columns)."""
        state = self.complete()
        return state.learner.scores(rows, state.scales)

    def check(self, x: Any) -> None:
        """Raise the most specific error for an example that cannot be used."""
        check_dictionary(x)
        self.learner.directions.plan.check(x)

    def complete(self) -> State:
        """Return the state after completing an interrupted step; a thread that learns completes its own."""
        state = self.state
        if (state.journal is not None or state.learner.is_unfinished) and not self._lock.is_busy:
            return self._recover_locked()
        return state

    @locked()
    def _recover_locked(self) -> State:
        """Return the state after completing an interrupted step, under the lock."""
        self.recover()
        return self.state

    def learn_event(
        self, x: Mapping[Hashable, Any], y: Any, w: float = 1.0, labels: Sequence[Any] = (), *, is_new: bool = False
    ) -> None:
        """Learn from one example of weight w with a target, or an array of several; its label or targets may be new."""
        state = self.state
        try:
            if not is_new and state.is_direct and state.learner.learn_event(x, y, w, state.numeric, state.scales):
                return
            directions = state.learner.directions
            row, numeric = directions.learnable_row(x, state.numeric, w)
            if is_new or not self.learn_alone(row, y, directions, numeric):
                self.learn_rows(row, np.array([y], np.float64), directions, numeric, labels, before=state.numeric)
        except (InputError, TypeError, AttributeError, IndexError):
            self.check(x)
            raise

    @locked()
    def learn_alone(
        self, rows: Rows, y: Any, directions: Directions, numeric: numeric_names.NumericNames, *scores_before: F64
    ) -> int:
        """Learn from the first rows without a journal, as far as a single compiled call is enough; return how many.

        `scores_before` is an array for f at each before it was learned, if that is asked for.
        """
        state = self.state
        learner = state.learner
        is_same = state.numeric is numeric and directions.store is learner.directions.store
        return learner.learn_alone(rows, y, state.scales, *scores_before) if state.is_plain and is_same else 0

    @locked()
    def learn_rows(
        self,
        rows: Rows,
        y: F64,
        directions: Directions,
        numeric: numeric_names.NumericNames,
        labels: Sequence[Any] = (),
        before: numeric_names.NumericNames | None = None,
    ) -> None:
        """Learn `rows` in order.

        `numeric` are the names with numeric values, including names of these examples, and `before` the names that
        these were added to; other names are joined with names of another thread. `labels` are the examples', if some
        may be new; `y` is set to their numbers.
        """
        self.recover()
        self.outputs.check(self.state.labels, labels)
        done = 0
        while done < len(y):
            state, last = self.state, len(y)
            if directions.store is not state.learner.directions.store:  # another function has taken its place
                directions = state.learner.directions
                rows = directions.adopt_rows(rows)
            if state.first is not None:
                last = done + 1
            elif state.upkeep is not None:
                last = min(last, done + state.upkeep.until_due())
            if labels:
                last, state = self.outputs.number_labels(state, labels, y, done, last)
            if state.numeric is not numeric:
                is_next = state.numeric is before
                state = replace(state, numeric=numeric if is_next else numeric_names.join_names(state.numeric, numeric))
            targets = y[done:last]
            self.offer(self.outputs.weigh(rows.part(done, last), targets, state), targets, state)
            done = last

    def offer(self, rows: Rows, y: F64, after: State, outputs_state: Any = None) -> None:
        """Learn rows with a state that may have a new label, and make the changes that follow; requires the lock."""
        learner, read = after.learner, np.empty_like(rows.values)
        self.learner.close()  # an event in another thread waits for the lock
        learner.close()
        self.state = after.with_journal(Journal(self.state, rows, y, read, learner.n_offered, outputs_state), after.own)
        try:
            learner.learn(rows, y, after.scales, read)
        finally:
            self.recover()

    def recover(self) -> None:
        """Complete the changes that follow from the learned examples, or undo an unlearned one; requires the lock."""
        state = self.state
        state.learner.finish()
        journal = state.journal
        if journal is None:
            state.learner.open()
            return
        learned = state.learner.n_offered - journal.offered
        if learned <= 0:
            self.state = journal.before
        else:
            after = state.with_journal(None, state.own if journal.own is None else journal.own)
            self.state = self._advance_state(after, journal, learned)
        self.learner.open()

    def _advance_state(self, state: State, journal: Journal, learned: int) -> State:
        """Return the state after the first examples of a journal have been learned."""
        outputs_state = self.outputs.own_after(state, journal.y[:learned])
        if outputs_state is not state.own:
            state = state.with_journal(None, outputs_state)
        if state.first is None and state.upkeep is None:
            return state
        rows, y = journal.rows.part(0, learned), journal.y[:learned]
        if state.first is not None:
            first = (*state.first, (rows, y[0]))
            is_due = bandwidth.is_due(len(first)) or bandwidth.is_enough([row for row, _ in first])
            return restart(state, first, self.kernel, self.name) if is_due else replace(state, first=first)
        if state.upkeep is not None:
            read = journal.rows._replace(values=journal.read).part(0, learned)
            learner, upkeep = state.upkeep.observe(state.learner, read, y)
            return replace(state, learner=learner, upkeep=upkeep)
        return state

    def _with_state(self, state: State) -> Self:
        """Return a model with the same parameters, another state and a lock of its own."""
        twin: Self = object.__new__(type(self))
        vars(twin).update(vars(self), _lock=OwnedLock(), state=state)
        return twin

    def _completed_copy(self) -> Self:
        """Return a copy that shares nothing that learning changes, after the step in progress or before it."""
        state = self.state
        if state.journal is not None and state.learner.n_offered <= state.journal.offered:
            state = state.journal.before
        scales = None if state.scales is None else state.scales.copy()
        twin = self._with_state(replace(state, learner=state.learner.copy(), scales=scales))
        twin.recover()
        return twin

    @locked(inside=on_copy)
    def to_predict(self) -> Self:
        """Return a copy that only predicts, in any number of threads, and shares no changing state."""
        self.recover()
        state = self.state
        scales = None if state.scales is None else state.scales.copy()
        learner = state.learner.to_predict_apart()
        return self._with_state(State(learner, scales, state.first, state.labels, None, state.numeric, state.own))

    @locked()
    def run_task(self, task: Task, events: Sequence[tuple[Mapping[Hashable, Any], Any]], tell: Any = None) -> Any:
        """Apply a task on some events at once, and return its gap if it has one."""
        from streamkernel.upkeep.work import do_task

        self.check_task(task)
        directions = self.learner.directions
        rows = Rows.stack([directions.row(x) for x, _ in events])
        y = np.array([self.number(y) for _, y in events], np.float64)
        self.recover()
        state = self.state
        rows = state.learner.directions.adopt_rows(rows)
        read = rows if state.scales is None else state.scales(rows)
        learner, gap = do_task(task, state.learner, read, y, self.with_columns, tell)
        self.state = replace(state, learner=learner)
        return gap

    def check_task(self, task: Task) -> None:
        """Raise a ValueError if a task can never be applied to this model."""
        if self.outputs.are_several:
            raise ValueError(f"Expected a model of one target for {task!r}, got a {self.name}")
        task.check(self.learner, self.max_features)

    def number(self, y: Any) -> float:
        """Return a target as a number."""
        return self.outputs.number(y, self.state.labels, self.name)

    @property
    def is_young(self) -> bool:
        """Whether the examples that decide bandwidths and scales are still being collected."""
        return self.state.first is not None or self.learner.examples < bandwidth.FIRST

    @property
    def is_provisional(self) -> bool:
        """Whether bandwidths of the current kernel will still change."""
        return self.kernel.is_pending and self.is_young

    @locked()
    def count_names(self, counts: Mapping[int, numeric_names.Count]) -> None:
        """Replace the counts of some names, by their hashes."""
        self.recover()
        state = self.state
        self.state = replace(state, numeric=state.numeric._replace(counts={**state.numeric.counts, **counts}))

    @locked()
    def settle(self) -> None:
        """Take the step for the buffered examples."""
        self.recover()
        self.learner.settle()

    @locked()
    def keep_still(self, others: Sequence[Model], do: Callable[[], None]) -> None:
        """Call a function while no thread learns with this model or with others."""
        self.recover()
        try:
            self.learner.close()
            while_still(others, do)
        finally:
            self.learner.open()

    def divide(self, number: int, replicas: int) -> None:
        """Become one of several replicas, which learn separately and restructure themselves only when merged."""
        self.learner.divide(number, replicas)

    def restructure(self, before: int) -> None:
        """Update the scales, and add and end groups, if that became due after the first `before` examples."""
        if self.state.scales is not None and schedule.last_due(self.learner.examples) > before:
            self.state.scales.use_moments()
        self.learner.restructure(before)


def while_still(models: Sequence[Model], do: Callable[[], None]) -> None:
    """Call a function while no thread learns with any of the models."""
    if models:
        models[0].keep_still(models[1:], do)
    else:
        do()
