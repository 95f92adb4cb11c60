"""Crafted files with a correct checksum are refused when they are read, whatever their content."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
from safetensors.numpy import save
from streams import classifier, examples, learn

from streamkernel import (
    GaussianProcessRegressor,
    KernelClassifier,
    KernelNoveltyDetector,
    KernelRegressor,
    ModelFileError,
    RandomFeatures,
    kernels,
    learners,
    load,
    tensor_file,
)
from streamkernel.estimators import model_file
from streamkernel.features import example_tensors
from streamkernel.learners import state


@pytest.fixture
def parts():
    """The description and the tensors of a model with two buffered examples."""
    xs, ys = examples(42)
    model = learn(classifier(batch_size=4), xs, ys)
    description, tensors = model_file.describe(model)
    return copy.deepcopy(description), tensors


def table_of(name, description):
    """Return the table that has a parameter, of the estimator or of its learner."""
    parameters = description["parameters"]
    return parameters["learner"] if name in parameters["learner"] else parameters


def check_refused(tmp_path, description, tensors):
    path = tmp_path / "model"
    tensor_file.write(path, "model", description, tensors)
    with pytest.raises(ModelFileError) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_a_correctly_crafted_file_is_accepted(parts, tmp_path):
    tensor_file.write(tmp_path / "model", "model", *parts)
    assert load(tmp_path / "model").n_steps == 10


@pytest.mark.parametrize(
    "found", ["os.system", "FirstOrderLearner", "resolve_loss", "kernels", "Path", "", None, [], 5, {"a": 1}]
)
def test_an_unknown_class_is_refused(found, parts, tmp_path):
    description, tensors = parts
    check_refused(tmp_path, description | {"class": found}, tensors)
    del description["class"]
    check_refused(tmp_path, description, tensors)


@pytest.mark.parametrize("name", ["kernel", "loss", "learner", "rule", "step_size"])
@pytest.mark.parametrize(
    "part",
    [
        {"type": "os.system", "command": "touch executed"},
        {"type": "builtins.eval"},
        {"type": "streamkernel.losses.Hinge"},
        {"type": "KernelClassifier"},
        {"type": "Step"},
        {"type": "Rule"},
        {"type": "Loss"},
        {"type": "resolve_loss"},
        {"type": "__class__"},
        {"type": "Directions", "seed": 1, "block_size": 1, "cache_bytes": 1},
        {"type": "Path", "args": "x"},
        {"type": []},
        {"type": {"type": "CDSG"}},
        {"no type": 1},
        {"type": "Huber", "delta": -1.0},
        {"type": "Huber", "delta": 1.0, "more": 1},
        "os.system",
        -5,
        [1, 2],
    ],
    ids=repr,
)
def test_an_unknown_part_is_refused_and_not_run(name, part, parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    description, tensors = parts
    table_of(name, description)[name] = part
    check_refused(tmp_path, description, tensors)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("kernel", {"type": "CDSG"}),
        ("loss", {"type": "Gaussian"}),
        ("rule", {"type": "Constant", "gamma": 1.0}),
        ("step_size", {"type": "Gaussian", "sigma": 1.0}),
    ],
)
def test_a_part_of_the_wrong_kind_is_rejected(name, part, parts, tmp_path):
    description, tensors = parts
    table_of(name, description)[name] = part
    check_refused(tmp_path, description, tensors)


PARAMETERS = [
    ("max_features", []),
    ("max_features", -5),
    ("features_per_seed", "8"),
    ("batch_size", 0),
    ("batch_size", None),
    ("l2", "a"),
    ("l2", -1.0),
    ("seed", "a"),
    ("seed", None),
    ("averaging", "yes"),
    ("learner", []),
    ("learner", "newtn"),
    ("cache_bytes", -1),
    ("unknown", 1),
    ("__class__", "x"),
]


@pytest.mark.parametrize(("name", "value"), PARAMETERS)
def test_an_invalid_parameter_is_refused(name, value, parts, tmp_path):
    description, tensors = parts
    table_of(name, description)[name] = value
    check_refused(tmp_path, description, tensors)


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": None},
        {"parameters": []},
        {"parameters": {}},
        {"state": None},
        {"state": []},
        {"state": {}},
        {"state": {"sigma": 1.0, "columns": 0, "labels": ["no", "yes"]}},
        {"state": {"sigma": 1.0, "columns": -1, "labels": ["no", "yes"]}},
        {"state": {"sigma": 1.0, "columns": 7, "labels": ["no", "yes"]}},
        {"state": {"sigma": 1.0, "columns": 1, "labels": ["a", "b", "c", "d"]}},
        {"state": {"sigma": 1.0, "columns": 1, "labels": [["no"], "yes"]}},
        {"state": {"sigma": 1.0, "columns": 1, "labels": None}},
        {"state": {"sigma": -1.0, "columns": 1, "labels": ["no", "yes"]}},
        {"state": {"sigma": "median", "columns": 1, "labels": ["no", "yes"]}},
    ],
    ids=repr,
)
def test_an_inconsistent_description_is_rejected(change, parts, tmp_path):
    description, tensors = parts
    check_refused(tmp_path, description | change, tensors)


@pytest.mark.parametrize("description", [[], ["class"], "model", 5, None], ids=repr)
def test_a_description_that_is_not_a_table_is_rejected(description, parts, tmp_path):
    check_refused(tmp_path, description, parts[1])


TENSORS = {
    "no coefficients": lambda t: t.pop("coef"),
    "no counters": lambda t: t.pop("ints"),
    "coefficients of another width": lambda t: t.update(coef=t["coef"][..., :5].copy()),
    "more coefficients": lambda t: t.update(coef=np.concatenate([t["coef"]] * 3)),
    "coefficients of more columns": lambda t: t.update(coef=np.concatenate([t["coef"]] * 2, axis=1)),
    "no coefficients, though blocks": lambda t: t.update(coef=t["coef"][:0].copy()),
    "more β": lambda t: t.update(beta=np.concatenate([t["beta"]] * 2)),
    "coefficients that are not finite": lambda t: t["coef"].fill(np.nan),
    "blocks beyond the coefficients": lambda t: t["ints"].__setitem__(0, 10**14),
    "blocks beyond the cap": lambda t: t["ints"].__setitem__(0, 50),
    "fewer than no blocks": lambda t: t["ints"].__setitem__(0, -5),
    "fewer than no steps": lambda t: t["ints"].__setitem__(1, -5),
    "fewer counters": lambda t: t.update(ints=t["ints"][:2].copy()),
    "counters in a square": lambda t: t.update(ints=t["ints"].reshape(1, -1).copy()),
    "reals that are not finite": lambda t: t["reals"].fill(np.nan),
    "rows beyond the entries": lambda t: t["pending.start"].__setitem__(-1, 10**9),
    "rows before the entries": lambda t: t["pending.start"].__setitem__(0, -3),
    "rows in descending order": lambda t: t["pending.start"].__setitem__(1, 7),
    "fewer rows than targets": lambda t: t.update({"pending.start": t["pending.start"][:1].copy()}),
    "fewer names than values": lambda t: t.update({"pending.hashes": t["pending.hashes"][:2].copy()}),
    "fewer values than names": lambda t: t.update({"pending.values": t["pending.values"][:2].copy()}),
    "a square of values": lambda t: t.update({"pending.values": t["pending.values"].reshape(2, -1).copy()}),
    "values that are not finite": lambda t: t["pending.values"].fill(np.nan),
    "targets that are no classes": lambda t: t["pending.targets"].fill(9),
}


@pytest.mark.parametrize("change", TENSORS)
def test_tensors_that_do_not_fit_are_refused(change, parts, tmp_path):
    """Compiled code checks no index, so the reader has to reject every index out of range."""
    description, tensors = parts
    tensors = {name: tensor.copy() for name, tensor in tensors.items()}
    TENSORS[change](tensors)
    check_refused(tmp_path, description, tensors)


@pytest.mark.parametrize(
    "text", [None, "", "{", "[" * 100_000, '{"class": ' + "9" * 5000 + "}", "NaN"], ids=lambda t: str(t)[:12]
)
def test_a_description_that_is_not_json_is_rejected(text, parts, tmp_path):
    header = {"format": tensor_file.FORMAT, "version": str(tensor_file.VERSION), "kind": "model"}
    header |= {} if text is None else {"description": text}
    header["checksum"] = tensor_file.checksum(header, parts[1])
    path = tmp_path / "model"
    path.write_bytes(save(parts[1], header))
    with pytest.raises(ModelFileError):
        load(path)


@pytest.mark.parametrize(
    ("kind", "size"), [("BF16", 2), ("F16", 2), ("F8_E4M3", 1), ("F8_E5M2", 1), ("BOOL", 1), ("U8", 1), ("I64", 8)]
)
def test_numbers_of_another_type_are_refused(kind, size, parts, tmp_path):
    """Types that safetensors has and NumPy lacks are rejected too."""
    path = tmp_path / "model"
    tensor_file.write(path, "model", *parts)
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    first, last = header["coef"]["data_offsets"]
    header["coef"] |= {"dtype": kind, "shape": [(last - first) // size]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + length :])
    with pytest.raises(ModelFileError):
        load(path)


def crafted(model, tmp_path, change):
    """Check that a file of `model` is read, and refused once it is changed."""
    description, tensors = copy.deepcopy(model_file.describe(model))
    tensor_file.write(tmp_path / "model", "model", description, tensors)
    load(tmp_path / "model")
    change(description, tensors)
    check_refused(tmp_path, description, tensors)


@pytest.mark.parametrize("averaging", [-1, 2, 5, 0])
def test_averaging_is_a_boolean_because_arrays_have_its_size(averaging, parts, tmp_path):
    description, tensors = parts
    description["parameters"]["learner"]["averaging"] = averaging
    check_refused(tmp_path, description, tensors)
    with pytest.raises(ValueError, match=f"Expected averaging to be a Boolean, got {averaging}"):
        learners.DSG(averaging=averaging)


def test_a_class_without_a_softmax_column_is_rejected(tmp_path):
    model = KernelClassifier(kernels.Gaussian(1.0), learner=learners.DSG(batch_size=4), loss="softmax")
    model.learn_one({"a": 1.0}, "yes")
    crafted(model, tmp_path, lambda _, tensors: tensors["pending.targets"].fill(1.0))


@pytest.mark.parametrize("loss", ["logistic", "softmax", "hinge"])
@pytest.mark.parametrize(
    "labels", [["a", "b", "c", "c"], ["a", "b", True, 1], ["a", "b", "1", 1], ["c", "a", "b", "c"]], ids=repr
)
def test_labels_that_are_equal_are_refused(labels, loss, tmp_path):
    """The index of a label is its column of the coefficients; equal labels would give an index beyond the columns."""
    model = KernelClassifier(kernels.Gaussian(1.0), loss=loss, learner="dsg")
    for label in ("a", "b", "c"):
        model.learn_one({"a": 1.0}, label)
    crafted(model, tmp_path, lambda description, _: description["state"].update(labels=labels))


MEDIAN = kernels.Gaussian("median")
OTHER_KERNELS = {
    "fewer parts": (MEDIAN + MEDIAN, kernels.Gaussian(1.0)),
    "more parts": (MEDIAN, kernels.Gaussian(1.0) + kernels.Gaussian(1.0)),
    "fewer outputs": (MEDIAN, kernels.Polynomial(2)),
    "other names": (MEDIAN.on("a"), kernels.Gaussian(1.0).on("b")),
    "another shape": (kernels.Matern(0.5), kernels.Matern(2.5, 1.0)),
    "another factor": (2.0 * MEDIAN, 3.0 * kernels.Gaussian(1.0)),
    "another bandwidth": (kernels.Gaussian(2.0), kernels.Gaussian(1.0)),
}


@pytest.mark.parametrize("case", OTHER_KERNELS)
@pytest.mark.parametrize("make", [KernelRegressor, GaussianProcessRegressor, RandomFeatures, KernelNoveltyDetector])
def test_another_kernel_than_the_parameter_is_refused(make, case, tmp_path):
    """The next median would replace the kernel of the state by one of the parameter's sizes."""
    wanted, found = OTHER_KERNELS[case]
    model = make(kernel=wanted)
    for i in range(3):
        model.learn_one({"a": float(i)}, *([] if make in (RandomFeatures, KernelNoveltyDetector) else [1.0]))
    crafted(model, tmp_path, lambda description, _: description["state"].update(kernel=model_file._encode(found)))


