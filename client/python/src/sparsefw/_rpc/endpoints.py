"""The addresses of a server, of which one is in use."""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from sparsefw.errors import invalid

Endpoint = TypeVar("Endpoint")

# Seconds that an address has over the next one, for one that does not answer at all. Those that refuse
# get none.
_HEAD_START: Final = 0.25
# Names that gRPC understands by their scheme. It checks what is behind the scheme itself.
_NAMED: Final = re.compile(r"(?:dns|ipv4|ipv6|unix|unix-abstract|vsock|xds):.+")
# An IPv6 address has brackets around it: otherwise its last group could be taken for the port.
_HOST_PORT: Final = re.compile(r"(?:\[(?P<ipv6>[^][]+)\]|[^][/:\s]+):(?P<port>[0-9]{1,5})")


def split_addresses(server: str) -> list[str]:
    """The addresses in "host:port,host:port".

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): one is empty, or has no host, no port or another scheme. gRPC
            would look for it, and report a server that is down.
    """
    addresses = server.split(",")
    for address in addresses:
        if not (_NAMED.fullmatch(address) or _is_host_port(address)):
            raise invalid(
                'an address must be HOST:PORT with a port in [1, 65535], or "unix:/path", or several with '
                f'commas between them; got "{address or server}"'
            )
    return addresses


def _is_host_port(address: str) -> bool:
    found = _HOST_PORT.fullmatch(address)
    if found is None or not 1 <= int(found["port"]) <= 65535:
        return False
    if found["ipv6"] is None:
        return True
    try:
        ipaddress.IPv6Address(found["ipv6"])
    except ValueError:
        return False
    return True


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
