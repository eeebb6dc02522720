"""CRC32C (Castagnoli), computed in place."""

from __future__ import annotations

import crc32c as _crc32c


def crc32c(data: bytes | bytearray | memoryview, start: int = 0) -> int:
    """The CRC of `data`, after bytes whose checksum is `start`. Releases the interpreter's lock."""
    return int(_crc32c.crc32c(data, start))


class Prefix:
    """The checksum of the first bytes of a buffer, moved on as the upload moves on.

    Each byte is read while it is in the cache anyway; only a resumed upload reads what comes before.
    """

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._end = 0
        self._value = 0

    def to(self, end: int) -> int:
        """The checksum of the bytes [0, end)."""
        if end < self._end:
            self._end = self._value = 0
        self._value = crc32c(self._data[self._end : end], self._value)
        self._end = end
        return self._value