def test_too_many_first_examples_are_rejected(tmp_path):
    model = RandomFeatures(MEDIAN, n_features=8)
    for i in range(100):
        model.learn_one({"a": float(i)})

    def more(_, tensors):
        rows = [(model._seen[1][0], 0.0)] * 256
        tensors.update(example_tensors.pack_examples("first", rows))

    crafted(model, tmp_path, more)


def test_a_kernel_of_too_many_terms_is_rejected_before_expansion(parts, tmp_path):
    description, tensors = parts
    pair = model_file._encode(kernels.Gaussian(1.0) + kernels.Gaussian(1.0))
    kernel = pair
    for _ in range(28):  # 2²⁹ terms in all
        kernel = {"type": "Product", "left": kernel, "right": pair}
    description["parameters"]["kernel"] = kernel
    check_refused(tmp_path, description, tensors)


@pytest.mark.parametrize("learner", ["newton", "dsg"])
def test_what_nothing_can_have_learned_is_refused(learner, tmp_path):
    """Steps refuse every example at such scores; and minus an offset, the number of a class is no place in an array."""
    model = learn(KernelClassifier(learner=learner, max_features=64), *examples(60, ("a", "b", "c")))
    changed = [(name, -1, -1e150) for name in state.COEFFICIENTS if name in model_file.describe(model)[1]]
    changed += [("reals", state.LEARNED_REALS.index(name), 0.5) for name in ("offset", "predicted_offset")]
    for name, place, value in changed:
        crafted(model, tmp_path, lambda _, tensors, n=name, p=place, v=value: tensors[n].flat.__setitem__(p, v))


def test_more_counts_of_classes_than_labels_are_refused(tmp_path):
    model = learn(KernelClassifier(learner="dsg", class_weight="balanced", max_features=64), *examples(9, ("a", "b")))
    crafted(model, tmp_path, lambda _, tensors: tensors.update(class_counts=np.ones(3)))
