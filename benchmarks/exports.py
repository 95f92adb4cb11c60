"""Exports for ONNX and for NumPy alone beside the model: bytes, time of a prediction, and the largest difference.

python -m benchmarks.exports
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from river.datasets import synth

from benchmarks.common import arguments, interleaved, ratio, show
from streamkernel import KernelRegressor
from streamkernel.interop import to_numpy, to_onnx
from streamkernel.interop.numpy_predictor import Predictor

MODELS: dict[str, dict[str, Any]] = {
    "no arguments": {},
    "max_features=1024": {"max_features": 1024},
    'learner="dsg"': {"learner": "dsg"},
}
ROWS, ROUNDS = 200, 7


def taken(predict: Callable[[Any], Any], inputs: list[Any]) -> float:
    """Return the microseconds of processor time per prediction, one after the other."""
    began = time.process_time()
    for x in inputs:
        predict(x)
    return 1e6 * (time.process_time() - began) / len(inputs)


def compared(options: dict[str, Any], n: int, folder: Path) -> list[str]:
    """Return a row of the table."""
    model = KernelRegressor(**options)
    for x, y in synth.Friedman(seed=1).take(n):
        model.learn_one(x, y)
    xs = [x for x, _ in synth.Friedman(seed=2).take(ROWS)]
    names = list(xs[0])
    graph = to_onnx(model, names).SerializeToString()
    single = onnxruntime.SessionOptions()
    single.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph, single)
    model.save(folder / "model")
    to_numpy(model, folder / "model.npz", names)
    small = Predictor(folder / "model.npz")
    rows = [np.array([[x[name] for name in names]]) for x in xs]

    def by_onnx(row: Any) -> float:
        return float(session.run(None, {"X": row})[0].item())

    expected = np.array([model.predict_one(x) for x in xs])
    found = [np.array([predict(x) for x in inputs]) for predict, inputs in ((by_onnx, rows), (small.predict_one, xs))]
    off = [f"{np.abs(one - expected).max() / expected.std():.0e}" for one in found]
    own, onnx, numpy = interleaved(
        ROUNDS,
        lambda: taken(model.predict_one, xs),
        lambda: taken(by_onnx, rows),
        lambda: taken(small.predict_one, xs),
    )
    sizes = [(folder / "model").stat().st_size, len(graph), (folder / "model.npz").stat().st_size]
    return [
        *(f"{size / 1e6:.2f}" for size in sizes),
        f"{statistics.median(own):.0f}",
        f"{ratio(onnx, own):.1f}",
        f"{ratio(numpy, own):.1f}",
        *off,
    ]


def main() -> None:
    """Print the table."""
    options = arguments(__doc__, events=5000)
    columns = ["", "MB: model", "ONNX", "NumPy", "µs: model", "ONNX, ratio", "NumPy, ratio", "off: ONNX", "NumPy"]
    with tempfile.TemporaryDirectory() as folder:
        rows = [[name, *compared(one, options.events, Path(folder))] for name, one in MODELS.items()]
    show(f"Friedman's function, 10 inputs, {options.events:,} events", columns, rows)


if __name__ == "__main__":
    main()
