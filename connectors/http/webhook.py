"""Records as requests to an address, several in one request."""

from __future__ import annotations

from collections.abc import Mapping
from http.client import HTTPException
from time import monotonic
from typing import Any, ClassVar
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from connectors.base import Position, UnavailableError
from connectors.json_text import RECORD, to_json

REQUEST_SECONDS = 10.0


class WebhookUnavailableError(UnavailableError):
    """The address cannot be reached, or its answer is not one of success."""

    service = "the webhook"


class _NoRedirects(HTTPRedirectHandler):
    """Leaves a redirect as the answer: a POST would become a GET without its body, at a host that gets the token."""

    def redirect_request(self, *_: Any) -> None:
        """Make no other request."""


_OPENER = build_opener(_NoRedirects)


class WebhookSink:
    """An address that gets lists of records in JSON by POST, each at least once.

    A request that fails is repeated by the engine; a redirect is not followed, and is a failure. After a crash, the
    records since the last checkpoint are sent again.

    Parameters
    ----------
    url : str
        The address, ``"https://..."`` or ``"http://..."``.
    token : str or None
        Sent as ``Authorization: Bearer TOKEN``.
    batch_size : int, default 100
        The largest number of records in one request.
    give_up_after : float or None, default None
        The number of seconds of failed requests after which the run ends; ``None`` is without end.

    Raises
    ------
    ValueError
        If it is no such address, or it contains a login.
    """

    guarantee: ClassVar[str] = "at_least_once"

    def __init__(
        self, url: str, token: str | None = None, batch_size: int = 100, give_up_after: float | None = None
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError("Expected a url, https://host/path, without a login, got another text")
        if batch_size < 1:
            raise ValueError(f"Expected batch_size >= 1, got {batch_size}")
        self._where = f"{parts.scheme}://{parts.netloc}{parts.path}"  # a query may have secrets
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._url, self._headers, self._batch_size, self._seconds = url, headers, batch_size, give_up_after
        self._buffer: list[bytes] = []
        self._failing_since: float | None = None

    def open(self) -> None:
        """Do nothing: the first request is the first test of the address."""

    def write(self, record: Mapping[str, Any], key: bytes | None = None) -> None:
        """Write one record.

        Parameters
        ----------
        record : dict
            The fields.
        key : bytes or None, default None
            Not used.
        """
        self._buffer.append(to_json(record, RECORD))
        if len(self._buffer) >= self._batch_size:
            self.flush()

    def flush(self) -> Position:
        """Send all records, and wait for an answer of success.

        Raises
        ------
        WebhookUnavailableError
            If there was none; the records are kept.
        OSError
            If there was none for `give_up_after` seconds.
        """
        if self._buffer:
            try:
                self._post(b"[" + b",".join(self._buffer) + b"]")
            except WebhookUnavailableError as error:
                now = monotonic()
                self._failing_since = self._failing_since or now
                if self._seconds is not None and now - self._failing_since >= self._seconds:
                    raise OSError(f"{error}, for {self._seconds:g} s (give_up_after)") from error
                raise
            self._failing_since = None
            self._buffer.clear()
        return None

    def seek(self, position: Position) -> None:
        """Do nothing: a request cannot be taken back."""

    def close(self) -> None:
        """Send all records."""
        self.flush()

    def _post(self, body: bytes) -> None:
        try:
            with _OPENER.open(Request(self._url, body, self._headers, method="POST"), timeout=REQUEST_SECONDS):
                pass
        except HTTPError as error:
            with error:
                got = f"the status {error.code}" + (
                    ", a redirect, which is not followed" if 300 <= error.code < 400 else ""
                )
            raise WebhookUnavailableError(f"Expected an answer of success, got {got} - from {self._where}") from error
        except (OSError, HTTPException) as error:
            got = str(error) or type(error).__name__
            raise WebhookUnavailableError(f"Expected an answer, got {got} - from {self._where}") from error
