"""Quantiles of streams, untuned: prequential coverage and pinball loss, beside River's models.

The rivals are a linear regression with the pinball loss behind the same scaler, the same with its targets scaled too,
and the running quantile of all targets, whatever the features. The last table is of the same targets in other units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rich.progress import track
from river import datasets, linear_model, optim, preprocessing, stats
from river.datasets import synth

from benchmarks.common import arguments, show
from streamkernel import KernelRegressor, losses

TAUS = 0.05, 0.1, 0.5, 0.9, 0.95
UNITS = 1e4, 1e-3

Example = tuple[dict[str, Any], float]


class RunningQuantile:
    """The quantile of the targets so far."""

    def __init__(self, tau: float) -> None:
        self.quantile = stats.Quantile(tau)

    def predict_one(self, x: dict[str, Any]) -> float:
        """Return the quantile, 0 before the first target."""
        return self.quantile.get() or 0.0

    def learn_one(self, x: dict[str, Any], y: float) -> None:
        """Count a target."""
        self.quantile.update(y)


def ours(tau: float) -> Any:
    """Return our model."""
    return preprocessing.StandardScaler() | KernelRegressor(learner="dsg", loss="quantile", tau=tau)


def linear(tau: float) -> Any:
    """Return River's linear model."""
    return preprocessing.StandardScaler() | linear_model.LinearRegression(loss=optim.losses.Quantile(tau))


def scaled(tau: float) -> Any:
    """Return River's linear model, with the targets scaled for it."""
    return preprocessing.TargetStandardScaler(linear(tau))


def streams(events: int) -> dict[str, list[Example]]:
    """Return the streams by name."""
    drift = synth.FriedmanDrift(drift_type="gra", position=(events // 3, 2 * events // 3), seed=1)
    found: dict[str, Iterable[Example]] = {
        "Friedman": synth.Friedman(seed=1).take(events),
        "drifting": drift.take(events),
        "Planes": synth.Planes2D(seed=1).take(events),
        "TrumpApproval": datasets.TrumpApproval(),
        "ChickWeights": datasets.ChickWeights(),
    }
    return {name: list(stream) for name, stream in found.items()}


def prequential(model: Any, stream: Iterable[Example], tau: float, unit: float = 1.0) -> tuple[float, float]:
    """Return the share of targets that were not above their prediction, and the mean pinball loss."""
    pinball = losses.Quantile(tau)
    below = total = n = 0.0
    for x, y in stream:
        target = unit * y
        predicted = model.predict_one(x)
        below += target <= predicted
        total += pinball.value(predicted, target)
        n += 1
        model.learn_one(x, target)
    return below / n, total / n


def main() -> None:
    """Print coverage and pinball loss, with the ratios of ours to the rivals'."""
    options = arguments(__doc__, events=20_000)
    rivals: list[Callable[[float], Any]] = [linear, scaled, RunningQuantile]
    table, units = [], []
    for name, stream in track(streams(options.events).items(), description="streams"):
        for tau in TAUS:
            coverage, loss = prequential(ours(tau), stream, tau)
            others = [prequential(rival(tau), stream, tau) for rival in rivals]
            shares = (f"{other:.3f}" for other, _ in [(coverage, loss), *others])
            ratios = (f"{loss / other:.2f}" for _, other in others)
            table.append([name, str(tau), *shares, f"{loss:.4g}", *ratios])
            if tau == 0.9:
                others = [prequential(ours(tau), stream, tau, unit) for unit in UNITS]
                units.append(
                    [name, *(f"{other / unit / loss:.6f}" for (_, other), unit in zip(others, UNITS, strict=True))]
                )
    show(
        "Share of targets below the τ-quantile, and mean pinball loss",
        ["", "τ", "ours", "linear", "scaled", "running", "our loss", "/ linear", "/ scaled", "/ running"],
        table,
    )
    show("Pinball loss of τ = 0.9, relative", ["targets in units of", *(f"{1 / unit:g}" for unit in UNITS)], units)


if __name__ == "__main__":
    main()
