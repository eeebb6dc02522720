"""request_id of uploads and sums: the same request gives the same tensor, another one is refused."""
import hashlib
import sqlite3
import threading

import grpc
import numpy as np
import pytest

from support.processes import HANG
from support.rpc import (Client, chunks, error_info, prune_service_pb2, refusal, tensor_pb2,
                         tensor_service_pb2)

CODE = grpc.StatusCode
D_IN = 16


def gram(scale, size=D_IN):
    return np.eye(size, dtype=np.float32) * scale


def upload_gram(client, array, tokens=10):
    spec = tensor_pb2.TensorSpec(kind=tensor_pb2.TENSOR_KIND_GRAM, dtype=tensor_pb2.DATA_TYPE_F32, dims=array.shape,
                                 token_count=tokens)
    request = tensor_service_pb2.CreateUploadRequest(tensor=spec)
    upload = client.tensors.CreateUpload(request, timeout=HANG).upload
    return client.write(upload.name, array.tobytes(), chunk=1 << 20).tensor.name


def sum_of(client, parts, request_id="", **fields):
    request = tensor_service_pb2.SumGramsRequest(grams=parts, request_id=request_id, **fields)
    return client.tensors.SumGrams(request, timeout=HANG)


REUSED = (CODE.INVALID_ARGUMENT, "REQUEST_ID_REUSED")


def test_a_sum_is_named_by_its_parts_too(client):
    parts = [upload_gram(client, gram(scale)) for scale in (1, 2, 3, 4)]
    first = sum_of(client, parts[:2], "x")
    assert refusal(lambda: sum_of(client, parts[2:], "x")) == REUSED
    assert refusal(lambda: sum_of(client, [parts[1], parts[0]], "x")) == REUSED
    assert refusal(lambda: sum_of(client, parts[:2], "x", owner="somebody")) == REUSED
    assert sum_of(client, parts[:2], "x").name == first.name
    values = np.frombuffer(client.read(first.name), np.float32).reshape(D_IN, D_IN)
    assert (values == gram(3)).all()


