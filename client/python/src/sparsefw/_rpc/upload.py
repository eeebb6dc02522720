"""Uploads that survive broken streams: tensors, and activations that the server sums."""

from __future__ import annotations

import contextlib
import reprlib
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Protocol

import grpc
import numpy as np

from sparsefw import errors
from sparsefw._enums import number_of
from sparsefw._rpc import wire
from sparsefw._rpc.checksum import Prefix
from sparsefw._rpc.session import Session, chosen_request_id
from sparsefw._rpc.transport import Writer
from sparsefw._rpc.wire import Method
from sparsefw.arrays import Buffer
from sparsefw.errors import Error, invalid
from sparsefw.options import Options
from sparsefw.v1 import tensor_pb2, tensor_service_pb2

# Called with the bytes that were sent and all bytes, or 0 where nobody knows how many there will be.
# After a broken stream the first number may step back.
TransferProgress = Callable[[int, int], None]


class Content(Protocol):
    """What is sent. Positions count what the server commits: bytes of a tensor, tokens of a Gram."""

    method: Method[Any]
    committed_key: str  # of the error metadata that carries the committed position

    def create_request(self) -> tensor_service_pb2.CreateUploadRequest:
        """Without request_id and owner."""
        ...

    def committed(self, state: Any) -> int:
        """The position in an Upload or in a response of `method`."""
        ...

    def check(self, committed: int) -> None:
        """Raises where nothing can be sent from there."""
        ...

    def messages(self, upload: str, start: int) -> AsyncGenerator[bytes, None]:
        """One stream's, from `start` on. It need not reach the end: another stream follows then."""
        ...

    def finished(self, response: Any) -> tensor_pb2.Tensor | None:
        """The tensor, if that stream was the last."""
        ...


class TensorContent:
    """The bytes of one tensor, read where they are."""

    method: Method[Any] = wire.WRITE_TENSOR
    committed_key = "committed_size"

    def __init__(
        self,
        buffer: Buffer,
        spec: tensor_pb2.TensorSpec,
        options: Options,
        progress: TransferProgress | None,
    ) -> None:
        self._data, self._spec = buffer.data, spec
        self._chunk = options.chunk_bytes
        self._progress = progress
        self._prefix = Prefix(buffer.data)

    def create_request(self) -> tensor_service_pb2.CreateUploadRequest:
        return tensor_service_pb2.CreateUploadRequest(tensor=self._spec)

    def committed(self, state: Any) -> int:
        return int(state.committed_size)

    def check(self, committed: int) -> None:
        if not 0 <= committed <= len(self._data):
            raise _beyond_the_end()

    async def messages(self, upload: str, start: int) -> AsyncGenerator[bytes, None]:
        total = len(self._data)
        fields: dict[str, Any] = {"upload": upload}
        offset = start
        while True:
            end = min(offset + self._chunk, total)
            crc = self._prefix.to(end)
            if end == total:
                fields.update(finish=True, total_crc32c=crc)
            yield wire.write_chunk(self._data[offset:end], offset, fields)
            fields = {}
            if self._progress:
                self._progress(end, total)
            if end == total:
                return
            offset = end

    def finished(self, response: Any) -> tensor_pb2.Tensor | None:
        if not response.HasField("tensor"):
            raise unfinished("WriteTensor")
        tensor: tensor_pb2.Tensor = response.tensor
        return tensor


async def upload(session: Session, content: Content, request_id: str | None) -> tensor_pb2.Tensor:
    """Creates the upload and sends the content, again from the committed position whenever that can
    help, until it is complete or there was no progress for too long.
    """
    run = _Run(session, content, chosen_request_id(request_id))
    try:
        return await run.to_the_end()
    except BaseException:
        # Whoever named the request may come back to it.
        if request_id is None:
            await run.abandon()
        raise


