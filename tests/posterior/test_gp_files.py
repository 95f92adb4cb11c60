"""Files of Gaussian processes: a saved process is restored bit for bit, and crafted files are refused."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from cases import covering
from processes import MODELS, XS, YS, gp, predictions
from streams import WAYS, content, learn

from streamkernel import ModelFileError, load, tensor_file
from streamkernel.estimators import model_file
from streamkernel.features import example_tensors


@pytest.mark.parametrize(("name", "way"), covering(itertools.product(MODELS, WAYS), together=1))
def test_a_copy_predicts_and_learns_the_same_bits(name, way, tmp_path):
    options = MODELS[name]
    for n in (0, 33, 290):
        model = learn(gp(**options), XS[:n], YS[:n])
        before = content(model)
        twin = WAYS[way](model, tmp_path)
        assert content(twin) == content(model) == before
        assert predictions(twin) == predictions(model)
        learn(twin, XS[n:], YS[n:])
        assert content(model) == before  # they share nothing
        assert content(twin) == content(learn(model, XS[n:], YS[n:]))
        assert predictions(twin) == predictions(model)
    assert content(model.clone()) == content(gp(**options))


TENSORS = {
    "no triangle": ("default", lambda t: t.pop("triangle")),
    "a triangle of another size": ("default", lambda t: t.update(triangle=t["triangle"][:5].copy())),
    "zeros on the diagonal": ("default", lambda t: t["triangle"].fill(0.0)),
    "infinite": ("default", lambda t: t["z"].fill(np.inf)),
    "negative squares": ("default", lambda t: t["squares"].fill(-1.0)),
    "a negative count": ("default", lambda t: t["count"].fill(-1)),
    "fewer columns": ("operator", lambda t: t.update({"theta.rows": t["theta.rows"][:1].copy()})),
    "columns above the diagonal": ("operator", lambda t: t["theta.rows"].fill(8)),
    "columns that are too long": ("operator", lambda t: t["theta.rows"].fill(8000)),
    "broken blocks": ("operator", lambda t: t["theta.rows"].__isub__(1)),
    "θ of another length": ("operator", lambda t: t.update(theta=t["theta"][:-1].copy())),
    "no mean": ("points", lambda t: t.pop("mean.alpha")),
    "α of fewer points": ("points", lambda t: t.update(alpha=t["alpha"][:, :2].copy())),
    "a pending batch": ("points", lambda t: t.update(example_tensors.pack_examples("pending", PENDING))),
}
PENDING = [(gp()._seen.phis[0].row(x), 1.0) for x in XS[:5]]


@pytest.mark.parametrize("change", TENSORS)
def test_crafted_tensors_are_refused(change, tmp_path):
    name, alter = TENSORS[change]
    description, tensors = model_file.describe(learn(gp(**MODELS[name]), XS[:42], YS[:42]))
    alter(tensors)
    tensor_file.write(tmp_path / "model", "model", description, tensors)
    with pytest.raises(ModelFileError):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"kernel": {"type": "Gaussian", "sigma": -1.0}},
        {"kernel": {"type": "Hellinger"}},
        {"kernel": 7},
        {"offset": math.nan},
        {"offset": None},
        {"ratio": 0.0},
        {"ratio": "a"},
    ],
    ids=repr,
)
def test_crafted_descriptions_are_refused(state, tmp_path):
    description, tensors = model_file.describe(learn(gp(n_features=4), XS[:42], YS[:42]))
    description["state"] = description["state"] | state if state else {}
    tensor_file.write(tmp_path / "model", "model", description, tensors)
    with pytest.raises(ModelFileError):
        load(tmp_path / "model")


def test_a_file_of_another_size_is_refused_before_it_takes_memory(tmp_path):
    description, tensors = model_file.describe(learn(gp(n_features=4), XS[:42], YS[:42]))
    description["parameters"]["n_features"] = 3000  # a factor of 6,001² numbers, 288 MB
    tensor_file.write(tmp_path / "model", "model", description, tensors)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match="as triangle"):
            load(tmp_path / "model")
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()
