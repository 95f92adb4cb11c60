"""Checks of the parameters that estimators share, and the learner that they choose."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np
from river import base

from streamkernel import kernels, losses, step_sizes
from streamkernel.errors import is_count
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.kernels import Kernel
from streamkernel.learners import DSG, Newton, as_step, resolve_learner
from streamkernel.learners.scoring import AVERAGE, LAST, MIXTURE
from streamkernel.second_order.mixture import SecondOrderLearner

LARGEST_BLOCK = 256
"""Features in a block at most, unless `features_per_seed` says otherwise."""

MOST_BY_DEFAULT = 4096
"""The cap on features where none is given, also of four bandwidths together."""

DELTA_PER_ERROR = 2.0
"""δ of ``loss="huber"`` for Newton steps, in units of the mean error: 1.6 deviations of Gaussian noise."""


def require_at_least(least: int, **values: int) -> None:
    """Raise a ValueError if a parameter is not an integer of at least `least`; names it."""
    for name, value in values.items():
        if not is_count(value, least):
            raise ValueError(f"Expected an integer {name} >= {least}, got {value!r}")


MOST_FEATURES = 1 << 16
"""Features of which each has a name or a row of a matrix."""


def check_size(n_features: Any) -> None:
    """Raise a ValueError if a parameter is not a number of features that are all computed for each example."""
    if not (is_count(n_features, 1) and n_features <= MOST_FEATURES):
        raise ValueError(f"Expected an integer n_features from 1 to {MOST_FEATURES:,}, got {n_features!r}")


def check_shared(kernel: Any, cache_bytes: int, seed: Any) -> None:
    """Raise a ValueError that names the first parameter out of range among the ones that estimators share."""
    if kernel is not None and not isinstance(kernel, Kernel):
        raise ValueError(f"Expected kernel as one of streamkernel.kernels or None, got {kernel!r}{_hint(kernel)}")
    require_at_least(0, cache_bytes=cache_bytes)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise ValueError(f"Expected seed to be an integer, got {seed!r}")


class Parameter:
    """A parameter of an estimator, which is set once: what is made from it would not change with it.

    Examples
    --------
    >>> class Model:
    ...     l2 = Parameter("l2")
    ...     def __init__(self, l2):
    ...         self.l2 = l2
    >>> model = Model(0.1)
    >>> model.l2 = 0.2
    Traceback (most recent call last):
    AttributeError: Expected l2 of Model to stay 0.1, got 0.2: model.clone({'l2': ...}) makes another model
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __set__(self, model: Any, value: Any) -> None:
        """Set the parameter, if it has no value yet; a descriptor without ``__get__`` does not slow down reading."""
        if self._name in vars(model):
            raise AttributeError(
                f"Expected {self._name} of {type(model).__name__} to stay {vars(model)[self._name]!r}, got {value!r}: "
                f"model.clone({{{self._name!r}: ...}}) makes another model"
            )
        vars(model)[self._name] = value


_OF_SCIKIT_LEARN = {"rbf": "gaussian", "poly": "polynomial"}


def _hint(kernel: Any) -> str:
    """Return the instance that a class of kernels, its name or scikit-learn's probably stands for."""
    text = kernel if isinstance(kernel, str) else getattr(kernel, "__name__", "")
    name = {name.lower(): name for name in kernels.__all__}.get(_OF_SCIKIT_LEARN.get(text, text).lower())
    return f"; an instance is expected, as kernels.{name}()" if name and name != "Kernel" else ""


def parameters_of(model: Any) -> dict[str, Any]:
    """Return the constructor arguments of one of our models or River's objects, by name.

    An argument that is an object of River is a pair: its class, and its own arguments.
    """
    values = {name: getattr(model, name) for name in signature(type(model)).parameters}
    return {
        name: (type(value), parameters_of(value)) if isinstance(value, base.Base) else value
        for name, value in values.items()
    }


def mixes_bandwidths(learner: Any, loss: losses.Loss, max_features: int | str | None) -> bool:
    """Return whether a learner whose steps are of automatic size mixes functions of several bandwidths by default.

    Fewer features would be too few for each of four.

    Examples
    --------
    >>> [mixes_bandwidths(learner, losses.Square(), "auto") for learner in ("dsg", "newton", DSG(batch_size=2))]
    [True, False, False]
    >>> mixes_bandwidths("dsg", losses.Square(), 1024)
    False
    """
    options = resolve_learner(learner)
    is_small = max_features is not None and not isinstance(max_features, str) and max_features < MOST_BY_DEFAULT
    if isinstance(options, Newton) or not loss.is_curved or is_small:
        return False
    is_single = options.batch_size == 1 and options.preconditioner is None and not options.averaging
    return is_single and options.step_size == "auto"


def choose_learner(
    learner: Any,
    resolved: losses.Loss,
    *,
    loss: Any,
    max_features: int | str | None,
    refit: Any,
    is_mixed: bool = False,
) -> tuple[int | None, Newton | DSG]:
    """Return the cap on the features, or ``None``, and the learner with ``"auto"`` replaced by numbers.

    `resolved` is the loss, `is_mixed` says whether four bandwidths share the features, and the other arguments are
    parameters of the estimator. Raise a ValueError if `learner` is no learner, another parameter does not go with it,
    or the cap is smaller than a block; names the parameter.

    Examples
    --------
    >>> cap, learner = choose_learner("newton", losses.Square(), loss="square", max_features=64, refit=None)
    >>> cap, learner.features_per_seed, learner.forgetting
    (64, 16, 'auto')
    """
    options = resolve_learner(learner)
    is_second_order = isinstance(options, Newton)
    if is_second_order and not resolved.is_curved:
        raise ValueError(
            f'Expected learner="dsg" with loss={loss!r}, which has no second derivative, got learner={learner!r}'
        )
    for name, value, is_given in (
        ("max_features", max_features, max_features is None),
        ("refit", refit, refit is not None),
    ):
        if is_second_order and is_given:
            raise ValueError(f'Expected learner="dsg" with {name}={value!r}, got learner={learner!r}')
    cap = max_features
    if isinstance(cap, str):
        cap = MOST_BY_DEFAULT if is_second_order or is_mixed else 4 * LARGEST_BLOCK
    block_size = options.features_per_seed
    if isinstance(block_size, str):
        quarter = max(1, (cap or 4 * LARGEST_BLOCK) // 4)
        block_size = min(LARGEST_BLOCK, quarter) if is_second_order else quarter
    if cap is not None and cap < block_size:
        raise ValueError(f"Expected max_features to hold one block of features_per_seed={block_size}, got {cap}")
    options = replace(options, features_per_seed=block_size)
    if isinstance(options, Newton):
        options = replace(
            options, step_size=as_step(options.step_size) or step_sizes.Constant(0.75 / resolved.curvature)
        )
    return cap, options


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
    average = MIXTURE if is_automatic else LAST
    if learner.averaging:
        average = AVERAGE
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
        average=average,
        per_error=step is None and loss.directional,
        **others,
    )


def default_gamma(loss: losses.Loss) -> float:
    """Return the γ of steps of automatic size: a quarter of the inverse of the loss's curvature, at most 1.

    An intercept that is learned moves by it. It is in units of the mean absolute error where the loss is directional.
    """
    return min(1.0, 0.25 / loss.curvature)
