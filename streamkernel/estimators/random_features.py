"""The joint random feature map of a kernel, as a River transformer."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from river import base

from streamkernel import tensor_file
from streamkernel.documentation import documented
from streamkernel.estimators import model_file
from streamkernel.estimators.parameters import check_shared, check_size
from streamkernel.features import example_tensors
from streamkernel.features.frames import native_frame
from streamkernel.features.rows import Rows
from streamkernel.kernels import Gaussian, Kernel, bandwidth
from streamkernel.locking import OwnedLock, locked
from streamkernel.posterior.posteriors import FeatureMap

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame


@documented()
class RandomFeatures(model_file.Serializable, base.MiniBatchTransformer):
    """Transforms inputs into random features of a kernel: dot products of the outputs estimate k(x, x').

    Every output depends on all inputs, so a linear model of the outputs can learn interactions. (River's
    ``RBFSampler`` maps each input separately, so sums of its outputs cannot.)

    Parameters
    ----------
    kernel : Kernel
        The kernel. With ``Gaussian(sigma="median")`` the bandwidth is estimated from the first 256 examples and
        changes during them.
    n_features : int, default 512
        Number of random features. Each has one or more outputs: a cosine and a sine for kernels of the difference.

    Attributes
    ----------
    kernel_

    Raises
    ------
    ValueError
        If `n_features` is smaller than 1 or larger than 65,536.

    References
    ----------
    Rahimi and Recht, "Random Features for Large-Scale Kernel Machines", NeurIPS 2007.

    Examples
    --------
    >>> from streamkernel import RandomFeatures, kernels
    >>> k = kernels.Gaussian(sigma=1.0)
    >>> features = RandomFeatures(k, n_features=10000)
    >>> x, x2 = {"a": 0.5, "b": 1.0}, {"a": 1.0, "b": 0.0}
    >>> z, z2 = features.transform_one(x), features.transform_one(x2)
    >>> round(sum(z[name] * z2[name] for name in z), 2), round(k(x, x2), 2)
    (0.54, 0.54)
    """

    def __init__(self, kernel: Kernel, *, n_features: int = 512, seed: int = 0) -> None:
        check_size(n_features)
        check_shared(kernel, 0, seed)
        self.kernel = kernel
        self.n_features = n_features
        self.seed = seed
        features = FeatureMap(kernel, n_features, seed, 1 << 26)
        # The features, and the examples that still decide the bandwidth, None once it is known: replaced together.
        self._seen: tuple[FeatureMap, tuple[Rows, ...] | None] = (features, () if kernel.is_pending else None)
        self._lock = OwnedLock()
        outputs = features.directions.plan.outputs
        parts = ["cos", "sin"] if outputs == 2 else [f"z{i}_" for i in range(outputs)]
        self._names = [f"{part}{i}" for i in range(n_features) for part in parts]

    @property
    def kernel_(self) -> Kernel:
        """The kernel in use."""
        return self._map.kernel

    def learn_one(self, x: Mapping[Hashable, Any]) -> None:
        """Estimate the bandwidth from the first 256 examples; later examples change nothing.

        Parameters
        ----------
        x : dict
            The features by name: numbers, or strings as indicators. A missing name counts as 0.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string.
        """
        self._see(self._map.row(x))

    def learn_many(self, X: IntoDataFrame) -> None:
        """Learn from the rows of a data frame in order, as :meth:`learn_one` does.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string.
        """
        rows = self._map.table(X)
        for i in range(len(rows.start) - 1):
            self._see(rows.part(i, i + 1))

    def transform_one(self, x: Mapping[Hashable, Any]) -> dict[Hashable, float]:
        """Return the features of `x`, scaled by n_features^-½."""
        features = self._map
        return dict(zip(self._names, features(features.row(x))[0].tolist(), strict=True))

    def transform_many(self, X: IntoDataFrame) -> Any:
        """Return the features of each row of a data frame."""
        features = self._map
        outputs = features(features.table(X))
        columns: dict[Hashable, Any] = {name: outputs[:, i] for i, name in enumerate(self._names)}
        return native_frame(columns, X)

    @property
    def _map(self) -> FeatureMap:
        return self._seen[0]

    @locked()
    def _see(self, row: Rows) -> None:
        features, first = self._seen
        if first is None:
            return
        first = (*first, row)
        is_enough = bandwidth.is_enough(first)
        if is_enough or bandwidth.is_due(len(first)):
            kernel = bandwidth.with_medians(self.kernel, features.directions.plan, Rows.stack(first))
            features = features.with_kernel(kernel)
        self._seen = features, None if is_enough else first

    def _describe(self) -> tuple[dict[str, Any], tensor_file.Tensors]:
        features, first = self._seen
        rows = {} if first is None else example_tensors.pack_examples("first", [(row, 0.0) for row in first])
        return {"kernel": features.kernel}, rows

    def _restore(self, description: Mapping[str, Any], tensors: tensor_file.Tensors) -> None:
        features = self._map.with_kernel(model_file.kernel_in(description, self.kernel))
        first = example_tensors.unpack_examples("first", tensors, features.directions)
        if len(first or []) >= bandwidth.FIRST:
            raise ValueError(f"expected less than {bandwidth.FIRST} first examples")
        self._seen = features, None if first is None else tuple(row for row, _ in first)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"kernel": Gaussian(1.0), "n_features": 32}
        yield {"kernel": Gaussian("median"), "n_features": 32}
