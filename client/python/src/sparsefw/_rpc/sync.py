"""The transport of the synchronous client, and how its coroutines are run without an event loop."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar, cast

import grpc

from sparsefw import errors
from sparsefw._rpc.credentials import Credentials, channel_arguments
from sparsefw._rpc.endpoints import Endpoints, HeadStarts
from sparsefw._rpc.wire import Method

Result = TypeVar("Result")
Response = TypeVar("Response")


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Runs a coroutine over SyncTransport, which blocks where others suspend."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return cast(Result, end.value)
    coroutine.close()
    raise RuntimeError("a coroutine of the synchronous client must not suspend")


def iterate(source: AsyncGenerator[Result, None]) -> Iterator[Result]:
    """The items of an asynchronous generator over SyncTransport."""
    try:
        while True:
            try:
                item = run(source.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(source.aclose())


class Handoff:
    """Messages from whoever makes them to the thread in which gRPC takes them.

    It holds few of them: makers wait while the server does not read.
    """

    _ROOM = 2

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        """`on_change` is called, in any thread, when there may be room, and at the end."""
        self._changed = threading.Condition()
        self._messages: collections.deque[bytes] = collections.deque()
        self._ended = False
        self._on_change = on_change

    def offer(self, message: bytes) -> bool | None:
        """True: taken; None: there is no room now; False: the stream has ended."""
        with self._changed:
            if self._ended:
                return False
            if len(self._messages) >= self._ROOM:
                return None
            self._messages.append(message)
            self._changed.notify_all()
            return True

    def put(self, message: bytes) -> bool:
        """As `offer`, waiting for room."""
        with self._changed:
            while (taken := self.offer(message)) is None:
                self._changed.wait()
            return taken

    def half_close(self) -> None:
        """No more messages follow; those that are here are still taken."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def drop(self) -> None:
        """The stream has ended: nobody takes anything any more."""
        with self._changed:
            self._ended = True
            self._messages.clear()
            self._changed.notify_all()
        self._on_change()

    def __iter__(self) -> Iterator[bytes]:
        while True:
            with self._changed:
                while not self._messages and not self._ended:
                    self._changed.wait()
                if not self._messages:
                    return
                message = self._messages.popleft()
                self._changed.notify_all()
            self._on_change()
            yield message


class SyncWriter(Generic[Response]):
    """See Writer."""

    def __init__(self, call: Any, metadata: tuple[tuple[str, str], ...]) -> None:
        self._handoff = Handoff()
        self._future = call.future(iter(self._handoff), metadata=metadata)
        self._future.add_done_callback(lambda _: self._handoff.drop())

    async def write(self, message: bytes) -> bool:
        return self._handoff.put(message)

    def end(self) -> None:
        """No more messages follow: `write` says so from now on, and `finish` what the server has made of
        those that were sent.
        """
        self._handoff.half_close()

    async def finish(self) -> Response:
        self._handoff.half_close()
        try:
            return cast(Response, self._future.result())
        except grpc.RpcError as error:
            raise errors.from_rpc(error) from None
        except grpc.FutureCancelledError:
            raise errors.Cancelled("cancelled", code=grpc.StatusCode.CANCELLED) from None

    async def cancel(self) -> None:
        self._future.cancel()
        self._handoff.drop()


class _SilenceGuard:
    """Cancels a call once `heard` has not been called for `limit` seconds.

    A server that vanished without closing its connection leaves a read waiting: only the missing
    heartbeats tell.
    """

    def __init__(self, limit: float, call: Any) -> None:
        self._limit, self._call = limit, call
        self._changed = threading.Condition()
        self._give_up = time.monotonic() + limit
        self._end = False
        self.silent = False
        threading.Thread(target=self._watch, name="sparsefw-watch", daemon=True).start()

    def heard(self) -> None:
        with self._changed:
            self._give_up = time.monotonic() + self._limit

    def close(self) -> None:
        with self._changed:
            self._end = True
            self._changed.notify_all()

    def _watch(self) -> None:
        with self._changed:
            while not self._end:
                left = self._give_up - time.monotonic()
                if left <= 0:
                    self.silent = True
                    break
                self._changed.wait(min(left, 86400.0))
            if self._end:
                return
        self._call.cancel()


class _Endpoint:
    """Two connections to one address, made at the first call."""

    def __init__(self, address: str, credentials: Credentials, connect_timeout: float | None) -> None:
        self.control = make_channel(address, credentials, connect_timeout)
        self.data = make_channel(address, credentials, connect_timeout)


