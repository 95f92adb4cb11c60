"""The files in ``tests/data/format_1``: models, a pipeline and a state directory, with what they predict.

They are written by ``PYTHONPATH=.:tests python tests/stored_files.py``, when the format gets another number.
"""

from __future__ import annotations

import json
import math
import platform
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import llvmlite.binding
import numpy as np
from river import metrics, preprocessing
from states import state_in

from streamkernel import (
    GaussianProcessRegressor,
    KernelClassifier,
    KernelDensityRatio,
    KernelDriftDetector,
    KernelMultiTargetRegressor,
    KernelNoveltyDetector,
    KernelRegressor,
    RandomFeatures,
    kernels,
    learners,
    rules,
    save,
    tensor_file,
    upkeep,
    vectors,
)
from streamkernel.connectors import DeadLetters, Event, FileSink
from streamkernel.engine import Engine
from streamkernel.jit import compiled

FOLDER = Path(__file__).parent / "data" / f"format_{tensor_file.VERSION}"
STATE = FOLDER / "state"
"""A state after 200 events of `Stream`."""

HAD, N = 200, 300
SMALL = {"features_per_seed": 4}
NEWTON, DSG = learners.Newton(**SMALL), learners.DSG(**SMALL)
MODELS: dict[str, Callable[[], Any]] = {
    "classifier": lambda: KernelClassifier(learner=NEWTON, max_features=16),
    "classifier_forgetting": lambda: KernelClassifier(
        learner=learners.Newton(forgetting=0.99, **SMALL), max_features=16
    ),
    "classifier_cdsg_hinge": lambda: KernelClassifier(
        kernels.Gaussian(1.0) + kernels.Laplacian(2.0),
        loss="hinge",
        learner=learners.DSG(rule=rules.CDSG(), batch_size=4, **SMALL),
        max_features=16,
    ),
    "regressor": lambda: KernelRegressor(learner=NEWTON, max_features=16),
    "regressor_averaged": lambda: KernelRegressor(learner=learners.DSG(averaging=True, **SMALL), max_features=16),
    "regressor_pruned": lambda: KernelRegressor(
        kernels.Gaussian("median"), learner=DSG, max_features=16, pruning=upkeep.Pruning(every=50, window=40)
    ),
    "several_targets": lambda: KernelMultiTargetRegressor(learner=NEWTON, max_features=16),
    "gaussian_process": lambda: GaussianProcessRegressor(n_features=8),
    "novelty": lambda: KernelNoveltyDetector(learner=DSG, max_features=16),
    "density_ratio": lambda: KernelDensityRatio(learner=DSG, max_features=16),
    "drift": lambda: KernelDriftDetector(window=8, max_features=16),
    "random_features": lambda: RandomFeatures(kernels.Gaussian("median"), n_features=4),
    "pipeline": lambda: preprocessing.StandardScaler() | KernelRegressor(learner=NEWTON, max_features=16),
}
"""New models by the names of their files."""

STREAM = "/srv/clicks/events.jsonl"


class Stream:
    """A source of 300 events, which ends after the first `until`."""

    def __init__(self, until: int = N) -> None:
        values = (((i * 37 % 101 - 50) / 25, (i * 53 % 89 - 44) / 22) for i in range(until))
        records: list[dict[str, Any]] = [{"a": a, "b": b, "y": a * b > 0} for a, b in values]
        self.events = [Event(STREAM, i, json.dumps(record).encode(), record) for i, record in enumerate(records)]

    def seek(self, positions: Mapping[str, Any]) -> None:
        self.events = self.events[positions.get(STREAM, -1) + 1 :]

    def poll(self, timeout: float) -> Sequence[Event] | None:
        events, self.events = self.events, []
        return events or None

    def lag(self) -> Mapping[tuple[str, str], int]:
        return {}

    def close(self) -> None: ...


