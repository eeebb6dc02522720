"""Who the client is, and whether it may say so on this connection."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
from pathlib import Path

import grpc

from sparsefw._rpc.endpoints import split_addresses
from sparsefw.errors import invalid

PathLike = str | os.PathLike[str]


def is_loopback(address: str) -> bool:
    """A socket of this machine, whatever names resolve to: "127.evil.example:1" is none."""
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    host = address.rpartition(":")[0]
    if host in ("localhost", "[::1]"):
        return True
    try:
        return ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        return False


def _read_pem(path: PathLike, kind: str) -> bytes:
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise invalid(f"{os.fspath(path)}: cannot be read: {error.strerror}") from None
    # gRPC would say nothing but that it cannot connect.
    if b"-----BEGIN " not in text or kind.encode() not in text:
        raise invalid(f"{os.fspath(path)}: must hold a {kind} in PEM")
    return text


@dataclasses.dataclass(frozen=True)
class Credentials:
    """The credentials of one client. `channel` is None for plain text."""

    channel: grpc.ChannelCredentials | None
    metadata: tuple[tuple[str, str], ...]


def make_credentials(
    address: str,
    *,
    token: str | None,
    tls: bool,
    tls_ca: PathLike | None,
    tls_cert: PathLike | None,
    tls_key: PathLike | None,
) -> Credentials:
    """Checks all of it before a byte is sent.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): a file that is none, a certificate without its key, a token
            that is none or that would travel in plain text to another machine.
    """
    channel = None
    if bool(tls_cert) != bool(tls_key):
        there = "certificate" if tls_cert else "key"
        raise invalid(f"a client certificate and its key must be given together; there is only the {there}")
    if tls or tls_ca or tls_cert:
        channel = grpc.ssl_channel_credentials(
            _read_pem(tls_ca, "CERTIFICATE") if tls_ca else None,
            _read_pem(tls_key, "PRIVATE KEY") if tls_key else None,
            _read_pem(tls_cert, "CERTIFICATE") if tls_cert else None,
        )
    if not token:
        return Credentials(channel, ())
    # What the header may hold. The message does not show it.
    if not all(0x20 < ord(character) < 0x7F for character in token):
        raise invalid(
            "a token must have printable ASCII characters only, and no space; got one of "
            f"{len(token)} characters with another one"
        )
    for one in split_addresses(address):
        if channel is None and not is_loopback(one):
            raise invalid(
                "a token is only sent over TLS or to this machine: the connection to "
                f"{one} would be plain text"
            )
    return Credentials(channel, (("authorization", f"Bearer {token}"),))


def channel_arguments(address: str, connect_timeout: float | None = None) -> list[tuple[str, int]]:
    """The arguments of one channel; each gets a connection of its own. `connect_timeout`: of one
    attempt, else 20 s.
    """
    arguments = [
        # Its own connection: a small call on a shared one waits behind uploads.
        ("grpc.use_local_subchannel_pool", 1),
        # Retries are ours: gRPC's would buffer streams and cannot resume them.
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2000),
        # A peer that vanished without closing its connection is noticed within a minute, also while
        # a watch is silent.
        ("grpc.keepalive_time_ms", 40_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    if connect_timeout is not None:
        arguments.append(("grpc.min_reconnect_backoff_ms", min(20_000, max(1, int(connect_timeout * 1e3)))))
    # A proxy configured for the web has no way to this machine's loopback.
    if is_loopback(address):
        arguments.append(("grpc.enable_http_proxy", 0))
    return arguments
