"""Pictures of models and of runs, with matplotlib, which this needs: ``pip install 'streamkernel[plot]'``.

Each function draws into `ax`, by default into a new figure, and returns the axes, which can then be changed as any.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from streamkernel.documentation import documented

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["calibration", "groups", "importances", "interval_band", "learning_curve"]

Points = Iterable[tuple[float, Any]]

AXES = """
Parameters
----------
ax : matplotlib.axes.Axes or None, default None
    The axes to draw into.

Returns
-------
matplotlib.axes.Axes
    The axes.
"""
"""Parts of docstrings that the functions have in common."""


@documented(AXES)
def learning_curve(curves: Points | Mapping[str, Points], *, recent: int = 0, ax: Axes | None = None) -> Axes:
    """Draw a metric against the number of events.

    Parameters
    ----------
    curves : iterable of pairs, or mapping of names to such
        The number of events and the metric after them: a number, or a metric of River, whose value is taken when the
        point comes.
    recent : int, default 0
        Points over which the recent metric is drawn too, faintly; 0 for none. The metric has to be a mean over all
        events, such as accuracy or the mean absolute error.

    Examples
    --------
    >>> from streamkernel import plot
    >>> ax = plot.learning_curve({"model": [(100, 0.7), (200, 0.8), (300, 0.85)]}, recent=1)
    >>> ax.get_legend_handles_labels()[1]
    ['model: 0.85']
    """
    ax = _axes(ax)
    named = curves if isinstance(curves, Mapping) else {"": curves}
    for name, points in named.items():
        events, values = _numbers(points)
        label = f"{name}: {values[-1]:.3g}" if name and len(values) else None
        (line,) = ax.plot(events, values, linewidth=2, label=label)
        if recent:
            sums = events * values
            n, gained = events[recent:] - events[:-recent], sums[recent:] - sums[:-recent]
            ax.plot(events[recent:][n > 0], gained[n > 0] / n[n > 0], color=line.get_color(), alpha=0.3, linewidth=0.8)
    ax.set_xlabel("events")
    return _finished(ax)


@documented(AXES)
def importances(model: Any, *, most: int = 20, ax: Axes | None = None) -> Axes:
    """Draw how much each field matters to a model, as bars, the largest on top.

    Parameters
    ----------
    model : estimator or mapping
        A model with `feature_importances_`, of :mod:`streamkernel` or :mod:`streamkernel.sklearn`; or shares by name.
    most : int, default 20
        Fields at most.

    Raises
    ------
    AttributeError
        If the model has no importances (yet).

    Examples
    --------
    >>> from streamkernel import plot
    >>> ax = plot.importances({"age": 0.2, "income": 0.7, "colour": 0.1}, most=2)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['age', 'income']
    """
    ax = _axes(ax)
    shares: Mapping[Hashable, float]
    shares = model if isinstance(model, Mapping) else getattr(model, "model_", model).feature_importances_
    kept = sorted(shares.items(), key=lambda item: item[1], reverse=True)[:most][::-1]
    bars = ax.barh([str(name) for name, _ in kept], [share for _, share in kept], height=0.7)
    ax.bar_label(bars, [f"{share:.0%}" for _, share in kept], padding=3, fontsize="small")
    ax.margins(x=0.12)
    ax.set_xlabel("importance")
    return _finished(ax, grid="x")


@documented(AXES)
def calibration(
    y: npt.ArrayLike, probability: npt.ArrayLike, *, bins: int = 10, label: str = "", ax: Axes | None = None
) -> Axes:
    """Draw how often events happened against how probable they were said to be: a reliability diagram.

    Bars are two standard errors of the shares, by the binomial distribution. Bins without predictions are left out.

    Parameters
    ----------
    y : array_like of bool, shape (events,)
        Whether each event happened.
    probability : array_like of float, shape (events,)
        The predicted probability of the event.
    bins : int, default 10
        Bins of probabilities, of one width.
    label : str, default ""
        Name of the model, for the legend.

    Raises
    ------
    ValueError
        If there are not as many of both, or a probability is not between 0 and 1.

    Examples
    --------
    >>> from streamkernel import plot
    >>> ax = plot.calibration([True, False, True, True], [0.9, 0.2, 0.8, 0.7], bins=2)
    >>> [[float(round(v, 2)) for v in xy] for xy in ax.lines[1].get_xydata()]
    [[0.2, 0.0], [0.8, 1.0]]
    """
    happened, p = np.asarray(y, np.float64), np.asarray(probability, np.float64)
    if happened.shape != p.shape or p.ndim != 1 or not ((p >= 0.0) & (p <= 1.0)).all():
        got = f"{p.shape} and {happened.shape}" if happened.shape != p.shape or p.ndim != 1 else "another number"
        raise ValueError(f"Expected as many probabilities from 0 to 1 as events, got {got}")
    ax = _axes(ax)
    in_bin = np.minimum((p * bins).astype(int), bins - 1)
    n = np.bincount(in_bin, minlength=bins)
    kept = n > 0
    n = n[kept]
    predicted, share = (np.bincount(in_bin, values, bins)[kept] / n for values in (p, happened))
    error = 2.0 * np.sqrt(share * (1.0 - share) / n)
    ax.plot([0.0, 1.0], [0.0, 1.0], color="0.6", linewidth=1, linestyle="--", zorder=1)
    below, above = np.minimum(error, share), np.minimum(error, 1.0 - share)
    ax.errorbar(predicted, share, (below, above), marker="o", capsize=2, linewidth=1.5, label=label or None)
    ax.set(xlabel="predicted probability", ylabel="share that happened", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    ax.set_aspect("equal")
    return _finished(ax)


@documented(AXES)
def groups(history: Iterable[tuple[float, int, Mapping[str, float]]], *, ax: Axes | None = None) -> Axes:
    """Draw the weights of the functions in a mixture while it learns, and behind them the number of its features.

    Parameters
    ----------
    history : iterable of triples
        The number of events, and the model's `n_features` and `mixture_weights` after them.
    ax : matplotlib.axes.Axes or None, default None
        The axes to draw into; the features have an axis of their own at the right.

    Examples
    --------
    >>> from streamkernel import KernelRegressor, plot
    >>> model, history = KernelRegressor(max_features=64), []
    >>> for i in range(100):
    ...     model.learn_one({"x": i % 7}, float(i % 7))
    ...     history.append((i + 1, model.n_features, model.mixture_weights))
    >>> plot.groups(history).get_legend_handles_labels()[1]
    ['newton', 'constant', 'level', 'linear', 'neighbours']
    """
    ax = _axes(ax)
    points = list(history)
    events, features = [n for n, _, _ in points], [count for _, count, _ in points]
    behind = ax.twinx()
    behind.fill_between(events, features, step="post", color="0.5", alpha=0.18, linewidth=0)
    behind.set_ylabel("random features", color="0.5")
    behind.tick_params(axis="y", colors="0.5")
    behind.set_ylim(0, max([*features, 1]) * 1.1)
    behind.spines[["top", "left"]].set_visible(False)
    ax.set_zorder(behind.get_zorder() + 1)
    ax.patch.set_visible(False)
    for name in dict.fromkeys(name for _, _, weights in points for name in weights):
        ax.plot(events, [weights.get(name, 0.0) for _, _, weights in points], label=name, linewidth=1.8)
    ax.set(xlabel="events", ylabel="weight in the mixture")
    return _finished(ax)


@documented(AXES)
def interval_band(
    x: npt.ArrayLike,
    lower: npt.ArrayLike,
    upper: npt.ArrayLike,
    *,
    y: npt.ArrayLike | None = None,
    prediction: npt.ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw prediction intervals as a band, with targets as points, of which those outside have another colour.

    Parameters
    ----------
    x : array_like of shape (events,)
        Where: a feature, or the number of the event; in any order.
    lower, upper : array_like of float, shape (events,)
        The intervals.
    y : array_like of float, shape (events,), or None, default None
        The targets.
    prediction : array_like of float, shape (events,), or None, default None
        The predictions.

    Raises
    ------
    ValueError
        If they are not of one length.

    Examples
    --------
    >>> from streamkernel import plot
    >>> ax = plot.interval_band([1, 2, 3], [0, 1, 2], [2, 3, 4], y=[1.0, 2.5, 9.0])
    >>> ax.get_legend_handles_labels()[1]
    ['interval, covers 66.7%', 'outside']
    """
    ax = _axes(ax)
    places = np.asarray(x)
    order = np.argsort(places, kind="stable")
    low, high = np.asarray(lower, np.float64), np.asarray(upper, np.float64)
    series = {"lower": low, "upper": high, "y": y, "prediction": prediction}
    for name, values in series.items():
        if values is not None and np.shape(values) != places.shape:
            raise ValueError(f"Expected as many numbers as places, {places.shape}, got {np.shape(values)} - at {name}")
    band = ax.fill_between(
        places[order], low[order], high[order], color="C0", alpha=0.22, linewidth=0, label="interval"
    )
    if prediction is not None:
        ax.plot(places[order], np.asarray(prediction)[order], color="C0", linewidth=1.6, label="prediction")
    if y is not None:
        targets = np.asarray(y, np.float64)
        inside = (low <= targets) & (targets <= high)
        band.set_label(f"interval, covers {inside.mean():.1%}")
        ax.scatter(places[inside], targets[inside], s=8, color="0.35", linewidths=0, zorder=3)
        ax.scatter(places[~inside], targets[~inside], s=16, color="C3", linewidths=0, zorder=4, label="outside")
    return _finished(ax)


def _numbers(points: Points) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return numbers of events and the values of a metric."""
    try:
        pairs = [(n, value.get() if hasattr(value, "get") else value) for n, value in points]
    except (TypeError, ValueError):
        raise ValueError("Expected pairs of a number of events and a metric as points, got something else") from None
    table = np.array(pairs, np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _axes(ax: Axes | None) -> Axes:
    """Return the axes to draw into."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]


def _finished(ax: Axes, grid: Literal["both", "x", "y"] = "both") -> Axes:
    """Return axes in the common style: a faint grid, no frame, and a legend if there are labels."""
    ax.grid(visible=True, axis=grid, alpha=0.3)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    if ax.get_legend_handles_labels()[1]:
        ax.legend(frameon=False, fontsize="small")
    return ax
