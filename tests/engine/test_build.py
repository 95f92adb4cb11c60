"""Tables of a configuration become objects, and an invalid table raises an error with the cause and its position."""

from __future__ import annotations

import datetime as dt
import inspect
import itertools
import random
import sys
from typing import Any

import pytest
from river import base, compose, feature_extraction, linear_model, preprocessing, stats

from streamkernel import (
    GaussianProcessRegressor,
    KernelClassifier,
    KernelMultiLabelClassifier,
    KernelMultiTargetRegressor,
    KernelRegressor,
    RandomFeatures,
    kernels,
    learners,
    losses,
    rules,
    step_sizes,
)
from streamkernel.engine.checkpoint import river_state
from streamkernel.engine.config.build import build, build_step, transformer_on
from streamkernel.engine.config.messages import ConfigError
from streamkernel.engine.config.registry import Catalogue, datasets, metrics, models, transformers
from streamkernel.engine.fields import OnFields
from streamkernel.upkeep import Pruning, Refit


class Sieve:
    """A class whose parameters have every kind of annotation."""

    def __init__(
        self,
        size: int,
        share: float = 0.5,
        on: bool = True,
        names: set[str] | None = None,
        pair: tuple[int, int] = (1, 2),
        strange: "Unheard" = None,  # type: ignore[name-defined]  # noqa: F821, UP037
        plain=None,  # type: ignore[no-untyped-def]
        kind: type = int,
        wide: int | str = 0,
    ) -> None:
        if size < 0:
            raise ValueError(f"Expected size >= 0, got {size}")
        self.given = {"size": size, "share": share, "on": on, "names": names, "pair": pair, "wide": wide}
        self.strange, self.plain = strange, plain


SIEVES = Catalogue("a sieve", {"Sieve": Sieve})


def problems(call: Any) -> list[str]:
    with pytest.raises(ConfigError) as error:
        call()
    return str(error.value).split("\n")


def test_values_are_converted_to_the_annotation() -> None:
    table = {"type": "Sieve", "size": 3, "share": 1, "names": ["a", "b"], "pair": [4, 5], "wide": "x"}
    sieve = build(table, SIEVES, "sieve")
    assert sieve.given == {"size": 3, "share": 1.0, "on": True, "names": {"a", "b"}, "pair": (4, 5), "wide": "x"}
    assert type(sieve.given["share"]) is float
    assert table["type"] == "Sieve"


