"""What `server` of prune_model means."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import TypeAlias

from sparsefw.client import Client
from sparsefw.errors import invalid
from sparsefw.hf.cluster.settings import Ray
from sparsefw.hf.pools.servers import Servers
from sparsefw.hf.pools.tasks import Pool
from sparsefw.hf.progress import Progress

Given: TypeAlias = str | Client | Ray | Sequence[str | Client]
Place: TypeAlias = list[str | Client] | Ray


def place_of(server: Given) -> Place:
    """A Ray cluster, or one or several servers; "auto" only alone.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT)
    """
    if isinstance(server, Ray):
        return server
    if isinstance(server, str) and (server == "ray" or server.startswith("ray:")):
        return Ray(address=server.removeprefix("ray").removeprefix(":") or None)
    servers = [server] if isinstance(server, str | Client) else server
    if not isinstance(servers, Sequence) or not all(isinstance(one, str | Client) for one in servers):
        got = reprlib.repr(server)
        raise invalid(f'server must be "auto", "ray", an address, a client, or a list of these; got {got}')
    servers = list(servers)
    if not servers:
        raise invalid("there must be at least one server")
    for alone in ("auto", "ray"):
        if len(servers) > 1 and alone in servers:
            raise invalid(f'server="{alone}" cannot be one of several')
    return place_of(servers[0]) if servers == ["ray"] else servers


def open_pool(
    place: Place, run: str, split_above: int, lasting: bool, trace: bool, progress: Progress
) -> Pool:
    """Args as of Servers. `progress`: shows what a cluster does."""
    if isinstance(place, Ray):
        from sparsefw.hf.cluster.pool import RayPool

        return RayPool(place, split_above, trace, progress)
    return Servers(place, run, split_above, lasting, trace)
