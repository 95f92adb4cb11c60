"""The features that a model takes by its checks, beside the best fixed cap in hindsight, on twenty streams of suite B.

Each event is predicted, then learned, by an estimator with no argument but ``--learner``, and by the same with each cap
from 64 to 8,192. A cap is good if its error (of classes, or the mean square) is within 1 % of the smallest one. The
table has the features at the end, the smallest good cap and their ratio, and the error over the smallest one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.common import arguments, show
from benchmarks.prequential import predicted
from benchmarks.scenarios import CLASSES
from benchmarks.suite_b_streams import SUITE_B
from streamkernel import KernelClassifier, KernelRegressor

CAPS = [1 << power for power in range(6, 14)]
NAMES = (
    "xor", "checkerboard", "waves", "clusters", "rare", "turning", "visitors", "agrawal_6", "random_tree", "hastie",
    "hyperplane_20", "photographs", "counts", "heavy_tails", "skewed", "boxes", "towns", "terrain", "pixels",
    "recurring",
)  # fmt: skip
GOOD, NEAR, FAR = 1.01, 2.0, 4.0


def error(events: list[Any], model: Any) -> float:
    """Return the share of wrong classes, or the mean squared error."""
    pairs = zip(predicted(model, events), events, strict=True)
    is_classifier = isinstance(model, KernelClassifier)
    return float(np.mean([p != y if is_classifier else (p - y) ** 2 for p, (_, y) in pairs]))


def main() -> None:
    """Print the table, and on how many streams the targets are met."""
    options = arguments(__doc__, learner="newton", events=5000)
    rows, ratios, excesses = [], [], []
    for name in NAMES:
        stream = SUITE_B[name]
        events = stream.events(0, options.events)
        estimator = KernelClassifier if stream.task == CLASSES else KernelRegressor
        model = estimator(learner=options.learner)
        ours = error(events, model)
        by_cap = {cap: error(events, estimator(learner=options.learner, max_features=cap)) for cap in CAPS}
        best = min(by_cap.values())
        smallest = next(cap for cap, one in by_cap.items() if one <= GOOD * best)
        ratios.append(model.n_features / smallest)
        excesses.append(ours / best)
        cells = f"{model.n_features:,}", f"{smallest:,}", f"{ratios[-1]:.2f}", f"{excesses[-1]:.3f}"
        rows.append([name, *cells])
    columns = ["stream", "features at the end", "smallest good cap", "ratio", "error over the best cap's"]
    show(f'learner="{options.learner}", {options.events:,} events', columns, rows)
    n, far = len(rows), np.array(ratios)
    print(
        f"at most {NEAR:g} times the smallest good cap on {(far <= NEAR).sum()} of {n}, at most {FAR:g} times on "
        f"{(far <= FAR).sum()}; error within 1 % of the best cap's on {(np.array(excesses) <= GOOD).sum()}"
    )


if __name__ == "__main__":
    main()
