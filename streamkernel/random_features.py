"""The joint random feature map of a kernel, as a River transformer."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from river import base, utils

from streamkernel import bandwidth, model_file
from streamkernel.feature_map import FeatureMap
from streamkernel.kernels import Gaussian, Kernel
from streamkernel.rows import Rows

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame


class RandomFeatures(model_file.Portable, base.MiniBatchTransformer):
    """Gives any linear model the features of a kernel: dot products of the outputs estimate k(x, x').

    The map is joint: every output depends on all inputs, so a linear model on top of it can learn interactions
    (River's ``RBFSampler`` maps each input by itself, and its sums cannot).

    Parameters
    ----------
    kernel
        The kernel. With ``Gaussian(sigma="median")`` the bandwidth is taken from the first 256 examples learnt,
        and changes until then.
    n_features
        Random features; each gives one output or more: a cosine and a sine for the kernels of a difference.
    seed
        Seed of the features.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel in use.

    Raises
    ------
    ValueError
        If `n_features` is smaller than 1.

    References
    ----------
    Rahimi and Recht, "Random Features for Large-Scale Kernel Machines", NeurIPS 2007.

    Examples
    --------
    >>> from streamkernel import RandomFeatures, kernels
    >>> k = kernels.Gaussian(sigma=1.0)
    >>> features = RandomFeatures(k, n_features=10_000)
    >>> x, x2 = {"a": 0.5, "b": 1.0}, {"a": 1.0, "b": 0.0}
    >>> z, z2 = features.transform_one(x), features.transform_one(x2)
    >>> round(sum(z[name] * z2[name] for name in z), 2), round(k(x, x2), 2)
    (0.54, 0.54)
    """

    def __init__(self, kernel: Kernel, n_features: int = 512, seed: int = 0) -> None:
        if not isinstance(n_features, (int, np.integer)) or n_features < 1:
            raise ValueError(f"Expected an integer n_features >= 1, got {n_features!r}")
        self.kernel = kernel
        self.n_features = n_features
        self.seed = seed
        self._map = FeatureMap(kernel, n_features, seed, 1 << 26)
        self._first: list[Rows] | None = [] if kernel.is_pending else None
        outputs = self._map.directions.plan.outputs
        parts = ["cos", "sin"] if outputs == 2 else [f"z{i}_" for i in range(outputs)]
        self._names = [f"{part}{i}" for i in range(n_features) for part in parts]

    @property
    def kernel_(self) -> Kernel:
        """The kernel in use."""
        return self._map.kernel

    def learn_one(self, x: Mapping[Hashable, Any]) -> None:
        """Take the bandwidth from the first examples; later ones change nothing.

        Raises
        ------
        InputError
            If `x` is empty or a value is neither a finite number nor a string.
        """
        self._see(self._map.row(x))

    def learn_many(self, X: IntoDataFrame) -> None:
        """Learn from the rows of a data frame in order, as :meth:`learn_one` does."""
        rows = self._map.table(X)
        for i in range(len(rows.start) - 1):
            self._see(rows.part(i, i + 1))

    def transform_one(self, x: Mapping[Hashable, Any]) -> dict[Hashable, float]:
        """Return the features of `x`, scaled by n_features^-½.

        Raises
        ------
        InputError
            If `x` is empty or a value is neither a finite number nor a string.
        """
        return dict(zip(self._names, self._map(self._map.row(x))[0].tolist(), strict=True))

    def transform_many(self, X: IntoDataFrame) -> Any:
        """Return the features of each row of a data frame."""
        outputs = self._map(self._map.table(X))
        columns = {name: outputs[:, i] for i, name in enumerate(self._names)}
        return utils.dataframe.to_native_frame(columns, like=utils.dataframe.into_frame(X))

    def _see(self, row: Rows) -> None:
        if self._first is None:
            return
        self._first.append(row)
        if bandwidth.is_due(len(self._first)):
            self._map.kernel = bandwidth.with_medians(self.kernel, self._map.directions.plan, Rows.stack(self._first))
            if len(self._first) == bandwidth.FIRST:
                self._first = None

    def _description(self) -> dict[str, Any]:
        return {"kernel": self.kernel_}

    def _tensors(self) -> model_file.Tensors:
        return {} if self._first is None else model_file.pack_examples("first", [(row, 0.0) for row in self._first])

    def _restore(self, description: Mapping[str, Any], tensors: model_file.Tensors) -> None:
        self._map.kernel = model_file.kernel_in(description, self.kernel)
        first = model_file.unpack_examples("first", tensors, self._map.directions)
        if len(first or []) >= bandwidth.FIRST:
            raise ValueError(f"expected less than {bandwidth.FIRST} first examples")
        self._first = None if first is None else [row for row, _ in first]

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"kernel": Gaussian(1.0), "n_features": 32}
        yield {"kernel": Gaussian("median"), "n_features": 32}