class _Connecting:
    """Waits for the first of several addresses that is connected."""

    _LOOK = 0.05  # seconds; changes wake it earlier

    def __init__(self, order: list[_Endpoint]) -> None:
        self._starts = HeadStarts(order)
        self._changed = threading.Condition()
        self._states: dict[_Endpoint, grpc.ChannelConnectivity | None] = {}
        self._observers: list[tuple[grpc.Channel, Callable[[grpc.ChannelConnectivity], None]]] = []

    def wait(self, timeout: float) -> _Endpoint | None:
        end = time.monotonic() + timeout
        try:
            while time.monotonic() < end:
                for endpoint in self._starts.due(self._failed):
                    self._observe(endpoint)
                    if self._states[endpoint] is grpc.ChannelConnectivity.READY:
                        return endpoint
                with self._changed:
                    self._changed.wait(min(self._LOOK, max(0.0, end - time.monotonic())))
            return None
        finally:
            for channel, observer in self._observers:
                channel.unsubscribe(observer)

    def _failed(self, endpoint: _Endpoint) -> bool:
        return self._states[endpoint] is grpc.ChannelConnectivity.TRANSIENT_FAILURE

    def _observe(self, endpoint: _Endpoint) -> None:
        if endpoint in self._states:
            return
        self._states[endpoint] = None

        def observer(state: grpc.ChannelConnectivity) -> None:
            with self._changed:
                self._states[endpoint] = state
                self._changed.notify_all()

        self._observers.append((endpoint.control, observer))
        endpoint.control.subscribe(observer, try_to_connect=True)


class SyncTransport:
    """See Transport."""

    def __init__(self, address: str, credentials: Credentials, connect_timeout: float) -> None:
        self._metadata = credentials.metadata
        limit = connect_timeout if "," in address else None
        self._endpoints = Endpoints(address, lambda one: _Endpoint(one, credentials, limit))
        self._closed = threading.Event()

    @property
    def _control(self) -> grpc.Channel:
        return self._endpoints.current.control

    @property
    def _data(self) -> grpc.Channel:
        return self._endpoints.current.data

    async def connect(self, timeout: float) -> bool:
        found = _Connecting(self._endpoints.order()).wait(timeout)
        if found is None:
            return False
        self._endpoints.current = found
        return True

    async def reconnect(self, timeout: float) -> None:
        self._check_open()
        if len(self._endpoints.all) > 1:
            await self.connect(timeout)

    async def close(self) -> None:
        self._closed.set()
        for endpoint in self._endpoints.all:
            endpoint.control.close()
            endpoint.data.close()

    async def sleep(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise closed_error()

    async def unary(self, method: Method[Response], request: Any, timeout: float) -> Response:
        self._check_open()
        call = self._control.unary_unary(
            method.path, request_serializer=serialize, response_deserializer=method.parse
        )
        try:
            return call(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            self._check_open()
            raise errors.from_rpc(error) from None

    def open_writer(self, method: Method[Response]) -> SyncWriter[Response]:
        self._check_open()
        # A thread takes the requests: they are bytes already.
        call: Any = self._data.stream_unary(
            method.path, request_serializer=None, response_deserializer=method.parse
        )
        return SyncWriter(call, self._metadata)

    async def read(
        self, method: Method[Response], request: Any, *, data: bool, silence: float
    ) -> AsyncGenerator[Response, None]:
        self._check_open()
        channel = self._data if data else self._control
        call: Any = channel.unary_stream(
            method.path, request_serializer=serialize, response_deserializer=method.parse
        )(request, metadata=self._metadata)
        self._opened(call)
        guard = _SilenceGuard(silence, call)
        try:
            for response in call:
                guard.heard()
                yield response
        except grpc.RpcError as error:
            self._check_open()
            if guard.silent:
                raise silent_error(silence) from None
            raise errors.from_rpc(error) from None
        finally:
            guard.close()
            call.cancel()

    def _opened(self, call: Any) -> None:
        """A stream is read from now on."""

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise closed_error()


def make_channel(
    address: str, credentials: Credentials, connect_timeout: float | None = None
) -> grpc.Channel:
    """With a connection of its own."""
    arguments = channel_arguments(address, connect_timeout)
    if credentials.channel is None:
        return grpc.insecure_channel(address, arguments)
    return grpc.secure_channel(address, credentials.channel, arguments)


def serialize(message: Any) -> bytes:
    """The bytes of a protobuf."""
    return cast(bytes, message.SerializeToString())


def closed_error() -> errors.Error:
    """The error of a call after `close`."""
    return errors.refuse(
        grpc.StatusCode.CANCELLED, "CLOSED", "the client is closed; sparsefw.connect makes another"
    )


def silent_error(silence: float) -> errors.Error:
    """The error of a download, or of a watch on which not even heartbeats came."""
    return errors.refuse(grpc.StatusCode.UNAVAILABLE, "UNREACHABLE", f"nothing came for {silence:g} s")
