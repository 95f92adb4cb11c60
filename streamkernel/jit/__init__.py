"""Compiled functions: kept on disk under a hash of their code, and linked by name instead of copied into each
caller.
"""

from streamkernel.jit.cache import compiled
from streamkernel.jit.direct import direct, of_one_signature
from streamkernel.jit.linking import Family, inlined, unit

__all__ = ["Family", "compiled", "direct", "inlined", "of_one_signature", "unit"]
