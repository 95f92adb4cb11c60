"""Bananas, prequential accuracy with untuned defaults, first-order ones, and River's linear and tree models."""

from __future__ import annotations

from river import base, datasets, evaluate, linear_model, metrics, neighbors, preprocessing, tree

from benchmarks.common import arguments, show
from streamkernel import KernelClassifier


def main() -> None:
    """Print the accuracy of each model."""
    arguments(__doc__)
    models: dict[str, base.Classifier] = {
        "KernelClassifier()": KernelClassifier(),
        "KernelClassifier(learner='dsg')": KernelClassifier(learner="dsg"),
        "StandardScaler | KernelClassifier(learner='dsg')": (
            preprocessing.StandardScaler() | KernelClassifier(learner="dsg")
        ),
        "StandardScaler | LogisticRegression": preprocessing.StandardScaler() | linear_model.LogisticRegression(),
        "HoeffdingTreeClassifier": tree.HoeffdingTreeClassifier(),
        "KNNClassifier": neighbors.KNNClassifier(),
    }
    for seed in (1, 2, 3, 4):
        models[f"KernelClassifier(seed={seed})"] = KernelClassifier(seed=seed)
        models[f"KernelClassifier(seed={seed}, learner='dsg')"] = KernelClassifier(learner="dsg", seed=seed)
    rows = []
    for name, model in models.items():
        metric = evaluate.progressive_val_score(datasets.Bananas(), model, metrics.Accuracy())
        rows.append([name, f"{metric.get():.4f}"])
    show("Bananas, 5,300 events", ["model", "prequential accuracy"], rows)


if __name__ == "__main__":
    main()
