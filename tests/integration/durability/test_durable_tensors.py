"""Tensors, uploads and accumulations over kill -9 and a restart on the same state folder."""
import threading
import urllib.request

import grpc
import numpy as np
import pytest

from support.processes import HANG, wait_until
from support.rpc import (Client, chunks, crc32c, error_info, job_pb2, prune_service_pb2,
                         tensor_pb2, tensor_service_pb2)

CODE = grpc.StatusCode


class Restarts:
    """One state folder, one server at a time."""

    def __init__(self, start, *flags):
        self.start, self.flags = start, flags
        self.server = start(*flags)
        self.state_dir = self.server.state_dir
        self.client = Client(self.server.address)

    def kill(self):
        """kill -9: files may be changed before restart()."""
        self.client.close()
        self.server.process.kill()
        self.server.process.wait()

    def restart(self):
        self.server = self.start("--state-dir", self.state_dir, *self.flags)
        self.client = Client(self.server.address)

    def kill_and_restart(self):
        self.kill()
        self.restart()

    def upload(self, name):
        return self.client.tensors.GetUpload(
            tensor_service_pb2.GetUploadRequest(name=name), timeout=HANG)

    def names(self, page_size=1000):
        names, token = [], ""
        while True:
            page = self.client.tensors.ListTensors(
                tensor_service_pb2.ListTensorsRequest(page_size=page_size, page_token=token))
            names += [tensor.name for tensor in page.tensors]
            token = page.next_page_token
            if not token:
                return names

    def file_of(self, name):
        return self.state_dir / "spool" / (name.split("/")[1] + ".tensor")

    def files(self):
        return sorted(path.name for path in (self.state_dir / "spool").glob("*.tensor"))

    def metric(self, name):
        with urllib.request.urlopen(f"http://{self.server.metrics}/metrics", timeout=HANG) as got:
            for line in got.read().decode().splitlines():
                if line.startswith(f"sparsefw_{name} "):
                    return float(line.split()[1])
        raise AssertionError(f"no metric {name}")


@pytest.fixture
def restarts(start_server):
    made = []

    def make(*flags):
        made.append(Restarts(start_server, *flags))
        return made[-1]

    yield make
    for one in made:
        one.client.close()


def unfinished(client, upload, raw, end, chunk=50_000):
    """Writes [0, end) and closes the stream: the server acknowledges what it has."""
    response = client.tensors.WriteTensor(
        chunks(upload, raw[:end], chunk=chunk, finish=False), timeout=HANG)
    return response.committed_size


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_upload_goes_on_after_kill(restarts, seed):
    servers = restarts()
    random = np.random.default_rng(seed)
    data = random.standard_normal((512, 300)).astype("<f4")
    raw = data.tobytes()
    upload = servers.client.create_upload(data, "weight", request_id="the one", owner="me")
    end = int(random.integers(1, len(raw)))
    assert unfinished(servers.client, upload.name, raw, end) == end

    # More comes, on a stream that nobody ends: it may be lost, what was acknowledged not.
    killed = threading.Event()

    def more():
        yield from chunks(upload.name, raw[:min(len(raw), end + 100_000)], begin=end,
                          chunk=9000, finish=False)
        killed.wait(HANG)

    call = servers.client.tensors.WriteTensor.future(more(), timeout=HANG)
    wait_until(lambda: servers.metric('rpc_in_flight{method="TensorService/WriteTensor"}') == 1, "the second stream is open")
    servers.kill()
    killed.set()
    with pytest.raises(grpc.RpcError):
        call.result()
    servers.restart()

    state = servers.upload(upload.name)
    assert end <= state.committed_size <= len(raw)
    assert state.committed_crc32c == crc32c(raw[:state.committed_size])
    again = servers.client.create_upload(data, "weight", request_id="the one", owner="me")
    assert again.name == upload.name and again.committed_size == state.committed_size
    tensor = servers.client.write(upload.name, raw, begin=state.committed_size).tensor
    assert tensor.crc32c == crc32c(raw) and tensor.owner == "me"
    servers.kill_and_restart()
    assert servers.client.read(tensor.name) == raw
    created = servers.client.tensors.CreateUpload(tensor_service_pb2.CreateUploadRequest(
        tensor=tensor.spec, request_id="the one", owner="me"))
    assert created.tensor.name == tensor.name