@pytest.mark.parametrize("value", [1, "x", [1, "y"], {"a": 1}, True])
def test_without_a_usable_annotation_everything_is_accepted(value: Any) -> None:
    sieve = build({"type": "Sieve", "size": 3, "strange": value, "plain": value}, SIEVES, "sieve")
    assert (sieve.strange, sieve.plain) == (value, value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("size", True, "sieve.size: expected an integer, got true"),
        ("size", "5", 'sieve.size: expected an integer, got "5"'),
        ("size", 5.0, "sieve.size: expected an integer, got 5.0"),
        ("size", [5], "sieve.size: expected an integer, got [5]"),
        ("size", dt.date(2024, 1, 2), "sieve.size: expected an integer, got 2024-01-02"),
        ("share", "0.5", 'sieve.share: expected a number, got "0.5"'),
        ("share", False, "sieve.share: expected a number, got false"),
        ("on", 1, "sieve.on: expected true or false, got 1"),
        ("on", "true", 'sieve.on: expected true or false, got "true"'),
        ("names", "a", 'sieve.names: expected a list, got "a"'),
        ("names", [1], "sieve.names: expected a list, got [1]"),
        ("pair", [1, 2, 3], "sieve.pair: expected a list of 2, got [1, 2, 3]"),
        ("wide", 0.5, "sieve.wide: expected an integer or a string, got 0.5"),
        ("kind", "int", "sieve.kind: unknown key; expected one of size, share, on, names, pair, strange, plain, wide"),
        ("sise", 3, 'sieve.sise: unknown key; did you mean "size"?'),
        ("size", -1, "sieve: expected size >= 0, got -1"),
    ],
)
def test_a_value_that_does_not_fit(key: str, value: Any, message: str) -> None:
    table = {"type": "Sieve", "size": 1, key: value}
    assert problems(lambda: build(table, SIEVES, "sieve")) == [message]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("Siev", 'x: expected a sieve (Sieve), got "Siev"; did you mean "Sieve"?'),
        ("sieve", 'x: expected a sieve (Sieve), got "sieve"; did you mean "Sieve"?'),
        ("Colander", 'x: expected a sieve (Sieve), got "Colander"'),
        (5, "x: expected a sieve (Sieve), got 5"),
        ([{"type": "Sieve"}], 'x: expected a sieve (Sieve), got [{type = "Sieve"}]'),
        ({"type": 5}, "x.type: expected a sieve (Sieve), got 5"),
        ({"type": ["Sieve"]}, 'x.type: expected a sieve (Sieve), got ["Sieve"]'),
        ({"type": "Siev"}, 'x.type: expected a sieve (Sieve), got "Siev"; did you mean "Sieve"?'),
        ({"size": 5}, "x.type: expected the name of a sieve, got nothing"),
        ("Sieve", "x.size: Sieve requires it; expected an integer, got nothing"),
        ({"type": "x" * 99}, f'x.type: expected a sieve (Sieve), got "{"x" * 58}…'),
    ],
)
def test_an_unknown_type(spec: Any, message: str) -> None:
    assert problems(lambda: build(spec, SIEVES, "x")) == [message]


def test_all_problems_of_a_table_are_reported_together() -> None:
    table = {
        "type": "KernelClassifier",
        "max_feature": 5,
        "seed": True,
        "l2": "5",
        "kernel": {"type": "Gausian"},
        "learner": {"type": "DSG", "rule": {"type": "UDSG", "grow": 0}, "step_size": {"type": "PowerDecay", "c": "x"}},
    }
    assert set(problems(lambda: build(table, models(), "model"))) == {
        'model.max_feature: unknown key; did you mean "max_features"?',
        "model.seed: expected an integer, got true",
        'model.l2: expected a number, got "5"',
        'model.kernel.type: expected a kernel, got "Gausian"; did you mean "Gaussian"?',
        "model.learner.rule: expected an integer grow >= 1, got 0",
        "model.learner.step_size.gamma: PowerDecay requires it; expected a number, got nothing",
        'model.learner.step_size.c: expected a number, got "x"',
    }


def test_a_model_with_objects() -> None:
    table = {
        "type": "KernelRegressor",
        "kernel": {"type": "Gaussian", "sigma": 2},
        "loss": {"type": "Huber", "delta": 0.5},
        "learner": {"type": "DSG", "rule": "DSG", "step_size": {"type": "PowerDecay", "gamma": 1}},
        "seed": 3,
    }
    model = build(table, models(), "model")
    assert type(model) is KernelRegressor
    assert (model.kernel, model.loss, model.learner, model.seed) == (
        kernels.Gaussian(2.0),
        losses.Huber(0.5),
        learners.DSG(rule=rules.DSG(), step_size=step_sizes.PowerDecay(1.0)),
        3,
    )


