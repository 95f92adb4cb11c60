"""What a model has accepted can be saved, loaded with the same bits, and learned from again."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams import content, nested

from streamkernel import GaussianProcessRegressor, KernelClassifier, KernelRegressor, kernels, learners, load
from streamkernel.research import StochasticGaussianProcessRegressor

TARGETS = {
    "then 1e30": lambda i, r: 1e30 * (i > 100) + r.gauss(0, 1),
    "then 1e90": lambda i, r: 1e90 * (i > 100) + r.gauss(0, 1),
    "signs": lambda i, r: r.choice([-1e90, 1e90]),
    "tiny": lambda i, r: 1e-300 * r.gauss(0, 1),
    "all sizes": lambda i, r: r.choice([-1, 1]) * 10 ** r.uniform(-300, 90),
}
INPUTS = {
    "ordinary": lambda r: r.gauss(0, 1),
    "large": lambda r: 1e30 * r.choice([-1, 1]),
    "subnormal": lambda r: 5e-324 * r.randrange(5),
    "all sizes": lambda r: r.choice([-1, 1]) * 10 ** r.uniform(-320, 30),
    "missing": lambda r: r.choice([None, 1.0]),
}
WEIGHTS = {"one": lambda r: 1.0, "1e9": lambda r: 1e9, "all sizes": lambda r: 10 ** r.uniform(-300, 9)}
L2 = [0.0, 1e-30, 1e-6, 1e30]
MODELS: dict[str, Any] = {
    "newton": lambda l2: KernelRegressor(max_features=32, l2=l2),
    "joint": lambda l2: KernelRegressor(**nested("joint", max_features=32, l2=l2)),
    "forgetting": lambda l2: KernelRegressor(**nested("newton", forgetting=0.01, max_features=32, l2=l2)),
    "dsg": lambda l2: KernelRegressor(learner="dsg", max_features=32, l2=l2),
    "classifier": lambda l2: KernelClassifier(max_features=32, l2=l2),
    "process": lambda l2: GaussianProcessRegressor(n_features=8, noise=max(l2, 1e-300)),
    "stochastic process": lambda l2: StochasticGaussianProcessRegressor(
        kernels.ArcCosine(1), variance="operator", n_features=8, features_per_seed=4, batch_size=5, step_size=1e300
    ),
}


@given(data=st.data())
@pytest.mark.parametrize("name", MODELS)
def test_what_was_accepted_can_be_loaded(name: str, data: st.DataObject, tmp_path_factory: Any) -> None:
    model = MODELS[name](data.draw(st.sampled_from(L2)))
    target, w = data.draw(st.sampled_from([*TARGETS.values()])), data.draw(st.sampled_from([*WEIGHTS.values()]))
    inputs = data.draw(st.lists(st.sampled_from([*INPUTS.values()]), min_size=2, max_size=3))
    rng = random.Random(data.draw(st.integers(0, 99)))
    for i in range(data.draw(st.sampled_from([2, 200]))):
        x, y = {f"x{j}": value(rng) for j, value in enumerate(inputs)}, target(i, rng)
        with suppress(ValueError):  # as where the steps have diverged
            model.learn_one(x, y > 0.0 if name == "classifier" else y, w=w(rng))
    path = tmp_path_factory.getbasetemp() / f"extreme {name}"
    model.save(path)
    assert content(load(path)) == content(model)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KernelRegressor(l2=1e300), "Expected l2 as 0, or from 1e-30 to 1e[+]30, got 1e[+]300"),
        (lambda: KernelRegressor(l2=1e-300), "Expected l2 as 0, or from 1e-30 to 1e[+]30, got 1e-300"),
        (lambda: learners.Newton(forgetting=1e-300), "Expected forgetting from 0.01 to 1"),
        (lambda: learners.Newton(batch_size=10**12), "Expected an integer batch_size from 2 to 4,096"),
        (lambda: learners.Newton(features_per_seed=10**12), "Expected an integer features_per_seed from 1 to 1,048"),
        (lambda: learners.DSG(features_per_seed=10**12), "Expected an integer features_per_seed from 1 to 1,048"),
        (lambda: learners.DSG(batch_size=10**12), "Expected an integer batch_size from 1 to 1,048"),
        (lambda: GaussianProcessRegressor(n_features=10**7), "Expected an integer n_features from 1 to 65,536"),
        (lambda: GaussianProcessRegressor(noise=5e-324), "Expected noise from 1e-300 to 1e[+]300"),
    ],
)
def test_parameters_have_bounds(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_the_file_of_a_refused_model_is_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise ValueError("expected other tensors")

    model, path = KernelRegressor(), tmp_path / "model"
    model.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(KernelRegressor, "_restore", refuse)
    with pytest.raises(ValueError, match="nothing was written"):
        model.save(path)
    assert path.read_bytes() == before
