"""A parameter of another type, a class instead of an instance among them, is refused by its name."""

from __future__ import annotations

import inspect

import pytest

import streamkernel
from streamkernel import kernels, learners, losses, rules, step_sizes, upkeep

MADE = {  # required parameters besides the wrong one
    streamkernel.RandomFeatures: {"kernel": kernels.Gaussian(1.0)},
    kernels.MultiScale: {"kernel": kernels.Gaussian(1.0)},
    kernels.OnInputs: {"kernel": kernels.Gaussian(1.0), "names": ["a"]},
    kernels.Product: {"left": kernels.Gaussian(1.0), "right": kernels.Gaussian(1.0)},
    kernels.Scaled: {"kernel": kernels.Gaussian(1.0), "factor": 2.0},
    kernels.Sum: {"left": kernels.Gaussian(1.0), "right": kernels.Gaussian(1.0)},
    kernels.Transformed: {"kernel": kernels.Gaussian(1.0), "transform": "unit"},
    step_sizes.Constant: {"gamma": 0.5},
    step_sizes.PowerDecay: {"gamma": 0.5},
    upkeep.Pruning: {"every": 100, "window": 50},
    upkeep.Refit: {"every": 100, "window": 50},
}
ABSTRACT = kernels.Kernel, losses.Loss, rules.Rule, step_sizes.Step, kernels.DotProduct
ANYTHING = {"transform", "names"}  # a class is callable, and any string is a valid name
ESTIMATORS = [
    getattr(streamkernel, name) for name in streamkernel.__all__ if name.startswith(("Kernel", "Gaussian", "Random"))
]
VALUES = [
    getattr(module, name)
    for module in (kernels, learners, losses, rules, step_sizes, upkeep)
    for name in module.__all__
    if inspect.isclass(getattr(module, name)) and getattr(module, name) not in ABSTRACT
]
CASES = [
    (kind, name, wrong)
    for kind in [*ESTIMATORS, *VALUES]
    for name in inspect.signature(kind).parameters
    for wrong in (object, object(), [object()], "nonsense", kernels.Gaussian, losses.Huber, rules.CDSG)
    if name not in ANYTHING
]


@pytest.mark.parametrize(
    ("kind", "name", "wrong"), CASES, ids=[f"{kind.__name__}-{name}-{i}" for i, (kind, name, _) in enumerate(CASES)]
)
def test_a_parameter_of_another_type_is_refused_by_its_name(kind, name, wrong):
    with pytest.raises(ValueError, match="Expected") as error:
        kind(**MADE.get(kind, {}) | {name: wrong})
    assert name in str(error.value)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_every_estimator_can_be_made(kind):
    assert kind(**MADE.get(kind, {})) is not None
