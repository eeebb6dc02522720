"""Arrays and tensors as bytes on the wire, and back.

Whatever has the shape and dtype of a NumPy array is taken: NumPy, PyTorch (also bfloat16, also on a
device), anything with `__dlpack__` or `__array__`. PyTorch and ml_dtypes are never imported here unless
the caller has already done so. A contiguous array in this machine's memory is not copied.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import math
import sys
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparsefw._enums import short_name
from sparsefw.errors import invalid
from sparsefw.v1 import tensor_pb2

ArrayLike = Any  # whatever as_buffer takes: there is no common type of NumPy and PyTorch
BoolArray = npt.NDArray[np.bool_]

_WIRE: Final[dict[str, int]] = {
    "float32": tensor_pb2.DATA_TYPE_F32,
    "float16": tensor_pb2.DATA_TYPE_F16,
    "bfloat16": tensor_pb2.DATA_TYPE_BF16,
    "float64": tensor_pb2.DATA_TYPE_F64,
    "bool": tensor_pb2.DATA_TYPE_U1,
}
_NAMES: Final[dict[int, str]] = {number: name for name, number in _WIRE.items()}
# What the bytes of a dtype look like to NumPy, which has no bfloat16.
_STORAGE: Final[dict[str, str]] = {
    "float32": "<f4",
    "float16": "<f2",
    "bfloat16": "<u2",
    "float64": "<f8",
}


@dataclasses.dataclass(frozen=True)
class Buffer:
    """The bytes of a tensor, row-major and little-endian, and what they mean.

    Attributes:
        data:  all of them; the memory of the caller's array where that is contiguous.
        dtype: "float32", "float16", "bfloat16", "float64" or "bool" (one bit an element, rows padded
               to whole bytes).
        shape: outermost first.
    """

    data: memoryview
    dtype: str
    shape: tuple[int, ...]

    @property
    def wire_dtype(self) -> int:
        """The dtype's number in sparsefw.v1.DataType."""
        return _WIRE[self.dtype]


def wire_dtype(name: str) -> int:
    """The number in sparsefw.v1.DataType."""
    return _WIRE[name]


def dtype_name(wire: int) -> str:
    """The name of a sparsefw.v1.DataType."""
    return _NAMES.get(wire, f"dtype {wire}")


def is_dtype(wire: int) -> bool:
    """This package knows the sparsefw.v1.DataType."""
    return wire in _NAMES


def kind_name(wire: int) -> str:
    """The name of a sparsefw.v1.TensorKind."""
    known = wire in tensor_pb2.TensorKind.values()
    return short_name(tensor_pb2.TensorKind, wire).lower() if known else f"kind {wire}"


