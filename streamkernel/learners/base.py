"""The base class of first- and second-order functions of random features."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Self

import numpy as np

from streamkernel import losses, step_sizes, tensor_file
from streamkernel.errors import DivergedError, InputError
from streamkernel.features import example_tensors
from streamkernel.features.compiled_kernel import BLOCK
from streamkernel.features.directions import Directions
from streamkernel.features.rows import F64, I64, Rows
from streamkernel.kernels import Kernel
from streamkernel.kernels.program import KernelProgram
from streamkernel.learners import span, state

LEAST_ROWS = 64
"""Smallest number of rows per thread: starting one costs about as much as predicting for a few."""
_num_threads = 1


def set_num_threads(n: int) -> None:
    """Let `predict_many`, `predict_proba_many` and the like use up to `n` threads, in this process.

    One is the default. The predictions have the same bits with any number. Learning is sequential, in one thread.

    Parameters
    ----------
    n : int
        Threads, 1 or more.

    Raises
    ------
    ValueError
        If `n` is not 1 or more.

    Examples
    --------
    >>> import streamkernel
    >>> streamkernel.set_num_threads(2)
    >>> streamkernel.set_num_threads(1)
    """
    global _num_threads
    if not isinstance(n, int) or n < 1:
        raise ValueError(f"Expected 1 thread or more, got {n!r}")
    _num_threads = n


def first_unusable(n: int, evaluate: Callable[[int, int], int]) -> int:
    """Evaluate rows 0 to n in one part per thread; return the first unusable row, or -1.

    `evaluate` evaluates the rows from one to before another, and returns the first unusable of those, or -1.

    Examples
    --------
    >>> first_unusable(3, lambda first, last: -1), first_unusable(3, lambda first, last: 1)
    (-1, 1)
    """
    parts = max(1, min(_num_threads, n // LEAST_ROWS))
    if parts == 1:
        return evaluate(0, n)
    bounds = [n * part // parts for part in range(parts + 1)]
    with ThreadPoolExecutor(parts) as pool:
        rows = list(pool.map(evaluate, bounds[:-1], bounds[1:]))
    return next((first + row for first, row in zip(bounds[:-1], rows, strict=True) if row >= 0), -1)


class RefusedError(Exception):
    """A row that could not be learned, with the error for it."""

    def __init__(self, row: int, error: InputError) -> None:
        self.row, self.error = row, error


class Learner:
    """The directions, the loss, and the scalar state that `streamkernel.learners.state` names.

    Learned state changes in two ways only: in one compiled call that holds the interpreter's lock, or in one assignment
    of a new state that was built separately. So another thread may predict at any time, and an exception or
    a signal leaves the function as it was before an example or as it is after it. Where several such changes follow
    from one example, :meth:`finish` makes those that are still missing; learning and saving call it first. The
    estimator ensures that learning, saving and copying do not overlap.
    """

    def __init__(
        self,
        loss: losses.Loss,
        step: step_sizes.Step,
        *,
        block_size: int,
        most_blocks: int,
        batch_size: int,
        l2: float,
        seed: int,
    ) -> None:
        self.loss, self.step, self.batch_size, self.l2, self.block_size = loss, step, batch_size, l2, block_size
        self.most_blocks, self._seed = most_blocks, seed
        self.may_restructure = True  # a replica does not, so that all of them stay alike

    def _new_numbers(self, plan: KernelProgram, columns: int, intercept: int) -> Any:
        """Return the record of a function before its first example."""
        numbers = np.zeros(1, state.NUMBERS)[0]
        numbers["columns"], numbers["block_size"], numbers["batch_size"] = columns, self.block_size, self.batch_size
        numbers["most_blocks"], numbers["intercept"], numbers["loss"] = (
            self.most_blocks,
            intercept,
            self.loss.load(columns),
        )
        numbers["parts"], numbers["terms"], numbers["components"] = len(plan.parts), len(plan.terms), plan.outputs
        numbers["scale"], numbers["l2"], numbers["k_xx"] = 1.0, self.l2, plan.itself
        numbers["loss_parameter"], numbers["loss_bound"] = self.loss.parameter, self.loss.bound(columns)
        numbers["curvature"] = self.loss.curvature
        return numbers

    is_unfinished = False
    """Whether :meth:`finish` may have something to do."""

    directions: Directions
    """The random directions of its features."""

    @property
    def numbers(self) -> Any:
        """The scalar state, as a record of :mod:`streamkernel.learners.state`; changing it changes the function."""
        raise NotImplementedError

    @property
    def kernel(self) -> Kernel:
        """The kernel, with its bandwidths as numbers."""
        return self.directions.plan.kernel

    @property
    def columns(self) -> int:
        """Outputs of f."""
        return int(self.numbers["columns"])

    @property
    def n_targets(self) -> int:
        """Targets, which divide the columns among them."""
        return 1

    @property
    def n_blocks(self) -> int:
        """Blocks, each with its own seed."""
        return int(self.numbers["blocks"])

    @property
    def examples(self) -> int:
        """Examples that have been learned."""
        return int(self.numbers["examples"])

    @property
    def n_offered(self) -> int:
        """Learned and buffered examples."""
        return self.examples

    @property
    def penalty(self) -> float:
        """The regularisation of f."""
        raise NotImplementedError

    @property
    def objective(self) -> float:
        """The running regularised loss: ℓ(f(x), y) before each example is learned, averaged, plus :attr:`penalty`."""
        return float(self.numbers["running_loss"]) + self.penalty

    @property
    def last_step(self) -> float | None:
        """The last step η of the rule; ``None`` without a rule."""
        return None

    @property
    def next_step(self) -> float:
        """γ of the next step."""
        return float(self.step(int(self.numbers["steps"]) + 1))

    @property
    def shares(self) -> dict[str, float]:
        """The weights in f of each kind of function, or of each bandwidth; empty without a mixture."""
        return {}

    @property
    def expected_descent(self) -> tuple[float, float] | None:
        """The shares of the loss that new features and old ones were expected to gain at the last check, or ``None``.

        Features are added where new ones are worth it.
        """
        new, old = float(self.numbers["new_descent"]), float(self.numbers["old_descent"])
        return (new, old) if new or old else None

    @property
    def of_targets(self) -> tuple[int, int]:
        """Numbers of predictions that were bounded, and of targets that did not count in full; 0 for classes."""
        return 0, 0

    @property
    def n_positions(self) -> int:
        """Blocks with a position, some of which may be empty."""
        return self.n_blocks

    order: ClassVar[str]
    """Whether its steps are of the ``"first"`` or the ``"second"`` order."""

    @property
    def table(self) -> I64 | None:
        """Blocks, bandwidth and first example of each group, shape (groups, 3); ``None`` without groups."""
        return None

    def frozen(self, scales: Any = None) -> tuple[Self, Any]:
        """Return copies of the function and its scales at one moment; they predict, and learning changes neither."""
        raise NotImplementedError

    def scores(self, rows: Rows, scales: Any = None) -> F64:
        """Return f at each of `rows`, shape (rows, columns).

        Raise an InputError if a value is not finite or too large.
        """
        raise NotImplementedError

    def derivatives(self, row: Rows, scales: Any = None) -> F64:
        """Return the derivatives of f, without the part that :meth:`others` returns, by the values of one row, shape
        (columns, entries); values may be zeros.

        Raise an InputError if they are not known for the kernel.
        """
        raise NotImplementedError

    def others(self, rows: Rows, scales: Any = None) -> F64:
        """Return the part of f that is flat or jumps, which derivatives do not describe, shape (rows, columns)."""
        return np.zeros((len(rows.start) - 1, self.columns))

    def learn(self, rows: Rows, y: F64, scales: Any = None, read: F64 | None = None) -> None:
        """Learn from `rows` in order; `read` is set to their values as the function reads them.

        Raise an InputError if a value is not finite or too large, or the steps have diverged. Earlier rows are learned
        or buffered.
        """
        raise NotImplementedError

    def learn_alone(self, rows: Rows, y: Any, scales: Any = None, scores_before: F64 | None = None) -> int:
        """Learn from the first rows, as far as each is a change without consequences; return how many were learned.

        `scores_before`, shape (rows, columns), is set to f at each before it was learned; no offset is added to it.
        """
        return 0

    def learn_events(
        self, xs: list[dict[Hashable, Any]], y: F64, largest: float, scales: Any = None
    ) -> tuple[F64, F64]:
        """Score and learn as many of the first examples as one compiled call can: here none."""
        return np.empty((0, self.columns)), np.empty((0, 0))

    def learn_again(self, rows: Rows, y: F64, scales: Any = None) -> None:
        """Learn from rows that a predecessor of this function has learned and the scales have observed."""
        self.learn(rows, y)

    def restructure(self, before: int) -> None:
        """Add and end groups, if that became due after the first `before` examples."""

    def divide(self, number: int, replicas: int) -> None:
        """Become one of several replicas, which learn separately and restructure themselves only when merged."""
        self.may_restructure = False

    def copy(self) -> Self:
        """Return a copy, also in the middle of a step, that shares nothing that learning changes."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop learning single events until :meth:`open` is called."""

    def open(self) -> None:
        """Allow learning of single events again."""

    def finish(self) -> None:
        """Make the missing changes that follow from the learned examples."""

    def settle(self) -> None:
        """Take the step for the buffered examples, though the batch is incomplete."""

    @property
    def is_packed(self) -> bool:
        """Whether the first blocks contain features that were kept by pruning."""
        return self.directions.is_packed

    def features_at(self, positions: I64) -> I64:
        """Return block, index and scale of the features at these positions, as `features.compiled_kernel` does."""
        sharing = self.directions.plan.blocks_per_direction
        return example_tensors.features_at(self.directions.kept, self.block_size, positions, sharing)

    @property
    def next_number(self) -> int:
        """The number of the next block, which no block of this function has had."""
        return int(self.n_positions + self.directions.kept[-1, BLOCK])

    def row(self, x: Mapping[Hashable, Any]) -> Rows:
        """Return one example as this function reads it."""
        return self.directions.row(x)

    def check_targets(self, targets: Sequence[float]) -> None:
        """Raise a ValueError if the loss is for classes and a target is not the number of a class."""
        classes = range(max(1 if isinstance(self.loss, losses.Softmax) else 2, self.columns // self.n_targets))
        if self.loss.for_classes and not all(y in classes for y in np.ravel(targets).tolist()):
            raise ValueError(f"expected the numbers of {len(classes)} classes as targets, got {list(targets)[:9]}")

    def _split(self) -> F64:
        """Return the factors by which a single column of two classes becomes three columns.

        The margin f becomes the scores -f/2 and f/2 if the loss becomes softmax, and -f and f if each class is learned
        against the rest.
        """
        half = 0.5 if isinstance(self.loss, losses.Logistic) else 1.0
        return np.array([-half, half, 0.0])

    @property
    def _is_binary(self) -> bool:
        return self.columns == 1 and not isinstance(self.loss, losses.Softmax)

    def _with_column(self, numbers: Any) -> Any:
        """Return a record with one more column, or with three instead of one."""
        numbers = numbers.copy()
        numbers["columns"] += 2 if self._is_binary else 1
        columns = int(numbers["columns"])
        numbers["loss"], numbers["loss_bound"] = self.loss.load(columns), self.loss.bound(columns)
        return numbers

    def _read_learned(self, tensors: Mapping[str, Any]) -> Any:
        """Return the learned scalar state in `tensors`; raises a ValueError if no function can have learned it."""
        ints = tensor_file.require_tensor(tensors, "ints", np.int64, (len(state.LEARNED_INTS),))
        reals = tensor_file.require_tensor(tensors, "reals", np.float64, (len(state.LEARNED_REALS),))
        learned = state.unpack_learned(ints, reals)
        if (ints < 0).any() or learned["blocks"] > min(self.most_blocks, learned["steps"]) or learned["scale"] == 0.0:
            raise ValueError(f"expected counters of steps as ints, got {ints.tolist()}")
        if learned["weight"] < 0.0 or (learned["weight"] == 0.0) != (learned["examples"] == 0):
            raise ValueError(f"expected the weight of {learned['examples']} examples, got {learned['weight']}")
        descents = [learned["new_descent"], learned["old_descent"]]
        if not all(0.0 <= descent <= 1.0 for descent in descents):
            raise ValueError(f"expected gains of features from 0 to 1, got {descents}")
        span.check_offsets(self.numbers["intercept"], [learned["offset"], learned["predicted_offset"]])
        for name in state.COEFFICIENTS:
            if name in tensors and float(np.abs(tensors[name]).max(initial=0)) > span.LARGEST_COEFFICIENT:
                raise ValueError(f"expected numbers up to {span.LARGEST_COEFFICIENT:g} as {name}, got larger ones")
        return learned

    def _evaluate(self, evaluate: Callable[[Rows, F64], int], rows: Rows, out: F64) -> None:
        """Evaluate rows into `out`, in the configured number of threads.

        Raise an InputError if a row is unusable; `evaluate` returns its number.
        """
        bad = first_unusable(len(out), lambda first, last: int(evaluate(rows.part(first, last), out[first:last])))
        if bad >= 0:
            raise self._unusable(rows.part(bad, bad + 1))

    def _unusable(self, row: Rows) -> InputError:
        return self.directions.plan.unusable(row)

    def _divergence_error(self, y: float) -> InputError:
        return DivergedError(
            f"The steps have diverged: refused the derivative of the loss at target {np.float64(y)!r} "
            f"(step {int(self.numbers['steps']) + 1}); use a smaller step"
        )