def gram_requests(upload, inputs, begin, end, count, finish):
    for first in range(begin, end, count):
        data = inputs[first:min(first + count, end)].tobytes()
        yield tensor_service_pb2.AccumulateGramRequest(
            upload=upload if first == begin else None, token_offset=first, crc32c=crc32c(data),
            data=data, finish=finish and first + count >= end)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_accumulation_goes_on_after_kill_with_the_same_bits(restarts, seed):
    servers = restarts()
    random = np.random.default_rng(seed)
    tokens, d_in = 2500, 40  # more than two blocks of 1024
    inputs = random.standard_normal((tokens, d_in)).astype("<f4")
    spec = tensor_pb2.GramSpec(d_in=d_in, activation_dtype=tensor_pb2.DATA_TYPE_F32,
                               gram_dtype=tensor_pb2.DATA_TYPE_F64)

    def create():
        return servers.client.tensors.CreateUpload(
            tensor_service_pb2.CreateUploadRequest(gram=spec)).upload.name

    def accumulate(upload, begin, end, count, finish):
        return servers.client.tensors.AccumulateGram(
            gram_requests(upload, inputs, begin, end, count, finish), timeout=HANG)

    whole = accumulate(create(), 0, tokens, 333, True).gram
    expected = servers.client.read(whole.name)
    upload, done = create(), 0
    for cut in sorted(random.choice(np.arange(1, tokens), 3, replace=False)):
        assert accumulate(upload, done, int(cut), 77, False).committed_tokens == cut
        servers.kill_and_restart()
        done = servers.upload(upload).committed_tokens
        assert done == cut
    gram = accumulate(upload, done, tokens, 501, True).gram
    assert gram.spec.token_count == tokens and gram.crc32c == whole.crc32c
    assert servers.client.read(gram.name) == expected
    assert len(servers.files()) == 2, "no file of sums is left"


def test_names_and_page_order_after_restart(restarts):
    servers = restarts()
    data = np.arange(64, dtype="<f4").reshape(8, 8)
    for _ in range(7):
        servers.client.upload(data, "weight")
    names = servers.names()
    page = servers.client.tensors.ListTensors(tensor_service_pb2.ListTensorsRequest(page_size=3))
    servers.kill_and_restart()
    assert servers.names(page_size=2) == names
    rest = servers.client.tensors.ListTensors(tensor_service_pb2.ListTensorsRequest(
        page_size=100, page_token=page.next_page_token))
    assert [tensor.name for tensor in rest.tensors] == names[3:]
    assert servers.server.stop() == 0
    servers.restart()
    assert servers.names() == names, "a drain keeps them too"


def corrupt(servers, name):
    with pytest.raises(grpc.RpcError) as error:
        servers.client.read(name)
    code, reason, _ = error_info(error.value)
    assert (code, reason) == (CODE.DATA_LOSS, "TENSOR_CORRUPT")


def test_damage_is_found_and_orphans_are_swept(restarts):
    servers = restarts()
    data = np.arange(4096, dtype="<f4").reshape(64, 64)
    good, cut, flipped, missing = [servers.client.upload(data, "weight") for _ in range(4)]
    servers.kill()
    with open(servers.file_of(cut), "r+b") as file:
        file.truncate(100)
    with open(servers.file_of(flipped), "r+b") as file:
        file.seek(5000)
        byte = file.read(1)[0]
        file.seek(5000)
        file.write(bytes([byte ^ 4]))
    servers.file_of(missing).unlink()
    orphan = servers.state_dir / "spool" / ("0" * 32 + ".tensor")
    orphan.write_bytes(b"of a write that was killed")
    servers.restart()
    assert not orphan.exists()
    wait_until(lambda: servers.metric("tensors_corrupt_total") == 2, "both are found")
    wait_until(lambda: servers.metric("tensors_unchecked") == 0, "all are checked")
    log = servers.server.log()
    for kind, name in (("corrupt_tensor", cut), ("corrupt_tensor", flipped),
                       ("missing_file", missing), ("orphan_file", "0" * 32)):
        assert any(kind in line and name in line for line in log.splitlines()), (kind, log)
    assert sorted(servers.names()) == sorted([good, cut, flipped])
    corrupt(servers, cut)
    corrupt(servers, flipped)
    assert servers.client.read(good) == data.tobytes()
    for name in (cut, flipped):
        servers.client.tensors.DeleteTensor(tensor_service_pb2.DeleteTensorRequest(name=name))
    assert servers.files() == [servers.file_of(good).name]


