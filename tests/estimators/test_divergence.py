"""Steps that are much too long are refused before a value that is not finite is learned."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
from streams import FIXED, SMALL, content, examples, nested, targets

from streamkernel import InputError, KernelClassifier, KernelRegressor, rules, step_sizes
from streamkernel.kernels import Gaussian

RULES = [rules.DSG(), rules.UDSG(), rules.CDSG(math.inf), rules.CDSG()]
BOUNDED = [
    (KernelClassifier, "logistic"),
    (KernelClassifier, "softmax"),
    (KernelClassifier, "hinge"),
    (KernelClassifier, "smooth_hinge"),
    (KernelClassifier, "sigmoid"),
    (KernelRegressor, "huber"),
    (KernelRegressor, "quantile"),
    (KernelRegressor, "correntropy"),
]
UNBOUNDED = [(KernelRegressor, "square"), (KernelClassifier, "squared_hinge")]


def is_finite(model, xs):
    """Return whether all coefficients and predictions are finite."""
    learnt = all(np.isfinite(model._describe()[1][name]).all() for name in ("coef", "beta"))
    if isinstance(model, KernelRegressor):
        said = [model.predict_one(x) for x in xs]
    else:
        said = [p for x in xs for p in model.predict_proba_one(x).values()]
    return learnt and all(map(math.isfinite, said))


def refuses(model, x, y):
    """Learn an example, and return whether it was rejected."""
    try:
        model.learn_one(x, y)
    except InputError:
        return True
    return False


def run(make, n=1200, **options):
    """Learn until the model rejects an example, if it does; return the model and the index of that example."""
    xs, ys = examples(n)
    model = make(**nested(**{"kernel": FIXED, "learner": "dsg", **SMALL, **options}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i, (x, y) in enumerate(zip(xs, targets(xs) if make is KernelRegressor else ys, strict=True)):
            refused = refuses(model, x, y)
            if refused or i % 100 < 3:
                assert is_finite(model, xs[:20]), options
            if refused:
                return model, i
    return model, None


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("kernel", [FIXED, Gaussian()], ids=["fixed", "median"])
@pytest.mark.parametrize("gamma", [1e6, 1e200, 1e308])
def test_unbounded_losses_that_diverge_are_refused(gamma, kernel, batch_size):
    for make, loss in UNBOUNDED:
        _, at = run(make, loss=loss, step_size=step_sizes.Constant(gamma), batch_size=batch_size, kernel=kernel)
        assert at is not None


@pytest.mark.parametrize("gamma", [1e6, 1e200, 1e308])
def test_bounded_losses_stay_finite_or_are_refused(gamma):
    for (make, loss), batch_size in itertools.product(BOUNDED, [1, 4]):
        run(make, loss=loss, step_size=step_sizes.Constant(gamma), batch_size=batch_size)


@pytest.mark.parametrize("step", [step_sizes.Constant(3.0), step_sizes.InverseTime(1e6)], ids=repr)
def test_steps_beyond_two_over_l2_stay_finite_or_are_refused(step):
    """(1 - γλ)ᵗ grows without bound, though every derivative is bounded."""
    for (make, loss), rule in itertools.product(BOUNDED, RULES):
        run(make, 2500, loss=loss, step_size=step, l2=1.0, rule=rule)


@pytest.mark.parametrize("rule", [rules.DSG(), rules.UDSG(), rules.CDSG()], ids=repr)
def test_the_default_step_is_safe_with_every_loss_and_rule(rule):
    for (make, loss), batch_size, l2 in itertools.product(BOUNDED + UNBOUNDED, [1, 8], [0.0, 0.01, 0.1, 1.0]):
        model, at = run(make, 600, loss=loss, rule=rule, l2=l2, batch_size=batch_size)
        assert at is None
        assert model.objective < 5.0, (loss, batch_size, l2)


@pytest.mark.parametrize("rule", [rules.DSG(), rules.UDSG(), rules.CDSG(max_step_ratio=2.0)], ids=repr)
def test_the_steps_of_the_theory_are_safe(rule):
    """γ = θ/t with θλ in (1, 2) or a positive integer."""
    for product, batch_size, l2, loss in itertools.product(
        [1.0, 1.5, 2.0], [1, 8], [0.25, 0.01], ["logistic", "hinge"]
    ):
        step = step_sizes.InverseTime(product / l2)
        model, at = run(KernelClassifier, loss=loss, rule=rule, step_size=step, l2=l2, batch_size=batch_size)
        assert at is None
        assert model.objective < 5.0, (product, batch_size, l2, loss)


def test_a_line_search_without_a_limit_stays_finite_or_is_refused():
    """γ does not bound the steps: beyond 2/λ each step makes f and the next step larger."""
    for (make, loss), batch_size, l2 in itertools.product(BOUNDED + UNBOUNDED, [1, 8], [0.0, 0.01, 0.1, 1.0]):
        _, at = run(make, loss=loss, rule=rules.CDSG(math.inf), l2=l2, batch_size=batch_size)
        assert at is None or l2 > 0.0


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("kernel", [FIXED, Gaussian()], ids=["fixed", "median"])
def test_rejected_examples_change_nothing(kernel, batch_size):
    """Buffered examples stay buffered, and a new label stays unknown."""
    xs, ys = examples(300)
    model = KernelRegressor(
        **nested(kernel=kernel, learner="dsg", step_size=step_sizes.Constant(1e60), batch_size=batch_size, **SMALL)
    )
    refused = 0
    for x, y in zip(xs, targets(xs), strict=True):
        before = content(model)
        if refuses(model, x, y):
            refused += 1
            assert content(model) == before
    assert refused > 10
    classifier = KernelClassifier(
        **nested(
            kernel=kernel,
            learner="dsg",
            step_size=step_sizes.Constant(1e120),
            batch_size=batch_size,
            loss="squared_hinge",
            **SMALL,
        )
    )
    for x, y in zip(xs, ys, strict=True):
        for label in (y, f"new label {y}"):
            before = content(classifier)
            if refuses(classifier, x, label):
                assert content(classifier) == before


def function_at(model, xs):
    """Return f at inputs, without the mean of the targets and without limits."""
    f = model._learner
    return f.embed_rows(f.directions.rows(list(xs[0]), np.array([list(x.values()) for x in xs]))) @ f.predicting()


def test_one_outlier_among_the_targets_does_not_ruin_the_model():
    """The derivative is clipped at the largest one seen, which at most doubles a step."""
    xs, _ = examples(400)
    ys = targets(xs)
    model = KernelRegressor(**nested(kernel=FIXED, learner="dsg", **SMALL))
    for x, y in zip(xs[:300], ys[:300], strict=True):
        model.learn_one(x, y)
    before = function_at(model, xs[:50])
    model.learn_one(xs[300], 1e6)
    assert np.abs(function_at(model, xs[:50]) - before).max() < 10.0
    assert np.abs([model.predict_one(x) for x in xs[:50]]).max() < 2.0 * np.abs(ys[:300]).max()  # though the mean moved
