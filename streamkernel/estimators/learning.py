"""Learning and predicting with a model that other threads and signals may interrupt at any time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from streamkernel.errors import InputError
from streamkernel.estimators import model_file
from streamkernel.estimators.first_examples import restart
from streamkernel.estimators.model_state import Journal, State
from streamkernel.features import numeric_names
from streamkernel.features.directions import Directions
from streamkernel.features.rows import F64, Rows, check_dictionary
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.kernels import Kernel, bandwidth
from streamkernel.learners import schedule
from streamkernel.locking import OwnedLock, locked, on_copy
from streamkernel.second_order.mixture import SecondOrderLearner

log = logging.getLogger(__name__)


class LearningModel(model_file.Serializable):
    """A function, and the order of changes in which it learns.

    State that other threads see changes in one compiled call or in one assignment of `_state`. A journal in the state
    records the step in progress: the next call completes it, or undoes it if the example was not learned.
    """

    _lock: OwnedLock
    _state: State
    _wanted: Kernel

    @property
    def _learner(self) -> FirstOrderLearner | SecondOrderLearner:
        return self._state.learner

    def _score(self, x: Mapping[Hashable, Any]) -> tuple[Any, State]:
        """Return f(x), a float, or an array of shape (columns,) if there are several; and the state that it is from.

        Who needs more than the score takes it from this state, since another thread may have changed the model's.
        """
        try:
            while True:
                found = self._state
                if found.journal is not None or found.learner.is_unfinished:
                    found = self._complete()
                learner = found.learner
                score = learner.score_event(x, found.numeric, found.scales)
                if self._state.learner is learner:  # else it may have learned an example before it was replaced
                    return score, found
        except (InputError, TypeError, AttributeError, IndexError):
            self._check(x)
            raise

    def _frozen(self) -> State:
        """Return a copy of the state at one moment that predicts, and that learning does not change."""
        while True:
            found = self._complete()
            copy, now = found.frozen(), self._state
            if now.learner is found.learner and now.labels is found.labels:  # else one of them has been replaced
                return copy

    def _scores_of(self, rows: Rows) -> F64:
        """Return f of each row, shape (rows, columns)."""
        found = self._complete()
        return found.learner.scores(rows, found.scales)

    def _check(self, x: Any) -> None:
        """Raise the most specific error for an example that cannot be used."""
        check_dictionary(x)
        self._learner.directions.plan.check(x)

    def _complete(self) -> State:
        """Return the state after completing an interrupted step; a thread that learns completes its own."""
        found = self._state
        if (found.journal is not None or found.learner.is_unfinished) and not self._lock.locked():
            return self._recover_locked()
        return found

    @locked()
    def _recover_locked(self) -> State:
        """Return the state after completing an interrupted step, under the lock."""
        self._recover()
        return self._state

    def _learn_event(
        self,
        x: Mapping[Hashable, Any],
        y: Any,
        w: float = 1.0,
        labels: Sequence[Any] = (),
        *,
        is_new: bool = False,
    ) -> None:
        """Learn from one example of weight w with a target, or an array of several; its label or targets may be new."""
        found = self._state
        try:
            if not is_new and found.is_direct and found.learner.learn_event(x, y, w, found.numeric):
                return
            directions = found.learner.directions
            row, numeric = directions.learnable_row(x, found.numeric, w)
            if is_new or not self._learn_alone(row, y, directions, numeric):
                self._learn(row, np.array([y], np.float64), directions, numeric, labels, before=found.numeric)
        except (InputError, TypeError, AttributeError, IndexError):
            self._check(x)
            raise

    @locked()
    def _learn_alone(
        self, rows: Rows, y: Any, directions: Directions, numeric: numeric_names.NumericNames, *said: F64
    ) -> int:
        """Learn from the first rows without a journal, as far as a single compiled call is enough; return how many.

        `said` is an array for f at each before it was learned, if that is asked for.
        """
        found = self._state
        learner = found.learner
        is_same = found.numeric is numeric and directions.store is learner.directions.store
        return learner.learn_alone(rows, y, found.scales, *said) if found.is_plain and is_same else 0

    @locked()
    def _learn(
        self,
        rows: Rows,
        y: F64,
        directions: Directions,
        numeric: numeric_names.NumericNames,
        labels: Sequence[Any] = (),
        before: numeric_names.NumericNames | None = None,
    ) -> None:
        """Learn `rows` in order.

        Parameters
        ----------
        rows, y
            The examples, and their targets as numbers.
        directions
            The directions that read the rows.
        numeric
            The names with numeric values, including those of these examples.
        labels
            The labels of the examples, if some may be new; `y` is set to their numbers.
        before
            The names that these examples were added to; other names are joined with those of another thread.
        """
        self._recover()
        self._check_labels(labels)
        done = 0
        while done < len(y):
            found, last = self._state, len(y)
            if directions.store is not found.learner.directions.store:  # another function has taken its place
                directions = found.learner.directions
                rows = directions.adopt_rows(rows)
            if found.first is not None:
                last = done + 1
            elif found.upkeep is not None:
                last = min(last, done + found.upkeep.until_due())
            if labels:
                last, found = self._number_labels(found, labels, y, done, last)
            if found.numeric is not numeric:
                is_next = found.numeric is before
                found = replace(found, numeric=numeric if is_next else numeric_names.join_names(found.numeric, numeric))
            self._offer(self._weigh_rows(rows.part(done, last), y[done:last], found), y[done:last], found)
            done = last

    def _weigh_rows(self, rows: Rows, y: F64, found: State) -> Rows:
        """Return rows, which come after `found`, with the weights of their classes."""
        return rows

    def _number_labels(self, found: State, labels: Sequence[Any], y: F64, first: int, last: int) -> tuple[int, State]:
        """Set `y` to the numbers of labels, up to a new label after the first; a new first label is added.

        Return the index of that label, or `last`, and the state.
        """
        for i in range(first, last):
            number = found.labels.get(labels[i])
            if number is None:
                if i > first:
                    return i, found
                found = self._with_label(found, labels[i])
                number = found.labels[labels[i]]
            y[i] = number
        return last, found

    def _check_labels(self, labels: Sequence[Any]) -> None:
        """Raise an InputError if one of these labels cannot be learned."""

    def _with_label(self, found: State, label: Any) -> State:
        """Return the state extended by a new label."""
        raise NotImplementedError

    def _offer(self, rows: Rows, y: F64, after: State, own: Any = None) -> None:
        """Learn rows with a state that may have a new label, and make the changes that follow; requires the lock."""
        learner, read = after.learner, np.empty_like(rows.values)
        self._learner.close()  # an event in another thread waits for the lock
        learner.close()
        self._state = after.with_journal(Journal(self._state, rows, y, read, learner.n_offered, own), after.own)
        try:
            learner.learn(rows, y, after.scales, read)
        finally:
            self._recover()

    def _recover(self) -> None:
        """Complete the changes that follow from the learned examples, or undo an unlearned one; requires the lock."""
        found = self._state
        found.learner.finish()
        journal = found.journal
        if journal is None:
            found.learner.open()
            return
        learned = found.learner.n_offered - journal.offered
        if learned <= 0:
            self._state = journal.before
        else:
            after = found.with_journal(None, found.own if journal.own is None else journal.own)
            self._state = self._advance_state(after, journal, learned)
        self._learner.open()

    def _advance_state(self, found: State, journal: Journal, learned: int) -> State:
        """Return the state after the first examples of a journal have been learned."""
        if found.first is None and found.upkeep is None:
            return found
        rows, y = journal.rows.part(0, learned), journal.y[:learned]
        if found.first is not None:
            first = (*found.first, (rows, y[0]))
            is_due = bandwidth.is_due(len(first)) or bandwidth.is_enough([row for row, _ in first])
            return restart(found, first, self._wanted, type(self).__name__) if is_due else replace(found, first=first)
        if found.upkeep is not None:
            read = journal.rows._replace(values=journal.read).part(0, learned)
            learner, upkeep = found.upkeep.observe(found.learner, read, y)
            return replace(found, learner=learner, upkeep=upkeep)
        return found

    def _completed_copy(self) -> Self:
        """Return a copy that shares nothing that learning changes, after the step in progress or before it."""
        twin, found = self._twin(), self._state
        if found.journal is not None and found.learner.n_offered <= found.journal.offered:
            found = found.journal.before
        scales = None if found.scales is None else found.scales.copy()
        twin._state = replace(found, learner=found.learner.copy(), scales=scales)
        twin._recover()
        return twin

    @locked(inside=on_copy)
    def _to_predict(self) -> Self:
        """Return a copy that only predicts, in any number of threads, and shares no changing state."""
        self._recover()
        twin, found = self._twin(), self._state
        scales = None if found.scales is None else found.scales.copy()
        learner = found.learner.to_predict_apart()
        twin._state = State(learner, scales, found.first, found.labels, None, found.numeric, found.own)
        return twin

    @property
    def _events(self) -> int:
        """Examples learned."""
        return int(self._learner.examples)

    @property
    def _is_young(self) -> bool:
        """Whether the examples that decide bandwidths and scales are still being collected."""
        return self._state.first is not None or self._learner.examples < bandwidth.FIRST

    @property
    def _is_provisional(self) -> bool:
        """Whether bandwidths of the current kernel will still change."""
        return self._wanted.is_pending and self._is_young

    @locked()
    def _count_names(self, counts: Mapping[int, numeric_names.Count]) -> None:
        """Replace the counts of some names, by their hashes."""
        self._recover()
        found = self._state
        self._state = replace(found, numeric=found.numeric._replace(counts={**found.numeric.counts, **counts}))

    @locked()
    def _settle(self) -> None:
        """Take the step for the buffered examples."""
        self._recover()
        self._learner.settle()

    @locked()
    def _keep_still(self, others: Sequence[LearningModel], do: Callable[[], None]) -> None:
        """Call a function while no thread learns with this model or with others."""
        self._recover()
        try:
            self._learner.close()
            while_still(others, do)
        finally:
            self._learner.open()

    def _divide(self, number: int, replicas: int) -> None:
        """Become one of several replicas, which learn separately and restructure themselves only when merged."""
        self._learner.divide(number, replicas)

    def _look(self, before: int) -> None:
        """Update the scales, and add and end groups, if that became due after the first `before` examples."""
        if self._state.scales is not None and schedule.last_due(self._learner.examples) > before:
            self._state.scales.use_moments()
        self._learner.restructure(before)


def while_still(models: Sequence[LearningModel], do: Callable[[], None]) -> None:
    """Call a function while no thread learns with any of the models."""
    if models:
        models[0]._keep_still(models[1:], do)
    else:
        do()
