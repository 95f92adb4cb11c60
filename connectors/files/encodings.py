"""Bytes of encodings whose line ends are not those of ASCII, such as UTF-16, rewritten as UTF-8."""

from __future__ import annotations

import codecs

from streamkernel.connectors.files.bytestreams import ByteStream, CutError

_KEEP = "streamkernel.surrogates"
"""The name of an error handler: bytes that are no text become characters that UTF-8 refuses, in their record only."""


def _as_surrogates(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udc80", error.end


codecs.register_error(_KEEP, _as_surrogates)


class RewrittenBytes:
    """A stream as UTF-8; offsets count bytes of UTF-8.

    Parameters
    ----------
    stream
        The bytes in their encoding.
    encoding
        The encoding.
    """

    def __init__(self, stream: ByteStream, encoding: str) -> None:
        self._stream = stream
        self._new_decoder = codecs.getincrementaldecoder(encoding)
        self._begin()

    def _begin(self) -> None:
        self._decoder, self._ended, self._rest = self._new_decoder(_KEEP), False, b""

    def read(self, timeout: float) -> bytes | None:
        """Return the next chunk, ``b""`` if none arrived within `timeout` seconds, or ``None`` at the end."""
        rest, self._rest = self._rest, b""
        if rest or self._ended:
            return rest or None
        chunk = self._stream.read(timeout)
        self._ended = chunk is None
        text = self._decoder.decode(chunk or b"", final=self._ended)
        return text.encode(errors="surrogatepass") or (None if self._ended else b"")

    def seek(self, offset: int) -> None:
        """Go to a byte of UTF-8; raise a `CutError` if there are fewer."""
        if self._stream.waiting() is None:  # Standard input cannot be read again.
            return
        self._stream.seek(0)
        self._begin()
        left = offset
        while left:
            chunk = self.read(0.0)
            if not chunk:
                raise CutError(
                    f"Expected at least {offset} bytes, got {offset - left}: it is not the file that was read"
                )
            self._rest, left = chunk[left:], max(0, left - len(chunk))

    def waiting(self) -> int | None:
        """Return the number of unread bytes, in the encoding, or ``None`` if it is unknown."""
        waiting = self._stream.waiting()
        return None if waiting is None else waiting + len(self._rest)

    def close(self) -> None:
        """Release the stream's resources."""
        self._stream.close()
