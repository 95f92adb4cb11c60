"""A frozen function in a NumPy file, beside the predictor that reads it."""

from __future__ import annotations

import io
import json
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamkernel import tensor_file
from streamkernel.interop import numpy_predictor
from streamkernel.interop.frozen_function import freeze, steps_of


def to_numpy(model: Any, path: str | Path, features: Sequence[Hashable] | None = None) -> None:
    """Write a model for :class:`numpy_predictor.Predictor`, with that predictor, which needs only NumPy, beside it.

    Parameters
    ----------
    model : KernelClassifier, KernelRegressor, one of several targets, or Pipeline
        A model, which does not change. A pipeline may have River's ``StandardScaler``, ``MinMaxScaler`` or
        ``MaxAbsScaler`` in front of it.
    path : str or Path
        The file, ``.npz``; ``numpy_predictor.py`` is written into the same folder.
    features : list of str or None, default None
        Names of the inputs, in the order of the columns of arrays; ``None``: the names that the model has learned.

    Raises
    ------
    ValueError
        If a step, the learner or the kernel cannot be exported, or the names of the inputs are unknown; names it.

    Examples
    --------
    >>> import tempfile
    >>> from streamkernel import KernelRegressor
    >>> from streamkernel.interop import to_numpy
    >>> from streamkernel.interop.numpy_predictor import Predictor
    >>> model = KernelRegressor(max_features=256)
    >>> for i in range(500):
    ...     model.learn_one({"x": i % 10}, float(i % 10))
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     to_numpy(model, f"{directory}/model.npz")
    ...     copy = Predictor(f"{directory}/model.npz")
    >>> round(abs(copy.predict_one({"x": 3}) - model.predict_one({"x": 3})), 5)
    0.0
    """
    function, path = freeze(model, features), Path(path)
    for part in function.about["parts"]:
        if part["form"] not in numpy_predictor.FORMS:
            kernel = steps_of(model)[-1].kernel_
            raise ValueError(f"Expected a kernel that the predictor with NumPy has, got {kernel!r}; use ONNX")
    content = io.BytesIO()
    np.savez(content, about=np.array(json.dumps(function.about)), **function.arrays)
    tensor_file.put(path, content.getvalue())
    tensor_file.put(path.with_name("numpy_predictor.py"), Path(numpy_predictor.__file__).read_bytes())
