"""The layers that everything runs on: seeded, correlated, in one safetensors file each."""
import json
import struct
from pathlib import Path

import numpy as np

from harness.places import ROOT

RANK = 32  # directions that tokens share
SHARED_SCALE = 2.0  # their weight against independent noise
TOKENS_PER_CHUNK = 1024
FIXTURE_FOLDER = ROOT / "tests/fixtures/minilm"


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
    """{name: array}, what is stored as float16 or float32 as float32."""
    data = Path(path).read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, facts in header.items():
        begin, end = (8 + size + offset for offset in facts["data_offsets"])
        dtype = {"F16": np.float16, "F32": np.float32}[facts["dtype"]]
        stored = np.frombuffer(data[begin:end], dtype)
        tensors[name] = stored.reshape(facts["shape"]).astype(np.float32)
    return tensors


def write_fixture(path, name):
    """A layer of tests/fixtures/minilm that comes with its Gram matrix."""
    tensors = read_safetensors(FIXTURE_FOLDER / f"encoder.{name}.safetensors")
    write_safetensors(path, {"weight": tensors[f"encoder.{name}.weight"], "gram": tensors["gram"]})


def write_layer(path, rows, cols, seed=20):
    random = np.random.default_rng(seed)
    write_safetensors(path, {"weight": make_weight(rows, cols, random),
                             "gram": make_gram(cols, random)})