def test_a_learner_by_its_name_or_as_a_table() -> None:
    for given, expected in (
        ("newton", "newton"),
        ("dsg", "dsg"),
        ("DSG", learners.DSG()),
        ({"type": "Newton", "forgetting": 0.99}, learners.Newton(forgetting=0.99)),
        ({"type": "DSG", "step_size": 1}, learners.DSG(step_size=1.0)),
        (
            {"type": "DSG", "step_size": "auto", "rule": {"type": "UDSG", "reuse": 4}},
            learners.DSG(rule=rules.UDSG(1, 4)),
        ),
    ):
        assert build({"type": "KernelRegressor", "learner": given}, models(), "model").learner == expected
    for given, text in (
        ("newtn", 'expected learner as "newton", "dsg"'),
        ({"type": "Newton", "rule": "DSG"}, "model.learner.rule: "),
        ({"type": "DSG", "step_size": "fast"}, "model.learner: expected step_size as a number"),
        ({"type": "DSG", "step_size": True}, "model.learner.step_size: expected"),
        (3, r"model.learner: expected a learner \(DSG, Newton\), got 3"),
    ):
        with pytest.raises(ConfigError, match=text):
            build({"type": "KernelRegressor", "learner": given}, models(), "model")


def test_upkeep_in_a_table() -> None:
    table = {"type": "KernelRegressor", "pruning": {"type": "Pruning", "keep": 0.5}, "refit": "Refit", "learner": "dsg"}
    model = build(table, models(), "model")
    assert (model.pruning, model.refit) == (Pruning(keep=0.5), Refit())
    with pytest.raises(ConfigError, match=r'model.pruning: expected a pruning \(Pruning\), got "Refit"'):
        build({"type": "KernelRegressor", "pruning": "Refit"}, models(), "model")
    with pytest.raises(ConfigError, match=r"expected 0 < keep <= 0\.5, got 2"):
        build({"type": "KernelRegressor", "pruning": {"type": "Pruning", "keep": 2}}, models(), "model")


def test_a_quantile_is_given_by_tau_or_by_its_loss() -> None:
    named = build({"type": "KernelRegressor", "loss": "quantile", "tau": 0.9, "learner": "dsg"}, models(), "model")
    assert (named.loss, named.tau, named._loss) == ("quantile", 0.9, losses.Quantile(0.9))
    table = {"type": "KernelRegressor", "loss": {"type": "Quantile", "tau": 0.9}, "learner": "dsg"}
    assert build(table, models(), "model").loss == losses.Quantile(0.9)
    for given, expected in (
        ({"tau": 0.9}, 'model: expected tau with loss="quantile" only'),
        ({"loss": "quantile", "tau": 90}, "model: expected 0 < tau < 1, got 90"),
        ({"loss": "quantile", "tau": "high"}, "model.tau: expected a number"),
    ):
        (line,) = problems(lambda given=given: build({"type": "KernelRegressor", **given}, models(), "model"))
        assert line.startswith(expected)


def test_a_loss_can_be_a_string_of_the_model_or_a_class() -> None:
    assert build({"type": "KernelClassifier", "loss": "hinge", "learner": "dsg"}, models(), "model").loss == "hinge"
    assert (
        build({"type": "KernelClassifier", "loss": "Hinge", "learner": "dsg"}, models(), "model").loss == losses.Hinge()
    )
    assert build({"type": "KernelClassifier", "kernel": "Gaussian"}, models(), "m").kernel == kernels.Gaussian()
    (line,) = problems(lambda: build({"type": "KernelClassifier", "loss": "logistc"}, models(), "model"))
    assert line.startswith("model: expected a loss for classification")
    (line,) = problems(lambda: build({"type": "KernelClassifier", "kernel": "median"}, models(), "model"))
    assert line.startswith("model.kernel: expected a kernel (ArcCosine, Cauchy")


@pytest.mark.parametrize(
    ("kernel", "line"),
    [
        ({"sigma": "mediam"}, 'model.kernel.sigma: expected a number or "median", got "mediam"'),
        ({"sigma": True}, 'model.kernel.sigma: expected a number or "median", got true'),
        ({"sigma": -1}, 'model.kernel: expected sigma to be a positive number or "median", got -1.0'),
        ({"sigm": 1}, 'model.kernel.sigm: unknown key; did you mean "sigma"?'),
    ],
)
def test_paths_go_into_nested_tables(kernel: dict[str, Any], line: str) -> None:
    table = {"type": "KernelClassifier", "kernel": {"type": "Gaussian", **kernel}}
    assert problems(lambda: build(table, models(), "model")) == [line]


