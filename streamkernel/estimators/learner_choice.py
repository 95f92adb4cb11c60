"""The learner of an estimator, chosen by its parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamkernel import losses, step_sizes
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.kernels import Kernel
from streamkernel.learners import DSG, Newton, as_step, resolve_learner
from streamkernel.learners.scoring import AVERAGE, LAST, MIXTURE
from streamkernel.second_order.mixture import SecondOrderLearner

LARGEST_BLOCK = 256
"""Features in a block at most, unless `features_per_seed` says otherwise."""

DELTA_PER_ERROR = 2.0
"""δ of ``loss="huber"`` for Newton steps, in units of the mean error: 1.6 deviations of Gaussian noise."""


def check(learner: Any, is_curved: bool, **parameters: Any) -> Newton | DSG:
    """Return the learner for a value of the parameter `learner`.

    `parameters` are the estimator's `loss`, `max_features` and `refit`. Raise a ValueError if it is no learner, or
    another parameter does not go with it; names the parameter.

    Examples
    --------
    >>> check("dsg", False, loss="hinge", max_features=None, refit=None).averaging
    False
    """
    options = resolve_learner(learner)
    if isinstance(options, DSG):
        return options
    if not is_curved:
        raise ValueError(
            f'Expected learner="dsg" with loss={parameters["loss"]!r}, which has no second derivative, '
            f"got learner={learner!r}"
        )
    for name, is_given in (
        ("max_features", parameters["max_features"] is None),
        ("refit", parameters["refit"] is not None),
    ):
        if is_given:
            raise ValueError(f'Expected learner="dsg" with {name}={parameters[name]!r}, got learner={learner!r}')
    return options


def resolve(
    learner: Newton | DSG, max_features: int | str | None, loss: losses.Loss
) -> tuple[int | None, Newton | DSG]:
    """Return the cap on the features, or ``None``, and the learner with ``"auto"`` replaced by numbers.

    Raise a ValueError if the cap is smaller than a block.

    Examples
    --------
    >>> cap, learner = resolve(Newton(), 64, losses.Square())
    >>> cap, learner.features_per_seed, learner.forgetting
    (64, 16, 'auto')
    """
    is_second_order = isinstance(learner, Newton)
    cap = max_features
    if isinstance(cap, str):
        cap = 16 * LARGEST_BLOCK if is_second_order else 4 * LARGEST_BLOCK
    block_size = learner.features_per_seed
    if isinstance(block_size, str):
        quarter = max(1, (cap or 4 * LARGEST_BLOCK) // 4)
        block_size = min(LARGEST_BLOCK, quarter) if is_second_order else quarter
    if cap is not None and cap < block_size:
        raise ValueError(f"Expected max_features to hold one block of features_per_seed={block_size}, got {cap}")
    learner = replace(learner, features_per_seed=block_size)
    if isinstance(learner, Newton):
        step = as_step(learner.step_size) or step_sizes.Constant(0.75 / loss.curvature)
        learner = replace(learner, step_size=step)
    return cap, learner


def new_function(
    learner: Any,
    kernel: Kernel,
    *,
    loss: losses.Loss,
    default_step: step_sizes.Step | None,
    cap: int | None,
    is_scaled: bool,
    loss_per_error: float = 0.0,
    **others: Any,
) -> FirstOrderLearner | SecondOrderLearner:
    """Return an untrained function of a resolved learner.

    `default_step` is what ``step_size="auto"`` stands for, ``None`` for steps of automatic size; `cap` is on the
    features. `loss_per_error` is as for :class:`~streamkernel.second_order.mixed_function.MixedFunction`; first-order
    functions have none. `others` are parameters of both kinds of functions: `l2`, `columns`, `intercept`,
    `cache_bytes`, `seed`.
    """
    step, block_size = as_step(learner.step_size), learner.features_per_seed
    gamma = step or default_step or step_sizes.Constant(default_gamma(loss))
    if isinstance(learner, Newton):
        return SecondOrderLearner(
            kernel,
            loss,
            gamma,
            joint=learner.joint,
            block_size=block_size,
            max_features=cap or 0,
            batch_size=learner.batch_size or 1,
            forgetting=None if isinstance(learner.forgetting, str) else float(learner.forgetting),
            has_metric=is_scaled,
            is_linear=is_scaled,
            loss_per_error=loss_per_error,
            **others,
        )
    is_automatic = step is None and default_step is None
    return FirstOrderLearner(
        kernel,
        loss,
        learner.rule,
        gamma,
        per_k_xx=step is None and (learner.preconditioner is None or default_step is None),
        automatic=is_automatic,
        epsilon=learner.preconditioner or 0.0,
        block_size=block_size,
        max_features=cap,
        batch_size=learner.batch_size,
        average=_average(learner.averaging, is_automatic),
        per_error=step is None and loss.directional,
        **others,
    )


def _average(is_asked: bool, is_automatic: bool) -> int:
    if is_asked:
        return AVERAGE
    return MIXTURE if is_automatic else LAST


def loss_per_error(loss: str | losses.Loss) -> float:
    """Return the parameter of a loss in units of the mean error, or 0 if it is in units of the targets.

    Examples
    --------
    >>> loss_per_error("huber"), loss_per_error(losses.Huber(1.0))
    (2.0, 0.0)
    """
    return DELTA_PER_ERROR if loss == "huber" else 0.0


def default_gamma(loss: losses.Loss) -> float:
    """Return the γ of steps of automatic size: a quarter of the inverse of the loss's curvature, at most 1.

    The check of CDSG compares with it, and an intercept that is learned moves by it. It is in units of the mean
    absolute error where the loss is directional.
    """
    return min(1.0, 0.25 / loss.curvature)
