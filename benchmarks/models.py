"""The models that ``benchmarks.accuracy`` compares, with the defaults of their libraries, by permanent names.

What has a linear model, neighbours or a kernel in it has a StandardScaler in front, and so have the targets of what
learns them by gradients alone; Mondrian trees split wide inputs more often, so that they have one too. Classification
trees and naive Bayes need neither, regression trees have linear models in their leaves. Ours are called with no
arguments and have nothing in front. MOA's learners are in ``benchmarks.rivals.moa``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from river import dummy, ensemble, forest, linear_model, multiclass, naive_bayes, neighbors, stats, tree
from river.preprocessing import StandardScaler, TargetStandardScaler

from benchmarks.rivals.vowpal import VowpalClassifier, VowpalRegressor
from benchmarks.scenarios import CLASSES, NUMBERS
from streamkernel import KernelClassifier, KernelRegressor


class Size(NamedTuple):
    """The numbers of inputs and classes, which some rivals must know before the first event."""

    inputs: int
    classes: int


Make = Callable[[Size], Any]

OURS = {CLASSES: "KernelClassifier()", NUMBERS: "KernelRegressor()"}
LAST = "last label"
BASELINES = {CLASSES: ["majority", LAST], NUMBERS: ["mean", LAST]}


def ksvm(size: Size) -> Any:
    """Return Vowpal Wabbit's kernel machine, with scikit-learn's default bandwidth, 1/d of scaled inputs."""
    machine = VowpalClassifier(f"--ksvm --kernel rbf --bandwidth {1.0 / size.inputs}")
    return StandardScaler() | (machine if size.classes <= 2 else multiclass.OneVsRestClassifier(machine))


MODELS: dict[str, dict[str, Make]] = {
    CLASSES: {
        "KernelClassifier()": lambda size: KernelClassifier(),
        "LogisticRegression": lambda size: (
            StandardScaler()
            | (
                linear_model.LogisticRegression()
                if size.classes <= 2
                else multiclass.OneVsRestClassifier(linear_model.LogisticRegression())
            )
        ),
        "GaussianNB": lambda size: naive_bayes.GaussianNB(),
        "KNNClassifier": lambda size: StandardScaler() | neighbors.KNNClassifier(),
        "HoeffdingTreeClassifier": lambda size: tree.HoeffdingTreeClassifier(),
        "HoeffdingAdaptiveTreeClassifier": lambda size: tree.HoeffdingAdaptiveTreeClassifier(seed=1),
        "ARFClassifier(10)": lambda size: forest.ARFClassifier(n_models=10, seed=1),
        "SRPClassifier(10)": lambda size: ensemble.SRPClassifier(n_models=10, seed=1),
        "AMFClassifier(10)": lambda size: StandardScaler() | forest.AMFClassifier(n_estimators=10, seed=1),
        "ALMAClassifier": lambda size: StandardScaler() | multiclass.OneVsRestClassifier(linear_model.ALMAClassifier()),
        "VW linear": lambda size: StandardScaler() | VowpalClassifier("--loss_function logistic", size.classes),
        "VW --nn 20": lambda size: (
            StandardScaler() | VowpalClassifier("--loss_function logistic --nn 20", size.classes)
        ),
        "VW --ksvm": ksvm,
        "majority": lambda size: dummy.PriorClassifier(),
        LAST: lambda size: dummy.NoChangeClassifier(),
    },
    NUMBERS: {
        "KernelRegressor()": lambda size: KernelRegressor(),
        "LinearRegression": lambda size: StandardScaler() | TargetStandardScaler(linear_model.LinearRegression()),
        "KNNRegressor": lambda size: StandardScaler() | neighbors.KNNRegressor(),
        "HoeffdingTreeRegressor": lambda size: StandardScaler() | tree.HoeffdingTreeRegressor(),
        "HoeffdingAdaptiveTreeRegressor": lambda size: StandardScaler() | tree.HoeffdingAdaptiveTreeRegressor(seed=1),
        "ARFRegressor(10)": lambda size: StandardScaler() | forest.ARFRegressor(n_models=10, seed=1),
        "SRPRegressor(10)": lambda size: StandardScaler() | ensemble.SRPRegressor(n_models=10, seed=1),
        "AMFRegressor(10)": lambda size: StandardScaler() | forest.AMFRegressor(n_estimators=10, seed=1),
        "VW linear": lambda size: StandardScaler() | TargetStandardScaler(VowpalRegressor()),
        "VW --nn 20": lambda size: StandardScaler() | TargetStandardScaler(VowpalRegressor("--nn 20")),
        "mean": lambda size: dummy.StatisticRegressor(stats.Mean()),
        LAST: lambda size: dummy.StatisticRegressor(stats.EWMean(fading_factor=1.0)),
    },
}