def test_kernels_of_kernels() -> None:
    shares = {"type": "Transformed", "kernel": {"type": "DotProduct", "coefficients": [0, 1.5]}, "transform": "simplex"}
    some = {"type": "OnInputs", "kernel": {"type": "Gaussian", "sigma": 2}, "names": ["a", "b"]}
    product = {"type": "Product", "left": "Laplacian", "right": {"type": "Scaled", "kernel": some, "factor": 3}}
    table = {"type": "KernelRegressor", "kernel": {"type": "Sum", "left": shares, "right": product}}
    expected = kernels.DotProduct([0.0, 1.5]).of("simplex")
    expected += kernels.Laplacian() * (3.0 * kernels.Gaussian(2.0).on("a", "b"))
    assert build(table, models(), "model").kernel == expected


@pytest.mark.parametrize(
    ("kernel", "lines"),
    [
        ({"type": "Sum", "left": "Gaussian"}, ["model.kernel.right: Sum requires it; expected a kernel, got nothing"]),
        (
            {"type": "Product", "left": {"type": "Gaussian", "sigm": 1}, "right": {"type": "Polynomial", "degree": 0}},
            [
                'model.kernel.left.sigm: unknown key; did you mean "sigma"?',
                "model.kernel.right: expected an integer from 1 to 31 as degree, got 0",
            ],
        ),
        (
            {"type": "OnInputs", "kernel": "Gaussian", "names": "a"},
            ['model.kernel.names: expected a list, got "a"'],
        ),
    ],
)
def test_paths_go_into_kernels_of_kernels(kernel: dict[str, Any], lines: list[str]) -> None:
    assert problems(lambda: build({"type": "KernelRegressor", "kernel": kernel}, models(), "model")) == lines


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_side_of_a_pair_can_only_be_a_kernel(side: str) -> None:
    kernel = {"type": "Sum", "left": "Gaussian", "right": "Gaussian", side: "Kernel"}
    (line,) = problems(lambda: build({"type": "KernelRegressor", "kernel": kernel}, models(), "model"))
    assert line.startswith(f"model.kernel.{side}: expected a kernel (ArcCosine, Cauchy")


HUGE = 10**12


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ({"max_features": HUGE}, "max_features: expected at most 1,048,576, got {}"),
        ({"cache_bytes": HUGE}, "cache_bytes: expected at most 68,719,476,736, got {}"),
        (
            {"pruning": {"type": "Pruning", "window": HUGE}},
            "pruning.window: expected at most 10,000,000, got {}",
        ),
        (
            {"type": "GaussianProcessRegressor", "n_features": HUGE},
            "n_features: expected at most 16,384, got {}",
        ),
        (
            {"type": "RandomFeatures", "kernel": {"type": "Gaussian"}, "n_features": HUGE},
            "n_features: expected at most 1,048,576, got {}",
        ),
        (
            {"type": "RBFSampler", "n_components": HUGE},
            "n_components: expected at most 65,536, got {}",
        ),
        (
            {"type": "PolynomialExtender", "degree": 40},
            "degree: expected at most 8, got 40",
        ),
        (
            {"type": "BagOfWords", "on": "text", "ngram_range": [1, 100_000]},
            "ngram_range: expected at most 16, got 100,000",
        ),
    ],
)
def test_numbers_beyond_any_memory_are_rejected(table: dict[str, Any], line: str) -> None:
    table = {"type": "KernelRegressor"} | table
    catalogue = models() if table["type"] in models().classes else transformers()
    assert problems(lambda: build(table, catalogue, "here")) == ["here." + line.format(f"{HUGE:,}")]


