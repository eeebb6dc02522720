"""Activations that the server sums into a Gram matrix, batch by batch."""

from __future__ import annotations

import collections
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

import grpc
import numpy as np

from sparsefw import errors
from sparsefw._rpc import wire
from sparsefw._rpc.upload import TransferProgress, unfinished
from sparsefw._rpc.wire import Method
from sparsefw.arrays import Buffer, as_buffer, wire_dtype
from sparsefw.errors import invalid
from sparsefw.options import MAX_CHUNK_BYTES, Options
from sparsefw.v1 import tensor_pb2, tensor_service_pb2

ACTIVATION_DTYPES: Final = ("float32", "float16", "bfloat16")
# Bytes that are looked at together.
_PIECE: Final = 64 << 10


class _Chunk:
    """Consecutive tokens as one message."""

    __slots__ = ("end", "message", "start")

    def __init__(self, start: int, end: int, message: bytes) -> None:
        self.start, self.end, self.message = start, end, message


class GramContent:
    """Activations that come batch by batch and are kept until the server has saved their sum.

    They are sent in windows, one stream each: a stream that ends without `finish` has its tokens
    committed, and what is committed can be let go. Batches are pulled while the stream takes them, so the
    server's back-pressure reaches whoever makes them; and they are copied when they are pulled, so the
    same array may be filled again.
    """

    method: Method[Any] = wire.ACCUMULATE_GRAM
    committed_key = "committed_tokens"

    def __init__(
        self,
        first: Buffer,
        rest: AsyncIterator[Any],
        gram_dtype: str,
        options: Options,
        progress: TransferProgress | None,
    ) -> None:
        self._dtype, self._d_in = first.dtype, first.shape[1]
        self._row = len(first.data) // first.shape[0]
        if self._row > MAX_CHUNK_BYTES:
            raise invalid(
                f"d_in must be at most {MAX_CHUNK_BYTES * self._d_in // self._row}, one token to a "
                f"message; got {self._d_in}"
            )
        self._rows = max(1, options.chunk_bytes // self._row)
        self._window = options.gram_window_bytes or _window_bytes(self._d_in)
        self._gram_dtype = gram_dtype
        self._progress = progress
        self._rest = rest
        self._pending: collections.deque[memoryview] = collections.deque([first.data])
        self._pending_bytes = len(first.data)
        self._borrowed = True  # the last pending piece is the caller's memory
        self._exhausted = False
        self._all_zero = _is_zero(first.data)  # of what was pulled
        self._pulled = 0  # tokens that were made into chunks
        self._kept: collections.deque[_Chunk] = collections.deque()
        self._saved = 0  # tokens whose chunks were let go
        self._closing = False

    @property
    def only_zeros(self) -> bool:
        """All batches were pulled, and none has another bit; a sum that was there before says nothing."""
        return self._exhausted and self._all_zero

    def create_request(self) -> tensor_service_pb2.CreateUploadRequest:
        spec = tensor_pb2.GramSpec(
            d_in=self._d_in,
            activation_dtype=wire_dtype(self._dtype),  # type: ignore[arg-type]
            gram_dtype=wire_dtype(self._gram_dtype),  # type: ignore[arg-type]
        )
        return tensor_service_pb2.CreateUploadRequest(gram=spec)

    def committed(self, state: Any) -> int:
        return int(state.committed_tokens)

    def check(self, committed: int) -> None:
        if committed < self._saved:
            raise errors.refuse(
                grpc.StatusCode.DATA_LOSS,
                "UPLOAD_NOT_FOUND",
                f"the server has lost {self._saved - committed} tokens that it had summed and that are "
                "not kept here any more: send the activations again",
            )

    async def messages(self, upload: str, start: int) -> AsyncGenerator[bytes, None]:
        self._let_go(start)
        head = wire.gram_fields(upload=upload)
        for chunk in list(self._kept):
            yield head + chunk.message
            head = b""
            self._report(chunk.end)
        kept = sum(len(chunk.message) for chunk in self._kept)
        while kept < self._window:
            chunk_or_none = await self._next_chunk()
            if chunk_or_none is None:
                if start > self._pulled:
                    raise invalid(
                        f"the upload of this request_id has summed {start} tokens; these batches have "
                        f"{self._pulled}"
                    )
                # `finish` on a message of its own: which chunk is the last is known too late.
                self._closing = True
                yield head + wire.gram_fields(token_offset=self._pulled, finish=True)
                return
            if chunk_or_none.end <= start:
                self._saved = chunk_or_none.end  # by a run before this one
                continue
            self._kept.append(chunk_or_none)
            kept += len(chunk_or_none.message)
            yield head + chunk_or_none.message
            head = b""
            self._report(chunk_or_none.end)

    def finished(self, response: Any) -> tensor_pb2.Tensor | None:
        if response.HasField("gram"):
            gram: tensor_pb2.Tensor = response.gram
            return gram
        if self._closing:
            raise unfinished("AccumulateGram")
        return None

    def _let_go(self, committed: int) -> None:
        while self._kept and self._kept[0].end <= committed:
            self._saved = max(self._saved, self._kept.popleft().end)

    async def _next_chunk(self) -> _Chunk | None:
        wanted = self._rows * self._row
        while self._pending_bytes < wanted and not self._exhausted:
            # Whoever makes the batches may fill the same memory again.
            if self._borrowed and self._pending:
                self._pending.append(memoryview(bytes(self._pending.pop())))
            try:
                batch = await self._rest.__anext__()
            except StopAsyncIteration:
                self._exhausted = True
                break
            buffer = as_buffer(batch, "activations", (self._dtype,))
            if buffer.shape[1] != self._d_in:
                raise invalid(
                    f"every batch of activations must have the same d_in, {self._d_in}; got {buffer.shape[1]}"
                )
            self._all_zero = self._all_zero and _is_zero(buffer.data)
            self._pending.append(buffer.data)
            self._borrowed = True
            self._pending_bytes += len(buffer.data)
        size = min(wanted, self._pending_bytes)
        if not size:
            return None
        parts = []
        left = size
        while left:
            part = self._pending.popleft()
            if len(part) > left:
                self._pending.appendleft(part[left:])
                part = part[:left]
            parts.append(part)
            left -= len(part)
        self._pending_bytes -= size
        start = self._pulled
        self._pulled += size // self._row
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        return _Chunk(start, self._pulled, wire.gram_chunk(data, start))

    def _report(self, tokens: int) -> None:
        if self._progress:
            self._progress(tokens * self._row, 0)


def _is_zero(data: memoryview) -> bool:
    """Piece by piece, since nearly all activations say no in the first one."""
    return not any(
        np.frombuffer(data[at : at + _PIECE], np.uint8).any() for at in range(0, len(data), _PIECE)
    )


def _window_bytes(d_in: int) -> int:
    # Saving writes the sum, about 4 d_in^2 bytes: a window of that size writes it about as fast as
    # activations come.
    return min(max(4 * d_in * d_in, 64 << 20), 512 << 20)
