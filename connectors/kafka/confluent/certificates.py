"""Why the certificate of a broker is not trusted, which librdkafka does not say."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def certificate_problem(cause: str, options: Mapping[str, Any], seconds: float) -> str:
    """Return the reason why Python does not trust a broker's certificate either, or nothing.

    Parameters
    ----------
    cause : str
        The error of librdkafka, which has the address of the broker.
    options : dict
        The options of the client.
    seconds : float
        The time to wait for the broker, in seconds.

    Examples
    --------
    >>> certificate_problem("no address", {}, 1.0)
    ''
    """
    address = re.search(r"://\[?([^\s/\]]+)\]?:(\d+)/", cause)
    if address is None:
        return ""
    try:
        context = _context(options)
        with (
            socket.create_connection((address[1], int(address[2])), seconds) as plain,
            context.wrap_socket(plain, server_hostname=address[1]),
        ):
            return ""
    except ssl.SSLCertVerificationError as error:
        return f" ({error.verify_message})"
    except OSError:
        return ""


def _context(options: Mapping[str, Any]) -> ssl.SSLContext:
    """Return the context that trusts the authorities of the options."""
    location = options.get("ssl.ca.location")
    path = Path(location) if location and location != "probe" else None
    folder, file = (path, None) if path and path.is_dir() else (None, path)
    context = ssl.create_default_context(cafile=file, capath=folder, cadata=options.get("ssl.ca.pem"))
    if options.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    return context