def test_memory_store_forgets(restarts):
    servers = restarts("--store", "memory")
    servers.client.upload(np.zeros((8, 8), "<f4"), "weight")
    assert len(servers.files()) == 1
    servers.kill_and_restart()
    assert servers.names() == [] and servers.files() == []
    assert not (servers.state_dir / "sparsefw.db").exists()


def test_disk_budget(restarts):
    data = np.zeros((1024, 1024), "<f4")  # 4 MiB; the database has some 100 KiB
    servers = restarts("--disk-budget", "6MiB")
    name = servers.client.upload(data, "weight")
    for _ in range(2):
        with pytest.raises(grpc.RpcError) as error:
            servers.client.create_upload(data, "weight")
        code, reason, metadata = error_info(error.value)
        assert (code, reason) == (CODE.RESOURCE_EXHAUSTED, "DISK_BUDGET")
        assert int(metadata["retry_delay_ms"]) > 0
        servers.kill_and_restart()
    servers.client.tensors.DeleteTensor(tensor_service_pb2.DeleteTensorRequest(name=name))
    servers.client.create_upload(data, "weight")


def test_unused_tensors_expire(restarts):
    servers = restarts("--tensor-ttl", "2s", "--gc-interval", "100ms")
    name = servers.client.upload(np.zeros((8, 8), "<f4"), "weight")
    assert servers.client.tensors.GetTensor(
        tensor_service_pb2.GetTensorRequest(name=name)).HasField("expire_time")
    servers.kill_and_restart()
    wait_until(lambda: servers.names() == [] and servers.files() == [], "it expires")


def test_a_stalled_reader_does_not_keep_a_tensor(restarts):
    servers = restarts()
    data = np.zeros((1024, 4096), "<f4")
    name = servers.client.upload(data, "weight")
    stream = servers.client.tensors.ReadTensor(
        tensor_service_pb2.ReadTensorRequest(name=name), timeout=HANG)
    got = next(stream).chunk.data  # and then nothing, for as long as one likes
    servers.client.tensors.DeleteTensor(tensor_service_pb2.DeleteTensorRequest(name=name))
    assert servers.names() == [] and servers.files() == []
    for response in stream:
        got += response.chunk.data
    assert got == data.tobytes(), "it reads on to the end"


def test_bytes_sent_again_are_compared_and_a_wrong_total_begins_anew(restarts):
    servers = restarts()
    data = np.arange(4096, dtype="<f4").reshape(64, 64)
    raw = data.tobytes()
    upload = servers.client.create_upload(data, "weight").name
    assert unfinished(servers.client, upload, raw, 9000) == 9000
    other = raw[:8000] + b"?" + raw[8001:]
    with pytest.raises(grpc.RpcError) as error:
        servers.client.write(upload, other, finish=False)
    code, reason, metadata = error_info(error.value)
    assert (code, reason) == (CODE.DATA_LOSS, "BYTES_DIFFER")
    assert metadata["committed_size"] == "9000"
    # A total that does not fit: the client has other bytes than it sent before.
    wrong = raw[:9000] + raw[9000:][::-1]
    with pytest.raises(grpc.RpcError) as error:
        requests = list(chunks(upload, wrong, begin=9000))
        requests[-1].total_crc32c = crc32c(raw)
        servers.client.tensors.WriteTensor(iter(requests), timeout=HANG)
    code, reason, metadata = error_info(error.value)
    assert (code, reason) == (CODE.DATA_LOSS, "CHECKSUM_MISMATCH")
    assert metadata["committed_size"] == "0"
    servers.kill_and_restart()
    tensor = servers.client.write(upload, raw).tensor
    assert servers.client.read(tensor.name) == raw


