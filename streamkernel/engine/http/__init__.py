"""The HTTP server of a run: predictions, a live page, metrics, and health."""

from streamkernel.engine.http.server import serve

__all__ = ["serve"]
