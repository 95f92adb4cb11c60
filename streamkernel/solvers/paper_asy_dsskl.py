"""AsyDSSKL with the steps of the paper's Algorithm 2 as printed."""

from __future__ import annotations

from typing import Literal

from streamkernel.solvers.asy_dsskl import AsyDSSKL


class PaperAsyDSSKL(AsyDSSKL):
    """:class:`~streamkernel.solvers.AsyDSSKL` whose steps are of one row and one coordinate, as the paper prints them.

    An epoch begins with a snapshot and its full gradient. It is slower by far, and here for comparison. Parameters and
    attributes are those of :class:`~streamkernel.solvers.AsyDSSKL`.

    References
    ----------
    Gu et al., "Asynchronous Doubly Stochastic Sparse Kernel Learning", AAAI 2018, Algorithm 2.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkernel.research import PaperAsyDSSKL
    >>> X = np.random.default_rng(0).uniform(-1, 1, (600, 2))
    >>> model = PaperAsyDSSKL(rounds=1, features_per_round=64, l1=0.005, tol=0.5).fit(X, X[:, 0] * X[:, 1] > 0)
    >>> model.score(X, X[:, 0] * X[:, 1] > 0) > 0.9
    True
    """

    _form: Literal["minibatch", "paper"] = "paper"
