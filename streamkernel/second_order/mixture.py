"""Second-order learning: functions of groups of features, learned by Newton and by constant steps, and their
mixture.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from streamkernel import step_sizes
from streamkernel.features.numeric_names import NumericNames
from streamkernel.features.rows import F64, Rows
from streamkernel.features.scaling import NOT_SCALED, Scales, state_of
from streamkernel.kernels import Kernel
from streamkernel.kernels.program import KernelProgram
from streamkernel.learners import schedule, state
from streamkernel.learners.embedding import embed_rows
from streamkernel.second_order import growth, learning, newton, pairs, recency
from streamkernel.second_order.learning import NOTHING_SAID, LearningOptions, LearningRows
from streamkernel.second_order.linear.further_inputs import with_further_inputs
from streamkernel.second_order.mixture_state import OF_MIXTURE, OWNER, with_own_row
from streamkernel.second_order.neighbours.state import with_places
from streamkernel.second_order.restructuring import expected_descent, with_column, with_new_groups, with_restart
from streamkernel.second_order.stored_mixture import StoredMixture

FOLLOW = 0.075
"""γ of the small functions, over the loss's curvature."""


class SecondOrderLearner(StoredMixture):
    """A mixture that learns, as `streamkernel.second_order.learning` explains.

    Parameters are those of :class:`~streamkernel.second_order.mixed_function.MixedFunction`.

    Examples
    --------
    >>> from streamkernel import kernels, losses
    >>> step = step_sizes.Constant(0.75)
    >>> f = SecondOrderLearner(kernels.Gaussian(1.0), losses.Square(), step, joint=True, block_size=16, max_features=16)
    >>> row = f.row({"x": 1.0})
    >>> for _ in range(1000):
    ...     f.learn(row, np.array([2.0]))
    >>> f.scores(row).round(2)
    array([[2.]])
    """

    def start_over(self, kernel: Kernel, rows: Rows) -> SecondOrderLearner:
        """Return a function of the same parameters with other bandwidths, untrained except for v.

        `rows` determine λ. v was learned from predictions that the functions made before they learned an example.
        """
        twin = self._twin()
        twin._kernel = kernel
        directions = self.directions.with_plan(KernelProgram(kernel, self._seed))
        live = twin._live = twin._first(directions, self._live.state.numbers)
        old = self._live.state
        for name in OF_MIXTURE:
            getattr(live.state, name)[:] = getattr(old, name)
        targets = len(old.numbers)
        live.state.bounds.reshape(targets, -1)[:, -2:] = old.bounds.reshape(targets, -1)[:, -2:]
        inputs = len(np.unique(rows.hashes)) if self.has_metric else 0
        live = twin._live = live._replace(state=live.state._replace(pairs=pairs.with_room(live.state.pairs, inputs)))
        alone, n = len(self._arranger.alone), len(rows.start) - 1
        z = embed_rows(self.numbers, live.directions, rows, sum(self._arranger.alone))
        live.state.priors[:alone] = growth.priors_of_examples(z.reshape(n, alone, -1))
        owners = live.groups.layout[:, OWNER]
        live.state.priors[:] = live.state.priors[owners]
        return twin

    def with_first(self, rows: Rows, targets: F64, scales: Scales | None = None) -> SecondOrderLearner:
        """Return an untrained function whose linear function knows the inputs of these first rows and their further
        inputs: indicators of values, and squares.

        The rows are as they were given; `scales` are as for :meth:`learn`.
        """
        twin, state, least = self._twin(), self._live.state, self._arranger.linear_prior
        scaling, for_classes = state_of(scales), bool(self.loss.for_classes)
        linear = with_further_inputs(state.linear, scaling, rows, targets, least, for_classes=for_classes)
        near = with_places(state.neighbours, linear)
        twin._live = self._live._replace(state=state._replace(linear=linear, neighbours=near))
        return twin

    @property
    def has_metric(self) -> bool:
        """Whether gradients are gathered for a metric; a function that was pruned only keeps those it has."""
        return self._arranger.has_metric and not self._live.directions.is_packed

    def score_event(self, x: Mapping[Hashable, Any], numeric: NumericNames, scales: Scales | None) -> Any:
        """Return f at one example, a float, or an array of shape (columns,) if there are several."""
        scores = self.scores(self._live.directions.row(x, numeric), scales)
        return scores.item() if scores.size == 1 else scores[0]

    def learn_event(
        self, x: Mapping[Hashable, Any], y: float, w: float, numeric: NumericNames, scales: Scales | None = None
    ) -> bool:
        """Return false: learning an example takes more than one call."""
        return False

    def learn_one(self, row: Rows, y: float) -> None:
        """Learn from one row as :meth:`learn` does."""
        self.learn(row, np.array([y], np.float64))

    def learn_alone(self, rows: Rows, y: Any, scales: Scales | None = None, said: F64 | None = None) -> int:
        """Learn from the first rows in one compiled call, up to one that another change follows; return how many.

        `said`, shape (rows, columns), is set to f at each before it was learned; no offset is added to it.
        """
        if self.is_unfinished or self._is_private:
            return 0
        n, live = len(rows.weights), self._live
        scaling = NOT_SCALED if scales is None else scales.state  # without a call, as each event comes here
        options = self._options(is_new=True, is_alone=True)
        learning.load_for(live.state, scaling, n, options)
        said, read = NOTHING_SAID if said is None else said, np.empty_like(rows.values)
        examples = LearningRows(rows, self._of_targets(y, n), self._gammas(n), read, said)
        _, learned = self._learn_directly(live.state, scaling, live.directions.kernel, examples, 0, n, options)
        if learned and live.groups.is_spread:
            self.advance(is_all=False)
        return int(learned)

    def learn_again(self, rows: Rows, y: F64, scales: Scales | None = None) -> None:
        """Learn from rows that the scales and v have learned before, in longer Newton steps."""
        self.learn(rows, y, scales, is_new=False)
        self.is_unfinished = True
        self.finish()

    def learn(
        self, rows: Rows, y: F64, scales: Scales | None = None, read: F64 | None = None, is_new: bool = True
    ) -> None:
        """Learn from `rows` in order, with targets of shape (rows,), or (rows, targets) if there are several.

        The values are brought to `scales`, unless it is ``None``, and `read` is set to the scaled values of the rows
        that are learned. Scales and weights v also learn from the examples if these are new. Raise an InputError if a
        value is not finite or too large, or the steps have diverged; earlier rows are learned.
        """
        self.finish()
        n, done = len(y), 0
        read = np.empty_like(rows.values) if read is None else read
        options = self._options(is_new, is_alone=False)
        examples = LearningRows(rows, self._of_targets(y, n), self._gammas(n), read, NOTHING_SAID)
        if self._is_private:
            learn: Any = learning.learn_apart
        else:
            learn = self._learn_directly if n == 1 else learning.learn
        while done < n:
            live, scaling = self._live, state_of(scales)
            last = min(n, done + schedule.until_due(live.since))
            learning.load_for(live.state, scaling, last - done, options)
            self.is_unfinished = True
            status, done = learn(live.state, scaling, live.directions.kernel, examples, done, last, options)
            if status == state.NO_ROOM and scales is not None:
                scales.grow()
            if status == state.NO_PLACE:
                self._live = live.with_more_places()
            if status != state.DUE:
                self.is_unfinished = False
            elif is_new:
                self.finish()
            else:
                self._step_if_due()
            if status == state.BAD_VALUE:
                raise self._unusable(
                    rows.part(done, done + 1)._replace(values=read[rows.start[done] : rows.start[done + 1]])
                )
            if status == state.DIVERGED:
                raise self._divergence_error(y[done])
        if self._live.groups.is_spread:
            self.advance(is_all=False)

    def _of_targets(self, y: float | F64, n: int) -> F64:
        """Return the targets of n rows as compiled code reads them, shape (rows, targets)."""
        return np.ascontiguousarray(y, np.float64).reshape(n, len(self._live.state.numbers))

    def _gammas(self, n: int) -> F64:
        """Return γ of the next constant steps."""
        if isinstance(self.step, step_sizes.Constant):
            return np.array([self.step.gamma]) if n == 1 else np.full(n, self.step.gamma)
        t = int(self.numbers["steps"])
        return np.asarray(self.step(np.arange(t + 1, t + n + 1, dtype=np.float64)), np.float64)

    def _options(self, is_new: bool, is_alone: bool) -> LearningOptions:
        """Return the options for the next examples."""
        return LearningOptions(
            growing=sum(self._arranger.alone),
            follow=FOLLOW / self.loss.curvature,
            prior=self._arranger.linear_prior,
            kept=self._arranger.linear_forgetting,
            is_new=is_new,
            may_use_moments=self.may_restructure,
            has_metric=self.has_metric,
            is_alone=is_alone,
        )

    def finish(self) -> None:
        """Take or apply the Newton step that is due, and start or end groups if that is due."""
        if not self.is_unfinished:
            return
        self._step_if_due()
        if not self.numbers["buffered"] or recency.has_changed(self._live.state.evidence):
            self._compare_groups(self.may_restructure)
        if self.may_restructure and schedule.is_due(self._live.since) and self.numbers["looked_at"] != self.examples:
            self._complete()
            self._grow_if_due()
            self._step_if_due()  # steps may be shorter from now on
        self.is_unfinished = False

    def _step_if_due(self) -> None:
        """Apply the step in progress, and begin one for the buffered examples, if that is due."""
        batch, is_spread = int(self.numbers["buffered"]), self._live.groups.is_spread
        most = newton.longest(self._live.groups.counts)
        due = newton.due(self._live.since, self.batch_size, self._forgetting, self.n_targets, most)
        is_due = batch >= max(due, 1)
        if is_due or not is_spread or batch == newton.applied_after(due):
            self._complete()
        if is_due:
            self._begin()
            if not is_spread:
                self._complete()

    def settle(self) -> None:
        """Complete the step in progress, and take the step for the buffered examples."""
        self._complete()
        if self.numbers["buffered"]:
            self._begin()
            self._complete()

    def _begin(self) -> None:
        """Start the step for the buffered examples."""
        numbers = self.numbers
        if numbers["step_k_xx"] == 0.0:  # after a file was read
            numbers["step_k_xx"] = numbers["k_xx"] or numbers["mean_square"] or 1.0
        self.is_unfinished = True
        newton.begin_step(self._live.state)

    def _complete(self) -> None:
        """Complete the step in progress, if there is one."""
        if self.numbers["working"]:
            self.is_unfinished = True
            self.advance(is_all=True)
            newton.apply_step(self._live.state)

    def _compare_groups(self, may_restart: bool) -> None:
        """Reset the groups that old examples mislead, if that may happen now."""
        live = self._live
        is_due = self.examples - self.numbers["compared_at"] >= recency.EVERY
        is_due |= may_restart and recency.has_changed(live.state.evidence)
        if not self._arranger.forgetting or not is_due:
            return
        losses, evidence = live.state.recent, live.state.evidence
        groups = recency.misled_groups(self.examples, live.table, live.groups.counts, losses, evidence)
        if groups and may_restart:
            self._complete()
            self._live = with_restart(self._live, self._arranger, self._kernel, groups)
        else:
            recency.note_comparison(live.state)

    def restructure(self, before: int) -> None:
        """Add and end groups, if that became due after the first `before` examples."""
        self._compare_groups(may_restart=True)
        if self._last_look > before:
            self._grow_if_due()

    @property
    def _last_look(self) -> int:
        """Number of examples at the last check."""
        since = self._live.since
        return self.examples - since + schedule.last_due(since)

    def _grow_if_due(self) -> None:
        """Start and end groups if that is due."""
        self._live = self._live.with_more_pairs() if self.has_metric else self._live
        if self._live.since >= growth.FROM and not self.is_joint:
            descents = expected_descent(self._live, self._arranger)
            self._live.state.numbers["new_descent"], self._live.state.numbers["old_descent"] = descents
        new = with_new_groups(self._live, self._arranger, self._kernel)
        if new is None:
            self.numbers["looked_at"] = self.numbers["examples"]
        else:
            self._live = new

    def with_column(self) -> SecondOrderLearner:
        """Return a copy for one more class; a function of two classes in one column becomes one of three.

        v represents fewer examples from then on, because functions that adapt fast learn the new class first.
        """
        twin = self._twin()
        numbers = np.array([self._with_column(self.numbers)])
        twin._live = with_column(
            self._live, self._arranger, self._kernel, numbers, self._split() if self._is_binary else None
        )
        return twin

    def with_targets(self, targets: int) -> SecondOrderLearner:
        """Return a function of several targets, each of one column, that has learned nothing."""
        twin = self._twin()
        numbers = np.repeat(self._live.state.numbers[:1], targets)
        numbers["columns"] = targets
        twin._live = twin._first(self.directions, numbers)
        return twin

    def adopt_linear(self, other: SecondOrderLearner) -> None:
        """Take over the linear function and neighbours of another function, which must not be used afterwards."""
        live, others = self._live, other.arrays
        state = live.state._replace(linear=others.linear, neighbours=others.neighbours)
        self._live = live._replace(state=with_own_row(state))
