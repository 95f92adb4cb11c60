"""Models to freeze: each learner, loss, kind of input and kernel."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
from river import datasets, preprocessing

from streamkernel import (
    KernelClassifier,
    KernelMultiLabelClassifier,
    KernelMultiTargetRegressor,
    KernelRegressor,
    StandardScaler,
    kernels,
    learners,
)
from streamkernel.engine.fields import OnFields

Examples = list[tuple[dict[Any, Any], Any]]


def numbers(n: int, d: int = 5, seed: int = 1) -> Examples:
    """Return inputs from 0 to 1, some missing, and targets."""
    rng, found = random.Random(seed), []
    for _ in range(n):
        x: dict[Any, Any] = {f"x{i}": rng.random() for i in range(d)}
        y = 10.0 * x["x0"] * x["x1"] + 5.0 * (x["x2"] - 0.5) ** 2 + x["x3"] + 100.0
        if rng.random() < 0.1:
            x["x3"] = None
        found.append((x, y))
    return found


def classes(n: int, k: int = 3) -> Examples:
    return [(x, "abcdef"[int(y - 99.0) % k]) for x, y in numbers(n)]


def far_apart(n: int) -> Examples:
    """Return inputs of other sizes: times, and values with outliers."""
    rng = random.Random(2)
    return [
        ({"time": 1.7e9 + 60.0 * i, "small": 1e-6 * rng.gauss(0, 1), "odd": rng.gauss(0, 1) ** 9}, rng.random() + i / n)
        for i in range(n)
    ]


def strings(n: int) -> Examples:
    rng, found = random.Random(3), []
    for _ in range(n):
        x = {"age": rng.gauss(40, 10), "colour": rng.choice(["red", "green", "blue"]), "n": rng.randrange(4)}
        if rng.random() < 0.2:
            del x["age"]
        found.append((x, x.get("age", 3) * 0.1 + (x["colour"] == "red") + rng.gauss(0, 0.1)))
    return found


def several(n: int, limit: float | None = None) -> Examples:
    """Return two targets, or whether they are beyond a limit."""
    found = []
    for x, y in numbers(n):
        targets = {"y": y / 100.0, "squared": (y / 100.0) ** 2}
        found.append((x, targets if limit is None else {"many": y > limit, "few": y < 102.0}))
    return found


def codes(n: int) -> Examples:
    """Return labels of two codes and a number, with missing values."""
    generator = np.random.default_rng(2)
    found = []
    for i in range(n):
        a, b, c = float(i % 5 - 2), float(generator.integers(3)) / 10.0, float(generator.normal())
        x = {"a": None if i % 17 == 0 else a, "b": b, "c": c}
        found.append((x, f"label {int((a in (-1.0, 1.0)) + (b == 0.1) + c > 0.8)}"))
    return found


def spreads(n: int) -> Examples:
    """Return two labels whose inputs differ in their deviations, with missing values."""
    generator = np.random.default_rng(4)
    labels = generator.integers(2, size=n)
    X = (generator.normal(size=(n, 4)) + 0.2) * (1.0 + 1.5 * labels[:, None])
    rows = [{f"x{j}": None if (i + j) % 19 == 0 else x for j, x in enumerate(row)} for i, row in enumerate(X.tolist())]
    return [(x, f"label {y}") for x, y in zip(rows, labels.tolist(), strict=True)]


Make = Callable[[], Any]

MODELS: dict[str, tuple[Make, Examples]] = {
    "default": (KernelRegressor, numbers(2600)),
    "of few examples": (KernelRegressor, numbers(30)),
    "far apart": (lambda: KernelRegressor(max_features=1024), far_apart(900)),
    "strings": (lambda: KernelRegressor(max_features=1024), strings(900)),
    "two classes": (KernelClassifier, classes(1500, 2)),
    "codes": (lambda: KernelClassifier(max_features=512), codes(600)),
    "scaled codes": (
        lambda: preprocessing.MinMaxScaler() | KernelClassifier(max_features=512),
        [(x, y) for x, y in codes(600) if x["a"] is not None],
    ),
    "squares": (lambda: KernelClassifier(max_features=512), spreads(600)),
    "three classes": (lambda: KernelClassifier(max_features=1024), classes(900)),
    "one class": (lambda: KernelClassifier(max_features=512), classes(50, 1)),
    "softmax": (lambda: KernelClassifier(loss="softmax", max_features=1024), classes(900)),
    "softmax of two": (lambda: KernelClassifier(loss="softmax", max_features=1024), classes(400, 2)),
    "hinge": (lambda: KernelClassifier(loss="squared_hinge", max_features=1024), classes(900)),
    "several numbers": (lambda: KernelMultiTargetRegressor(max_features=1024), several(900)),
    "several labels": (lambda: KernelMultiLabelClassifier(max_features=1024), several(900, limit=104.0)),
    "huber": (lambda: KernelRegressor(loss="huber", max_features=1024), numbers(600)),
    "joint": (
        lambda: KernelRegressor(kernels.Gaussian(1.0), learner=learners.Newton(joint=True), max_features=256),
        numbers(400),
    ),
    "dsg": (lambda: KernelRegressor(learner="dsg"), numbers(600)),
    "dsg, classes": (lambda: KernelClassifier(learner="dsg", loss="hinge"), classes(600)),
    "averaging": (lambda: KernelRegressor(learner=learners.DSG(step_size=0.1, averaging=True)), numbers(600)),
    "quantile": (lambda: KernelRegressor(loss="quantile", tau=0.9, learner="dsg"), numbers(600)),
    "scaled": (
        lambda: preprocessing.StandardScaler() | KernelRegressor(learner="dsg"),
        [({name: value or 0.0 for name, value in x.items()}, y) for x, y in numbers(600)],
    ),
    "scaled with gaps": (lambda: StandardScaler() | KernelRegressor(learner="dsg"), numbers(600)),
    "scaled beside strings": (lambda: StandardScaler() | KernelRegressor(max_features=512), strings(500)),
    "scaled numbers": (
        lambda: OnFields(preprocessing.StandardScaler(window_size=100), "numbers") | KernelRegressor(max_features=512),
        [(x, y) for x, y in strings(500) if None not in x.values()],
    ),
    "some scaled": (
        lambda: OnFields(preprocessing.StandardScaler(), ["x0", "x1"]) | KernelRegressor(learner="dsg"),
        numbers(300),
    ),
    "scaled twice": (
        lambda: (
            preprocessing.MinMaxScaler()
            | preprocessing.MaxAbsScaler()
            | preprocessing.StandardScaler(with_std=False)
            | KernelClassifier(learner="dsg")
        ),
        [(x, y) for x, y in datasets.Phishing()],
    ),
}

KERNELS: dict[str, kernels.Kernel] = {
    "Gaussian": kernels.Gaussian(1.0),
    "Laplacian": kernels.Laplacian(1.0),
    "Cauchy": kernels.Cauchy(1.0),
    "Matern": kernels.Matern(1.5, 1.0),
    "MultiScale": kernels.MultiScale(kernels.Gaussian(1.0), (0.5, 2.0)),
    "SkewedChiSquared": kernels.SkewedChiSquared(0.5),
    "SkewedIntersection": kernels.SkewedIntersection(0.5),
    "Hellinger": kernels.Hellinger(),
    "ExponentialSemigroup": kernels.ExponentialSemigroup(0.5),
    "ReciprocalSemigroup": kernels.ReciprocalSemigroup(0.5),
    "ArcCosine of order 0": kernels.ArcCosine(0),
    "ArcCosine of order 1": kernels.ArcCosine(1),
    "ArcCosine of order 2": kernels.ArcCosine(2),
    "sum of products": 2.0 * kernels.Gaussian(1.0) * kernels.ArcCosine(1) + kernels.Hellinger() * kernels.Hellinger(),
    "on some inputs": kernels.Gaussian(1.0).on("x0", "x1") + 0.5 * kernels.Matern(0.5, 2.0).on("x2"),
}
"""Those that the predictor with NumPy has too."""

MORE_KERNELS: dict[str, kernels.Kernel] = {
    "ChiSquared": kernels.ChiSquared(),
    "Intersection": kernels.Intersection(),
    "JensenShannon": kernels.JensenShannon(),
    "DotProduct": kernels.DotProduct((1.0, 1.0, 0.5, 0.2)),
    "Polynomial": kernels.Polynomial(3, 1.0),
    "product with a Polynomial": kernels.Polynomial(2, 1.0) * kernels.Gaussian(1.0),
}


@functools.cache
def learned(name: str) -> tuple[Any, Examples, list[Any] | None]:
    """Return a model, the last of its examples, which it has not learned, and the features to export if not its own."""
    features: list[Any] | None = None
    if name in MODELS:
        make, examples = MODELS[name]
    else:
        kernel = (KERNELS | MORE_KERNELS)[name]
        make, examples = (lambda: KernelRegressor(kernel, learner="dsg", max_features=256)), numbers(400)
        features = [f"x{i}" for i in range(5)]
    if name in ("strings", "scaled numbers", "scaled beside strings"):
        features = ["age", "n", "colour=red", "colour=green", "colour=blue"]
    elif "dsg" in name or name in ("joint", "averaging", "quantile", "some scaled"):
        features = [f"x{i}" for i in range(5)]
    model, rest = make(), len(examples) // 5
    for x, y in examples[:-rest]:
        model.learn_one(x, y)
    return model, examples[-rest:], features


def predictions(model: Any, examples: Examples) -> Any:
    """Return the probabilities of all labels, or the numbers, shape (examples, columns)."""
    last = list(model.steps.values())[-1] if hasattr(model, "steps") else model
    is_classifier = isinstance(last, (KernelClassifier, KernelMultiLabelClassifier))
    predict = model.predict_proba_one if is_classifier else model.predict_one
    return np.array([columns_of(predict(x)) for x, _ in examples])


def columns_of(found: Any) -> list[float]:
    """Return a prediction as numbers: of several labels the probabilities that they are true."""
    if not isinstance(found, dict):
        return [found]
    return [list(own.values())[-1] if isinstance(own, dict) else own for own in found.values()]


def compare(found: Any, expected: Any) -> None:
    """Numbers agree to 1e-5 of the deviation of the predictions, probabilities to 1e-5."""
    assert found.shape == expected.shape
    scale = max(float(expected.std()), 1e-3 * float(np.abs(expected).max())) if expected.shape[1] == 1 else 1.0
    assert np.abs(found - expected).max() <= 1e-5 * scale
