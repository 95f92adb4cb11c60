"""SDCA for A = UV (Shalev-Shwartz and Zhang 2013), with the loops of DSPDC: one coordinate of the dual after the other.

With x = argmin_x g(x) + (1/n) yᵀAx, the change of a coordinate drawn uniformly is the best one for the bound

    D(y + Δeᵢ) ≥ const + (1/n)(aᵢᵀx)(yᵢ + Δ) - φ*(yᵢ + Δ)/n - ‖aᵢ‖²Δ²/(2λn²)

which is the dual step of DSPDC with s = λn/‖aᵢ‖². For a fair comparison it has the compiled loops of DSPDC. There is no
step size to choose. u = Uᵀy is maintained and the product is never formed, so a step costs as much as one of SPDC.
"""

from __future__ import annotations

import time

import numpy as np
from numba import njit

from streamkernel.features.counter_rng import domain_key
from streamkernel.solvers.primal_dual_steps import as_compiled, dots, draw, move
from streamkernel.solvers.saddle_point import Measurement
from streamkernel.solvers.saddle_problem import SaddlePointProblem, dual_step


@njit(cache=True)
def _advance(U, V, code, b, l1, l2, norms, x, y, u, key, first, count):  # type: ignore[no-untyped-def]
    n, d = len(y), len(u)
    g, c, change = np.empty(len(x)), np.empty(1), np.empty(1)
    v, ahead, work = np.zeros(d), np.empty(d), np.empty(d)
    for t in range(first, first + count):
        _best(dots(V, 0, len(x), u, g), x, l1, l2, n)
        v[:] = 0.0
        move(V, 0, len(x), x, v, ahead, 0.0, work)
        i = draw(key, t, n)
        new = dual_step(code, y[i], b[i], dots(U, i, i + 1, v, c)[0], l2 * n / norms[i])
        change[0] = new - y[i]
        y[i] = new
        move(U, i, i + 1, change, u, ahead, 0.0, work)


@njit(cache=True, fastmath={"reassoc", "contract"})
def _best(g, x, l1, l2, n):  # type: ignore[no-untyped-def]
    """Set x to the best one for Aᵀy = g."""
    for j in range(len(x)):
        down = -g[j] / n
        x[j] = (down - min(max(down, -l1), l1)) / l2


def sdca(problem: SaddlePointProblem, *, tol: float, seconds: float, seed: int = 0) -> list[Measurement]:
    """Return the progress after every second pass, until the gap is at most `tol` or the time is over."""
    began, n, (U, V) = time.perf_counter(), len(problem.b), problem.A
    l1, l2 = float(problem.l1[0]), float(problem.l2[0])
    norms = np.einsum("ij,ij->i", U, U) if V is None else np.einsum("ij,ij->i", U @ (V.T @ V), U)
    x, y, u = np.zeros(len(problem.l2)), np.zeros(n), np.zeros(U.shape[1])
    objective, bound, found = np.inf, -np.inf, list[Measurement]()
    for t in range(0, 1 << 62, 2 * n):
        objective = min(objective, problem.primal(x)[0])
        bound = max(bound, problem.dual(y)[0])
        found.append(Measurement(t, time.perf_counter() - began, objective, objective - bound))
        if found[-1].gap <= tol or found[-1].seconds >= seconds:
            break
        key = domain_key(seed, "sdca")
        _advance(as_compiled(U), as_compiled(V), problem.code, problem.b, l1, l2, norms, x, y, u, key, t, 2 * n)
    return found