def test_a_model_too_large_for_memory_is_a_problem_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(self: Any, **options: Any) -> None:
        raise MemoryError("Unable to allocate 14.6 TiB")

    monkeypatch.setattr(Sieve, "__init__", too_large)
    catalogue = Catalogue("a sieve", {"Sieve": Sieve})
    assert problems(lambda: build("Sieve", catalogue, "here")) == ["here: Unable to allocate 14.6 TiB"]


WORDS = {"type": "BagOfWords", "on": ["text"]}


def test_a_pattern_matches_in_linear_time() -> None:
    step = build_step(WORDS | {"tokenizer_pattern": "(a+)+$"}, "here")
    assert step.transform_one({"text": "a" * 1_000_000 + "!"}) == {}  # Python's re would need 2^1000000 steps
    step = river_state.decode(river_state.encode(step))
    assert step.transform_one({"text": "b aaa"}) == {"aaa": 1}
    step = build_step(WORDS | {"tokenizer_pattern": r"([\pL]+)="}, "here")
    assert step.transform_one({"text": "äh=1, b=2, b=3"}) == {"ah": 1, "b": 2}
    default = inspect.signature(feature_extraction.BagOfWords).parameters["tokenizer_pattern"].default
    assert build_step(WORDS | {"tokenizer_pattern": default}, "here").transform_one({"text": "wee bee"})


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)b", "((a{999}){999}){999}", "("])
def test_a_pattern_that_takes_more_than_linear_time_is_refused(pattern: str) -> None:
    (line,) = problems(lambda: build_step(WORDS | {"tokenizer_pattern": pattern}, "here"))
    assert line.startswith("here.tokenizer_pattern: expected a pattern of RE2, got ")


def test_a_pattern_needs_re2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    (line,) = problems(lambda: build_step(WORDS | {"tokenizer_pattern": "never compiled before"}, "here"))
    assert line == "here.tokenizer_pattern: a pattern needs RE2; pip install 'streamkernel[patterns]'"


def test_parameters_that_only_code_can_set_are_rejected() -> None:
    assert problems(lambda: build_step({"type": "BagOfWords", "on": ["t"], "tokenizer": "str.split"}, "step")) == [
        "step.tokenizer: cannot be set in a configuration file"
    ]
    assert problems(lambda: build({"type": "F1", "cm": 3}, metrics(), "metric")) == [
        "metric.cm: unknown key; expected one of pos_val"
    ]


def test_the_type_of_the_default_counts_where_there_is_no_annotation() -> None:
    lines = problems(
        lambda: build({"type": "RobustScaler", "with_scaling": "no", "q_inf": "low"}, transformers(), "step")
    )
    assert lines == [
        'step.with_scaling: expected true or false, got "no"',
        'step.q_inf: expected a number, got "low"',
    ]
    assert build({"type": "LDA", "n_components": 3}, transformers(), "step").n_components == 3
    assert type(build({"type": "LDA", "n_components": 3}, transformers(), "step").n_components) is int
    assert build({"type": "F1", "pos_val": "yes"}, metrics(), "metric").pos_val == "yes"


CATALOGUES = [models(), transformers(), metrics()]


def test_the_catalogues() -> None:
    one = KernelClassifier, KernelRegressor, GaussianProcessRegressor
    known = *one, KernelMultiTargetRegressor, KernelMultiLabelClassifier
    assert dict(models().classes) == {model.__name__: model for model in known}
    known = transformers().classes
    assert known["StandardScaler"] is preprocessing.StandardScaler
    assert known["RandomFeatures"] is RandomFeatures
    everything = {
        name
        for module in (preprocessing, feature_extraction)
        for name in module.__all__
        if issubclass(getattr(module, name), base.Transformer)
    }
    left_out = {"Agg", "TargetAgg", "StatImputer", "RandomTreesEmbedding"}
    assert everything - known.keys() == left_out
    assert {"Accuracy", "ROCAUC", "MAE", "R2", "LogLoss"} <= metrics().classes.keys()
    assert not {"ConfusionMatrix", "ClassificationReport", "base"} & metrics().classes.keys()
    assert "Phishing" in datasets().classes
    assert "synth.Friedman" in datasets().classes


@pytest.mark.parametrize(
    ("catalogue", "name"),
    [(catalogue, name) for catalogue in CATALOGUES for name in catalogue.classes],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_everything_in_the_catalogues_can_be_built(catalogue: Catalogue, name: str) -> None:
    needed: dict[str, Any] = {
        "RandomFeatures": {"kernel": "Gaussian"},
        "MultiFBeta": {"betas": {"a": 1.0}, "weights": {"a": 1.0}},
        "Lags": {"fields": ["a"]},
        "Calendar": {"field": "at"},
    }
    table = needed.get(name, {"beta": 2} if name.endswith("FBeta") else {})
    assert type(build({"type": name, **table}, catalogue, "x")) is catalogue.classes[name]


XS = [{"size": i % 5, "share": i / 7, "colour": "red" if i % 3 else "blue", "new": i % 2 == 0} for i in range(30)]


def trained(step: Any) -> Any:
    for x in XS:
        step.learn_one(x)
    return step


@pytest.mark.parametrize("on", ["numbers", "all", ["size", "share", "new"], None])
def test_only_the_named_fields_are_scaled(on: Any) -> None:
    keep = on == "all"
    xs = [{k: v for k, v in x.items() if k != "colour"} if keep else x for x in XS]
    step = transformer_on(preprocessing.StandardScaler(), on)
    alone = preprocessing.StandardScaler()
    for x in xs:
        step.learn_one(x)
        alone.learn_one({k: v for k, v in x.items() if k != "colour"})
    x = xs[7]
    scaled = alone.transform_one({k: v for k, v in x.items() if k != "colour"})
    rest = {} if keep else {"colour": x["colour"]}
    assert step.transform_one(x) == {**rest, **scaled}


def test_encoders_take_strings_and_leave_numbers() -> None:
    for encoder in (preprocessing.OneHotEncoder(), preprocessing.OrdinalEncoder()):
        step = trained(transformer_on(encoder))
        out = step.transform_one(XS[0])
        assert {k: out[k] for k in ("size", "share", "new")} == {k: XS[0][k] for k in ("size", "share", "new")}
        assert out.get("colour") != "blue"
    hot = trained(transformer_on(preprocessing.OneHotEncoder())).transform_one(XS[0])
    assert (hot["colour_blue"], hot["colour_red"]) == (1, 0)


def test_the_order_of_fields_does_not_matter() -> None:
    step = build_step("MinMaxScaler", "x") | build_step("OneHotEncoder", "y")
    trained(step)
    want = step.transform_one(XS[4])
    for order in itertools.permutations(XS[4]):
        assert step.transform_one({name: XS[4][name] for name in order}) == want


@pytest.mark.parametrize("name", sorted(transformers().classes))
def test_a_record_without_a_field_for_it_passes_every_transformer(name: str) -> None:
    table: dict[str, Any] = {"type": name, "on": ["absent"]}
    table |= {"RandomFeatures": {"kernel": "Gaussian"}, "Lags": {"fields": ["a"]}, "Calendar": {"field": "at"}}.get(
        name, {}
    )
    step = build_step(table, "preprocessing[0]")
    for x in ({"other": 3.0, "word": "a"}, {}):
        step.learn_one(x)
        assert step.transform_one(x) == x


def test_some_of_the_named_fields_can_be_missing() -> None:
    step = build_step({"type": "StandardScaler", "on": ["size", "absent"]}, "x")
    step.learn_one({"size": 1.0, "share": 9})
    step.learn_one({"size": 3.0})
    assert step.transform_one({"share": 5, "size": 3.0}) == {"share": 5, "size": 1.0}
    assert step.transform_one({"share": 5}) == {"share": 5}


def test_the_input_is_not_changed() -> None:
    step = build_step("OneHotEncoder", "x")
    x = {"a": "b", "n": 1}
    step.learn_one(x)
    step.transform_one(x)
    assert x == {"a": "b", "n": 1}


def test_fields_of_other_types_are_kept() -> None:
    x = {"when": dt.date(2024, 1, 1), "nothing": None, "list": [1]}
    step = build_step("StandardScaler", "x") | build_step("OneHotEncoder", "y")
    step.learn_one(x)
    assert step.transform_one(x) == x


def test_steps_work_in_a_pipeline_and_learn_once() -> None:
    model = compose.Pipeline(
        ("scale", build_step("StandardScaler", "x")),
        ("hot", build_step("OneHotEncoder", "y")),
        ("model", linear_model.LogisticRegression()),
    )
    rng = random.Random(1)
    right = 0
    for _ in range(400):
        x = {"size": rng.gauss(5, 2), "colour": rng.choice(["red", "blue"])}
        y = x["colour"] == "red"
        right += model.predict_one(x) == y
        model.learn_one(x, y)
    assert model["scale"].transformer.counts["size"] == 400
    assert model["hot"].transformer.values == {"colour": {"red", "blue"}}
    assert right > 380
    assert str(model) == "StandardScaler | OneHotEncoder | LogisticRegression"


def test_a_transformer_that_learns_from_labels_gets_them() -> None:
    agg = OnFields(feature_extraction.TargetAgg(by="town", how=stats.Mean()), "strings")
    model = agg | linear_model.LinearRegression()
    for y in (1.0, 3.0):
        model.learn_one({"town": "Ulm", "size": 1.0}, y)
    assert agg.transform_one({"town": "Ulm", "size": 2.0}) == {"size": 2.0, "y_mean_by_town": 2.0}
    twin = agg.clone()
    assert twin.on == "strings"
    assert twin.transform_one({"town": "Ulm"}) == {"y_mean_by_town": 0.0}


def test_on_is_proposed_too() -> None:
    assert problems(lambda: build_step({"type": "Normalizer", "onn": "all"}, "x")) == [
        'x.onn: unknown key; did you mean "on"?'
    ]
    assert problems(lambda: build_step({"type": "Normalizer", "field": "a"}, "x")) == [
        "x.field: unknown key; expected one of order, on"
    ]


def test_text_is_read_from_the_field_named() -> None:
    step = build_step({"type": "BagOfWords", "on": ["text"], "stop_words": ["the"], "ngram_range": [1, 1]}, "x")
    assert step.transform_one({"text": "The river", "size": 2}) == {"size": 2, "river": 1}
    for on in ("text", "strings", ["a", "b"], [3], None):
        table: dict[str, Any] = {"type": "TFIDF", "on": on} if on else {"type": "TFIDF"}
        (line,) = problems(lambda table=table: build_step(table, "x"))
        assert line.startswith(
            'x.on: TFIDF reads the text of one field; expected its name in a list, like ["text"], got'
        )


@pytest.mark.parametrize(
    ("on", "message"),
    [
        ("number", 'got "number"; did you mean "numbers"?'),
        ("size", 'got "size"'),
        ([], "got []"),
        ([1], "got [1]"),
        (True, "got true"),
        ({"a": 1}, "got {a = 1}"),
    ],
)
def test_on_is_checked_with_the_rest(on: Any, message: str) -> None:
    lines = problems(lambda: build_step({"type": "StandardScaler", "on": on, "with_sdt": True}, "preprocessing[2]"))
    assert lines == [
        'preprocessing[2].on: expected "numbers", "strings", "all" or a list of field names, ' + message,
        'preprocessing[2].with_sdt: unknown key; did you mean "with_std"?',
    ]
    with pytest.raises(ValueError, match='Expected "numbers", "strings" or a list of field names'):
        OnFields(preprocessing.StandardScaler(), "number")
