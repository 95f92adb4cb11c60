"""River's objects are restored exactly as they were stored, and no stored content is executed."""

from __future__ import annotations

import collections
import datetime as dt
import functools
import inspect
import math
import random
import subprocess
import sys
from typing import Any

import numpy as np
import orjson
import pytest
from river import (
    base,
    compose,
    datasets,
    feature_extraction,
    linear_model,
    metrics,
    optim,
    preprocessing,
    stats,
    utils,
)

from streamkernel.engine.checkpoint.river_state import decode, encode
from streamkernel.engine.fields import OnFields

REFUSED = {"RandomTreesEmbedding"}
"""The transformer that cannot be stored: it identifies the leaves of its trees by their memory address."""


def round_trip(obj: Any) -> Any:
    return decode(orjson.loads(orjson.dumps(encode(obj))))


def same(a: Any, b: Any) -> bool:
    """Equal to the bit and of equal types, in the same order."""
    return orjson.dumps(encode(a)) == orjson.dumps(encode(b))


def default_classes(module: Any, kind: type) -> list[type]:
    found = []
    for name in module.__all__:
        cls = getattr(module, name, None)
        if isinstance(cls, type) and issubclass(cls, kind):
            needed = [
                p
                for p in list(inspect.signature(cls).parameters.values())
                if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
            ]
            if not needed:
                found.append(cls)
    return found


TRANSFORMERS = [
    cls for module in (preprocessing, feature_extraction) for cls in default_classes(module, base.Transformer)
]
TEXT = (feature_extraction.BagOfWords, preprocessing.GapEncoder)
METRICS = default_classes(metrics, object)


def some_numbers(n: int, seed: int = 1) -> list[dict[str, float]]:
    rng = random.Random(seed)
    return [{"a": rng.gauss(0, 1), "b": rng.uniform(1, 9), "c": float(rng.randrange(3))} for _ in range(n)]


def some_input(cls: type, n: int) -> list[Any]:
    rng = random.Random(2)
    words = ["river", "stream", "flow", "bank", "delta", "mouth"]
    if issubclass(cls, TEXT):
        return [" ".join(rng.choices(words, k=4)) for _ in range(n)]
    if cls is preprocessing.LDA:
        return [{word: rng.randrange(1, 3) for word in rng.sample(words, 3)} for _ in range(n)]
    if cls in (preprocessing.OneHotEncoder, preprocessing.OrdinalEncoder):
        return [{"colour": rng.choice(["red", "blue", "grün"]), "level": rng.randrange(4)} for _ in range(n)]
    return some_numbers(n)


def run(transformer: Any, xs: list[Any], y: float = 1.0) -> list[Any]:
    seen = []
    for x in xs:
        seen.append(transformer.transform_one(x))
        transformer.learn_one(x)
    return seen


@pytest.mark.parametrize("cls", TRANSFORMERS, ids=lambda cls: cls.__name__)
def test_every_transformer_continues_unchanged(cls: type) -> None:
    transformer = cls()
    if cls.__name__ in REFUSED:
        with pytest.raises(TypeError, match=rf"at the top: cannot store a river\..*\.{cls.__name__}$"):
            encode(transformer)
        return
    xs = some_input(cls, 60)
    run(transformer, xs[:40])
    twin = round_trip(transformer)
    assert type(twin) is cls
    assert same(run(twin, xs[40:]), run(transformer, xs[40:]))


def test_every_transformer_is_tested() -> None:
    left_out = {"PredClipper", "TargetMinMaxScaler", "TargetStandardScaler", "Agg", "TargetAgg"}
    names = {*preprocessing.__all__, *feature_extraction.__all__}
    assert names - {cls.__name__ for cls in TRANSFORMERS} == left_out


