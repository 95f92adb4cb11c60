"""The comparison of CDSG and DSG: the definition of the objective, and when a rule has reached it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks import coordinates, race


def test_the_time_to_the_goal_is_the_first_measurement_below_it() -> None:
    def marks(*errors: float) -> list[race.Mark]:
        return [race.Mark(float(i), 10 * i, error, str(32 * i)) for i, error in enumerate(errors, start=1)]

    runs = {
        0.5: [marks(3.0, 2.0, 1.0), marks(3.0, 2.5, 2.0), marks(3.0, 2.0, 1.5)],
        1.5: [marks(3.0, 1.0, 4.0), marks(3.0, 1.0, 4.5), marks(3.0, 2.0, 5.0)],
        5.0: [marks(1.0, 3.0), [], []],  # two diverged
    }
    assert coordinates.last(runs[0.5]) == 1.5
    assert coordinates.last(runs[5.0]) == np.inf
    assert coordinates.best(runs, 1.5) == coordinates.Best(2.0, 64.0, 20.0, 1.5, 4.5, 2)
    assert coordinates.best(runs, 2.5) == coordinates.Best(2.0, 64.0, 20.0, 0.5, 1.5, 3)
    assert coordinates.best(runs, 0.5).seconds == np.inf


@pytest.mark.parametrize("loss", ["hinge", "logistic", "square"])
def test_the_objective_is_the_regularised_loss(loss: str) -> None:
    X = pd.DataFrame(np.random.default_rng(1).normal(size=(256, 3)), columns=["a", "b", "c"])
    y = X["a"].to_numpy() if loss == "square" else (X["a"] > 0).to_numpy(float)
    signed = y[:50] if loss == "square" else 2.0 * y[:50] - 1.0
    learner = coordinates.Learner(coordinates.Data(X, y, X[:50], y[:50], loss, 2.0), "CDSG", 1.0, seed=1)
    at_zero = {"hinge": 1.0, "logistic": np.log(2.0), "square": 0.5 * np.mean(y[:50] ** 2)}
    assert learner.objective() == pytest.approx(at_zero[loss])
    learner.learn(slice(0, 256))
    scores = learner.f.scores(learner._test)[:, 0]
    values = [learner.f.loss.value(s, t) for s, t in zip(scores, signed, strict=True)]
    assert learner.objective() == pytest.approx(np.mean(values) + learner.f.penalty)
    assert learner.f.penalty > 0.0
    assert int(learner.size) == 32 * learner.f.n_blocks
