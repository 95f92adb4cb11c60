"""The certificate of a server: TLS 1.2 or newer, and read again when its files change."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import structlog

log = structlog.get_logger("streamkernel")


class Certificate:
    """A certificate with its private key, as files in PEM format.

    A connection begins with the files of that moment. Files that do not fit together, such as while they are being
    replaced, are reported once, and the certificate before is used until they do.

    Parameters
    ----------
    certificate, key
        The files; the first one may have a chain.

    Attributes
    ----------
    context : ssl.SSLContext
        The context of a server.

    Raises
    ------
    ValueError
        If the files cannot be read, do not fit together, or the key has a password.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = certificate, key
        self._seen = self._stamps()
        self.context = self._newest = self._load()
        self.context.sni_callback = self._choose  # called at each handshake, with a name or without

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        certificate, key = self._files
        try:
            context.load_cert_chain(certificate, key, password=_refuse_password)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
            raise ValueError(
                f"expected a certificate and its private key as PEM files, got an error: {reason} - "
                f"at {certificate} and {key}"
            ) from None
        return context

    def _stamps(self) -> list[tuple[int, int, int]]:
        try:
            found = [path.stat() for path in self._files]
        except OSError:  # between two files
            return []
        return [(status.st_ino, status.st_size, status.st_mtime_ns) for status in found]

    def _choose(self, connection: Any, name: str | None, context: ssl.SSLContext) -> None:
        """Give a new connection the present certificate."""
        stamps = self._stamps()
        if stamps != self._seen:
            self._seen = stamps
            try:
                self._newest = self._load()
                log.info("the certificate was read again", certificate=str(self._files[0]))
            except ValueError as error:
                log.error("the new certificate cannot be used; keeping the one before", reason=str(error))
        connection.context = self._newest


def _refuse_password() -> str:
    raise ValueError("the key has a password, which is not supported")