def feed(metric: Any, n: int, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(n):
        p = rng.random()
        if isinstance(metric, metrics.base.RegressionMetric):
            metric.update(rng.uniform(1, 9), rng.uniform(1, 9))
        elif isinstance(metric, metrics.Silhouette):
            centers = {0: {"a": 0.5}, 1: {"a": p}}
            metric.update({"a": rng.random()}, rng.randrange(2), centers)
        elif metric.requires_labels:
            metric.update(rng.random() < 0.5, p < 0.5)
        else:
            metric.update(rng.random() < 0.5, {True: p, False: 1 - p})


@pytest.mark.parametrize("cls", METRICS, ids=lambda cls: cls.__name__)
def test_every_metric_continues_unchanged(cls: type) -> None:
    metric = cls()
    feed(metric, 50, seed=1)
    twin = round_trip(metric)
    assert same(twin, metric)
    feed(metric, 50, seed=2)
    feed(twin, 50, seed=2)
    assert same(twin, metric)
    assert repr(twin) == repr(metric)


def test_every_metric_is_tested() -> None:
    needing = {"FBeta", "MacroFBeta", "MicroFBeta", "MultiFBeta", "WeightedFBeta"}
    missing = {"base", "multioutput", "ClusteringReport"}
    assert set(metrics.__all__) - {cls.__name__ for cls in METRICS} == needing | missing


OTHERS = {
    "rolling metric": utils.Rolling(metrics.Accuracy, window_size=5),
    "F-beta": metrics.MultiFBeta(betas={False: 0.5, True: 2.0}, weights=None),
    "max mutual information": metrics.AdjustedMutualInfo(average_method="max"),
}


@pytest.mark.parametrize("metric", OTHERS.values(), ids=OTHERS.keys())
def test_metrics_with_arguments(metric: Any) -> None:
    for y, p in [(True, True), (False, True), (True, False)] * 4:
        metric.update(y, p)
    twin = round_trip(metric)
    metric.update(True, True)
    twin.update(True, True)
    assert same(twin, metric)
    assert twin.get() == metric.get()


MODELS = {
    "logistic": lambda: linear_model.LogisticRegression(optimizer=optim.Adam(), l2=0.01),
    "initialised": lambda: linear_model.LogisticRegression(initializer=optim.initializers.Normal(seed=3)),
    "sparse": lambda: linear_model.LogisticRegression(optimizer=optim.FTRLProximal(), l1=0.0),
    "linear": lambda: linear_model.LinearRegression(optimizer=optim.AdaGrad(), loss=optim.losses.Huber()),
    "bayes": lambda: linear_model.BayesianLinearRegression(),
    "alma": lambda: linear_model.ALMAClassifier(),
    "passive": lambda: linear_model.PAClassifier(),
    "passive 0": lambda: linear_model.PAClassifier(mode=0),
    "passive regressor": lambda: linear_model.PARegressor(),
    "softmax": lambda: linear_model.SoftmaxRegression(),
    "perceptron": lambda: linear_model.Perceptron(),
    "scaled target": lambda: preprocessing.TargetStandardScaler(linear_model.LinearRegression()),
    "scaled 0 to 1": lambda: preprocessing.TargetMinMaxScaler(linear_model.LinearRegression()),
    "clipped": lambda: preprocessing.PredClipper(linear_model.LinearRegression(), 0.0, 5.0),
    "standard": lambda: preprocessing.StandardScaler() | linear_model.LogisticRegression(),
    "rolling": lambda: preprocessing.StandardScaler(window_size=7) | linear_model.LinearRegression(),
    "union": lambda: (
        (
            (compose.Select("a", "b") | preprocessing.RobustScaler())
            + (compose.Discard("a") | preprocessing.MinMaxScaler(window_size=5))
            + (compose.SelectType(float) | feature_extraction.RBFSampler(n_components=5, seed=1))
        )
        | linear_model.LinearRegression(optimizer=optim.SGD(1e-4))
    ),
    "fields": lambda: (
        OnFields(preprocessing.StandardScaler(), ["a", "b"])
        | OnFields(feature_extraction.TargetAgg(by="c", how=stats.BayesianMean(0.0, 3)), ["c"])
        | linear_model.LinearRegression()
    ),
    "grouper": lambda: compose.Grouper(preprocessing.StandardScaler(), "c") | linear_model.LinearRegression(),
    "product": lambda: (
        (compose.Select("a") * compose.Select("b")) | linear_model.LinearRegression(optimizer=optim.SGD(1e-3))
    ),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
def test_models_and_pipelines_predict_the_same_bits(make: Any) -> None:
    model = make()
    classifies = isinstance(model, base.Classifier)
    xs = some_numbers(120, seed=5)
    ys = [x["a"] > 0 if classifies else x["a"] + x["b"] for x in xs]
    for x, y in zip(xs[:60], ys[:60], strict=True):
        model.learn_one(x, y)
    twin = round_trip(model)
    for x, y in zip(xs[60:], ys[60:], strict=True):
        assert same(twin.predict_one(x), model.predict_one(x))
        if classifies and hasattr(model, "predict_proba_one"):
            assert same(twin.predict_proba_one(x), model.predict_proba_one(x))
        model.learn_one(x, y)
        twin.learn_one(x, y)


@pytest.mark.parametrize("name", ["BagOfWords", "TFIDF"])
def test_text_with_a_field_stop_words_and_ngrams(name: str) -> None:
    bag = getattr(feature_extraction, name)(on="text", stop_words={"the", "a"}, ngram_range=(1, 2))
    for text in ("the river runs", "a delta", "the river bank"):
        bag.learn_one({"text": text})
    twin = round_trip(bag)
    x = {"text": "The Rivér bank of a river"}
    assert twin.transform_one(x) == bag.transform_one(x)


STATISTICS = [
    *(cls() for cls in default_classes(stats, stats.base.Univariate)),
    stats.RollingIQR(5),
    stats.RollingQuantile(0.3, 5),
    stats.RollingMode(4),
    stats.RollingPeakToPeak(4),
    stats.AutoCorr(2),
]


@pytest.mark.parametrize("stat", STATISTICS, ids=lambda stat: type(stat).__name__)
def test_every_statistic(stat: Any) -> None:
    rng = random.Random(4)
    for _ in range(30):
        stat.update(rng.gauss(0, 1))
    twin = round_trip(stat)
    for value in (0.5, -1.0, 0.25):
        stat.update(value)
        twin.update(value)
        assert same(twin.get(), stat.get())


VALUES: list[Any] = [
    None,
    True,
    1,
    -(1 << 63),
    1 << 63,
    1 << 5000,
    -(1 << 70),
    0.1,
    -0.0,
    math.inf,
    -math.inf,
    "text",
    "grün 🌊",
    "half \ud800 a pair",
    b"\x00\xff",
    [1, [2, []]],
    (1, ("a", 2.5)),
    {3, 1, 2},
    frozenset({"a"}),
    range(1, 9, 2),
    {"b": 1, "a": 2, 3: {"ref": 0}, ("x", 1): None, None: [], True: "t"},
    collections.OrderedDict([("b", 1), ("a", 2)]),
    collections.Counter("abracadabra"),
    collections.defaultdict(list, {"a": [1]}),
    collections.defaultdict(None, {}),
    collections.deque([1, 2, 3], maxlen=3),
    collections.deque(),
    dt.datetime(2024, 2, 29, 12, 30, 1, 5),
    dt.datetime(2024, 2, 29, tzinfo=dt.UTC),
    dt.date(2024, 2, 29),
    dt.timedelta(days=-1, microseconds=3),
    np.float64(0.1),
    np.float32("nan"),
    np.bool_(True),
    np.str_("word"),
    np.datetime64("2024-01-01", "ms"),
    np.array([[1.5, np.nan], [-0.0, np.inf]]),
    np.array([], dtype=np.int8),
    np.array(7, dtype=">i2"),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.arange(10)[::3],
    functools.partial(collections.defaultdict, float),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}-{str(value)[:12]!a}")
def test_values(value: Any) -> None:
    twin = round_trip(value)
    assert type(twin) is type(value)
    assert repr(twin) == repr(value)
    assert same(twin, value)
    if isinstance(value, np.ndarray):
        assert (twin.dtype, twin.flags.f_contiguous, twin.flags.writeable) == (
            value.dtype,
            np.ascontiguousarray(value).flags.f_contiguous or value.flags.f_contiguous,
            True,
        )
    elif isinstance(value, dict):
        assert list(twin.items()) == list(value.items())


def test_nan_stays_nan() -> None:
    assert math.isnan(round_trip(math.nan))


@pytest.mark.parametrize("bits", ["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"])
def test_random_generators_continue_identically(bits: str) -> None:
    generators = {
        "python": random.Random(1),
        "state": np.random.RandomState(np.random.MT19937(1)),
        "generator": np.random.Generator(getattr(np.random, bits)(1)),
    }
    generators["python"].gauss(0, 1)
    generators["state"].normal()
    generators["generator"].integers(9, dtype=np.int32)
    twins = round_trip(generators)
    assert [twins["python"].gauss(0, 1) for _ in range(3)] == [generators["python"].gauss(0, 1) for _ in range(3)]
    assert twins["state"].normal(size=3).tolist() == generators["state"].normal(size=3).tolist()
    assert (
        twins["generator"].integers(9, size=9, dtype=np.int32).tolist()
        == generators["generator"].integers(9, size=9, dtype=np.int32).tolist()
    )


def test_shared_objects_stay_shared() -> None:
    both = metrics.Accuracy(cm := metrics.ConfusionMatrix()) + metrics.F1(cm)
    twin = round_trip(both)
    assert twin[0].cm is twin[1].cm
    twin.update(True, True)
    assert twin[0].get() == twin[1].get() == 1.0
    row = [1]
    a, (b, c) = round_trip([row, (row, {"row": row})])
    assert a is b is c["row"]


def test_an_object_can_contain_itself_but_a_tuple_cannot() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    twin = round_trip(loop)
    assert twin[1] is twin
    inner: list[Any] = []
    inner.append((inner,))
    assert (twin := round_trip(inner))[0][0] is twin
    row: list[Any] = []
    around = (row,)
    row.append(around)
    with pytest.raises(TypeError, match=r"^at \[0\]\[0\]: cannot store a tuple that contains itself$"):
        encode(around)


def test_equal_but_separate_values_stay_separate() -> None:
    a, b = round_trip([[1], [1]])
    assert a is not b


def test_a_pipeline_rebuilds_its_internal_plan() -> None:
    model = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    model.learn_one({"a": 1.0}, True)
    twin = round_trip(model)
    assert twin._plan is None
    twin.learn_one({"a": 2.0}, False)
    assert twin._plan[0][1] is twin["StandardScaler"]
    assert twin._inference_transformers == (twin["StandardScaler"],)


class Stranger:
    def __init__(self, value: int) -> None:
        self.value = value


def test_a_hook_stores_foreign_objects() -> None:
    seen = []

    def store(obj: Any) -> Any:
        return {"value": obj.value} if isinstance(obj, Stranger) else None

    def restore(stored: Any) -> Stranger:
        seen.append(stored)
        return Stranger(stored["value"])

    one = Stranger(5)
    stored = orjson.loads(orjson.dumps(encode({"a": one, "b": [one], "c": Stranger(0)}, store)))
    twin = decode(stored, restore)
    assert twin["a"] is twin["b"][0]
    assert (twin["a"].value, twin["c"].value) == (5, 0)
    assert seen == [{"value": 5}, {"value": 0}]


class Sneaky(list[int]):
    pass


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Stranger(1), "at the top: cannot store a test_river_state.Stranger"),
        (lambda: {"f": [1, lambda x: x]}, "at f[1]: cannot store a function"),
        (lambda: {("a", 1): print}, "at [('a', 1)]: cannot store a builtin_function_or_method"),
        (lambda: Sneaky([1]), "at the top: cannot store a test_river_state.Sneaky"),
        (lambda: np.array([print]), "at the top: cannot store an array of dtype |O"),
        (
            lambda: preprocessing.StandardScaler() | compose.FuncTransformer(some_numbers),
            "at steps.some_numbers.func: cannot store a function",
        ),
        (
            lambda: OnFields(preprocessing.Binarizer(dtype=complex), "numbers"),  # type: ignore[arg-type]
            "at transformer.dtype: cannot store a type",
        ),
        (lambda: functools.partial(print, 1), "at [0]: cannot store a builtin_function_or_method"),
        (lambda: [].append, "at the top: cannot store a builtin_function_or_method"),
        (lambda: stats.Mean().update, "at the top: cannot store the method Mean.update"),
        (
            lambda: dt.datetime(2024, 1, 1, tzinfo=dt.UTC, fold=1),
            "at the top: cannot store the time zone of 2024-01-01T00:00:00+00:00",
        ),
        (lambda: datasets.Phishing(), "at the top: cannot store a river.datasets.phishing.Phishing"),
        (lambda: utils.log_method_calls, "at the top: cannot store a function"),
        (lambda: functools.reduce(lambda inner, _: [inner], range(9999), []), "nested so deeply"),
    ],
)
def test_unsupported_values_are_named(make: Any, message: str) -> None:
    with pytest.raises(TypeError) as error:
        encode(make())
    assert str(error.value).endswith(message)