class _Run:
    """One upload, followed from its first byte to the finished tensor."""

    def __init__(self, session: Session, content: Content, request_id: str) -> None:
        self._session, self._content, self._request_id = session, content, request_id
        self._backoff = session.backoff()
        self._upload = ""
        self._committed = self._farthest = 0
        self._tensor: tensor_pb2.Tensor | None = None

    async def to_the_end(self) -> tensor_pb2.Tensor:
        await self._open()
        while self._tensor is None:
            self._content.check(self._committed)
            began = time.monotonic()
            try:
                response = await self._send()
            except Error as error:
                if not _is_resumable(error):
                    raise
                self._backoff.postpone(time.monotonic() - began)
                await self._session.wait_to_retry(error, self._backoff)
                await self._locate(error)
                self._look_for_progress()
                continue
            self._tensor = self._content.finished(response)
            before, self._committed = self._committed, self._content.committed(response)
            if self._tensor is None and self._committed <= before:  # the same would be sent for ever
                raise errors.protocol(f"{self._upload}: a stream ended well and nothing of it was committed")
            self._backoff.postpone(time.monotonic() - began)
            self._look_for_progress()
        return self._tensor

    def _look_for_progress(self) -> None:
        """A server that goes back and forth makes none."""
        if self._committed > self._farthest:
            self._farthest = self._committed
            self._backoff.reset(time.monotonic())

    async def _open(self) -> None:
        """The same request_id finds an upload made before, and the tensor it became."""
        request = self._content.create_request()
        request.request_id = self._request_id
        request.owner = self._session.options.owner
        response = await self._session.call(wire.CREATE_UPLOAD, request)
        if response.HasField("tensor"):
            self._tensor = response.tensor
        else:
            self._upload = response.upload.name
            self._committed = self._content.committed(response.upload)

    async def _send(self) -> Any:
        """One stream."""
        writer: Writer[Any] = self._session.transport.open_writer(self._content.method)
        try:
            messages = self._content.messages(self._upload, self._committed)
            async with contextlib.aclosing(messages):
                async for message in messages:
                    if not await writer.write(message):
                        break
            return await writer.finish()
        except BaseException:
            # The error is of the stream, or of a batch that cannot be made or sent.
            await writer.cancel()
            raise

    async def _locate(self, error: Error) -> None:
        """Where the server stands after a stream that ended with `error`.

        The error says so itself where the server refused a message; a broken connection does not, and
        may have hidden a success.
        """
        told = error.metadata.get(self._content.committed_key, "")
        if told.isdecimal():
            self._committed = int(told)
            return
        try:
            state = await self._session.call(
                wire.GET_UPLOAD, tensor_service_pb2.GetUploadRequest(name=self._upload)
            )
        except errors.NotFound:
            await self._open()
            return
        self._committed = self._content.committed(state)

    async def abandon(self) -> None:
        """Gives the room that an unfinished upload has reserved back at once.

        If that does not work the server does it later by itself.
        """
        if not self._upload:
            return
        with contextlib.suppress(Error):
            await self._session.transport.unary(
                wire.DELETE_UPLOAD,
                tensor_service_pb2.DeleteUploadRequest(name=self._upload),
                1.0,
            )


def _is_resumable(error: Error) -> bool:
    """Sending again from the committed position can help."""
    return (
        errors.is_transient(error)
        or error.reason == "OFFSET_GAP"
        or (isinstance(error, errors.DataLoss) and error.reason == "CHECKSUM_MISMATCH")
        # The upload expired, or the server has restarted and forgot it.
        or (isinstance(error, errors.NotFound) and error.reason == "UPLOAD_NOT_FOUND")
    )


def _beyond_the_end() -> Error:
    return errors.refuse(
        grpc.StatusCode.INTERNAL,
        "PROTOCOL",
        "the server's committed position is beyond the end of the upload",
    )


def unfinished(method: str) -> Error:
    """The server said that all is well, and sent no tensor."""
    return errors.refuse(grpc.StatusCode.INTERNAL, "PROTOCOL", f"{method} ended without the finished tensor")


def tensor_spec(kind: str, buffer: Buffer, tokens: int = 0) -> tensor_pb2.TensorSpec:
    """The description of a tensor to upload."""
    if isinstance(tokens, bool) or not isinstance(tokens, int | np.integer) or not 0 <= tokens < 1 << 63:
        raise invalid(f"tokens must be a whole number of at least 0; got {reprlib.repr(tokens)}")
    return tensor_pb2.TensorSpec(
        kind=number_of(tensor_pb2.TensorKind, kind, "kind"),
        dtype=buffer.wire_dtype,  # type: ignore[arg-type]
        dims=buffer.shape,
        token_count=int(tokens),
    )