def run(state: Path, folder: Path, until: int = N) -> list[dict[str, Any]]:
    """Run an engine until an event of the stream, and return the predictions in its file in the folder."""
    path = folder / "predictions.jsonl"
    engine = Engine(
        KernelClassifier(max_features=16, learner=NEWTON),
        Stream(until),
        label="y",
        metric=metrics.Accuracy(),
        sink=FileSink(path),
        dead_letters=DeadLetters(FileSink(folder / "dead.jsonl")),
        state=state_in(state),
        setup={"label": "y", "ignore": [], "delayed_labels.key": None, "delayed_labels.time": None},
    )
    engine.run()
    assert engine.outcomes["learned"] == until
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def stream(n: int, seed: int) -> Iterator[dict[str, Any]]:
    """Return what the models of the files have learned, with seed 1, and other examples."""
    generator = random.Random(seed)
    for i in range(n):
        x = {"a": generator.gauss(0, 1), "b": generator.random(), "c": generator.choice(["u", "v", "w"])}
        yield x | ({"late": generator.gauss(5, 2)} if i > n // 2 else {})


def learn(name: str, model: Any, n: int, seed: int) -> None:
    """Let the model of the given name learn a stream."""
    for x in stream(n, seed):
        y: Any = math.sin(2 * x["a"]) + x["b"] ** 2 + (x["c"] == "u")
        if name == "drift":
            model.update(x)
        elif name in ("novelty", "random_features"):
            model.learn_one(x)
        elif name == "pipeline":
            model.learn_one({key: value for key, value in x.items() if key != "c"}, y)
        elif name == "several_targets":
            model.learn_one(x, {"y": y, "z": x["b"]})
        elif name == "density_ratio":
            model.learn_one(x, x["a"] > 0.0)
        elif name.startswith("classifier"):
            model.learn_one(x, "p" if x["a"] > 0.5 else "q" if x["b"] > 0.4 else "r")
        else:
            model.learn_one(x, y)


def answers(name: str, model: Any) -> list[list[float]]:
    """Return all outputs of a model for ten examples, as lists of numbers."""
    found = []
    for x in stream(10, 2):
        if name == "drift":
            found.append([float(model.drift_detected), model.statistic])
        elif name == "pipeline":
            found.append([model.predict_one({key: value for key, value in x.items() if key != "c"})])
        elif hasattr(model, "predict_proba_one"):
            found.append(list(model.predict_proba_one(x).values()))
        elif hasattr(model, "score_one"):
            found.append([model.score_one(x)])
        elif hasattr(model, "transform_one"):
            found.append(list(model.transform_one(x).values()))
        elif isinstance(model, GaussianProcessRegressor):
            said = model.predict_one(x, with_dist=True)
            found.append([said.mu, said.sigma])
        else:
            said = model.predict_one(x)
            found.append(list(said.values()) if isinstance(said, dict) else [said])
    return found


@compiled
def dot(a: Any, b: Any) -> Any:
    return vectors.dot(a, b)


def has_wide_sums() -> bool:
    """Return whether a sum of products has 32 partial sums, as on the machine that wrote the files, and not fewer.

    The compiler uses the widest vectors only on some of the processors that have them.
    """
    values = np.zeros(64)
    values[[0, 16, 32]] = 2.0**60, -(2.0**60), 1.0
    return bool(dot(values, np.ones(64)) == 0.0)


def has_the_bits_of_the_files() -> bool:
    """Return whether this machine rounds as the one that wrote the files.

    exp, log, cos and sin come from the C library, whose last digit depends on the library and on whether the processor
    has fused multiply-add. The order of sums depends on the width of vectors (`streamkernel.vectors.dot`).
    """
    library, version = platform.libc_ver()
    is_glibc = library == "glibc" and tuple(map(int, version.split("."))) >= (2, 28)
    has_fma = llvmlite.binding.get_host_cpu_features().get("fma", False)
    return is_glibc and platform.machine() == "x86_64" and has_fma and has_wide_sums()


def main() -> None:
    """Write the files."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    expected = {}
    for name, build in MODELS.items():
        model = build()
        learn(name, model, 200, 1)
        save(model, FOLDER / f"{name}.safetensors")
        before = answers(name, model)
        learn(name, model, 100, 3)
        expected[name] = {"predictions": before, "after_100_more": answers(name, model)}
    lines = run(STATE, FOLDER, HAD)
    continued = shutil.copytree(STATE, FOLDER / "continued")
    expected["state"] = {"predictions": run(continued, FOLDER)[len(lines) :]}
    shutil.rmtree(continued)
    (FOLDER / "dead.jsonl").unlink(missing_ok=True)
    (FOLDER / "predictions.jsonl").unlink()
    (FOLDER / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