NAMES = [
    "os.system",
    "builtins.eval",
    "builtins.exec",
    "builtins.getattr",
    "builtins.object",
    "subprocess.Popen",
    "importlib.import_module",
    "functools.reduce",
    "river.datasets.phishing.Phishing",
    "river.datasets.base.RemoteDataset",
    "river.datasets.http.HTTP",
    "river.stream.cache.Cache",
    "river.compat.river_to_sklearn.River2SKLClassifier",
    "river.preprocessing.scale.os.system",
    "river.preprocessing.scale.functools.partial",
    "river.preprocessing.scale.np.load",
    "river.preprocessing.scale.collections",
    "river.preprocessing.scale.collections.defaultdict",
    "river.preprocessing.scale.safe_div",
    "river.preprocessing.scale",
    "river.preprocessing.StandardScaler",
    "river.preprocessing..scale.StandardScaler",
    "river.preprocessing.scale.StandardScaler.__init__",
    "river.preprocessingx.scale.StandardScaler",
    "river.metrics.confusion.defaultdict",
    "river._river_rust.stats.RsQuantile",
    "streamkernel.engine.fields.base",
    "streamkernel.engine.checkpoint.river_state.decode",
    "numpy.load",
    "numpy.fromfile",
    "__main__.main",
    "",
    ".",
]


