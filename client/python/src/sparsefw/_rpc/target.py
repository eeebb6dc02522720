"""What the arguments of `connect` ask for: a server, and credentials for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from sparsefw._rpc.credentials import Credentials, PathLike, make_credentials
from sparsefw._rpc.session import Session
from sparsefw._rpc.transport import Transport
from sparsefw.errors import invalid
from sparsefw.options import Options

DEFAULT_SERVER = "127.0.0.1:50051"


class Target:
    """The server is what was asked for, else SPARSEFW_SERVER, else a server of this machine.

    Attributes:
        address:  as `connect` has it.
        embedded: whether a server has to be started first, which gets none of the environment's credentials.
    """

    def __init__(
        self,
        server: str | None,
        server_flags: Sequence[str],
        *,
        token: str | None,
        tls: bool,
        tls_ca: PathLike | None,
        tls_cert: PathLike | None,
        tls_key: PathLike | None,
    ) -> None:
        """Raises InvalidArgument where the arguments exclude each other."""
        _check_texts({"server": server, "token": token})
        for name, path in (("tls_ca", tls_ca), ("tls_cert", tls_cert), ("tls_key", tls_key)):
            if path is not None and not isinstance(path, str | os.PathLike):
                raise invalid(f"{name} must be the path of a file; got {path!r}")
        self.address = server or os.environ.get("SPARSEFW_SERVER", "") or DEFAULT_SERVER
        self.embedded = self.address == "auto"
        if self.embedded and any((token, tls, tls_ca, tls_cert, tls_key)):
            raise invalid('server="auto" is a server of this process alone: it takes no credentials')
        if server_flags and not self.embedded:
            raise invalid('server_flags are of server="auto"')
        if not self.embedded:
            token = token or os.environ.get("SPARSEFW_TOKEN")
            tls_ca = tls_ca or os.environ.get("SPARSEFW_TLS_CA")
        self._token, self._tls = token, tls
        self._tls_ca, self._tls_cert, self._tls_key = tls_ca, tls_cert, tls_key

    def session(
        self,
        transport: Callable[[str, Credentials, float], Transport],
        address: str,
        options: Options | None,
    ) -> Session:
        """A session that is not connected yet. `address` is that of the embedded server, else `address`."""
        credentials = make_credentials(
            address,
            token=self._token,
            tls=self._tls,
            tls_ca=self._tls_ca,
            tls_cert=self._tls_cert,
            tls_key=self._tls_key,
        )
        options = options or Options()
        return Session(address, transport(address, credentials, options.connect_timeout), options)


def _check_texts(arguments: Mapping[str, object]) -> None:
    """Raises InvalidArgument where one is given that is no text."""
    for name, value in arguments.items():
        if value is None or isinstance(value, str):
            continue
        # A token that was given as another type is a secret all the same.
        got = f"one of type {type(value).__name__}" if name == "token" else repr(value)
        raise invalid(f"{name} must be a text; got {got}")
