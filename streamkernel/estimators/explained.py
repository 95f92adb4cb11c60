"""Explanations of a classifier's or a regressor's predictions by the fields of their examples."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from streamkernel.errors import InputError
from streamkernel.estimators import explaining
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.model_state import State


class ExplainedModel(KernelModel):
    """A kernel model with explanations of its predictions."""

    @property
    def feature_importances_(self) -> dict[Hashable, float]:
        """The share of each field in the variation of f with the inputs; shares add up to 1, the largest first.

        It is the mean square of the derivative of f with respect to the field, times the field's variance, over the
        gradients of the learned metric: at every fourth example, with more weight for recent ones. A linear function
        with coefficients w of independent inputs of deviations s gives w²s²/Σw²s². A string counts with all its values.

        Shares describe the model's use of a field, not causes: two redundant fields may divide their share in any
        proportion. Only the first 1,024 names have a share, where each value of a string counts as a name.

        Raises
        ------
        AttributeError
            If the model has learned fewer than 256 examples, or has another kernel or learner than the default.

        References
        ----------
        Sobol' and Kucherenko, "Derivative based global sensitivity measures and their link with global sensitivity
        indices", Mathematics and Computers in Simulation 2009.
        """
        return explaining.importances(self._frozen())

    def _explain(
        self, x: Mapping[Hashable, Any], scores_in: Callable[[State], explaining.Score], method: str, n_orders: int
    ) -> tuple[dict[Hashable, list[float]], State]:
        """Return the contributions of each field of an example to some scores of one state, and the state."""
        found = self._frozen()
        try:
            return explaining.contributions(found, x, scores_in(found), method, n_orders, self.seed), found
        except (InputError, TypeError, AttributeError, IndexError):
            self._check(x)
            raise
