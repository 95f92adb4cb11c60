"""Memory is constant once the cap is reached, on any stream; and the benefit of the features."""

from __future__ import annotations

import math

import numpy as np
import pytest
from river import feature_extraction, linear_model
from streams import classifier, examples, least_growth, regressor, targets

from streamkernel import RandomFeatures, rules
from streamkernel.features import counter_rng, directions
from streamkernel.kernels import Gaussian

STREAM = examples(4500)


def growth(event, model):
    """Return the growth in bytes from the 1500th event on: of Python's memory over 1,000 events, and of the model."""
    xs, _ = STREAM
    for i, x in enumerate(xs[:1500]):
        event(i, x)
    before = model._raw_memory_usage
    grown = least_growth(event, list(enumerate(xs))[1500:])
    return grown, model._raw_memory_usage - before


@pytest.mark.parametrize(
    "options",
    [
        {"kernel": None},
        {"batch_size": 7, "averaging": True, "l2": 0.001, "rule": rules.DSG()},
        {"cache_bytes": 10_000, "rule": rules.UDSG(), "loss": "hinge"},
    ],
    ids=repr,
)
def test_memory_is_flat_after_the_cap(options):
    _, ys = STREAM
    model = classifier(**options)

    def event(i, x):
        model.predict_one(x)
        model.learn_one(x, ys[i])

    grown, own = growth(event, model)
    assert grown < 8000  # one object per event would be at least 24 bytes, 24,000 in all; the rest is Python's pools
    assert abs(own) <= 2000  # a batch may be buffered
    assert model.n_features == 32
    assert model.n_steps * model.learner_.batch_size > 4490


def test_memory_is_flat_with_an_endless_supply_of_names(monkeypatch):
    """Every name occurs in one event only: directions that do not fit into the cache are regenerated, not stored."""
    monkeypatch.setattr(directions, "RECORD_BYTES", 50_000)
    counter_rng._cached_hash.cache_clear()  # entries of other tests would change when the table doubles
    _, ys = STREAM
    model = classifier(cache_bytes=50_000, kernel=Gaussian(1.0))

    def event(i, x):
        x = {f"{name} of {i}": value for name, value in x.items()}
        model.predict_one(x)
        model.learn_one(x, ys[i])

    grown, own = growth(event, model)
    # The hash of at most 65,536 names is cached; 1,000 events have 3 × 1,000 names.
    assert grown < 300 * 3000
    assert own <= 50_000  # sets of names are forgotten when there are as many
    assert model._learner.directions.cached_bytes <= 50_000


def test_memory_of_a_regressor_is_flat_after_the_cap():
    xs, _ = STREAM
    ys = targets(xs)
    model = regressor(loss="huber")
    grown, own = growth(lambda i, x: model.learn_one(x, ys[i]), model)
    assert grown < 8000
    assert own == 0


@pytest.mark.parametrize("rule", [rules.DSG(), rules.UDSG(2, 3), rules.CDSG(math.inf), rules.CDSG()], ids=repr)
@pytest.mark.parametrize("cap", [8, 15, 16, 100])
def test_features_never_exceed_the_cap(rule, cap):
    xs, ys = STREAM
    model = classifier(rule=rule, max_features=cap)
    counts = []
    for x, y in zip(xs[:300], ys[:300], strict=True):
        model.learn_one(x, y)
        counts.append((model.n_features, model.n_seeds, model.n_reused))
    assert all(size == 8 * seeds <= cap for size, seeds, _ in counts)
    assert all(seeds + reused == t for t, (_, seeds, reused) in enumerate(counts, start=1))
    assert model.n_steps == 300


def test_without_a_cap_memory_grows_by_one_block_per_step_in_any_dimension():
    """O(t), independent of the dimension of the input."""
    sizes = []
    for width in (2, 200):
        xs, ys = examples(200, width=width)
        model = classifier(rule=rules.DSG(), max_features=None, cache_bytes=0)
        for x, y in zip(xs, ys, strict=True):
            model.learn_one(x, y)
        assert model.n_seeds == 200
        tensors = model._describe()[1]
        assert tensors.pop("names").nbytes == 32 * width  # the hash of each name, and its count
        sizes.append(sum(tensor.nbytes for tensor in tensors.values()))
    assert sizes[0] == sizes[1]


def test_a_linear_model_on_the_features_learns_interactions_unlike_rivers_sampler():
    """Continuous XOR: the class is the sign of a product, which no sum of functions of one input represents."""
    generator = np.random.default_rng(0)
    X = generator.uniform(-1.0, 1.0, (3000, 2))
    right = {"ours": 0, "river's": 0}
    models = {
        "ours": RandomFeatures(Gaussian(0.5), n_features=64, seed=1) | linear_model.LogisticRegression(),
        "river's": feature_extraction.RBFSampler(gamma=2.0, n_components=64, seed=1)
        | linear_model.LogisticRegression(),
    }
    for i, (a, b) in enumerate(X.tolist()):
        x, y = {"a": a, "b": b}, a * b > 0.0
        for name, model in models.items():
            right[name] += i >= 1500 and model.predict_one(x) == y
            model.learn_one(x, y)
    assert right["ours"] / 1500 > 0.9
    assert right["river's"] / 1500 < 0.65
