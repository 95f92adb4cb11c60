"""Incremental permutation feature importance (iPFI) as a peer: the paper's in plain Python, and that of ixai.

For each event before it is learned, and for each input: how much larger the loss of the prediction is with the value
of a random earlier event than with the event's own. These differences are smoothed exponentially. Earlier events come
from a reservoir in which each new event takes the place of a random one (geometric sampling).

Fumagalli, Muschalik, Hüllermeier and Hammer, "Incremental permutation feature importance (iPFI): towards online
explanations on data streams", Machine Learning 2023. `pip install --no-deps ixai tqdm` installs the authors' package.
"""

from __future__ import annotations

import importlib.util
import math
import random
import time
from typing import Any

import numpy as np

RESERVOIR, SMOOTH = 100, 0.001
"""Events in the reservoir, and the weight of a new difference: the defaults of ixai."""


def log_loss(chances: dict[Any, float], y: Any) -> float:
    """Return the log loss of a label."""
    return -math.log(max(chances.get(y, 0.0), 1e-9))


class IncrementalPermutation:
    """Importances beside a model that learns; `seconds` is the processor time that they took."""

    def __init__(self, model: Any, names: list[str], is_class: bool) -> None:
        self.model, self.is_class = model, is_class
        self.sums, self.seconds = dict.fromkeys(names, 0.0), 0.0
        self.reservoir: list[dict[str, Any]] = []
        self.random = random.Random(0)

    def loss(self, x: dict[str, Any], y: Any) -> float:
        """Return the squared error, or the log loss of the label."""
        if self.is_class:
            return log_loss(self.model.predict_proba_one(x), y)
        return float((self.model.predict_one(x) - y) ** 2)

    def update(self, x: dict[str, Any], y: Any) -> None:
        """Take in an event before it is learned."""
        began = time.process_time()
        if self.reservoir:
            own = self.loss(x, y)
            for name in x:
                other = self.loss({**x, name: self.random.choice(self.reservoir)[name]}, y)
                self.sums[name] += SMOOTH * (other - own - self.sums[name])
        if len(self.reservoir) < RESERVOIR:
            self.reservoir.append(x)
        else:
            self.reservoir[self.random.randrange(RESERVOIR)] = x
        self.seconds += time.process_time() - began

    def shares(self) -> Any:
        """Return the shares of the inputs."""
        found = np.maximum([*self.sums.values()], 0.0)
        return found / max(found.sum(), 1e-300)


class Ixai(IncrementalPermutation):
    """The same by `ixai.explainer.IncrementalPFI`, with its defaults."""

    def __init__(self, model: Any, names: list[str], is_class: bool) -> None:
        from ixai.explainer import IncrementalPFI
        from ixai.utils.wrappers import RiverWrapper

        super().__init__(model, names, is_class)
        random.seed(0)  # which it draws from
        predict = RiverWrapper(model.predict_proba_one if is_class else model.predict_one)
        loss = (lambda y, p: log_loss(p, y)) if is_class else (lambda y, p: (p["output"] - y) ** 2)
        self.explainer = IncrementalPFI(predict, loss, names, smoothing_alpha=SMOOTH)

    def update(self, x: dict[str, Any], y: Any) -> None:
        """Take in an event before it is learned."""
        began = time.process_time()
        self.explainer.explain_one(x, y)
        self.seconds += time.process_time() - began

    def shares(self) -> Any:
        """Return the shares of the inputs."""
        found = self.explainer.importance_values
        self.sums = {name: found[name] for name in self.sums}
        return super().shares()


PEERS: dict[str, type[IncrementalPermutation]] = {"iPFI, plain": IncrementalPermutation}
if importlib.util.find_spec("ixai") is not None:
    PEERS["iPFI, ixai"] = Ixai