def test_callers_of_one_sum_all_get_it(client):
    parts = [upload_gram(client, gram(scale, 700), tokens=1) for scale in range(1, 6)]
    for turn in range(5):
        names = []

        def call():
            own = Client(client.address)
            try:
                names.append(sum_of(own, parts, f"turn {turn}").name)
            finally:
                own.close()

        callers = [threading.Thread(target=call) for _ in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert len(names) == 4 and len(set(names)) == 1, names


def test_a_refused_sum_leaves_an_upload_alone(client):
    parts = [upload_gram(client, gram(scale)) for scale in (1, 2)]
    spec = tensor_pb2.TensorSpec(kind=tensor_pb2.TENSOR_KIND_GRAM, dtype=tensor_pb2.DATA_TYPE_F32, dims=[D_IN, D_IN],
                                 token_count=20)
    request = tensor_service_pb2.CreateUploadRequest(tensor=spec, request_id="y")
    upload = client.tensors.CreateUpload(request).upload
    data = bytes(range(256)) * (D_IN * D_IN * 4 // 256)
    client.tensors.WriteTensor(chunks(upload.name, data[:512], finish=False), timeout=HANG)
    assert refusal(lambda: sum_of(client, parts, "y")) == REUSED
    found = client.tensors.GetUpload(tensor_service_pb2.GetUploadRequest(name=upload.name))
    assert found.committed_size == 512
    assert client.read(client.write(upload.name, data, begin=512).tensor.name) == data


def test_requests_are_the_same_after_a_restart(start_server):
    server = start_server()
    client = Client(server.address)
    parts = [upload_gram(client, gram(scale)) for scale in (1, 2, 3)]
    first = sum_of(client, parts[:2], "x")
    old = sum_of(client, parts[:2], "recorded by version 1")
    client.close()
    assert server.stop() == 0
    with sqlite3.connect(server.state_dir / "sparsefw.db") as database:
        changed = database.execute("UPDATE tensors SET request_fingerprint = NULL WHERE request_id = ?",
                                   ("recorded by version 1",))
        assert changed.rowcount == 1
    database.close()
    server = start_server("--state-dir", server.state_dir)
    client = Client(server.address)
    assert sum_of(client, parts[:2], "x").name == first.name
    assert refusal(lambda: sum_of(client, parts[1:], "x")) == REUSED
    assert sum_of(client, parts[:2], "recorded by version 1").name == old.name
    client.close()


def job_request(layer, **fields):
    request = prune_service_pb2.CreateJobRequest(**fields)
    request.spec.weight, request.spec.gram = layer
    request.spec.pattern.per_row.sparsity = 0.5
    request.spec.sparsefw.iterations = 1
    return request


def with_unknown_field(request, size):
    """As of a client that is newer than the server."""
    number = 2000 << 3 | 2  # bytes
    varint = lambda n: bytes([n & 0x7F | 0x80]) + varint(n >> 7) if n > 0x7F else bytes([n])
    data = request.SerializeToString() + varint(number) + varint(size) + b"x" * size
    return prune_service_pb2.CreateJobRequest.FromString(data)


def test_what_is_kept_of_a_job_does_not_grow_with_fields_that_nobody_knows(start_server, layer):
    server = start_server()
    client = Client(server.address)
    inputs = (client.upload(layer.weight, "weight"), client.upload(layer.gram, "gram"))
    request = job_request(inputs)
    create = lambda one: client.jobs.CreateJob(one, timeout=HANG).name
    large = []
    for i in range(20):
        request.request_id = f"large {i}"
        large.append(with_unknown_field(request, 250_000))
    names = [create(one) for one in large]
    assert [create(one) for one in large] == names, "the same requests"
    assert refusal(lambda: create(request)) == REUSED
    assert refusal(lambda: create(with_unknown_field(request, 5))) == REUSED
    client.close()
    assert server.stop() == 0
    path = server.state_dir / "sparsefw.db"
    assert path.stat().st_size < 2 << 20, "of 5 MB that were sent"
    server = start_server("--state-dir", server.state_dir)
    client = Client(server.address)
    create = lambda one: client.jobs.CreateJob(one, timeout=HANG).name
    assert [create(one) for one in large] == names, "after a restart, too"
    client.close()


def prune(client, header):
    """To the end: a job that was cancelled with its stream is run again by a repeated call."""
    request = prune_service_pb2.PruneRequest(header=header)
    first, *_ = client.jobs.Prune(iter([request]), timeout=HANG)
    return first.accepted.job


def test_a_prune_call_is_another_request_than_a_job_with_its_bytes(start_server, layer):
    server = start_server()
    client = Client(server.address)
    inputs = (client.upload(layer.weight, "weight"), client.upload(layer.gram, "gram"))
    request = job_request(inputs, request_id="same")
    header = prune_service_pb2.PruneHeader(spec=request.spec, request_id="same")
    other = prune_service_pb2.PruneHeader(spec=request.spec, request_id="other")
    create = lambda: client.jobs.CreateJob(request, timeout=HANG).name
    job, pruned = create(), prune(client, other)
    assert refusal(lambda: prune(client, header)) == REUSED
    client.close()
    assert server.stop() == 0
    # Earlier builds did not tell the calls apart.
    with sqlite3.connect(server.state_dir / "sparsefw.db") as database:
        digest = hashlib.sha256(prune_service_pb2.CreateJobRequest(
            spec=request.spec).SerializeToString(deterministic=True)).digest()
        assert database.execute("UPDATE jobs SET fingerprint = ?", (digest,)).rowcount == 2
    database.close()
    server = start_server("--state-dir", server.state_dir)
    client = Client(server.address)
    assert (create(), prune(client, other)) == (job, pruned)
    client.close()


def write(client, upload, data, chunk=4096, finish=True, total=True):
    """The tensor, or the reason of the refusal."""
    requests = list(chunks(upload, data, chunk=chunk, finish=finish))
    if not total:
        requests[-1].ClearField("total_crc32c")
    try:
        return client.tensors.WriteTensor(iter(requests), timeout=HANG).tensor, None
    except grpc.RpcError as error:
        return None, error_info(error)[:2]


DIFFER = (CODE.DATA_LOSS, "BYTES_DIFFER")


def test_other_bytes_for_a_finished_upload_are_refused(client):
    ours, others = np.zeros((32, 32), np.float32), np.ones((32, 32), np.float32)
    upload = client.create_upload(ours, "weight").name
    tensor, _ = write(client, upload, ours.tobytes())
    for finish in (False, True):
        assert write(client, upload, others.tobytes(), finish=finish, total=False) == (None, DIFFER)
        again, _ = write(client, upload, ours.tobytes(), finish=finish, total=False)
        assert again.name == tensor.name
    assert client.read(tensor.name) == ours.tobytes()


def test_each_of_two_writers_finds_its_own_bytes(client):
    array = np.zeros((64, 64), np.float32)
    for _ in range(30):
        upload = client.create_upload(array, "weight").name
        sent = {b"\1": None, b"\2": None}

        def send(byte):
            sent[byte] = write(client, upload, byte * array.nbytes, chunk=1024, total=False)

        writers = [threading.Thread(target=send, args=(byte,)) for byte in sent]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        accepted = [byte for byte, (tensor, _) in sent.items() if tensor is not None]
        assert len(accepted) <= 1, sent
        for byte, (tensor, reason) in sent.items():
            if tensor is None:
                assert reason == DIFFER
            else:
                assert client.read(tensor.name) == byte * array.nbytes
