"""Tensors from the server."""

from __future__ import annotations

import contextlib
import time

import grpc

from sparsefw import errors
from sparsefw._rpc import wire
from sparsefw._rpc.checksum import crc32c
from sparsefw._rpc.session import Session
from sparsefw._rpc.upload import TransferProgress
from sparsefw.errors import Error
from sparsefw.v1 import tensor_pb2, tensor_service_pb2


async def read_tensor(
    session: Session, name: str, progress: TransferProgress | None = None
) -> tuple[tensor_pb2.Tensor, bytearray]:
    """The tensor and its bytes.

    Every chunk's checksum and that of the whole are verified; a broken stream goes on at the last good
    byte.
    """
    tensor = await session.get_tensor(name)
    total = tensor.byte_size
    data = bytearray(total)
    backoff, done = session.backoff(), 0
    while done < total:
        before = done
        try:
            stream = session.transport.read(
                wire.READ_TENSOR,
                tensor_service_pb2.ReadTensorRequest(name=name, offset=done),
                data=True,
                silence=None,
            )
            async with contextlib.aclosing(stream):
                async for response in stream:
                    done += _take(name, data, done, response.chunk)
                    if progress:
                        progress(done, total)
            if done < total:
                raise errors.refuse(
                    grpc.StatusCode.UNAVAILABLE,
                    "PROTOCOL",
                    f"{name}: the stream ended at byte {done} of {total}",
                )
        except Error as error:
            if not errors.is_transient(error) and not isinstance(error, errors.DataLoss):
                raise
            if done > before:
                backoff.reset(time.monotonic())
            await session.wait_to_retry(error, backoff)
    if crc32c(data) != tensor.crc32c:
        raise errors.refuse(
            grpc.StatusCode.DATA_LOSS,
            "CHECKSUM_MISMATCH",
            f"{name}: the bytes do not match their checksum",
        )
    return tensor, data


def _take(name: str, data: bytearray, done: int, chunk: tensor_pb2.Chunk) -> int:
    """Copies a chunk to its place; returns its size."""
    piece = chunk.data
    size = len(piece)
    if chunk.offset != done or size > len(data) - done:
        raise errors.refuse(
            grpc.StatusCode.INTERNAL,
            "PROTOCOL",
            f"{name}: expected bytes at {done} of {len(data)}; got {size} bytes at {chunk.offset}",
        )
    if crc32c(piece) != chunk.crc32c:
        raise errors.refuse(
            grpc.StatusCode.DATA_LOSS,
            "CHECKSUM_MISMATCH",
            f"{name}: the chunk at byte {done} does not match its checksum",
        )
    memoryview(data)[done : done + size] = piece
    return size
