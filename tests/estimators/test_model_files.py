"""Model files: a saved model is restored bit for bit, and other content is refused before an object is created."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from safetensors.numpy import save_file
from streams import CLASSIFIERS, WAYS, classifier, content, examples, learn, predictions, regressor, targets

from streamkernel import (
    InputError,
    KernelClassifier,
    KernelRegressor,
    ModelFileError,
    RandomFeatures,
    load,
    losses,
    rules,
    step_sizes,
    tensor_file,
)
from streamkernel.kernels import Gaussian

LABELS = ("b", "a", "d", "c")
REGRESSORS = {
    "regressor": {},
    "Huber in batches": {"loss": losses.Huber(0.5), "batch_size": 5, "kernel": None},
    "quantile in batches": {"loss": "quantile", "tau": 0.9, "batch_size": 3, "averaging": True, "kernel": None},
    "epsilon-insensitive": {"loss": losses.EpsilonInsensitive(0.3)},
    "correntropy": {"loss": losses.Correntropy(2.0)},
    "averaged": {"averaging": True, "l2": 0.1, "step_size": step_sizes.PowerDecay(1.0, c=0.1), "rule": rules.CDSG(2.0)},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", [0, 1, 5, 130, 256, 290])
@pytest.mark.parametrize("options", CLASSIFIERS.values(), ids=CLASSIFIERS)
def test_a_copy_of_a_classifier_predicts_and_learns_the_same_bits(options, n, way, tmp_path):
    """Copies are made before the bandwidth is known, in the middle of a batch, and before and after new labels."""
    xs, ys = examples(330, LABELS)
    names = {"x0": "plain", "x1": ("a", 1), "x2": 7}
    xs = [{names[name]: value for name, value in x.items()} for x in xs]
    model = learn(classifier(**options), xs[:n], ys[:n])
    before = content(model)
    twin = WAYS[way](model, tmp_path)
    assert content(twin) == content(model) == before
    assert predictions(twin, xs[-20:]) == predictions(model, xs[-20:])
    assert {type(label) for label in twin.labels} == {type(label) for label in model.labels}
    learn(twin, xs[n:], ys[n:])
    assert content(model) == before  # copy and original share no array
    assert content(twin) == content(learn(model, xs[n:], ys[n:]))
    assert predictions(twin, xs[-20:]) == predictions(model, xs[-20:])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("options", REGRESSORS.values(), ids=REGRESSORS)
def test_a_copy_of_a_regressor_predicts_and_learns_the_same_bits(options, way, tmp_path):
    xs, _ = examples(330)
    for n in (0, 33, 290):
        model = learn(regressor(**options), xs[:n], targets(xs[:n]))
        twin = WAYS[way](model, tmp_path)
        assert predictions(twin, xs) == predictions(model, xs)
        assert content(learn(twin, xs[n:], targets(xs[n:]))) == content(learn(model, xs[n:], targets(xs[n:])))


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_of_random_features_is_the_same_map(way, tmp_path):
    xs, _ = examples(300)
    for n in (0, 100, 256):
        model = RandomFeatures(Gaussian("median"), n_features=8, seed=3)
        for x in xs[:n]:
            model.learn_one(x)
        twin = WAYS[way](model, tmp_path)
        for x in xs[n:]:
            model.learn_one(x)
            twin.learn_one(x)
        assert twin.transform_one(xs[0]) == model.transform_one(xs[0])


def test_a_clone_has_the_parameters_and_is_untrained():
    xs, ys = examples(100)
    for options in CLASSIFIERS.values():
        model = learn(classifier(**options), xs, ys)
        assert content(model.clone()) == content(classifier(**options))
        assert content(learn(model.clone(), xs, ys)) == content(model)


@pytest.mark.parametrize(
    "label", ["", "σ", "a\nb", True, 2**63 - 1, -(2**63), 1e300, 0.1, -5, 10**30, "\ud800"], ids=ascii
)
def test_a_label_that_is_learned_can_be_saved(label, tmp_path):
    try:
        model = learn(classifier(), [{"a": 1.0}, {"a": -1.0}], ["other", label])
    except InputError:  # early enough
        return
    twin = WAYS["file"](model, tmp_path)
    assert list(twin.labels) == ["other", label]
    assert type(list(twin.labels)[1]) is type(label)


@pytest.mark.parametrize(
    "options",
    [
        {"seed": np.int64(3)},
        {"seed": -1},
        {"max_features": np.int64(64)},
        {"batch_size": np.int32(2)},
        {"l2": np.float64(0.1)},
        {"kernel": Gaussian(np.float64(2.0))},
        {"step_size": step_sizes.Constant(np.float64(0.5))},
        {"rule": rules.UDSG(np.int64(2), np.int64(3))},
        {"averaging": np.bool_(True)},
    ],
    ids=repr,
)
def test_parameters_may_be_numbers_of_numpy(options, tmp_path):
    """Searches over parameters set numbers of these types."""
    xs, ys = examples(20)
    model = learn(classifier(**options), xs, ys)
    assert predictions(WAYS["file"](model, tmp_path), xs) == predictions(model, xs)


def test_saving_replaces_the_file_atomically(tmp_path):
    xs, ys = examples(20)
    model = learn(classifier(), xs, ys)
    model.save(str(tmp_path / "model"))
    first = (tmp_path / "model").read_bytes()
    learn(model, xs, ys).save(tmp_path / "model")
    assert (tmp_path / "model").read_bytes() != first
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    with pytest.raises(OSError, match="no such directory"):
        model.save(tmp_path / "no such directory" / "model")
    assert content(load(tmp_path / "model")) == content(model)


def test_a_file_holds_no_direction(tmp_path):
    """A file has the coefficients, and a hash and a count for each name, for any dimension of the input."""
    sizes, widths = [], (2, 200)
    for width in widths:
        xs, ys = examples(50, width=width)
        learn(classifier(), xs, ys).save(tmp_path / "model")
        sizes.append((tmp_path / "model").stat().st_size)
    assert sizes[1] <= sizes[0] + 64 + 32 * (widths[1] - widths[0])


@pytest.mark.parametrize(
    ("estimator", "options", "sizes"),
    [
        (KernelClassifier, {}, {0: 100_000, 1: 120_000, 7: 200_000}),
        (KernelRegressor, {}, {0: 100_000, 1: 180_000, 7: 250_000}),  # it has sums for other means of the targets
        (KernelClassifier, {"learner": "dsg"}, {0: 10_000, 1: 50_000, 7: 200_000}),
        (KernelRegressor, {"learner": "dsg"}, {0: 10_000, 1: 50_000, 7: 200_000}),
    ],
    ids=["classifier", "regressor", "classifier, first order", "regressor, first order"],
)
def test_models_that_have_learned_little_are_small(estimator, options, sizes, tmp_path):
    xs, ys = examples(max(sizes), width=10)
    for n, most in sizes.items():
        model = learn(estimator(**options), xs[:n], ys[:n] if estimator is KernelClassifier else targets(xs[:n]))
        model.save(tmp_path / "model")
        assert max(len(pickle.dumps(model)), (tmp_path / "model").stat().st_size) <= most


@pytest.fixture
def written(tmp_path):
    xs, ys = examples(42, LABELS)
    learn(classifier(batch_size=4, kernel=None, max_features=16), xs, ys).save(tmp_path / "model")
    return tmp_path / "model"


def refused(path):
    with pytest.raises(ModelFileError) as caught:
        load(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_truncated_file_is_refused(written):
    whole = written.read_bytes()
    for length in [0, 1, 7, 8, 9, 100, *range(200, len(whole), 997), len(whole) - 1]:
        written.write_bytes(whole[:length])
        refused(written)
    written.write_bytes(whole + b"\0")
    refused(written)


def test_a_file_with_a_flipped_bit_is_refused(written):
    """The bit is in the header, the description, the padding or the numbers."""
    whole = written.read_bytes()
    generator = np.random.default_rng(0)
    places = [*range(64), *generator.integers(64, 2500, 150), *generator.integers(64, len(whole), 150)]
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1 << int(generator.integers(8))
        written.write_bytes(changed)
        refused(written)


def test_a_file_of_another_version_or_kind_is_refused(written, monkeypatch):
    description, tensors = tensor_file.read(written, "model")
    tensor_file.write(written, "checkpoint", description, tensors)
    assert "got a 'checkpoint'" in refused(written)
    monkeypatch.setattr(tensor_file, "VERSION", 99)
    tensor_file.write(written, "model", description, tensors)
    monkeypatch.undo()
    assert "got '99'" in refused(written)


def test_foreign_files_are_rejected(tmp_path):
    path = tmp_path / "model"
    save_file({"coef": np.zeros(3)}, path)
    assert "another safetensors file" in refused(path)
    for content_ in (b"", b"not a model", pickle.dumps({"a": 1}), b"\xff" * 64, b"\x80\x04."):
        path.write_bytes(content_)
        refused(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        load(tmp_path)
