"""Tokens for OAUTHBEARER from a class of a user, whose errors differ from those of connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamkernel.connectors.kafka.timeouts import describe_error


class TokenError(OSError):
    """There is no token; it can be asked for again."""


class Tokens:
    """The provider of tokens that an option names.

    Parameters
    ----------
    kind : callable
        The class, called without arguments; its ``token()`` returns a token.
    """

    def __init__(self, kind: Callable[[], Any]) -> None:
        from kafka.net.sasl.oauth import AbstractTokenProvider  # kafka-python refuses other classes

        AbstractTokenProvider.register(Tokens)
        self._provider = kind()

    def token(self) -> str:
        """Return a token, or raise a `TokenError`."""
        try:
            return str(self._provider.token())
        except Exception as error:  # of a user's class
            raise TokenError(f"Expected a token, got {describe_error(error)}") from error

    def extensions(self) -> dict[str, str]:
        """Return the extensions of the token."""
        found: dict[str, str] = getattr(self._provider, "extensions", dict)()
        return found