EVENTS: list[str] = []
"""Events of Python's audit hook while a value is decoded: processes, files, sockets, imports, code."""
WATCHING: list[bool] = []
HARMFUL = (
    "os.",
    "subprocess.",
    "import",
    "open",
    "exec",
    "compile",
    "socket.",
    "ctypes.",
    "marshal.",
    "pickle.",
)


def audit(event: str, args: Any) -> None:
    if WATCHING and event.startswith(HARMFUL):
        EVENTS.append(event)


sys.addaudithook(audit)


def refuse(value: Any) -> str:
    """Decode a value that must be rejected, check that it had no side effect, and return the message."""
    value = orjson.loads(orjson.dumps(value))
    EVENTS.clear()
    WATCHING.append(True)
    try:
        decode(value)
    except ValueError as error:
        message = str(error)
    else:
        message = ""
    finally:
        WATCHING.clear()
    assert message, "this was decoded"
    assert EVENTS == []
    return message


def test_the_audit_hook_detects_a_new_process() -> None:
    EVENTS.clear()
    WATCHING.append(True)
    subprocess.run([sys.executable, "-c", ""], check=True)
    WATCHING.clear()
    assert "subprocess.Popen" in EVENTS


@pytest.mark.parametrize("name", NAMES)
def test_no_other_name_is_resolved(name: str) -> None:
    assert f'"{name}"' in refuse({"name": name})
    assert f'"{name}"' in refuse({"class": name, "state": {}})
    assert f'"{name}"' in refuse({"class": name, "state": {"sum": 0.0}})
    assert name in refuse({"compiled": [name, {"tuple": []}, {"bytes": ""}]})
    assert f'"{name}"' in refuse({"partial": [{"name": name}, {"tuple": ["true"]}, {"dict": []}]})
    assert f'"{name}"' in refuse({"defaultdict": [{"name": name}, []]})
    binarizer = {"class": "river.preprocessing.scale.Binarizer", "state": {"dtype": {"name": name}}}
    assert f'"{name}"' in refuse(binarizer)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"unknown": 1}, 'Expected a known tag, got "unknown"'),
        ({"hook": 1}, 'Expected a known tag, got "hook"'),
        ({}, "Expected a table with one tag, got the keys none"),
        ({"a": 1, "b": 2}, "Expected a table with one tag, got the keys 'a', 'b'"),
        ({"ref": 0}, "Expected a reference to an earlier value, got 0"),
        ([{"ref": -1}], "Expected a reference to an earlier value, got -1"),
        ([{"ref": True}], "Expected a reference to an earlier value, got True"),
        ({"tuple": [{"ref": 0}]}, "Expected a reference to an earlier value, got 0"),
        ({"class": "river.stats.summing.Sum", "state": {"__class__": 1}}, "attribute, got '__class__'"),
        ({"class": "river.stats.summing.Sum", "state": {"a.b": 1}}, "attribute, got 'a.b'"),
        ({"class": "river.stats.summing.Sum", "state": []}, "'list' object has no attribute 'items'"),
        ({"class": ["river.stats.summing.Sum"], "state": {}}, "has no attribute 'rpartition'"),
        ({"class": "collections.Counter", "state": {}}, '"collections.Counter" is not a class allowed'),
        ({"class": "river._river_rust.stats.RsQuantile", "state": {}}, "is not a class allowed"),
        ({"method": [[], "append"]}, 'The method "append" of a list is not allowed'),
        (
            {"method": [{"class": "river.compose.func.FuncTransformer", "state": {}}, "transform_one"]},
            'The method "transform_one" of a FuncTransformer is not allowed',
        ),
        ({"partial": [[], {"tuple": []}, {"dict": []}]}, "Expected an allowed function in a partial, got a list"),
        ({"partial": 3}, 'Expected a list of parts of "partial", got a int'),
        ({"tuple": 3}, 'Expected a list of parts of "tuple", got a int'),
        ({"dict": [[1]]}, "not enough values to unpack"),
        ({"dict": [[[], 1]]}, "unhashable type"),
        ({"set": [[]]}, "unhashable type"),
        ({"deque": [1]}, "not enough values to unpack"),
        ({"defaultdict": ["x", []]}, "Expected the factory of a defaultdict, got a str"),
        ({"int": "0xg"}, "invalid literal"),
        ({"int": 5}, "can't convert non-string"),
        ({"float": "1.5"}, 'Expected a known tag, got "float"'),
        ({"bytes": "?"}, "base64"),
        ({"name": 3}, "rpartition"),
        ({"array": ["|O", [1], "C", {"bytes": "AAAAAAAAAAA="}]}, "cannot store an array of dtype |O"),
        ({"array": ["<i4,<i4", [1], "C", {"bytes": "AAAAAAAAAAA="}]}, "cannot store an array of dtype"),
        ({"array": ["<f8", [2], "C", {"bytes": "AAAAAAAAAAA="}]}, "Expected 16 bytes of an array, got 8"),
        ({"array": ["<f4", [1], "C", {"bytes": "AAAAAAAAAAA="}]}, "Expected 4 bytes of an array, got 8"),
        ({"array": ["<f8", [-1], "C", {"bytes": ""}]}, "Expected the shape of an array, got [-1]"),
        ({"array": ["<f8", [10**6, 10**6, 0], "C", {"bytes": ""}]}, "Expected an array with entries, got the shape"),
        ({"Random": [{"tuple": [3, {"tuple": [1]}, None]}]}, "state vector"),
        (
            {"RandomState": [{"dict": [["bit_generator", "os"]]}]},
            "Expected a bit generator of NumPy, got 'os'",
        ),
        ({"datetime": ["yesterday"]}, "Invalid isoformat string"),
    ],
)
def test_a_value_of_the_wrong_shape_is_refused(value: Any, message: str) -> None:
    assert message in refuse(value)


