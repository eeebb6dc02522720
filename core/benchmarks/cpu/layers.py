"""The layers that everything runs on: seeded, correlated, in one safetensors file each."""
import json
import struct
from pathlib import Path

import numpy as np

RANK = 32  # directions that tokens share
SHARED_SCALE = 2.0  # their weight against independent noise
TOKENS_PER_CHUNK = 1024


def make_weight(rows, cols, random):
    return random.standard_normal((rows, cols), dtype=np.float32)


def make_gram(cols, random):
    """X'X of 2*cols tokens: Gaussian noise and, for every token, one of RANK directions."""
    directions = SHARED_SCALE * random.standard_normal((RANK, cols), dtype=np.float32)
    gram = np.zeros((cols, cols), np.float32)
    for first in range(0, 2 * cols, TOKENS_PER_CHUNK):
        count = min(TOKENS_PER_CHUNK, 2 * cols - first)
        chunk = random.standard_normal((count, cols), dtype=np.float32)
        chunk += directions[random.integers(RANK, size=count)]
        gram += chunk.T @ chunk
    return (gram + gram.T) / 2


def write_safetensors(path, tensors):
    """tensors: {name: array}, stored as float32."""
    tensors = {name: np.ascontiguousarray(array, np.float32) for name, array in tensors.items()}
    header, offset = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(array.tobytes())


def read_safetensors(path):
    """{name: array} of a file of float32 and float16 tensors."""
    dtypes = {"F32": np.float32, "F16": np.float16}
    data = Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    arrays = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            arrays[name] = np.frombuffer(data[begin:end], dtypes[entry["dtype"]]).reshape(
                entry["shape"])
    return arrays


def write_layer(path, rows, cols, seed=20):
    random = np.random.default_rng(seed)
    write_safetensors(path, {"weight": make_weight(rows, cols, random),
                             "gram": make_gram(cols, random)})
