"""A second user of a client's connections, who can be stopped without closing them."""

from __future__ import annotations

import threading
import weakref
from typing import Any, TypeVar

from sparsefw._rpc import wire
from sparsefw._rpc.sync import SyncTransport, SyncWriter
from sparsefw._rpc.wire import Method

Response = TypeVar("Response")


class StoppableTransport(SyncTransport):
    """The connections of another transport, which stay open.

    After `close`, in any thread, no call begins (CLOSED), waits end, streams that are read are cancelled, and
    uploads send no further message. A call that is under way is waited for: what it makes on the server
    must become known to whoever gives it back. Uploads that will never be complete are still given back.
    """

    def __init__(self, base: SyncTransport) -> None:
        self._base = base
        self._metadata = base._metadata
        self._endpoints = base._endpoints
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._reads = weakref.WeakSet[Any]()
        self._writers = weakref.WeakSet[Any]()

    async def close(self) -> None:
        with self._lock:
            self._closed.set()
            for call in self._reads:
                call.cancel()
            for writer in self._writers:
                writer.end()

    async def unary(self, method: Method[Response], request: Any, timeout: float) -> Response:
        if method is wire.DELETE_UPLOAD:
            return await self._base.unary(method, request, timeout)
        return await super().unary(method, request, timeout)

    def open_writer(self, method: Method[Response]) -> SyncWriter[Response]:
        writer = super().open_writer(method)
        with self._lock:
            self._writers.add(writer)
            if self._closed.is_set():
                writer.end()
        return writer

    def _opened(self, call: Any) -> None:
        with self._lock:
            self._reads.add(call)
            if self._closed.is_set():
                call.cancel()

    def _check_open(self) -> None:
        super()._check_open()
        self._base._check_open()