def is_torch(value: Any) -> bool:
    """A torch.Tensor, recognised without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def is_array(value: Any) -> bool:
    """One array or tensor, not an iterable of them."""
    return (
        isinstance(value, np.ndarray | Buffer)
        or is_torch(value)
        or hasattr(value, "__dlpack__")
        or hasattr(value, "__array__")
    )


def _to_numpy(value: Any) -> tuple[npt.NDArray[Any], str]:
    """(array, dtype); bfloat16 is an array of the same bits."""
    if is_torch(value):
        torch = sys.modules["torch"]
        tensor = value.detach()
        if tensor.dtype == torch.bfloat16:
            # NumPy lacks the dtype, not the bits. A view asks for a contiguous last dimension.
            return tensor.contiguous().view(torch.int16).cpu().numpy(), "bfloat16"
        return _named(tensor.cpu().numpy())
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return _named(np.asarray(value))
    try:
        return _named(np.from_dlpack(value))
    except (BufferError, RuntimeError, TypeError, AttributeError):
        # The value is of another device, or of a dtype that DLPack and NumPy do not share.
        return _named(np.asarray(value))


def _named(array: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], str]:
    if array.dtype.name == "bfloat16" and array.dtype.itemsize == 2:
        return array.view(np.uint16), "bfloat16"
    return array, array.dtype.name


def as_buffer(value: Any, what: str, dtypes: tuple[str, ...], dims: int = 2) -> Buffer:
    """The bytes of an array.

    Args:
        value:  array or tensor of `dims` dimensions; with more, the outer ones are flattened where
                dims is 2 and `what` is "activations" (batch, position, feature).
        what:   its name in messages.
        dtypes: those that are allowed. float64 is cast to float32 where only that is.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): another dtype or number of dimensions, or an empty array.
    """
    if isinstance(value, Buffer):
        if value.dtype in dtypes:
            return dataclasses.replace(value, shape=_shape_of(value.shape, what, dims))
        if value.dtype != "float64":
            raise invalid(f"{what} must be {_one_of(dtypes)}; got {value.dtype}")
        value = np.frombuffer(value.data, _STORAGE["float64"]).reshape(value.shape)
    try:
        array, name = _to_numpy(value)
    except (TypeError, ValueError, RuntimeError) as error:  # float8, the device meta, sparse; ragged lists
        why = str(error).partition("\n")[0]
        raise invalid(f"{what} must be an array that NumPy can hold, or bfloat16; {why}") from None
    if name == "float64" and name not in dtypes and "float32" in dtypes:
        array, name = array.astype(np.float32), "float32"
    if name not in dtypes:
        raise invalid(f"{what} must be {_one_of(dtypes)}; got {name}")
    array = array.reshape(_shape_of(array.shape, what, dims))
    if name == "bool":
        return pack_mask(array)
    # In this machine's byte order and contiguous already: nothing is copied.
    array = np.ascontiguousarray(array, dtype=_STORAGE[name])
    return Buffer(_bytes_of(array), name, tuple(array.shape))


def _shape_of(shape: tuple[int, ...], what: str, dims: int) -> tuple[int, ...]:
    """The shape that is sent. Raises InvalidArgument where it has other dimensions, or none."""
    if what == "activations" and len(shape) > dims:
        shape = (math.prod(shape[:-1]), shape[-1])
    if len(shape) != dims or math.prod(shape) == 0:
        raise invalid(f"{what} must have {dims} dimensions of at least 1; got shape {list(shape)}")
    return shape


def _bytes_of(array: npt.NDArray[Any]) -> memoryview:
    """The bytes of a contiguous array: the same memory."""
    view: Any = array.reshape(-1).view(np.uint8)  # NumPy's types do not say that it is a buffer
    return memoryview(view)


def _one_of(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def from_bytes(data: bytearray, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """The array whose bytes these are, without a copy.

    bfloat16 comes as ml_dtypes.bfloat16 where that package is installed, else widened to float32,
    which changes no value.
    """
    if dtype == "bool":
        return unpack_mask(data, shape)
    array = np.frombuffer(data, dtype=_STORAGE[dtype]).reshape(shape)
    if dtype != "bfloat16":
        return array
    if importlib.util.find_spec("ml_dtypes") is not None:
        return array.view(importlib.import_module("ml_dtypes").bfloat16)
    return (array.astype(np.uint32) << 16).view(np.float32)


def from_storage(data: npt.NDArray[np.uint8], dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """The array whose bytes these are, without a copy. bfloat16 is an array of the same bits.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): a dtype that no weight has.
    """
    if dtype not in _STORAGE:
        raise invalid(f"weight must be {_one_of(tuple(_STORAGE))}; got {dtype}")
    return data.view(_STORAGE[dtype]).reshape(shape)


def matrix_of(parameter: ArrayLike, expert: int | None, transposed: bool) -> Any:
    """[d_out, d_in] of a parameter, over its memory.

    Args:
        expert:     index in the first dimension of a fused parameter, else None.
        transposed: the parameter holds [d_in, d_out].
    """
    weight = parameter if expert is None else parameter[expert]
    return weight.T if transposed else weight


def buffer_of(array: npt.NDArray[Any], dtype: str) -> Buffer:
    """The bytes of what `from_storage` gave, or of a part of it, which is copied unless it is contiguous."""
    return Buffer(_bytes_of(np.ascontiguousarray(array)), dtype, tuple(array.shape))


def torch_from_bytes(data: bytearray, dtype: str, shape: tuple[int, ...]) -> Any:
    """A torch.Tensor over these bytes, also of bfloat16."""
    torch = importlib.import_module("torch")
    if dtype == "bool":
        return torch.from_numpy(unpack_mask(data, shape))
    if dtype == "bfloat16":
        bits = np.frombuffer(data, dtype="<i2").reshape(shape)
        return torch.from_numpy(bits).view(torch.bfloat16)
    return torch.from_numpy(np.frombuffer(data, dtype=_STORAGE[dtype]).reshape(shape))


def row_bytes(columns: int) -> int:
    """Bytes of one row of a mask."""
    return (columns + 7) // 8


def pack_mask(mask: npt.NDArray[Any]) -> Buffer:
    """One bit an element, 1 = keep; rows start on a byte, least significant bit first."""
    packed = np.packbits(mask, axis=1, bitorder="little")
    return Buffer(_bytes_of(packed), "bool", tuple(mask.shape))


def unpack_mask(data: bytes | bytearray | memoryview, shape: tuple[int, ...]) -> BoolArray:
    """Bool [d_out, d_in] of packed bits."""
    rows, columns = shape
    packed = np.frombuffer(data, dtype=np.uint8).reshape(rows, row_bytes(columns))
    return np.unpackbits(packed, axis=1, count=columns, bitorder="little").view(np.bool_)


def byte_size(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor on the wire."""
    if dtype == "bool":
        return shape[0] * row_bytes(shape[1])
    return math.prod(shape) * np.dtype(_STORAGE[dtype]).itemsize
