"""The bounds on the derivatives of a mixture's functions; compiled."""

from __future__ import annotations

from streamkernel.jit import inlined
from streamkernel.learners.clipping import LARGEST_GRADIENT, clip


@inlined(allocates=False)
def clip_derivatives(state, k, g):  # type: ignore[no-untyped-def]
    """Limit ℓ' at function k, for each target, where the loss itself does not."""
    if state.numbers[0].loss_bound < LARGEST_GRADIENT:
        return
    targets, (count, columns) = len(state.numbers), g.shape
    width = columns // targets
    for t in range(targets):
        at = t * (count + 2) + k
        state.bounds[at] = clip(g[k, t * width : (t + 1) * width], state.bounds[at], LARGEST_GRADIENT)
