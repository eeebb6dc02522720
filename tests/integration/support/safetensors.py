"""safetensors files for the tests: well-formed by write(), anything at all by write_raw()."""
import json
import struct

import numpy as np

DTYPES = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "F64": np.dtype("<f8"),
          "BOOL": np.dtype("?"), "I64": np.dtype("<i8"), "BF16": np.dtype("<u2")}
NAMES = {dtype: name for name, dtype in DTYPES.items() if name != "BF16"}


def to_bf16(array):
    """The upper halves of the float32s, rounded to nearest even; write() stores uint16 as BF16."""
    bits = np.asarray(array, "<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def from_bf16(bits):
    return (bits.astype("<u4") << 16).view("<f4")


def write(path, tensors, metadata=None):
    header, data = ({"__metadata__": metadata} if metadata else {}), b""
    for name, array in tensors.items():
        array = np.ascontiguousarray(array)
        dtype = "BF16" if array.dtype == np.uint16 else NAMES[array.dtype]
        header[name] = {"dtype": dtype, "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    write_raw(path, json.dumps(header).encode(), data)
    return path


def write_raw(path, header, data, length=None):
    path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + data)
    return path


def read(path):
    """(tensors, metadata)"""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = np.frombuffer(raw[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata
