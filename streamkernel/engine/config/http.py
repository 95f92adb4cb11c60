"""The certificate that the table [http] names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamkernel.engine.config.messages import ConfigError

if TYPE_CHECKING:
    from streamkernel.engine.config.schema import HttpTable
    from streamkernel.engine.http.tls import Certificate


def certificate_of(table: HttpTable) -> Certificate | None:
    """Return the certificate of the server, or ``None`` if it has none.

    Raises
    ------
    ConfigError
        If the files cannot be used.
    """
    from streamkernel.engine.http.tls import Certificate

    if table.certificate is None or table.key is None:
        return None
    try:
        return Certificate(table.certificate, table.key)
    except ValueError as error:
        raise ConfigError(f"http.certificate: {error}") from error
