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
from streamkernel.learners import resolve_learner

ESTIMATOR = """
Parameters
----------
learner : str or learners.Newton or learners.DSG, default "newton"
    The learner: ``"newton"``, ``"dsg"``, or one of :mod:`streamkernel.learners` with its options.
seed : int, default 0
    Seed of the random features. It has the name that it has everywhere else in this library, and is an integer:
    two fits are the same unless it differs.
shuffle : bool, default True
    Whether `fit` learns the rows in a random order, which `seed` decides, rather than in theirs: tables are often
    sorted, and an online learner is then surprised by each new class. `partial_fit` learns rows as they come.
verbose : bool, default False
    Whether `fit` and `partial_fit` show a progress line on standard error.

Attributes
----------
n_features_in_ : int
    Columns.
feature_names_in_ : ndarray of shape (n_features_in_,)
    The names of the columns of a data frame.
feature_importances_ : ndarray of shape (n_features_in_,)
    The share of each column in how much the function changes with the inputs.

Raises
------
ValueError
    In `fit` and `partial_fit`, if a parameter is out of its range, or does not go with the learner; names it.
"""
"""Parts of docstrings that the estimators have in common, beside the ones of the online estimators."""

_ROWS = """
Parameters
----------
X : data frame, ndarray or sparse matrix of shape (n_samples, n_features)
    The rows. Strings in a data frame are categories. NaN is a missing value.
"""

_LEARN = f"""{_ROWS}y : array_like of shape (n_samples,)
    The targets.
sample_weight : array_like of shape (n_samples,) or None, default None
    Weights; a row of weight w counts as w rows, and one of weight 0 not at all.

Returns
-------
self
    The estimator.

Raises
------
ValueError
    If something has another shape or value than described.
"""

METHODS = dict.fromkeys(("predict", "predict_proba", "decision_function", "score_samples"), _ROWS) | dict.fromkeys(
    ("fit", "partial_fit"), _LEARN
)
"""Docstrings that methods of the estimators have in common; :func:`documented` adds them."""


class OnlineEstimator(BaseEstimator):
    """A scikit-learn estimator whose `fit` is one pass of an online model over the rows.

    It has the parameters of the online model, `shuffle` and `verbose`.
    """

    _online_class: ClassVar[type[KernelModel]]

    loss: Any
    model_: Any
    n_features_in_: int
    seed: int
    shuffle: bool
    verbose: bool

    def _keep(self, parameters: Mapping[str, Any]) -> None:
        """Set the parameters of a constructor, which its ``locals()`` are, as attributes."""
        self.__dict__.update((name, value) for name, value in parameters.items() if name != "self")

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
        """Return an untrained online model. Raise a ValueError if a parameter is out of its range."""
        parameters = self.get_params(deep=False)
        return self._online_class(**{name: parameters[name] for name in parameters.keys() - {"shuffle", "verbose"}})

    @property
    def _is_new(self) -> bool:
        return not hasattr(self, "model_")

    def _learn_new(self, X: Any, *others: Any, **fitted: Any) -> Self:
        """Learn the rows, targets and weights of a table with an untrained model, in the order of `shuffle`.

        `fitted` are attributes that the estimator gets together with the model.
        """
        self.__dict__.update(fitted, model_=self._new_model())
        if self.shuffle:
            order = np.random.default_rng(self.seed).permutation(n_rows(X))
            X, others = _safe_indexing(X, order), tuple(one if one is None else one[order] for one in others)
        return self._learn_more(X, *others)

    def _learn_more(self, *table: Any, **fitted: Any) -> Self:
        """Learn the rows, targets and weights of a table in their order; `fitted` are as for a new model."""
        if self._is_new:
            self.__dict__.update(fitted, model_=self._new_model())
        self.model_.learn_many(*table, verbose=self.verbose)
        return self

    def _read(self, X: Any, y: Any = "no_validation", *, reset: bool) -> Any:
        """Return a table as the online model reads it: a data frame unchanged, anything else as numbers.

        The targets are checked elsewhere; ``None`` where they are missing is an error here. With `reset` the columns
        are for a new model; otherwise they have to be the same as before. Raise a ValueError if the table is empty, or
        its columns are not the ones that were learned.
        """
        if y is None or not (hasattr(X, "columns") or hasattr(X, "column_names")):
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

        Raise a ValueError if there are not as many as rows, one is negative or not finite, or all are 0.
        """
        if sample_weight is None:
            return None
        weights = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
        if not weights.any():  # scikit-learn looks for this from 1.8 on
            raise ValueError("Expected a weight above 0 in sample_weight, got zeros")
        return weights

    def _fitted(self, X: Any) -> Any:
        """Return a checked table for predictions. Raise a NotFittedError if there is no model yet."""
        check_is_fitted(self, "model_")
        return self._read(X, reset=False)

    @property
    def feature_importances_(self) -> F64:
        """The share of each column in how much the function changes with the inputs, shape (n_features_in_,)."""
        shares = self.model_.feature_importances_
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        return np.array([shares.get(name, 0.0) for name in names])


def _fields(part: Any) -> dict[str, Any]:
    """Return the fields of a kernel, a learner or another part of a model, and theirs, by name."""
    fields: dict[str, Any] = {}
    for one in dataclasses.fields(part) if dataclasses.is_dataclass(part) else ():
        value = getattr(part, one.name)
        fields |= {one.name: value} | {f"{one.name}__{name}": inner for name, inner in _fields(value).items()}
    return fields


def _replaced(part: Any, changes: Mapping[str, Any], where: str) -> Any:
    """Return a part of a model with other values of fields, by names such as "sigma" or "kernel__sigma".

    Raise a ValueError if it has no such field, or the value is out of its range.
    """
    for name, value in changes.items():
        field, separator, inner = name.partition("__")
        if field not in _fields(part):
            expected = f"one of {', '.join(_fields(part))}" if _fields(part) else f"a {where} that has fields"
            raise ValueError(f"Expected {expected}, got {where}__{name} with {where}={part!r}")
        new = _replaced(getattr(part, field), {inner: value}, f"{where}__{field}") if separator else value
        part = dataclasses.replace(part, **{field: new})
    return part
