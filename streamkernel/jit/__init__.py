"""Compiled functions: stored on disk under a hash of their code, and linked by name instead of copied into callers."""

from streamkernel.jit.cache import compiled
from streamkernel.jit.calls import direct, of_one_signature
from streamkernel.jit.linking import Family, inlined, unit, work_array, work_memory

__all__ = ["Family", "compiled", "direct", "inlined", "of_one_signature", "unit", "work_array", "work_memory"]
