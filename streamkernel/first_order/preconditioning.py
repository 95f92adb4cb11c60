"""A block's gradient, preconditioned by the covariance of its features over the batch; compiled.

With Φ of shape (B, P), the features of block k at the batch, and g the gradients, the step goes along

    (ΦᵀΦ/B + εI)⁻¹ Φᵀg/B  =  Φᵀw/B   with   w = (ΦΦᵀ/B + εI)⁻¹ g,

so that only a B×B system is solved, and the step is taken with w in the place of g (Dai et al. 2014, section 4).
"""

from __future__ import annotations

import math

from numba import types

from streamkernel import vectors
from streamkernel.jit import Family, inlined

precondition = Family(
    "precondition", types.void(types.float64[:, ::1], types.float64, types.float64[:, ::1], types.float64[:, ::1])
)
"""``precondition(0, phi, epsilon, g, a)`` sets `g`, shape (B, columns), to (ΦΦᵀ/B + εI)⁻¹ g; `phi` is Φᵀ, shape (P,
B), and `a` is room, shape (B, B)."""


@precondition.member(0)
def _precondition(phi, epsilon, g, a):  # type: ignore[no-untyped-def]
    batch = phi.shape[1]
    a[:] = 0.0  # the upper triangle is used
    for p in range(len(phi)):
        for i in range(batch):
            vectors.add(a[i, i:], phi[p, i:], phi[p, i] / batch)
    for i in range(batch):
        a[i, i] += max(epsilon, 1e-12 * a[i, i])  # a smaller ε is lost in rounding where examples are alike
    for j in range(batch):  # Cholesky: a becomes R with RᵀR = a
        vectors.multiply(a[j, j:], 1.0 / math.sqrt(a[j, j]))
        for i in range(j + 1, batch):
            vectors.add(a[i, i:], a[j, i:], -a[j, i])
    for j in range(batch):  # Rᵀz = g
        vectors.multiply(g[j], 1.0 / a[j, j])
        for i in range(j + 1, batch):
            vectors.add(g[i], g[j], -a[j, i])
    for j in range(batch - 1, -1, -1):  # Rw = z
        vectors.multiply(g[j], 1.0 / a[j, j])
        for i in range(j):
            vectors.add(g[i], g[j], -a[i, j])


@inlined
def pull_of_intercept(phi, epsilon, mean_k_xx, g):  # type: ignore[no-untyped-def]
    """Return the mean derivative by which a learned intercept moves beside blocks whose steps are preconditioned.

    A step moves the blocks by about g_i/(k(x_i, x_i)/B + ε) for each example. With other weights the intercept and the
    blocks would minimise different sums, and each would undo the steps of the other, with growing amplitude. With ε at
    least the mean of k(x, x)/B, which is the error of a covariance over B examples, the weights are at most 2.
    """
    batch = phi.shape[1]
    found = 0.0
    for i in range(batch):
        own = 0.0
        for p in range(len(phi)):
            own += phi[p, i] * phi[p, i]
        found += g[i, 0] * (mean_k_xx + batch * epsilon) / (own + batch * epsilon)
    return found / batch
