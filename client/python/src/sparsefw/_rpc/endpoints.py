"""The addresses of a server, of which one is in use."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from sparsefw.errors import invalid

Endpoint = TypeVar("Endpoint")

# Seconds that an address has over the next one, for one that does not answer at all. Those that refuse
# get none.
_HEAD_START: Final = 0.25


def split_addresses(server: str) -> list[str]:
    """The addresses in "host:port,host:port". Raises InvalidArgument (CLIENT_ARGUMENT) where one is
    empty.
    """
    addresses = server.split(",")
    if not all(addresses):
        raise invalid(f'an address must be HOST:PORT, or several with commas between them; got "{server}"')
    return addresses


class Endpoints(Generic[Endpoint]):
    """One object an address.

    The first address that can be reached is used until its connection is lost; then that one again, or else
    the first that can be reached.
    """

    def __init__(self, server: str, make: Callable[[str], Endpoint]) -> None:
        self.all = [make(address) for address in split_addresses(server)]
        self.current = self.all[0]

    def order(self) -> list[Endpoint]:
        """The one in use, then the others."""
        return [self.current, *(one for one in self.all if one is not self.current)]


class HeadStarts(Generic[Endpoint]):
    """Which addresses are due to be tried: each a while after the one before it, or once that has failed."""

    def __init__(self, order: list[Endpoint]) -> None:
        self._order = order
        self._begin = time.monotonic()

    def due(self, failed: Callable[[Endpoint], bool]) -> Iterator[Endpoint]:
        """In order; `failed` is asked of those that have been handed out."""
        due = self._begin
        for endpoint in self._order:
            if time.monotonic() < due:
                return
            yield endpoint
            if not failed(endpoint):
                due += _HEAD_START
