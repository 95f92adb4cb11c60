"""docs/reference/file_formats.md names every tensor that models write, and how the checksum is made."""

from __future__ import annotations

import hashlib
import json
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest
from safetensors import safe_open
from streams import nested

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
    upkeep,
)
from streamkernel.research import StochasticGaussianProcessRegressor

PAGE = (Path(__file__).parents[1] / "docs" / "reference" / "file_formats.md").read_text()
TENSORS = [
    name
    for line in PAGE.partition("## Tensors of a model")[2].partition("Examples are stored")[0].splitlines()
    if line.startswith("| `")
    for name in re.findall(r"`([^`]+)`", line.split("|")[1])
]
SMALL = {"features_per_seed": 4, "max_features": 16}
FIRST = {**SMALL, "learner": "dsg"}
XS = [{"a": i % 7 / 7, "b": i % 5 / 5} for i in range(70)]
MODELS = {
    "second order": (KernelClassifier(**nested(**SMALL)), [str(i % 3) for i in range(70)]),
    "several targets": (
        KernelMultiTargetRegressor(max_features=16),
        [{"a": float(i % 3), "b": float(i % 5)} for i in range(70)],
    ),
    "first order": (
        KernelClassifier(**nested(batch_size=4, averaging=True, **FIRST)),
        [str(i % 3) for i in range(70)],
    ),
    "pruned": (
        KernelRegressor(
            **nested(
                kernel=kernels.Gaussian(1.5),
                pruning=upkeep.Pruning(every=16, window=8),
                **FIRST,
            )
        ),
        [float(i % 3) for i in range(70)],
    ),
    "process": (GaussianProcessRegressor(n_features=4), [float(i % 3) for i in range(70)]),
    "process by gradients": (
        StochasticGaussianProcessRegressor(
            kernels.Gaussian(), noise=0.1, n_features=4, variance="operator", batch_size=3
        ),
        [float(i % 3) for i in range(70)],
    ),
    "novelty": (KernelNoveltyDetector(**nested(learner="novelty", **SMALL)), None),
    "ratio": (KernelDensityRatio(**nested(learner="novelty", **SMALL)), [i % 2 == 0 for i in range(70)]),
    "features": (RandomFeatures(kernels.Gaussian(), n_features=4), None),
    "drift": (KernelDriftDetector(window=4, max_features=4), None),
}


def written(model, path: Path):
    """Return the header and the tensors of the file of a model."""
    model.save(path)
    with safe_open(path, "np") as file:
        return file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


@pytest.mark.parametrize(("model", "ys"), MODELS.values(), ids=MODELS)
def test_the_page_names_every_tensor_and_how_the_checksum_is_made(model, ys, tmp_path):
    learn = model.update if isinstance(model, KernelDriftDetector) else model.learn_one
    for i, x in enumerate(XS):
        learn(x) if ys is None else learn(x, ys[i])
    header, tensors = written(model, tmp_path / "model")
    assert [name for name in tensors if not any(fnmatch(name, pattern) for pattern in TENSORS)] == []
    checksum = header.pop("checksum")
    digest = hashlib.blake2b(digest_size=16)
    for name, text in sorted(header.items()):
        digest.update(name.encode() + b"=" + text.encode() + b"\0")
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode() + b"\0" + tensor.tobytes())
    assert digest.hexdigest() == checksum
    assert set(json.loads(header["description"])) == {"class", "parameters", "state"}
    assert (header["format"], header["version"], header["kind"]) == ("streamkernel", "1", "model")
