"""The transport of the asyncio client."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from typing import Any, Generic, TypeVar, cast

import grpc
import grpc.aio

from sparsefw import errors
from sparsefw._rpc.credentials import Credentials, channel_arguments
from sparsefw._rpc.endpoints import Endpoints, HeadStarts
from sparsefw._rpc.sync import Handoff, closed_error, make_channel, serialize, silent_error
from sparsefw._rpc.wire import Method

Response = TypeVar("Response")


class AioWriter(Generic[Response]):
    """See Writer. A thread of gRPC sends.

    grpc.aio loses the status of a stream that ends while it is written to (INTERNAL, "Internal error from
    Core"), and with it what the server refused and where it stands. The synchronous stack does not, and it
    sends while the event loop goes on.
    """

    def __init__(self, call: Any, metadata: tuple[tuple[str, str], ...]) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._handoff = Handoff(self._wake)
        self._future: grpc.Future[Response] = call.future(iter(self._handoff), metadata=metadata)
        self._future.add_done_callback(lambda _: self._handoff.drop())

    def _wake(self) -> None:
        # The loop may be closed while a stream that nobody waits for ends.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._changed.set)

    async def write(self, message: bytes) -> bool:
        while True:
            self._changed.clear()
            taken = self._handoff.offer(message)
            if taken is not None:
                return taken
            await self._changed.wait()

    async def finish(self) -> Response:
        self._handoff.half_close()
        while True:
            self._changed.clear()
            if self._future.done():
                break
            await self._changed.wait()
        try:
            return self._future.result()
        except grpc.RpcError as error:
            raise errors.from_rpc(error) from None
        except grpc.FutureCancelledError:
            raise errors.Cancelled("cancelled", code=grpc.StatusCode.CANCELLED) from None

    async def cancel(self) -> None:
        self._future.cancel()
        self._handoff.drop()


class _Endpoint:
    """Connections to one address, made at the first call."""

    def __init__(self, address: str, credentials: Credentials, connect_timeout: float | None) -> None:
        self.control = _channel(address, credentials, connect_timeout)
        self.data = _channel(address, credentials, connect_timeout)
        self.writes = make_channel(address, credentials, connect_timeout)

    def failed(self) -> bool:
        """The last attempt to connect."""
        return self.control.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE

    async def close(self) -> None:
        await self.control.close()
        await self.data.close()
        self.writes.close()


class AioTransport:
    """See Transport. Belongs to the event loop in which it was made."""

    _LOOK = 0.02  # seconds

    def __init__(self, address: str, credentials: Credentials, connect_timeout: float) -> None:
        self._metadata = credentials.metadata
        limit = connect_timeout if "," in address else None
        self._endpoints = Endpoints(address, lambda one: _Endpoint(one, credentials, limit))
        self._closed = False

    @property
    def _control(self) -> grpc.aio.Channel:
        return self._endpoints.current.control

    @property
    def _data(self) -> grpc.aio.Channel:
        return self._endpoints.current.data

    async def connect(self, timeout: float) -> bool:
        starts = HeadStarts(self._endpoints.order())
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            for endpoint in starts.due(_Endpoint.failed):
                if endpoint.control.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
                    self._endpoints.current = endpoint
                    return True
            await asyncio.sleep(self._LOOK)
        return False

    async def reconnect(self, timeout: float) -> None:
        self._check_open()
        if len(self._endpoints.all) > 1:
            await self.connect(timeout)

    async def close(self) -> None:
        self._closed = True
        for endpoint in self._endpoints.all:
            await endpoint.close()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._check_open()

    async def unary(self, method: Method[Response], request: Any, timeout: float) -> Response:
        self._check_open()
        call = self._control.unary_unary(
            method.path, request_serializer=serialize, response_deserializer=method.parse
        )
        try:
            return await call(request, timeout=timeout, metadata=self._metadata)
        except asyncio.CancelledError:
            self._check_cancelled()
            raise
        except grpc.RpcError as error:
            self._check_open()
            raise errors.from_rpc(error) from None

    def open_writer(self, method: Method[Response]) -> AioWriter[Response]:
        self._check_open()
        call: Any = self._endpoints.current.writes.stream_unary(
            method.path, request_serializer=None, response_deserializer=method.parse
        )
        return AioWriter(call, self._metadata)

    async def read(
        self, method: Method[Response], request: Any, *, data: bool, silence: float
    ) -> AsyncGenerator[Response, None]:
        self._check_open()
        channel = self._data if data else self._control
        call: Any = channel.unary_stream(
            method.path, request_serializer=serialize, response_deserializer=method.parse
        )(request, metadata=self._metadata)
        try:
            while True:
                response = await asyncio.wait_for(call.read(), silence)
                if response is grpc.aio.EOF:
                    return
                yield cast(Response, response)
        except TimeoutError:
            raise silent_error(silence) from None
        except asyncio.CancelledError:
            self._check_cancelled()
            raise
        except grpc.RpcError as error:
            self._check_open()
            raise errors.from_rpc(error) from None
        finally:
            call.cancel()

    def _check_cancelled(self) -> None:
        """Raises Cancelled (CLOSED) unless the task was cancelled: grpc.aio makes both look alike."""
        task = asyncio.current_task()
        if self._closed and not (task and task.cancelling()):
            raise closed_error() from None

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error()


def _channel(address: str, credentials: Credentials, connect_timeout: float | None) -> grpc.aio.Channel:
    arguments = channel_arguments(address, connect_timeout)
    if credentials.channel is None:
        return grpc.aio.insecure_channel(address, arguments)
    return grpc.aio.secure_channel(address, credentials.channel, arguments)
