"""When a list that a server gives page by page has no end."""

from __future__ import annotations

from typing import Final

from sparsefw import errors

_MOST_EMPTY_PAGES: Final = 1000  # in a row
_MOST_PAGES: Final = 10_000
_MOST_BYTES: Final = 1 << 30


class PageWalk:
    """Follows the pages of one list.

    A server may give short and empty pages, so only their number, the bytes of all, and a token that does
    not move tell that it never comes to an end.
    """

    def __init__(self, method: str) -> None:
        self._method, self._token = method, ""
        self._pages = self._empty = self._bytes = 0

    def take(self, entries: int, size: int, next_token: str) -> None:
        """After a page of `size` bytes. Raises Internal (PROTOCOL)."""
        if not next_token:
            return
        self._pages += 1
        self._bytes += size
        self._empty = 0 if entries else self._empty + 1
        why = ""
        if next_token == self._token:
            why = "a page has the token of the page before it"
        elif self._empty >= _MOST_EMPTY_PAGES:
            why = f"{self._empty} pages in a row are empty"
        elif self._pages >= _MOST_PAGES:
            why = f"it is longer than {_MOST_PAGES} pages"
        elif self._bytes > _MOST_BYTES:
            why = f"it is longer than {_MOST_BYTES} bytes"
        self._token = next_token
        if why:
            raise errors.protocol(f"{self._method}: the server's list must come to an end; {why}")
