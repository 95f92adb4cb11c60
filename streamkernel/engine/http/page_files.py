"""The files of the live page, and the headers they are sent with."""

from __future__ import annotations

from importlib import resources

KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}

_FOLDER = resources.files("streamkernel.engine.http").joinpath("page")

FILES = {
    ("/" if one.name == "index.html" else f"/{folder}{one.name}"): f"{folder}{one.name}"
    for folder in ("", "vendor/")
    for one in sorted(_FOLDER.joinpath(folder).iterdir(), key=lambda one: one.name)
    if one.name[one.name.rfind(".") :] in KINDS
}
"""The files by the path of a request."""

HEADERS = {
    "content-security-policy": "; ".join(
        ["default-src 'self'", "img-src data:", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"]
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
"""The headers of all of them."""


def read(name: str) -> str:
    """Return the text of a file."""
    return _FOLDER.joinpath(name).read_text()


def kind_of(name: str) -> str:
    """Return the media type of a file.

    Examples
    --------
    >>> kind_of("page.css"), FILES["/"], FILES["/vendor/uPlot.min.css"]
    ('text/css', 'index.html', 'vendor/uPlot.min.css')
    """
    return KINDS[name[name.rfind(".") :]]
