"""What a run answers over HTTP while it learns: predictions, a live page, metrics, and whether it is well."""

from streamkernel.engine.http.server import serve

__all__ = ["serve"]
