"""The common part of the estimators: an online model inside, and its view of scikit-learn's tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from streamkernel.estimators.base import KernelModel
from streamkernel.features.frames import n_rows
from streamkernel.features.rows import F64
from streamkernel.learners.options import resolve_learner


class OnlineEstimator(BaseEstimator):
    """A scikit-learn estimator whose `fit` is one pass of an online model over the rows.

    Its parameters are those of the online model, `shuffle` and `verbose`.
    """

    _online_class: ClassVar[type[KernelModel]]

    model_: Any
    n_features_in_: int

    def __sklearn_tags__(self) -> Any:
        """Return the tags: sparse matrices, missing values and strings are accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep
            Whether the fields of a kernel, a learner and other parts are among them, as ``kernel__sigma``.
        """
        parameters: dict[str, Any] = super().get_params(deep=False)
        for name, value in list(parameters.items()) if deep else ():
            parameters |= {f"{name}__{field}": one for field, one in _fields(value).items()}
        return parameters

    def set_params(self, **params: Any) -> Self:
        """Set parameters, or fields of a kernel, a learner and other parts, as ``learner__forgetting=0.999``.

        Raises
        ------
        ValueError
            If there is no such parameter or field, or a field's value is out of its range.
        """
        super().set_params(**{name: value for name, value in params.items() if "__" not in name})
        fields: dict[str, dict[str, Any]] = {}
        for name, value in params.items():
            parameter, separator, field = name.partition("__")
            if separator:
                fields.setdefault(parameter, {})[field] = value
        for name, changes in fields.items():
            part = self.get_params(deep=False).get(name)
            setattr(self, name, _replaced(resolve_learner(part) if name == "learner" else part, changes, name))
        return self

    def _new_model(self) -> Any:
        """Return an untrained online model.

        Raises
        ------
        ValueError
            If a parameter is out of its range.
        """
        parameters = self.get_params(deep=False)
        return self._online_class(**{name: parameters[name] for name in parameters.keys() - {"shuffle", "verbose"}})

    def _in_order(self, X: Any, *others: Any) -> tuple[Any, ...]:
        """Return the rows, targets and weights of a table in the order in which `fit` learns them."""
        if not self.shuffle:
            return X, *others
        order = np.random.default_rng(self.seed).permutation(n_rows(X))
        return _safe_indexing(X, order), *(one if one is None else one[order] for one in others)

    def _read(self, X: Any, y: Any = "no_validation", *, reset: bool) -> Any:
        """Return a table as the online model reads it: a data frame unchanged, anything else as numbers.

        Parameters
        ----------
        X
            The table.
        y
            The targets, which are checked elsewhere: ``None`` where they are missing is an error here.
        reset
            Whether the columns are those of a new model; otherwise they have to be the same as before.

        Raises
        ------
        ValueError
            If the table is empty, or its columns are not those that were learned.
        """
        if y is None or not is_frame(X):
            return validate_data(
                self,
                X,
                **({"y": None} if y is None else {}),
                reset=reset,
                accept_sparse="csr",
                dtype=np.float64,
                ensure_all_finite="allow-nan",
            )
        validate_data(self, X, reset=reset, skip_check_array=True)
        if n_rows(X) < 1:
            raise ValueError("Expected at least one row, got a data frame of 0 sample(s)")
        return X

    def _weights(self, sample_weight: Any, X: Any) -> F64 | None:
        """Return the weights of rows.

        Raises
        ------
        ValueError
            If there are not as many as rows, one is negative or not finite, or all are 0.
        """
        if sample_weight is None:
            return None
        weights = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
        if not weights.any():  # scikit-learn looks for this from 1.8 on
            raise ValueError("Expected a weight above 0 in sample_weight, got zeros")
        return weights

    def _fitted(self, X: Any) -> Any:
        """Return a checked table for predictions.

        Raises
        ------
        NotFittedError
            If there is no model yet.
        """
        check_is_fitted(self, "model_")
        return self._read(X, reset=False)

    @property
    def feature_importances_(self) -> F64:
        """The share of each column in how much the function changes with the inputs, shape (n_features_in_,)."""
        found = self.model_.feature_importances_
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        return np.array([found.get(name, 0.0) for name in names])


def _fields(part: Any) -> dict[str, Any]:
    """Return the fields of a kernel, a learner or another part of a model, and theirs, by name."""
    found: dict[str, Any] = {}
    for one in dataclasses.fields(part) if dataclasses.is_dataclass(part) else ():
        value = getattr(part, one.name)
        found |= {one.name: value} | {f"{one.name}__{name}": inner for name, inner in _fields(value).items()}
    return found


def _replaced(part: Any, changes: Mapping[str, Any], where: str) -> Any:
    """Return a part of a model with other values of fields, by names such as "sigma" or "kernel__sigma".

    Raises
    ------
    ValueError
        If it has no such field, or the value is out of its range.
    """
    for name, value in changes.items():
        field, separator, inner = name.partition("__")
        if field not in _fields(part):
            expected = f"one of {', '.join(_fields(part))}" if _fields(part) else f"a {where} that has fields"
            raise ValueError(f"Expected {expected}, got {where}__{name} with {where}={part!r}")
        new = _replaced(getattr(part, field), {inner: value}, f"{where}__{field}") if separator else value
        part = dataclasses.replace(part, **{field: new})
    return part


def is_frame(X: Any) -> bool:
    """Return whether a table is a data frame of any library, whose columns have names and types."""
    return hasattr(X, "columns") or hasattr(X, "column_names")
