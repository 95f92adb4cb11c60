"""Private names of River: none is read, and River still asks our classes by the names that they define."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from river import base, compose, feature_extraction, imblearn, linear_model, multiclass, preprocessing

import streamkernel
from streamkernel.engine.checkpoint.allowlist import wrapped_model
from streamkernel.engine.checkpoint.river_state import decode, encode
from streamkernel.engine.config.registry import baselines, transformers
from streamkernel.engine.fields import OnFields
from streamkernel.estimators.parameters import parameters_of

HOOKS = {"_fmt", "_multiclass", "_reset", "_supervised", "_unit_test_params"}
"""Names that River reads in our classes."""

RENAMED = r"""
import re
import sys
from importlib.machinery import SourceFileLoader
names = (
    "_average_arithmetic|_average_geometric|_calc_tau_[012]|_get_params|_leveraging_bag|_leveraging_subag|_multiclass|"
    "_next_code|_rand_gauss|_rand_weights_for_feature|_random_weights|_scale|_supervised|_unscale|_wrapped_model"
)
def compile_renamed(loader, name, code_of=SourceFileLoader.get_code):
    if not name.startswith("river."):
        return code_of(loader, name)
    source = re.sub(rf"\b({names})", r"\1_renamed", loader.get_source(name))
    return compile(source, loader.get_filename(name), "exec", dont_inherit=True)
SourceFileLoader.get_code = compile_renamed
from river import ensemble, feature_extraction, linear_model, metrics, preprocessing, stats
assert hasattr(linear_model.PAClassifier, "_calc_tau_1_renamed")
from streamkernel import KernelClassifier
from streamkernel.engine import assemble
from streamkernel.engine.checkpoint.river_state import decode, encode
from streamkernel.engine.fields import OnFields
quantile, step = stats.Quantile(0.5), OnFields(preprocessing.StandardScaler(), "numbers")
quantile.update(3.0)
step.learn_one({"x": 1.0}, True)
for made in (
    quantile, step, feature_extraction.RBFSampler(seed=1), linear_model.PAClassifier(mode=1),
    metrics.AdjustedMutualInfo(), preprocessing.PredClipper(linear_model.LinearRegression(), 0, 1),
    ensemble.LeveragingBaggingClassifier(linear_model.LogisticRegression(), n_models=2, seed=1),
):
    assert encode(decode(encode(made))) == encode(made)
KernelClassifier(seed=3).clone()
print("done")
"""


def test_the_engine_works_with_a_river_whose_private_names_are_others() -> None:
    found = subprocess.run([sys.executable, "-c", RENAMED], capture_output=True, text=True, timeout=600)
    assert found.stdout == "done\n", found.stderr


def test_no_module_reads_the_compiled_part_of_river() -> None:
    package = Path(streamkernel.__file__).parent
    assert [path for path in package.rglob("*.py") if "_river_rust" in path.read_text()] == []


def test_river_defines_each_private_name_that_our_classes_define_for_it() -> None:
    pending, found = [base.Base], set()
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        if kind.__module__.startswith("streamkernel."):
            of_river = [one for one in kind.__mro__ if one.__module__.startswith("river.")]
            names = {name for name in vars(kind) if name.startswith("_") and not name.endswith("__")}
            found |= {name for name in names if name != "_abc_impl" and any(name in vars(one) for one in of_river)}
    assert found == HOOKS


def test_wrapped_models_are_the_ones_that_river_wraps() -> None:
    classifier, regressor = linear_model.LogisticRegression(), linear_model.LinearRegression()
    wrappers = [
        multiclass.OneVsOneClassifier(classifier),
        multiclass.OneVsRestClassifier(classifier),
        multiclass.OutputCodeClassifier(classifier, 2),
        imblearn.ChebyshevOverSampler(regressor),
        imblearn.HardSamplingRegressor(regressor, size=2, p=0.5),
        imblearn.RandomUnderSampler(classifier, {True: 0.5, False: 0.5}),
        preprocessing.PredClipper(regressor, 0, 1),
        preprocessing.TargetStandardScaler(regressor),
    ]
    for wrapper in wrappers:
        assert wrapped_model(wrapper) is wrapper._wrapped_model
        assert type(decode(encode(wrapper))) is type(wrapper)


def test_arguments_are_those_that_river_clones_with() -> None:
    for model in (
        preprocessing.StandardScaler(),
        linear_model.LinearRegression(),
        preprocessing.PredClipper(linear_model.LinearRegression(), 0, 1),
    ):
        assert str(parameters_of(model)) == str(model._get_params())


@pytest.mark.parametrize("name", baselines().classes)
def test_a_baseline_classifier_is_wrapped_unless_it_has_several_classes(name: str) -> None:
    kind = baselines().classes[name]
    if issubclass(kind, base.Classifier):
        assert kind()._multiclass == (kind is linear_model.SoftmaxRegression)


def test_transformers_that_learn_from_targets_get_them() -> None:
    kinds = [*transformers().classes.values(), feature_extraction.TargetAgg]
    for kind in kinds:
        if "_supervised" in dir(kind) and not inspect.isabstract(kind):
            supervised = kind._supervised.fget(None)
            assert supervised == ("y" in inspect.signature(kind.learn_one).parameters), kind
    step = OnFields(compose.TransformerUnion(preprocessing.StandardScaler(), preprocessing.MinMaxScaler()), "numbers")
    step.learn_one({"x": 1.0}, 2.0)
    assert not step._supervised
