#!/usr/bin/python3
"""Writes the first inputs of every corpus; libFuzzer adds to them. Run by hand, with the generated
modules of the protocol on PYTHONPATH (build/tests/integration/stubs)."""
import json
import struct
from pathlib import Path

from sparsefw.v1 import job_pb2, prune_service_pb2

CORPUS = Path(__file__).resolve().parent / "corpus"


def put(target, name, data):
    (CORPUS / target).mkdir(parents=True, exist_ok=True)
    (CORPUS / target / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


put("safetensors", "one", safetensors({"w": entry("F32", [2, 2], 0, 16)}, bytes(16)))
put("safetensors", "metadata", safetensors(
    {"__metadata__": {"a": "b"}, "m": entry("BOOL", [3], 0, 3)}, bytes(3)))
put("safetensors", "overlap", safetensors(
    {"a": entry("F16", [2], 0, 4), "b": entry("F16", [2], 2, 6)}, bytes(6)))
put("safetensors", "huge_length", safetensors(b"{}", length=2**63))
put("safetensors", "huge_shape", safetensors({"w": entry("F64", [2**62, 2**62], 0, 8)}, bytes(8)))
put("safetensors", "deep", safetensors(b'{"a":' * 50 + b"1" + b"}" * 50))
put("safetensors", "short", b"\x05\x00")

put("config", "flags", "--workers 2 --listen 127.0.0.1:0 --host-memory 1GiB")
put("config", "environment", "\n17\n")
put("config", "file", "--workers 1\n\nworkers = 3\nlisten = \"127.0.0.1:0\"\n# a comment\n")
put("config", "unknown", "--no-such\n\nnothing = 1\n[section]\nworkers = 99999999999999999999\n")
put("config", "sizes", "--device-memory 101% --staging-memory 1 --drain-grace -3s --device cuda:0,0")

request = prune_service_pb2.CreateJobRequest(request_id="r", owner="o")
request.spec.weight, request.spec.gram = "tensors/a", "tensors/b"
request.spec.method = job_pb2.SPARSEFW
request.spec.pattern.nm.keep, request.spec.pattern.nm.group = 2, 4
request.spec.labels["k"] = "v"
put("job_spec", "plain", request.SerializeToString())
request.spec.sparsefw.alpha, request.spec.deadline.seconds = float("nan"), -1
put("job_spec", "nan", request.SerializeToString())
request.spec.sparsefw.ClearField("alpha")
request.spec.deadline.seconds = 5
for method in (job_pb2.WANDA, job_pb2.SPARSEGPT):
    point = request.spec.sweep.points.add(method=method)
    point.pattern.per_row.sparsity = 1.0000001
put("job_spec", "sweep", request.SerializeToString())
put("job_spec", "truncated", request.SerializeToString()[:-3])
