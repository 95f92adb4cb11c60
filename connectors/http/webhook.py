"""Records as requests to an address, several in one request."""

from __future__ import annotations

from collections.abc import Mapping
from http.client import HTTPException
from time import monotonic
from typing import Any, ClassVar
from urllib.error import HTTPError
from urllib.parse import parse_qsl, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from streamkernel.connectors.base import GaveUpError, Position, RecordsRefusedError, UnavailableError
from streamkernel.connectors.interfaces import Sink
from streamkernel.connectors.json_text import Encoded, Refused, json_or_refuse, printable

REQUEST_SECONDS = 10.0

OF_RECORDS = (400, 413, 422)
"""The statuses by which a service refuses what a request contains."""

MOST_REFUSED = 100
"""Largest number of records that are refused one after the other; the next one is the service's fault."""

SHOWN = 200
"""Bytes of an answer in the reason of an error."""


class WebhookUnavailableError(UnavailableError):
    """The address cannot be reached, or its answer is not one of success."""

    service = "the webhook"


class _RefusedError(Exception):
    """The service refuses what a request contains."""


class NoRedirects(HTTPRedirectHandler):
    """Leaves a redirect as the answer: a POST would become a GET without its body, at a host that gets the token."""

    def redirect_request(self, *_: Any) -> None:
        """Make no other request."""


_OPENER = build_opener(NoRedirects)


class WebhookSink(Sink):
    """An address that gets lists of records in JSON by POST, each at least once.

    A request that fails is repeated by the engine; a redirect is not followed, and is a failure. After a crash, the
    records since the last checkpoint are sent again.

    The statuses 400, 413 and 422 are about the records of a request. The next requests are half as long, down to one
    record; after a success they become longer again. A single record with such a status is refused for good, but
    after 100 in a row without a success the service is at fault: the next one is a failure, and is repeated.

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
        If it is no such address, or it contains a login, or the token is none that a header can have.
    """

    guarantee: ClassVar[str] = "at_least_once"

    def __init__(
        self, url: str, token: str | None = None, batch_size: int = 100, give_up_after: float | None = None
    ) -> None:
        if not _is_address(url):
            raise ValueError("Expected a url, https://host/path, without a login, got another text")
        if not _is_plain(token or ""):
            raise ValueError("Expected a token of printable ASCII characters without spaces, got another text")
        if batch_size < 1:
            raise ValueError(f"Expected batch_size >= 1, got {batch_size}")
        parts = urlsplit(url)
        self._where = f"{parts.scheme}://{parts.netloc}{parts.path}"  # a query may have secrets
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._url, self._headers, self._batch_size, self._seconds = url, headers, batch_size, give_up_after
        self._secrets = [text for text in (token, parts.query, *dict(parse_qsl(parts.query)).values()) if text]
        self._buffer: list[Encoded] = []
        self._size, self._n_refused = batch_size, 0
        self._failing_since: float | None = None

    def write(self, record: Mapping[str, Any], key: bytes | None = None) -> None:
        """Write one record.

        Raises
        ------
        RecordsRefusedError
            If JSON cannot hold it, or as `flush` does.
        """
        self._buffer.append(Encoded(record, key, json_or_refuse(record, key)))
        if len(self._buffer) >= self._batch_size:
            self.flush()

    def flush(self) -> Position:
        """Send all records, and wait for an answer of success.

        Raises
        ------
        WebhookUnavailableError
            If there was none; the records without one are kept.
        RecordsRefusedError
            If the service refuses records.
        GaveUpError
            If requests failed for `give_up_after` seconds.
        """
        refused: list[Refused] = []
        try:
            while self._buffer:
                refused += self._send()
        except WebhookUnavailableError as error:
            if not refused:
                self._raise_late(error)
                raise
        if refused:
            raise RecordsRefusedError(refused)  # the next call sends what is left
        return None

    def close(self) -> None:
        """Send all records."""
        self.flush()

    def _send(self) -> list[Refused]:
        """Send the next records, or find out with fewer which one is refused; return it."""
        batch = self._buffer[: self._size]
        try:
            self._post(b"[" + b",".join(one.content for one in batch) + b"]")
        except _RefusedError as error:
            if len(batch) > 1:
                self._size = len(batch) // 2
                return []
            if self._n_refused == MOST_REFUSED:
                self._buffer.append(self._buffer.pop(0))  # another may be accepted
                problem = f"it refuses every record, the last {MOST_REFUSED} in a row"
                raise WebhookUnavailableError(f"{problem}: {error}") from error
            self._n_refused += 1
            return [(*self._buffer.pop(0)[:2], str(error))]
        del self._buffer[: len(batch)]
        self._size, self._n_refused, self._failing_since = min(2 * self._size, self._batch_size), 0, None
        return []

    def _raise_late(self, error: WebhookUnavailableError) -> None:
        """Raise an error if requests have failed for as long as the user wants to wait."""
        now = monotonic()
        self._failing_since = self._failing_since or now
        if self._seconds is not None and now - self._failing_since >= self._seconds:
            raise GaveUpError(f"{error}, for {self._seconds:g} s (give_up_after)") from error

    def _post(self, body: bytes) -> None:
        try:
            with _OPENER.open(Request(self._url, body, self._headers, method="POST"), timeout=REQUEST_SECONDS):
                pass
        except HTTPError as error:
            with error:
                got = f"the status {error.code}" + (
                    ", a redirect, which is not followed" if 300 <= error.code < 400 else self._beginning(error)
                )
            kind = _RefusedError if error.code in OF_RECORDS else WebhookUnavailableError
            raise kind(f"Expected an answer of success, got {got} - from {self._where}") from error
        except (OSError, HTTPException) as error:
            got = str(error) or type(error).__name__
            raise WebhookUnavailableError(f"Expected an answer, got {got} - from {self._where}") from error

    def _beginning(self, answer: HTTPError) -> str:
        """Return the beginning of the text of an answer, without secrets that it repeats."""
        try:
            text = printable(" ".join(answer.read(10 * SHOWN).decode(errors="replace").split()))
        except (OSError, HTTPException):  # the status has come, and the rest has not
            return ""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return f" and {text[:SHOWN]!r}" if text else ""


def _is_address(url: str) -> bool:
    """Return whether a url can be requested, and has no login."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port or an address of IPv6
        return False
    return parts.scheme in ("http", "https") and has_host and "@" not in parts.netloc and _is_plain(url)


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text
