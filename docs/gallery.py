"""The pictures of docs/reference/kernels_and_losses.md, one of each kernel and each loss: ``python docs/gallery.py``.

All is seeded, so that a second run writes the same files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from streamkernel import KernelClassifier, KernelRegressor, RandomFeatures, kernels, learners, losses

F64 = npt.NDArray[np.float64]
Event = Callable[[float], dict[str, float]]

FOLDER = Path(__file__).parent / "reference" / "pictures"
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"  # Okabe and Ito: colour-blind readers tell them
STYLE: dict[str, Any] = {
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
FEATURES = 300
NEAR = kernels.Gaussian(0.5)


def alone(v: float) -> dict[str, float]:
    """Return an event with one input."""
    return {"a": v}


def with_one(v: float) -> dict[str, float]:
    """Return an event with an input that is always 1."""
    return {"a": v, "1": 1.0}


def shares(v: float) -> dict[str, float]:
    """Return a histogram of two bins."""
    return {"a": v, "b": 1.0 - v}


def on_circle(v: float) -> dict[str, float]:
    """Return a point of the unit circle."""
    return {"a": math.cos(v), "b": math.sin(v)}


@dataclass(frozen=True)
class KernelPicture:
    """A kernel, the events along which it is drawn, and what `v` is then."""

    kernel: kernels.Kernel
    span: tuple[float, float] = (-2.0, 2.0)
    event: Event = alone
    label: str = "x"


COUNTS, SHARES = (0.0, 4.0), ((0.0, 1.0), shares, "share of a; the rest is b")
EXPONENTIAL = [1.0 / math.factorial(n) for n in range(12)]
KERNELS = {
    "gaussian": KernelPicture(NEAR),
    "laplacian": KernelPicture(kernels.Laplacian(0.5)),
    "cauchy": KernelPicture(kernels.Cauchy(0.5)),
    "matern": KernelPicture(kernels.Matern(1.5, 0.5)),
    "dot_product": KernelPicture(kernels.DotProduct(EXPONENTIAL), (-1.5, 1.5)),
    "polynomial": KernelPicture(kernels.Polynomial(3), (-1.5, 1.5)),
    "arc_cosine": KernelPicture(kernels.ArcCosine(1), (-2.0, 2.0), with_one, "x, beside an input that is always 1"),
    "hellinger": KernelPicture(kernels.Hellinger(), *SHARES),
    "chi_squared": KernelPicture(kernels.ChiSquared(), *SHARES),
    "intersection": KernelPicture(kernels.Intersection(), *SHARES),
    "jensen_shannon": KernelPicture(kernels.JensenShannon(), *SHARES),
    "skewed_chi_squared": KernelPicture(kernels.SkewedChiSquared(0.1), COUNTS),
    "skewed_intersection": KernelPicture(kernels.SkewedIntersection(0.5), COUNTS),
    "exponential_semigroup": KernelPicture(kernels.ExponentialSemigroup(1.0), COUNTS),
    "reciprocal_semigroup": KernelPicture(kernels.ReciprocalSemigroup(0.5), COUNTS),
    "multi_scale": KernelPicture(kernels.MultiScale(NEAR)),
    "sum": KernelPicture(kernels.Gaussian(0.3) + kernels.Gaussian(3.0)),
    "product": KernelPicture(NEAR * kernels.DotProduct()),
    "scaled": KernelPicture(2.0 * NEAR),
    "on": KernelPicture(NEAR.on("a")),
    "of": KernelPicture(NEAR.of("unit"), (-math.pi, math.pi), on_circle, "angle of x, in radians"),
}


def draw_kernel(picture: KernelPicture) -> Figure:
    """Draw k(x, x') with its estimate, k of two inputs, and a function that is learned with it."""
    figure, (one, two, three) = panels(3)
    low, high = picture.span
    v = np.linspace(low, high, 161)
    table = pd.DataFrame([picture.event(a) for a in v])
    z = RandomFeatures(picture.kernel, n_features=FEATURES).transform_many(table).to_numpy()
    for at, color in ((40, BLUE), (104, ORANGE)):
        x2 = picture.event(v[at])
        one.plot(v, [picture.kernel(picture.event(a), x2) for a in v], color=color)
        one.plot(v, z @ z[at], color=color, linestyle=(0, (1, 1)), linewidth=1.2)
        one.axvline(v[at], color=color, linewidth=0.7, alpha=0.5)
    one.set(title=f"k(x, x′); dotted: {FEATURES} features", xlabel=picture.label)

    low, high = (-2.0, 2.0) if picture.event is on_circle else picture.span
    side, star = np.linspace(low, high, 41), {"a": low + 0.7 * (high - low), "b": low + 0.3 * (high - low)}
    values = [[picture.kernel({"a": a, "b": b}, star) for a in side] for b in side]
    figure.colorbar(two.contourf(side, side, values, levels=12, cmap="cividis"), ax=two)
    two.plot(star["a"], star["b"], marker="*", color="white", markersize=9, markeredgecolor="black")
    two.set(title="k(x, ★) of two inputs", xlabel="a", ylabel="b")

    rng = np.random.default_rng(1)
    u = rng.uniform(0.0, 1.0, 1000)
    events, y = picture.span[0] + (picture.span[1] - picture.span[0]) * u, wave(u) + 0.2 * rng.standard_normal(1000)
    model = KernelRegressor(picture.kernel, learner="dsg", max_features=512)
    for a, target in zip(events, y, strict=True):
        model.learn_one(picture.event(a), target)
    three.plot(events[:300], y[:300], ".", color=GREY, markersize=2, alpha=0.6)
    three.plot(v, wave(np.linspace(0.0, 1.0, 161)), color=GREY, linestyle="--", linewidth=1, label="truth")
    three.plot(v, [model.predict_one(picture.event(a)) for a in v], color=BLUE, label="learned")
    three.set(title="learned from 1,000 events", xlabel=picture.label, ylim=(-1.7, 1.7))
    three.legend(loc="lower right")
    return figure


def wave(u: F64) -> F64:
    """Return a smooth function with one jump."""
    return np.where(u < 0.7, np.sin(12.0 * u - 6.0), 0.8)


@dataclass(frozen=True)
class LossPicture:
    """A loss, the one it is drawn beside, and how f is passed to it: as its scores, the one on the axis among them."""

    loss: losses.Loss
    beside: losses.Loss
    classes: int = 2

    def scores(self, f: float) -> list[float]:
        """Return the scores of all columns."""
        return [f] if self.classes == 2 else [f] + [0.0] * (self.classes - 1)


LOGISTIC, SQUARE = losses.Logistic(), losses.Square()
LOSSES = {
    "logistic": LossPicture(LOGISTIC, losses.Hinge()),
    "softmax": LossPicture(losses.Softmax(), losses.Hinge(), classes=3),
    "hinge": LossPicture(losses.Hinge(), LOGISTIC),
    "squared_hinge": LossPicture(losses.SquaredHinge(), LOGISTIC),
    "smooth_hinge": LossPicture(losses.SmoothHinge(), LOGISTIC),
    "sigmoid": LossPicture(losses.Sigmoid(), LOGISTIC),
    "square": LossPicture(SQUARE, losses.Huber(0.5)),
    "huber": LossPicture(losses.Huber(0.5), SQUARE),
    "epsilon_insensitive": LossPicture(losses.EpsilonInsensitive(0.5), SQUARE),
    "absolute": LossPicture(losses.Absolute(), SQUARE),
    "quantile": LossPicture(losses.Quantile(0.9), SQUARE),
    "correntropy": LossPicture(losses.Correntropy(1.0), SQUARE),
}


def draw_loss(picture: LossPicture) -> Figure:
    """Draw ℓ and its derivative, and what is learned with it."""
    figure, (one, two) = panels(2)
    loss, f = picture.loss, np.linspace(-3.0, 3.0, 301)
    y = 0.0 if not loss.for_classes or picture.classes > 2 else 1.0
    one.plot(f, [loss.value(picture.scores(a), y) for a in f], color=BLUE, label="ℓ")
    one.plot(
        f, [loss.derivative(picture.scores(a), y)[0] for a in f], color=ORANGE, linestyle="--", label="its derivative"
    )
    label = "r = f - y" if not loss.for_classes else "f of the true class, 0 for the others" if y == 0.0 else "y f"
    one.axhline(0.0, color=GREY, linewidth=0.7)
    one.set(title="the loss", xlabel=label, ylim=(-2.2, 4.2))
    one.legend()
    (_learned_classes if loss.for_classes else _learned_numbers)(two, picture)
    two.legend(ncols=3, loc="upper center")
    two.set_xlabel("x")
    return figure


def _learned_numbers(axis: Axes, picture: LossPicture) -> None:
    """Draw a regressor's function on a stream with outliers above."""
    rng = np.random.default_rng(2)
    x = rng.uniform(-2.0, 2.0, 3000)
    far = np.where(rng.uniform(size=3000) < 0.1, rng.uniform(2.0, 6.0, 3000), 0.0)
    y = np.sin(2.0 * x) + 0.25 * rng.standard_normal(3000) + far
    v = np.linspace(-2.0, 2.0, 161)
    axis.plot(x[:500], y[:500], ".", color=GREY, markersize=2, alpha=0.6)
    axis.plot(v, np.sin(2.0 * v), color=GREY, linestyle="--", linewidth=1, label="without the outliers")
    for loss, color, width in ((picture.beside, ORANGE, 1.0), (picture.loss, BLUE, 1.8)):
        model = KernelRegressor(NEAR, learner=learners.DSG(averaging=True), loss=loss, max_features=512)
        for a, target in zip(x, y, strict=True):
            model.learn_one({"a": a}, target)
        axis.plot(v, [model.predict_one({"a": a}) for a in v], color=color, linewidth=width, label=shown(loss))
    axis.set(title="learned from 3,000 events, a tenth of them outliers", ylim=(-2.2, 7.5))


def _learned_classes(axis: Axes, picture: LossPicture) -> None:
    """Draw a classifier's probabilities of all classes but the last, and the true ones, on a stream with noise."""
    rng = np.random.default_rng(3)
    x, classes = rng.uniform(-2.0, 2.0, 3000), range(picture.classes)
    y = [int(rng.choice(picture.classes, p=true_probabilities(a, picture.classes))) for a in x]
    v = np.linspace(-2.0, 2.0, 161)
    colors = (BLUE, GREEN)
    for loss, width in ((picture.beside, 1.0), (picture.loss, 1.8)):
        model = KernelClassifier(NEAR, learner=learners.DSG(averaging=True), loss=loss, max_features=512)
        for a, label in zip(x, y, strict=True):
            model.learn_one({"a": a}, label)
        found = [model.predict_proba_one({"a": a}) for a in v]
        for c in classes[1:]:
            color = colors[c - 1] if loss is picture.loss else ORANGE
            name = shown(loss) if c == 1 else None
            axis.plot(v, [p[c] for p in found], color=color, linewidth=width, label=name)
    for c in classes[1:]:
        truth = [true_probabilities(a, picture.classes)[c] for a in v]
        axis.plot(v, truth, color=GREY, linestyle="--", linewidth=1, label="truth" if c == 1 else None)
    for c in classes:
        mine = x[:300][np.array(y[:300]) == c]
        axis.plot(mine, np.full(len(mine), -0.06 - 0.06 * c), "|", color=(GREY, *colors)[c], markersize=4)
    axis.set(title="predict_proba_one after 3,000 events; marks: events of each class", ylim=(-0.25, 1.2))


def true_probabilities(x: float, classes: int) -> F64:
    """Return the probability of each class at x."""
    scores = np.array([0.0, 2.0 * math.cos(2.0 * x), 2.0 * x])[:classes]
    e = np.exp(scores - scores.max())
    return np.asarray(e / e.sum())


def shown(loss: losses.Loss) -> str:
    """Return the name of a loss, with its parameter."""
    return type(loss).__name__ + (f"({loss.parameter:g})" if loss.parameter else "")


def panels(count: int) -> tuple[Figure, Sequence[Axes]]:
    """Return a white figure, which is readable on light and dark pages, with panels side by side."""
    figure = Figure(figsize=(9.6, 2.7), dpi=110, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, count, width_ratios=[1.0, 1.0, 1.2] if count == 3 else [1.0, 1.6])


def write(figure: Figure, path: Path) -> None:
    """Write a figure in 128 colours, which is a third of the bytes."""
    canvas: Any = figure.canvas
    canvas.draw()
    pixels = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    pixels.quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    """Draw all pictures."""
    FOLDER.mkdir(exist_ok=True)
    with mpl.rc_context(STYLE):
        for name, kernel in KERNELS.items():
            write(draw_kernel(kernel), FOLDER / f"kernel_{name}.png")
        for name, loss in LOSSES.items():
            write(draw_loss(loss), FOLDER / f"loss_{name}.png")


if __name__ == "__main__":
    main()
