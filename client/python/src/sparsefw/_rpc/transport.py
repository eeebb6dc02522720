"""What the logic of the client asks of a connection.

The logic is written once, as coroutines over this protocol. `sync` blocks inside of its methods, so that
a coroutine over it never suspends and one `send` runs it to its end; `aio` awaits.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Protocol, TypeVar

from sparsefw._rpc.wire import Method

Response = TypeVar("Response")
ResponseOut_co = TypeVar("ResponseOut_co", covariant=True)


class Writer(Protocol[ResponseOut_co]):
    """A stream of requests with one response."""

    async def write(self, message: bytes) -> bool:
        """Returns once there is room for the next one. False: the stream has ended; finish says why."""
        ...

    async def finish(self) -> ResponseOut_co:
        """Half-closes and waits for the response. Raises sparsefw.Error."""
        ...

    async def cancel(self) -> None:
        """Ends the stream; nothing of it is awaited."""
        ...


class Transport(Protocol):
    """Two connections to a server: one for data, one for control. Errors are sparsefw.Error.

    One of several addresses is in use.
    """

    async def connect(self, timeout: float) -> bool:
        """Whether a control connection is there within `timeout` seconds; its address is in use then."""
        ...

    async def reconnect(self, timeout: float) -> None:
        """As `connect`, after a lost connection; of one address alone nothing: gRPC does that."""
        ...

    async def close(self) -> None: ...

    async def sleep(self, seconds: float) -> None: ...

    async def unary(self, method: Method[Response], request: Any, timeout: float) -> Response:
        """One attempt, on the control connection."""
        ...

    def open_writer(self, method: Method[Response]) -> Writer[Response]:
        """On the data connection."""
        ...

    def read(
        self, method: Method[Response], request: Any, *, data: bool, silence: float
    ) -> AsyncGenerator[Response, None]:
        """The responses of one stream; Unavailable (UNREACHABLE) after `silence` seconds of none."""
        ...