COMPILED = [
    stats.Quantile(0.3)._quantile,
    stats.RollingQuantile(0.3, 4)._rolling_quantile,
    stats.EWVar()._ewvar,
    metrics.RollingROCAUC(4)._metric,
]


@pytest.mark.parametrize("compiled", COMPILED, ids=lambda obj: type(obj).__name__)
def test_damaged_bytes_of_a_compiled_statistic_are_refused(compiled: Any) -> None:
    name, arguments, state = encode(compiled)["compiled"]
    good = compiled.__getstate__()
    for bad in (b"", good[:-1], good + b"\0", b"\xff" * len(good)):
        damaged = encode(bad)
        assert f"bytes that a {name} wrote" in refuse({"compiled": [name, arguments, damaged]})
    assert f"bytes that a {name} wrote" in refuse({"compiled": [name, {"tuple": ["os", "system"]}, state]})


def test_a_value_that_is_not_json_is_refused() -> None:
    with pytest.raises(ValueError, match="Expected a JSON value, got a tuple"):
        decode((1, 2))


def test_reading_a_checkpoint_imports_only_river() -> None:
    stored = orjson.dumps(encode(preprocessing.StandardScaler() | linear_model.LogisticRegression()))
    script = (
        "import sys, orjson\n"
        "from streamkernel.engine.checkpoint.river_state import decode\n"
        "before = set(sys.modules)\n"
        "model = decode(orjson.loads(sys.stdin.buffer.read()))\n"
        "assert set(sys.modules) == before\n"
        "print(model)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], input=stored, capture_output=True, check=True)
    assert done.stdout.decode().strip() == "StandardScaler | LogisticRegression"
