"""Events a second on Phishing, predict_one + learn_one in one thread, beside River's linear and RBFSampler models.

Ours is there with no arguments, which is second-order, and first-order; the ratios are of the first-order one.
"""

from __future__ import annotations

import statistics

from river import base, datasets, feature_extraction, linear_model, preprocessing

from benchmarks.common import arguments, interleaved, ratio, seconds, show
from streamkernel import KernelClassifier


def main() -> None:
    """Print the medians, and ours over each peer's pair by pair."""
    options = arguments(__doc__, runs=9)
    data = list(datasets.Phishing())

    def rate(model: base.Classifier, passes: int) -> float:
        def job() -> None:
            for _ in range(passes):
                for x, y in data:
                    model.predict_one(x)
                    model.learn_one(x, y)

        return passes * len(data) / seconds(job)

    scaler = preprocessing.StandardScaler
    ours = KernelClassifier(learner="dsg")
    default = KernelClassifier()
    linear = scaler() | linear_model.LogisticRegression()
    sampler = feature_extraction.RBFSampler(n_components=100, seed=1) | linear_model.LogisticRegression()
    rate(ours, 1)
    rate(default, 3)  # its steps have their full length from 2,048 events on
    rates = interleaved(
        options.runs,
        lambda: rate(ours, 8),
        lambda: rate(default, 1),
        lambda: rate(linear, 8),
        lambda: rate(sampler, 1),
    )
    names = [
        "KernelClassifier(learner='dsg'), 1,024 features",
        "KernelClassifier()",
        "StandardScaler | LogisticRegression",
        "RBFSampler(100) | LogisticRegression",
    ]
    rows = [
        [name, f"{statistics.median(found):,.0f}", f"{ratio(rates[0], found):.2f}"]
        for name, found in zip(names, rates, strict=True)
    ]
    show("Phishing, 9 fields", ["model", "events/s", "first-order ours / it"], rows)


if __name__ == "__main__":
    main()
