"""The type of functions that tasks accept, of first or second order."""

from __future__ import annotations

from collections.abc import Callable

from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.second_order.mixture import SecondOrderLearner

Function = FirstOrderLearner | SecondOrderLearner

Build = Callable[[int], Function]
"""Returns an untrained function with a number of columns."""
