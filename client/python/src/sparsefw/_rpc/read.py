"""Tensors from the server."""

from __future__ import annotations

import contextlib
import time

import grpc

from sparsefw import arrays, errors
from sparsefw._rpc import wire
from sparsefw._rpc.checksum import crc32c
from sparsefw._rpc.session import Session
from sparsefw._rpc.upload import TransferProgress
from sparsefw.errors import Error
from sparsefw.v1 import tensor_pb2, tensor_service_pb2


async def read_tensor(
    session: Session,
    name: str,
    progress: TransferProgress | None = None,
    expected: tensor_pb2.TensorSpec | None = None,
) -> tuple[tensor_pb2.Tensor, bytearray]:
    """The tensor and its bytes.

    Every chunk's checksum and that of the whole are verified; a broken stream goes on at the last good
    byte. Fields of `expected` that are set must be the tensor's. Memory is taken for bytes that have come,
    whatever size the server says.
    """
    tensor = await session.get_tensor(name)
    _check_description(tensor, name, expected)
    try:
        data = await _read_bytes(session, tensor, name, progress)
    except MemoryError:
        raise errors.refuse(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "CLIENT_MEMORY",
            f"{name}: its {tensor.byte_size} bytes must fit into this machine's memory",
        ) from None
    if crc32c(data) != tensor.crc32c:
        raise errors.refuse(
            grpc.StatusCode.DATA_LOSS,
            "CHECKSUM_MISMATCH",
            f"{name}: the bytes do not match their checksum",
        )
    return tensor, data


def _check_description(tensor: tensor_pb2.Tensor, name: str, expected: tensor_pb2.TensorSpec | None) -> None:
    spec = tensor.spec
    dims, dtype = tuple(spec.dims), arrays.dtype_name(spec.dtype)
    well_formed = len(dims) == 2 and min(dims) > 0 and arrays.is_dtype(spec.dtype)
    if not well_formed or arrays.byte_size(dtype, dims) != tensor.byte_size:
        raise errors.protocol(
            f"{name}: byte_size must be that of its dims and dtype; the server says {tensor.byte_size} for "
            f"{_describe(spec)}"
        )
    if expected is None:
        return
    same = (
        expected.kind in (tensor_pb2.TENSOR_KIND_UNSPECIFIED, spec.kind)
        and expected.dtype in (tensor_pb2.DATA_TYPE_UNSPECIFIED, spec.dtype)
        and (not expected.dims or tuple(expected.dims) == dims)
    )
    if not same:
        raise errors.protocol(f"{name}: must be {_describe(expected)}; the server says {_describe(spec)}")


def _describe(spec: tensor_pb2.TensorSpec) -> str:
    """ "mask [4, 8] of bool"; fields that are not set are left out."""
    kind = arrays.kind_name(spec.kind) + " " if spec.kind else ""
    dtype = f" of {arrays.dtype_name(spec.dtype)}" if spec.dtype else ""
    return f"{kind}{list(spec.dims)}{dtype}"


async def _read_bytes(
    session: Session, tensor: tensor_pb2.Tensor, name: str, progress: TransferProgress | None
) -> bytearray:
    total, data = tensor.byte_size, bytearray()
    backoff = session.backoff()
    while len(data) < total:
        before = len(data)
        try:
            stream = session.transport.read(
                wire.READ_TENSOR,
                tensor_service_pb2.ReadTensorRequest(name=name, offset=before),
                data=True,
                silence=session.options.watch_silence,
            )
            async with contextlib.aclosing(stream):
                async for response in stream:
                    _take(name, data, total, response.chunk)
                    if progress:
                        progress(len(data), total)
            if len(data) < total:
                raise errors.refuse(
                    grpc.StatusCode.UNAVAILABLE,
                    "PROTOCOL",
                    f"{name}: the stream ended at byte {len(data)} of {total}",
                )
        except Error as error:
            if not errors.is_transient(error) and not isinstance(error, errors.DataLoss):
                raise
            if len(data) > before:
                backoff.reset(time.monotonic())
            await session.wait_to_retry(error, backoff)
    return data


def _take(name: str, data: bytearray, total: int, chunk: tensor_pb2.Chunk) -> None:
    """Appends a chunk. One of no bytes is no progress: a server could send them for ever."""
    piece, done = chunk.data, len(data)
    if chunk.offset != done or not piece or len(piece) > total - done:
        raise errors.protocol(
            f"{name}: expected bytes at {done} of {total}; got {len(piece)} bytes at {chunk.offset}"
        )
    if crc32c(piece) != chunk.crc32c:
        raise errors.refuse(
            grpc.StatusCode.DATA_LOSS,
            "CHECKSUM_MISMATCH",
            f"{name}: the chunk at byte {done} does not match its checksum",
        )
    data += piece
