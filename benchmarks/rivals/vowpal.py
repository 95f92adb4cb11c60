"""Vowpal Wabbit as River estimators; events go in as text, which is what most of their time goes into."""

from __future__ import annotations

import math
from typing import Any

from river import base


def workspace(options: str) -> Any:
    """Return a new learner of the package ``vowpalwabbit``, which is not needed for anything else."""
    from vowpalwabbit import Workspace

    return Workspace(f"--quiet {options}")


def text(x: dict[str, float]) -> str:
    """Return the inputs of an event in Vowpal Wabbit's format."""
    return "| " + " ".join(f"{name}:{value:.7g}" for name, value in x.items())


class VowpalClassifier(base.Classifier):
    """One learner for all classes: two are -1 and 1, more are reduced to one against all.

    Parameters
    ----------
    options
        The command line.
    classes
        The number of classes, which must be known before the first event.
    """

    def __init__(self, options: str, classes: int = 2) -> None:
        self.options, self.classes = options, classes
        self._labels: list[base.typing.ClfTarget] = []
        self._learner = workspace(options if classes <= 2 else f"{options} --oaa {classes}")

    def learn_one(self, x: dict[str, float], y: base.typing.ClfTarget) -> None:
        """Learn an event."""
        if y not in self._labels:
            self._labels.append(y)
        place = self._labels.index(y)
        label = place + 1 if self.classes > 2 else 2 * place - 1
        self._learner.learn(f"{label} {text(x)}")

    def predict_one(self, x: dict[str, float]) -> base.typing.ClfTarget | None:
        """Return the class, ``None`` before the first event."""
        found = self._learner.predict(text(x))
        place = int(found) - 1 if self.classes > 2 else int(found > 0.0)
        return self._labels[min(place, len(self._labels) - 1)] if self._labels else None

    def predict_proba_one(self, x: dict[str, float]) -> dict[base.typing.ClfTarget, float]:
        """Return the logistic function of the score of two classes."""
        second = 0.5 * (1.0 + math.tanh(0.5 * self._learner.predict(text(x))))
        return dict(zip(self._labels, (1.0 - second, second), strict=False))


class VowpalRegressor(base.Regressor):
    """One learner with the squared loss.

    Parameters
    ----------
    options
        The command line.
    """

    def __init__(self, options: str = "") -> None:
        self.options = options
        self._learner = workspace(options)

    def learn_one(self, x: dict[str, float], y: float) -> None:
        """Learn an event."""
        self._learner.learn(f"{y:.9g} {text(x)}")

    def predict_one(self, x: dict[str, float]) -> float:
        """Return the prediction."""
        return float(self._learner.predict(text(x)))
