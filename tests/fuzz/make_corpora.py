#!/usr/bin/python3
"""Writes the first inputs of every corpus; libFuzzer adds to them. Run by hand, with the generated
modules of the protocol on PYTHONPATH (build/tests/integration/stubs)."""
import json
import struct
import subprocess
import tempfile
from pathlib import Path

from sparsefw.storage.v1 import job_record_pb2
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



def npy(header, data=b"", version=1):
    text = header.encode() + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + data


def header_of(descr="'<f4'", order="False", shape="(2, 2)"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


for number in (1, 2, 3):
    put("npy", f"version{number}", npy(header_of(), bytes(16), number))
put("npy", "doubles", npy(header_of("'<f8'", shape="(3,)"), bytes(24)))
put("npy", "empty", npy(header_of(shape="(0, 5)")))
put("npy", "scalar", npy(header_of("'|b1'", shape="()"), b"\x01"))
put("npy", "fortran", npy(header_of("'<f2'", "True"), bytes(8)))
put("npy", "fields", npy(header_of("[('a', '<f4')]"), bytes(16)))
put("npy", "huge_shape", npy(header_of(shape="(4611686018427387904, 4)")))
put("npy", "huge_and_empty", npy(header_of(shape="(4611686018427387904, 4, 0)")))
put("npy", "half", npy("{'descr': '<f4", b""))
put("npy", "long_header", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}")

put("config", "flags", "--workers 2 --listen 127.0.0.1:0 --host-memory 1GiB")
put("config", "environment", "\n17\n")
put("config", "file", "--workers 1\n\nworkers = 3\nlisten = \"127.0.0.1:0\"\n# a comment\n")
put("config", "unknown", "--no-such\n\nnothing = 1\n[section]\nworkers = 99999999999999999999\n")
put("config", "sizes", "--device-memory 101% --staging-memory 1 --drain-grace -3s --device cuda:0,0")

request = prune_service_pb2.CreateJobRequest(request_id="r", owner="o")
request.spec.weight, request.spec.gram = "tensors/a", "tensors/b"
request.spec.method = job_pb2.METHOD_SPARSEFW
request.spec.pattern.nm.keep, request.spec.pattern.nm.group = 2, 4
request.spec.labels["k"] = "v"
put("job_spec", "plain", request.SerializeToString())
request.spec.sparsefw.alpha, request.spec.deadline.seconds = float("nan"), -1
put("job_spec", "nan", request.SerializeToString())
request.spec.sparsefw.ClearField("alpha")
request.spec.deadline.seconds = 5
for method in (job_pb2.METHOD_WANDA, job_pb2.METHOD_SPARSEGPT):
    point = request.spec.sweep.points.add(method=method)
    point.pattern.per_row.sparsity = 1.0000001
put("job_spec", "sweep", request.SerializeToString())
put("job_spec", "truncated", request.SerializeToString()[:-3])


# Steps of upload_sequence.h; flags of SEND.
CREATE, END, ABANDON, LOOK, DELETE, RESTART, PASS, SEND = range(8)
NAMED, SPEC, NO_CHUNK, FINISH, TOTAL = 1, 2, 4, 8, 16
NEXT, BEFORE, AFTER, ANYWHERE, WRONG_CRC = 0, 1, 2, 3, 64


def send(data=b"", flags=0, spec=(), kind=NEXT, more=()):
    chunk = [] if flags & NO_CHUNK else [kind, len(data), *data, *more]
    return [SEND, flags, *(spec if flags & SPEC else []), *chunk]


F16_8_BYTES = [CREATE, 0, 3]
put("upload", "two_halves", bytes(
    F16_8_BYTES + send(b"abcd") + [LOOK] + send(b"efgh", FINISH)))
put("upload", "restart", bytes(
    F16_8_BYTES + send(b"abcd") + [END, RESTART, LOOK] + send(b"efgh", FINISH) + [RESTART]))
put("upload", "again", bytes(
    F16_8_BYTES + send(b"abcd") + [LOOK] + send(b"cdef", kind=BEFORE, more=[2]) + [LOOK]))
put("upload", "differs", bytes(
    F16_8_BYTES + send(b"abcd") + [LOOK] + send(b"xxxx", kind=BEFORE, more=[4])))
put("upload", "gap", bytes(F16_8_BYTES + send(b"ab", kind=AFTER, more=[2])))
put("upload", "far", bytes(F16_8_BYTES + send(b"ab", kind=ANYWHERE, more=[0xff, 0x7f])))
put("upload", "wrong_total", bytes(
    F16_8_BYTES + send(b"abcdefgh", FINISH | TOTAL) + [1, 2, LOOK] + send(b"abcdefgh", FINISH)))
put("upload", "wrong_crc", bytes(F16_8_BYTES + send(b"abcd", kind=WRONG_CRC)))
put("upload", "expires", bytes(F16_8_BYTES + send(b"abcd") + [PASS, 15] + send(b"efgh", FINISH)))
put("upload", "one_call", bytes(
    send(b"abcdefgh", SPEC | NAMED, spec=[1, 2, 2, 2]) + send(b"", FINISH | NO_CHUNK) + [RESTART]))
put("upload", "abandoned", bytes(send(b"abcd", SPEC | NAMED, spec=[1, 2, 2, 2]) + [ABANDON]))
put("upload", "deleted", bytes(
    F16_8_BYTES + F16_8_BYTES + send(b"abcd") + [DELETE, 0] + send(b"abcd", FINISH)))

TOKEN = struct.pack("<2f", 1.0, -2.0)
GRAM = [CREATE, 0, 1]
put("gram", "tokens", bytes(GRAM + send(TOKEN) + [LOOK] + send(TOKEN * 2, FINISH)))
put("gram", "restart", bytes(
    GRAM + send(TOKEN) + [END, RESTART] + send(TOKEN, kind=BEFORE, more=[1]) + [RESTART, LOOK]
    + send(TOKEN, FINISH)))
put("gram", "many", bytes(GRAM + send(TOKEN * 30) * 4 + [LOOK] + send(b"", FINISH | NO_CHUNK)))
put("gram", "half_token", bytes(GRAM + send(TOKEN[:6])))
put("gram", "nan", bytes(GRAM + send(struct.pack("<2f", float("nan"), 1)) + send(TOKEN, FINISH)))
put("gram", "infinite_sum", bytes(GRAM + send(struct.pack("<2f", 3e38, 3e38), FINISH)))
put("gram", "no_token", bytes(GRAM + send(b"", FINISH | NO_CHUNK)))
put("gram", "expires", bytes(GRAM + send(TOKEN) + [PASS, 15] + send(TOKEN, FINISH)))
put("gram", "f64_of_bf16", bytes([CREATE, 18, 3] + send(bytes(24)) + [RESTART] + send(
    bytes(8), FINISH)))
put("gram", "one_call", bytes(
    send(TOKEN, SPEC | NAMED, spec=[2, 1, 1]) + send(TOKEN, FINISH) + [RESTART]))

# Files of two ids, then rows of catalog_fuzz.cc.
def row(flags, numbers):
    return [flags, *numbers]


WEIGHT, GRAM_KIND, F32, F16 = 0, 1, 0, 1
FILES = [8, *b"abcdefgh", 0]
put("catalog", "tensor", bytes(FILES + row(0, [1, 0, WEIGHT, F16, 1, 4, 0, 1, 8, 0, 1, 1])))
put("catalog", "upload", bytes(FILES + row(0, [1, 0, WEIGHT, F16, 1, 4, 0, 0, 4, 0, 1, 1])))
put("catalog", "beyond_the_file", bytes(
    FILES + row(0, [1, 0, WEIGHT, F16, 1, 4, 0, 0, 31, 0, 1, 1])))
put("catalog", "gram", bytes(
    [0, 16] + [0] * 16 + row(24, [1, 0, GRAM_KIND, F32, 2, 2, 0, F32, 0, 3, 0, 1, 1])))
put("catalog", "gram_of_masks", bytes(
    [0, 16] + [0] * 16 + row(24, [1, 0, GRAM_KIND, F32, 2, 2, 0, 4, 0, 3, 0, 1, 1])))
put("catalog", "gram_of_masks_begun", bytes(
    [0, 0] + row(8, [1, 0, GRAM_KIND, F32, 2, 2, 0, 4, 0, 0, 0, 1, 1])))
put("catalog", "gram_begun", bytes(
    [0, 0] + row(8, [1, 0, GRAM_KIND, F32, 2, 2, 0, F32, 0, 0, 0, 1, 1])))
put("catalog", "gram_without_sums", bytes(
    [0, 0] + row(8, [1, 0, GRAM_KIND, F32, 2, 2, 0, F32, 0, 3, 0, 1, 1])))
put("catalog", "weight_of_activations", bytes(
    [0, 0] + row(8, [1, 0, WEIGHT, F16, 2, 3, 0, F16, 0, 0, 0, 1, 1])))
outside = b"../outside"
put("catalog", "out_of_the_folder", bytes(
    [0, 0] + [1, len(outside), *outside, 1, 0, WEIGHT, F16, 1, 4, 0, 0, 4, 0, 1, 1]))
put("catalog", "sums_out_of_the_folder", bytes(
    [0, 0] + [56, 1, 0, GRAM_KIND, F32, 2, 2, 0, F32, 0, 3, 0, len(outside), *outside, 1, 1]))
huge = [255] + [255] * 6 + [255, 127]
put("catalog", "huge", bytes(
    [0, 0] + [0, 1, 0, WEIGHT, F16] + huge + huge + [0, 1] + huge + [0, 1, 1]))

put("database", "raw", b"\x00no database")
put("database", "header", b"\x00SQLite format 3\x00" + bytes(84))
put("database", "empty", b"\x00")
put("database", "good", b"\x01")
put("database", "version", b"\x01" + bytes([63, 0, 99]))
put("database", "application", b"\x01" + bytes([68, 0, 1]))
put("database", "page_size", b"\x01" + bytes([16, 0, 0, 17, 0, 3]))
put("database", "schema", b"\x01" + bytes(
    byte for at in range(100, 160) for byte in (*struct.pack("<H", at), at * 7 % 256)))

record = job_record_pb2.JobRecord(name=b"jobs/1", state=3, revision=4, tenant=b"default",
                                  request_id=b"r", attempts=2)
record.spec.weight, record.spec.gram = b"tensors/a", b"tensors/b"
record.spec.pattern.kind, record.spec.pattern.keep, record.spec.pattern.group = 2, 2, 4
record.spec.labels.add(key=b"k", value=b"v")
record.spec.traceparent = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
record.error.code, record.error.message = 13, b"x"
record.error.payloads.add(url=b"sparsefw/reason", value=b"STORE_FAILED\na=b\n")
record.states.add(state=1, revision=2)
record.expire_time.infinite = 1
put("job_record", "failed", record.SerializeToString())
record.result.mask, record.result.best_point = b"tensors/m", 7
record.result.sweep.add().error.code = 4
record.spec.sweep.add().pattern.sparsity = float("nan")
record.progress.iteration = -5
put("job_record", "sweep", record.SerializeToString())
record.state, record.spec.options.method, record.result.solve.stop_cause = 77, 99, -3
record.create_time.seconds, record.create_time.quarter_nanoseconds = 2**63 - 1, 2**32 - 1
record.error.code = 12345
put("job_record", "other_numbers", record.SerializeToString())
put("job_record", "truncated", record.SerializeToString()[:-3])
put("job_record", "progress", job_record_pb2.ProgressRecord(revision=7).SerializeToString())

put("page_token", "empty", "")
put("page_token", "number", "2")
put("page_token", "negative", "-1")
put("page_token", "long", "f" * 40)
put("page_token", "salted", "00000000000000020123456789abcdef")
put("page_token", "bytes", bytes(range(128, 160)))

DIGEST = "0123456789abcdef" * 4
put("tokens", "good", f"# comment\nalice:{DIGEST}\nbob:{DIGEST[::-1]}:2027-01-31T12:00:00Z\n")
put("tokens", "twice", f"alice:{DIGEST}\nbob:{DIGEST}\n")
put("tokens", "pasted", "alice:the-token-itself\n")
put("tokens", "bad_expiry", f"alice:{DIGEST}:tomorrow\n")
put("tokens", "other_characters", f"\u00e4lice:{DIGEST}\n")
put("tokens", "nothing", "\n\r\n#\n")
put("tenants", "good", "[alice]\nmax-queued-jobs = 5\nmax-tensor-bytes = 1GiB\nweight = 2.5\n"
    "[*]\npriority-max = -7\n")
put("tenants", "numbers", "[alice]\nweight = nan\n[bob]\nweight = inf\n[a]\nmax-uploads = -1\n")
put("tenants", "twice", "[alice]\n[alice]\n")
put("tenants", "no_section", "weight = 1\n")
put("tenants", "unknown", "[alice]\nshare = 1\n")
put("tenants", "half", "[alice\nweight =\n= 1\n")

put("traceparent", "good", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
put("traceparent", "upper", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01")
put("traceparent", "no_trace", "00-" + "0" * 32 + "-00f067aa0ba902b7-01")
put("traceparent", "no_span", "00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01")
put("traceparent", "version", "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what")
put("traceparent", "empty", "")

put("certificate", "names", "alice\nsparsefw:tenant:bob\nhttps://example.invalid")
put("certificate", "two_tenants", "\nsparsefw:tenant:a\nsparsefw:tenant:b")
put("certificate", "no_name", "sparsefw:tenant:\nsparsefw:tenant:\x00")
put("certificate", "no_content", "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
with tempfile.TemporaryDirectory() as folder:
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-days", "3650", "-subj", "/CN=fuzz",
                    "-keyout", "key", "-out", "pem"], cwd=folder, check=True, capture_output=True)
    pem = Path(folder, "pem").read_bytes()  # not the key: that would be one in a repository
put("certificate", "one", pem)
put("certificate", "chain", pem + pem)
put("certificate", "cut", pem[:len(pem) // 2] + b"\n-----END CERTIFICATE-----\n")

# Changes of a checkpoint of the engine cpu (even first byte) or reference (odd).
put("checkpoint", "cpu", b"\x00")
put("checkpoint", "reference", b"\x01")
put("checkpoint", "raw", b"\x02SFWCKPT\x00" + bytes(40))
put("checkpoint", "format", b"\x00" + bytes([8, 0, 9]))
put("checkpoint", "field_name", b"\x00" + bytes([16, 0, 0x55]))
put("checkpoint", "field_size", b"\x01" + bytes([32 + 7, 0, 0x7f]))
