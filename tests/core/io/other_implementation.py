"""Reads and writes safetensors with struct and json alone, for safetensors_python_test.cc.

usage: other_implementation.py write FILE   writes tensors whose bytes the test knows
       other_implementation.py read FILE    prints what FILE holds, one line a tensor
"""
import json
import struct
import sys


def write(path):
    tensors = [
        ("layer.weight", "F32", [2, 3], struct.pack("<6f", 0.5, -1, 2, 3, 4, 1e30)),
        ("layer.gram", "F64", [2, 2], struct.pack("<4d", 1, 0.25, 0.25, 1)),
        ("half", "F16", [1, 3], struct.pack("<3e", 1, -2, 65504)),
        ("ids", "I64", [2], struct.pack("<2q", -1, 2**62)),
        ("größe", "U8", [0], b""),
    ]
    header = {"__metadata__": {"written_by": "python", "emoji": "\U0001f600"}}
    data = b""
    for name, dtype, shape, content in tensors:
        header[name] = {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [len(data), len(data) + len(content)],
        }
        data += content
    text = json.dumps(header).encode("utf-8")
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read(path):
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack("<Q", content[:8])
    assert length % 8 == 0, length
    header = json.loads(content[8 : 8 + length].decode("utf-8"))
    data = content[8 + length :]
    print("metadata", json.dumps(header.pop("__metadata__"), sort_keys=True))
    end = 0
    for name, tensor in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end_here = tensor["data_offsets"]
        assert begin == end, (name, begin, end)
        end = end_here
        print(name, tensor["dtype"], tensor["shape"], data[begin:end].hex())
    assert end == len(data), (end, len(data))


{"write": write, "read": read}[sys.argv[1]](sys.argv[2])
