"""Pipelines and wrappers of River around our models predict and continue with the same bits after `save` and `load`.

The error for an object that cannot be stored names the path of its step.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from river import (
    anomaly,
    base,
    compose,
    ensemble,
    feature_extraction,
    feature_selection,
    imblearn,
    multiclass,
    multioutput,
    preprocessing,
    stats,
)
from streams import classifier, regressor

from streamkernel import (
    KernelClassifier,
    KernelNoveltyDetector,
    ModelFileError,
    RandomFeatures,
    kernels,
    load,
    save,
    tensor_file,
)
from streamkernel.engine.checkpoint import state_file

X = dict[str, Any]

TRANSFORMERS = {
    name: cls
    for module in (preprocessing, feature_extraction)
    for name in module.__all__
    if isinstance(cls := getattr(module, name), type)
    and issubclass(cls, base.Transformer)
    and not issubclass(cls, base.Wrapper)
}
ARGUMENTS = {"Agg": {"on": "a", "by": "c", "how": stats.Mean()}, "TargetAgg": {"by": "c", "how": stats.Mean()}}
OF_TEXT = ("BagOfWords", "GapEncoder", "LDA", "TFIDF")
REFUSED = {"RandomTreesEmbedding"}


def unused(x: X) -> X:
    return x


def number(x: X) -> float:
    return 0.1 * x["a"] + x["b"]


def label(x: X) -> str:
    return "abc"[x["c"]]


def positive(x: X) -> bool:
    return x["a"] > 0.0


def nothing(x: X) -> None:
    return None


WRAPPED: dict[str, tuple[Any, Any]] = {
    "union": (
        lambda: (
            compose.TransformerUnion(
                preprocessing.StandardScaler(),
                compose.Select("a") | preprocessing.MinMaxScaler(),
                RandomFeatures(kernels.Gaussian(1.0), n_features=4),
            )
            | KernelClassifier(max_features=256)
        ),
        label,
    ),
    "product": (lambda: (compose.Select("a") * compose.Select("b")) | regressor(), number),
    "names": (
        lambda: compose.Renamer({"a": "z"}) | compose.Prefixer("p") | compose.Suffixer("s") | regressor(),
        number,
    ),
    "types": (lambda: compose.SelectType(float) | compose.Discard("a") | regressor(), number),
    "grouper": (lambda: compose.Grouper(preprocessing.StandardScaler(), "c") | regressor(), number),
    "target scaled": (lambda: preprocessing.TargetStandardScaler(regressor()), number),
    "target scaled, in a pipeline": (
        lambda: preprocessing.StandardScaler() | preprocessing.TargetMinMaxScaler(regressor()),
        number,
    ),
    "clipped": (lambda: preprocessing.PredClipper(regressor(), 0.0, 1.0), number),
    "one against the rest": (lambda: multiclass.OneVsRestClassifier(classifier()), label),
    "one against one": (lambda: multiclass.OneVsOneClassifier(classifier()), label),
    "output code": (lambda: multiclass.OutputCodeClassifier(classifier(), code_size=4, seed=1), label),
    "features selected": (
        lambda: (
            feature_selection.VarianceThreshold()
            | feature_selection.SelectKBest(stats.PearsonCorr(), k=2)
            | regressor()
        ),
        number,
    ),
    "sampled": (lambda: imblearn.RandomUnderSampler(classifier(), {True: 0.5, False: 0.5}, seed=1), positive),
    "hard examples": (lambda: imblearn.HardSamplingClassifier(classifier(), size=5, p=0.5, seed=1), positive),
    "leveraging bagging": (
        lambda: ensemble.LeveragingBaggingClassifier(classifier(), n_models=2, bagging_method="wt", seed=1),
        positive,
    ),
    "bagging": (lambda: ensemble.BaggingClassifier(classifier(), n_models=2, seed=1), positive),
    "chain": (lambda: multioutput.RegressorChain(regressor()), lambda x: {"u": x["a"], "v": x["b"]}),
    "filter": (lambda: anomaly.QuantileFilter(KernelNoveltyDetector(), q=0.9), nothing),
}


def some_inputs(n: int) -> list[X]:
    rng = random.Random(1)
    return [{"a": rng.gauss(0.0, 1.0), "b": rng.uniform(0.1, 0.9), "c": rng.randrange(3)} for _ in range(n)]


def learn(model: Any, x: Any, y: Any) -> None:
    if y is None:
        model.learn_one(x)
    else:
        model.learn_one(x, y)


def predict(model: Any, x: Any) -> Any:
    if not hasattr(model, "predict_one"):
        return model.score_one(x)
    try:
        return model.predict_one(x), model.predict_proba_one(x)
    except (AttributeError, NotImplementedError):  # a pipeline has the method, and its last step has not
        return model.predict_one(x)


def content(model: Any, path: Path) -> Any:
    save(model, path)
    description, tensors = tensor_file.read(path, "pipeline")
    return repr(description), {name: tensor.tobytes() for name, tensor in tensors.items()}


def check_travels(model: Any, pairs: list[tuple[Any, Any]], path: Path) -> None:
    """Half of the examples are learned before the model is saved, half after."""
    half = len(pairs) // 2
    for x, y in pairs[:half]:
        learn(model, x, y)
    save(model, path)
    twin = load(path)
    assert type(twin) is type(model)
    for x, y in pairs[half:]:
        assert repr(predict(twin, x)) == repr(predict(model, x))
        learn(model, x, y)
        learn(twin, x, y)
    assert content(twin, path) == content(model, path)


@pytest.mark.parametrize("name", WRAPPED)
def test_wrappers_and_compositions(name: str, tmp_path: Path) -> None:
    make, target = WRAPPED[name]
    check_travels(make(), [(x, target(x)) for x in some_inputs(60)], tmp_path / "model")


def of_text(name: str) -> list[Any]:
    rng = random.Random(2)
    words = ["river", "stream", "flow", "bank", "delta", "mouth"]
    if name == "LDA":
        return [{word: rng.randrange(1, 3) for word in rng.sample(words, 3)} for _ in range(40)]
    return [" ".join(rng.choices(words, k=4)) for _ in range(40)]


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_every_transformer_of_river_in_front_of_a_model(name: str, tmp_path: Path) -> None:
    cls = TRANSFORMERS[name]
    pipeline = cls(**ARGUMENTS.get(name, {})) | regressor()
    if name in REFUSED:
        with pytest.raises(TypeError, match=rf"^at steps\.{name}: cannot store a river\..*\.{name}$"):
            save(pipeline, tmp_path / "model")
        return
    xs = of_text(name) if name in OF_TEXT else some_inputs(40)
    if name in ("OneHotEncoder", "OrdinalEncoder"):
        xs = [x | {"colour": "abc"[x["c"]]} for x in xs]
    check_travels(pipeline, [(x, 0.1 * i) for i, x in enumerate(xs)], tmp_path / "model")


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: compose.FuncTransformer(unused) | regressor(), "steps.unused.func: cannot store a function"),
        (
            lambda: compose.Pipeline(("first", compose.FuncTransformer(lambda x: x)), ("model", regressor())),
            "steps.first.func: cannot store a function",
        ),
        (
            lambda: compose.TransformerUnion(compose.FuncTransformer(unused)) | regressor(),
            "steps.TransformerUnion.transformers.unused.func: cannot store a function",
        ),
        (
            lambda: compose.TargetTransformRegressor(regressor(), func=number, inverse_func=number),
            "func: cannot store a function",
        ),
        (lambda: compose.Pipeline(("model", Other())), r"steps.model: cannot store a .*\.Other"),
    ],
)
def test_unsupported_objects_are_named_with_their_step(make: Any, path: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=f"^at {path}$"):
        save(make(), tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("wrong", ["model", None, KernelClassifier, [1]])
def test_objects_that_are_no_model_are_refused(wrong: Any, tmp_path: Path) -> None:
    message = rf"^Expected a model of this library or a River pipeline to save, got a {type(wrong).__name__}$"
    with pytest.raises(TypeError, match=message):
        save(wrong, tmp_path / "model")
    assert not (tmp_path / "model").exists()


class Other(base.Regressor):
    def learn_one(self, x: X, y: float) -> None: ...

    def predict_one(self, x: X) -> float:
        return 0.0


@pytest.mark.parametrize(
    "state",
    [
        {"class": "subprocess.Popen", "state": {}},
        {"class": "river.datasets.phishing.Phishing", "state": {}},
        {"name": "builtins.eval"},
        {"hook": {"model": 5}},
        {"hook": {"model": -2}},
        {"hook": {"array": "other"}},
        {"class": "river.ensemble.bagging.BaggingClassifier", "state": {"__class__": 1}},
        {"unknown": []},
    ],
)
def test_crafted_files_of_pipelines_are_refused(state: Any, tmp_path: Path) -> None:
    path = tmp_path / "model"
    state_file.write(path, "pipeline", preprocessing.StandardScaler() | regressor())
    description, tensors = tensor_file.read(path, "pipeline")
    description["state"]["state"]["steps"]["OrderedDict"][1][1] = state
    tensor_file.write(path, "pipeline", description, tensors)
    with pytest.raises(ModelFileError, match=str(path)):
        load(path)


def test_a_clone_with_attributes_has_learned_the_same() -> None:
    """River's unions clone their steps with `clone(include_attributes=True)`."""
    model = regressor()
    for x in some_inputs(30):
        model.learn_one(x, number(x))
    twin = model.clone(include_attributes=True)
    assert twin.predict_one(x) == model.predict_one(x) != model.clone().predict_one(x)
    before = model.predict_one(x)
    twin.learn_one(x, 5.0)
    assert model.predict_one(x) == before != twin.predict_one(x)
    assert model.clone({"seed": 3}).seed == 3
