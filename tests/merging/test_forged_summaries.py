"""What one replica sends may be anything: it is refused with the model as it was, or merged into a model as usual,
which predicts, learns, and can be saved and loaded.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import slow
from streams import content, examples, learn

from streamkernel import KernelClassifier, KernelRegressor, MergeError, load
from streamkernel.estimators.model_merging import merge_into, summarize

XS, LABELS = examples(900, ("a", "b", "c"))
TARGETS = [x["x0"] * x["x1"] + 2.0 for x in XS]
ODD = [math.nan, math.inf, -math.inf, 1e300, -1e300, 1e30, -1.0, 0.0, 1e-320]


def parts_of(value: Any) -> Iterator[tuple[Any, Any]]:
    """Return the keys and the values of a part of a summary."""
    if dataclasses.is_dataclass(value):
        return ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    if hasattr(value, "_fields"):
        return zip(value._fields, value, strict=True)
    return iter(
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    )


def numbers(value: Any) -> Iterator[Any]:
    """Return arrays of the same type and shape as an array, with other numbers."""
    for name in value.dtype.names or ():
        for other in numbers(value[name]):
            changed = value.copy()
            changed[name] = other
            yield changed
    if value.dtype.kind == "f" and value.size:
        yield from (np.full_like(value, odd) for odd in ODD)
        yield from (-value, 2.0 * value, 1e150 * value, 1e300 * value, 1e-300 * value, np.roll(value, 1) + 0.5)
        last = np.arange(value.size).reshape(value.shape) == value.size - 1
        yield from (np.where(last, odd, value).astype(value.dtype) for odd in ODD[::3])
    if value.dtype.kind == "i" and value.size:
        yield from (np.full_like(value, odd) for odd in (-1, 0, 7, 1 << 53, 1 << 62, -(1 << 62), (1 << 63) - 1))
        yield from (-value, value + 1)


def forged(value: Any) -> Iterator[Any]:
    """Return copies of a summary, each with one array changed."""
    if isinstance(value, np.ndarray | np.void):
        if value.ndim:
            yield from (value[: len(value) // 2], value[..., None], np.concatenate([value, value]), value.reshape(-1))
        yield None
        yield from numbers(value)
        return
    for key, part in parts_of(value):
        for other in forged(part):
            if dataclasses.is_dataclass(value):
                yield dataclasses.replace(value, **{key: other})
            elif hasattr(value, "_fields"):
                yield value._replace(**{key: other})
            else:
                changed = copy.copy(value)
                changed[key] = other
                yield changed


@pytest.mark.parametrize("learner", ["newton", "dsg"])
@pytest.mark.parametrize(
    ("make", "ys"), [(KernelClassifier, LABELS), (KernelRegressor, TARGETS)], ids=["classes", "numbers"]
)
@pytest.mark.parametrize("step", [25, slow(3)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_forged_summary_is_refused_or_merged(make: Any, ys: Any, learner: str, step: int, tmp_path: Path) -> None:
    base = learn(make(learner=learner, max_features=64), XS[:500], ys[:500])
    one, other = (learn(copy.deepcopy(base), XS[i : i + 200], ys[i : i + 200]) for i in (500, 700))
    root, parts, before = summarize(base), [summarize(one), summarize(other)], content(base)
    refused = merged = 0
    for summary in itertools.islice(forged(parts[0]), 0, None, step):
        model = copy.deepcopy(base)
        try:
            merge_into(model, [summary, parts[1]], root)
        except MergeError:
            assert content(model) == before
            refused += 1
            continue
        for some in (0, 25):
            learn(model, XS[:some], ys[:some])
            model.save(tmp_path / "model")
            assert content(load(tmp_path / "model")) == content(model)
            answer = model.predict_proba_one(XS[0]) if make is KernelClassifier else {"": model.predict_one(XS[0])}
            assert all(map(math.isfinite, answer.values()))
        merged += 1
    assert refused
    assert merged
