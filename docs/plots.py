"""The pictures of docs/how_to/plots.md: ``python -m docs.plots`` draws them."""

from __future__ import annotations

import math
import random
from pathlib import Path

from matplotlib.figure import Figure
from river import datasets, evaluate, linear_model, metrics, preprocessing
from river.datasets import synth

from streamkernel import GaussianProcessRegressor, KernelClassifier, KernelRegressor, plot

PICTURE = Path(__file__).parent / "images" / "plots.png"


def main() -> None:
    """Draw all five."""
    figure = Figure(figsize=(15, 8.5), layout="constrained")
    grid = figure.add_gridspec(2, 6)
    places = [grid[0, 0:2], grid[0, 2:4], grid[0, 4:6], grid[1, 0:2], grid[1, 2:6]]
    curve, bars, reliability, band, mixture = (figure.add_subplot(place) for place in places)

    linear = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    curves = {}
    for name, model in {"KernelClassifier": KernelClassifier(), "LogisticRegression": linear}.items():
        steps = evaluate.iter_progressive_val_score(datasets.Bananas(), model, metrics.Accuracy(), step=50)
        curves[name] = [(step["Step"], step["Accuracy"].get()) for step in steps]
    plot.learning_curve(curves, recent=5, ax=curve).set(title="learning_curve: Bananas", ylabel="accuracy")

    drifting, history = KernelRegressor(), []
    for n, (x, y) in enumerate(synth.FriedmanDrift(position=(3000, 5000, 7000), seed=1).take(9000), start=1):
        drifting.learn_one(x, y)
        if n % 100 == 0:
            history.append((n, drifting.n_features, drifting.mixture_weights))
    plot.importances(drifting, ax=bars).set_title("importances: Friedman with drift")
    plot.groups(history, ax=mixture).set_title("groups: Friedman with drift at 3,000, 5,000 and 7,000 events")

    classifier, happened, said = KernelClassifier(), [], []
    for x, y in datasets.Phishing():
        if classifier.labels:
            happened.append(y)
            said.append(classifier.predict_proba_one(x).get(True, 0.0))
        classifier.learn_one(x, y)
    plot.calibration(happened, said, ax=reliability).set_title("calibration: Phishing")

    rng, process, points = random.Random(1), GaussianProcessRegressor(), []
    for i in range(600):
        x = rng.uniform(0.0, 10.0)
        y = x * math.sin(x) / 3.0 + rng.gauss(0.0, 0.4)
        if i >= 300:
            found = process.predict_one({"x": x}, with_dist=True)
            points.append((x, found.mu - 1.645 * found.sigma, found.mu + 1.645 * found.sigma, y, found.mu))
        process.learn_one({"x": x}, y)
    x, lower, upper, y, mean = zip(*points, strict=True)
    plot.interval_band(x, lower, upper, y=y, prediction=mean, ax=band).set_title("interval_band: 90% intervals")
    figure.savefig(PICTURE, dpi=80)


if __name__ == "__main__":
    main()