def test_tensors_of_an_interrupted_prune_call_are_deleted(restarts, layer):
    servers = restarts()
    kept = servers.client.upload(layer.weight, "weight")

    def requests():
        pattern = job_pb2.Pattern(nm=job_pb2.Pattern.KeepOfGroup(keep=2, group=4))
        spec = job_pb2.JobSpec(method=job_pb2.METHOD_SPARSEFW, pattern=pattern,
                               sparsefw=job_pb2.SparseFwOptions(iterations=10**12))
        tensor = lambda kind, array: tensor_pb2.TensorSpec(  # noqa: E731
            kind=kind, dtype=tensor_pb2.DATA_TYPE_F32, dims=array.shape)
        yield prune_service_pb2.PruneRequest(header=prune_service_pb2.PruneHeader(
            spec=spec, weight=tensor(tensor_pb2.TENSOR_KIND_WEIGHT, layer.weight),
            gram=tensor(tensor_pb2.TENSOR_KIND_GRAM, layer.gram)))
        for kind, array in (("weight", layer.weight), ("gram", layer.gram)):
            data = array.tobytes()
            yield prune_service_pb2.PruneRequest(
                **{kind: tensor_pb2.Chunk(offset=0, crc32c=crc32c(data), data=data)})

    stream = servers.client.jobs.Prune(requests(), timeout=HANG)
    accepted = next(stream).accepted
    assert {accepted.weight, accepted.gram} < set(servers.names())
    servers.kill_and_restart()
    # Whether the job is there again or not: nothing that belongs to it outlives it.
    try:
        servers.client.jobs.CancelJob(prune_service_pb2.CancelJobRequest(name=accepted.job))
    except grpc.RpcError as error:
        assert error.code() == CODE.NOT_FOUND
    wait_until(lambda: not {accepted.weight, accepted.gram} & set(servers.names()), "its tensors are deleted")
    assert kept in servers.names()


def test_inputs_of_queued_jobs_are_read_when_their_job_runs(restarts, big_layer):
    """A start reads no bytes of tensors: it would take as long as all of them are large."""
    servers = restarts("--workers", "1")
    gram = servers.client.upload(big_layer.gram, "gram")

    def queue():
        spec = job_pb2.JobSpec(weight=servers.client.upload(big_layer.weight, "weight"), gram=gram,
                               method=job_pb2.METHOD_SPARSEFW)
        spec.pattern.per_row.sparsity = 0.5
        spec.sparsefw.iterations = 10**12
        request = prune_service_pb2.CreateJobRequest(spec=spec)
        return servers.client.jobs.CreateJob(request, timeout=HANG)

    def get():
        return servers.client.jobs.GetJob(prune_service_pb2.GetJobRequest(name=queued.name), timeout=HANG)

    running, queued = queue(), queue()
    servers.kill()
    with open(servers.file_of(queued.spec.weight), "r+b") as file:
        file.seek(5000)
        byte = file.read(1)[0]
        file.seek(5000)
        file.write(bytes([byte ^ 4]))
    servers.restart()
    recovered = next(line for line in servers.server.log().splitlines() if "jobs_recovered" in line)
    assert "queued=2" in recovered and "failed=0" in recovered, recovered
    assert get().state == job_pb2.JOB_STATE_QUEUED
    servers.client.jobs.CancelJob(prune_service_pb2.CancelJobRequest(name=running.name), timeout=HANG)
    wait_until(lambda: get().state == job_pb2.JOB_STATE_FAILED, "the job meets its damaged weight")
    error = get().error
    assert "must have the checksum" in error.message and queued.spec.weight in error.message, error
    assert any(b"TENSOR_CORRUPT" in detail.value for detail in error.details), error
