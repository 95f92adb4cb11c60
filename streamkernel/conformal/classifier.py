"""A classifier with sets of labels as predictions."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from river import base

from streamkernel.conformal.rolling_scores import CONFORMAL, ConformalWrapper
from streamkernel.documentation import documented


@documented(CONFORMAL, {})
class ConformalClassifier(ConformalWrapper, base.Classifier):
    """Sets of labels that contain the true label for a given share of the examples, also under drift.

    A set contains the labels whose probability reaches a threshold: a quantile of the predicted probabilities of recent
    true labels. The quantile's level adapts: sets grow after a miss and shrink after a hit, by a step size that is
    chosen among eight from recent examples (DtACI).

    A set may be empty: if the most likely label is correct for more than `coverage` of the examples, the sets of the
    least certain examples are empty, so that the share of correct sets is `coverage` and not larger. A label that was
    never learned is in no set and counts as missed.

    Parameters
    ----------
    model : river.base.Classifier
        A River classifier with probabilities, or a pipeline that ends in one. It may also be the last step of a
        pipeline itself.

    References
    ----------
    Sadinle, Lei and Wasserman, "Least ambiguous set-valued classifiers with bounded error levels", JASA 2019.
    Gibbs and Candès, "Adaptive conformal inference under distribution shift", NeurIPS 2021.
    Gibbs and Candès, "Conformal inference for online prediction with arbitrary distribution shifts", JMLR 2024.

    Examples
    --------
    >>> from river import datasets, stats
    >>> from streamkernel import ConformalClassifier, KernelClassifier

    >>> model, inside = ConformalClassifier(KernelClassifier(), coverage=0.9), stats.Mean()
    >>> for x, y in datasets.Phishing():
    ...     inside.update(y in model.predict_set_one(x))
    ...     model.learn_one(x, y)
    >>> round(inside.get(), 2)
    0.9
    """

    _kind = base.Classifier

    def __init__(self, model: base.Classifier, coverage: float = 0.9, window: int = 250) -> None:
        super().__init__(model, coverage, window)

    def predict_proba_one(self, x: Mapping[Hashable, Any], **others: Any) -> Any:
        """Return the model's probabilities of the labels for one example.

        Parameters
        ----------
        x : dict
            The features by name, as for the model.
        **others : object
            Further arguments, which are passed to the model.
        """
        return self.model.predict_proba_one(x, **others)

    def predict_set_one(self, x: Mapping[Hashable, Any]) -> set[Any]:
        """Return the labels for one example that are likely enough.

        All known labels, before the first 1/(1 - coverage) examples.

        Parameters
        ----------
        x : dict
            The features by name, as for the model.
        """
        return labels_within(*self._with_threshold(self.model.predict_proba_one, x))

    def _distance(self, x: Mapping[Hashable, Any], y: Any) -> float:
        return improbability(y, self.model.predict_proba_one(x))

    @property
    def _multiclass(self) -> bool:
        return bool(self.model._multiclass)  # noqa: SLF001 - only River reads it, by the same name

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        from river import linear_model, preprocessing

        yield {"model": preprocessing.StandardScaler() | linear_model.LogisticRegression()}


def improbability(y: Any, probabilities: Mapping[Any, float]) -> float:
    """Return 1 minus the probability of a label, which is 0 for an unknown label and counts as 0 if it is NaN."""
    probability = float(probabilities.get(y, 0.0))
    return 1.0 if math.isnan(probability) else 1.0 - probability


def labels_within(probabilities: Mapping[Any, float], threshold: float) -> set[Any]:
    """Return the labels whose improbability is at most a threshold."""
    return {label for label, probability in probabilities.items() if 1.0 - probability <= threshold}
