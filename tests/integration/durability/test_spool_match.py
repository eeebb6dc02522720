"""Database and spool that do not belong together: the start is refused and nothing is removed."""
import shutil
import threading

import grpc
import numpy as np
import pytest

from support.processes import HANG, wait_until
from support.rpc import (Client, chunks, crc32c, error_info, prune_service_pb2, tensor_pb2,
                         tensor_service_pb2)

TENSOR = np.arange(64, dtype="<f4").reshape(8, 8)


class State:
    """A state folder with three tensors, of a server that has ended."""

    def __init__(self, start_server, *flags):
        self.start_server = start_server
        server = start_server(*flags)
        self.folder = server.state_dir
        self.tensors = self.with_client(server, lambda client: [
            client.upload(TENSOR + i, "weight") for i in range(3)])
        server.close()  # as a kill: the log of the database stays

    @staticmethod
    def with_client(server, action):
        client = Client(server.address)
        try:
            return action(client)
        finally:
            client.close()

    def files(self):
        return sorted(path.name for path in (self.folder / "spool").glob("*.tensor"))

    def refused(self, *flags):
        """The message of the start."""
        server = self.start_server("--state-dir", self.folder, *flags, wait=False)
        assert server.wait() == 2, server.log()
        line = server.log().splitlines()[-1]
        assert line.endswith(" (SPOOL_MISMATCH)"), line
        return line

    def starts(self, *flags):
        """Starts, and returns the names of the tensors."""
        server = self.start_server("--state-dir", self.folder, *flags)
        names = self.with_client(server, lambda client: [
            tensor.name for tensor in client.tensors.ListTensors(
                tensor_service_pb2.ListTensorsRequest(), timeout=HANG).tensors])
        assert server.stop() == 0
        return sorted(names)


@pytest.fixture
def state(start_server):
    return lambda *flags: State(start_server, *flags)


def test_an_empty_database_beside_a_full_spool(state, folder):
    one = state()
    files = one.files()
    shutil.copytree(one.folder, folder / "copy")
    for path in one.folder.glob("sparsefw.db*"):
        path.unlink()
    for _ in range(2):  # the first start has made a database: the second one asks, too
        line = one.refused()
        assert "another database" in line and "3 files of 768 bytes" in line, line
        assert "--discard-unmatched" in line and str(one.folder / "spool") in line, line
        assert one.files() == files
    # The right database makes it good.
    for path in one.folder.glob("sparsefw.db*"):
        path.unlink()
    for path in (folder / "copy").glob("sparsefw.db*"):
        shutil.copy(path, one.folder)
    assert one.starts() == sorted(one.tensors)


def test_a_flag_discards_what_does_not_match(state):
    one = state()
    for path in one.folder.glob("sparsefw.db*"):
        path.unlink()
    one.refused()
    assert one.starts("--discard-unmatched") == []
    assert one.files() == []
    assert one.starts() == [], "asked for once"


def test_the_spool_of_another_server(state):
    one, other = state(), state()
    line = one.refused("--spool-dir", other.folder / "spool")
    assert "another database" in line and "3 files" in line and "3 records" in line, line
    assert other.starts() == sorted(other.tensors)
    assert one.starts() == sorted(one.tensors)


def test_a_spool_that_is_not_mounted(state, folder):
    one = state()
    (one.folder / "spool").rename(folder / "away")
    line = one.refused()
    assert "3 records whose files are missing" in line, line
    shutil.rmtree(one.folder / "spool")
    (folder / "away").rename(one.folder / "spool")
    assert one.starts() == sorted(one.tensors)


def test_a_spool_that_is_not_mounted_with_an_open_upload_alone(start_server, folder):
    server = start_server()
    name = State.with_client(server, lambda client: begin_upload(client))
    server.close()
    (server.state_dir / "spool").rename(folder / "away")
    again = start_server("--state-dir", server.state_dir, wait=False)
    assert again.wait() == 2 and "1 records whose files are missing" in again.log(), again.log()
    shutil.rmtree(server.state_dir / "spool")
    (folder / "away").rename(server.state_dir / "spool")
    again = start_server("--state-dir", server.state_dir)
    upload = State.with_client(again, lambda client: client.tensors.GetUpload(
        tensor_service_pb2.GetUploadRequest(name=name), timeout=HANG))
    assert upload.committed_size == TENSOR.nbytes // 2


def begin_upload(client):
    """Half of a tensor, committed; the upload's name."""
    upload = client.create_upload(TENSOR, "weight")
    half = TENSOR.tobytes()[:TENSOR.nbytes // 2]
    client.tensors.WriteTensor(chunks(upload.name, half, finish=False), timeout=HANG)
    state = client.tensors.GetUpload(tensor_service_pb2.GetUploadRequest(name=upload.name), timeout=HANG)
    assert state.committed_size == len(half)
    return upload.name


def test_a_memory_store_takes_no_spool_of_a_database(state, start_server):
    one = state()
    line = one.refused("--store", "memory")
    assert "the spool is that of a database" in line, line
    assert one.starts() == sorted(one.tensors)
    # It takes a spool of its own, and a database takes over what it has left.
    memory = state("--store", "memory")
    assert len(memory.files()) == 3
    assert memory.starts("--store", "memory") == [] and memory.files() == []


class OpenStreams:
    """Calls that have sent their first message and wait: each has uploads that no record names."""

    def __init__(self, client):
        self.client, self.ended, self.calls = client, threading.Event(), []

    def _open(self, call, first):
        def requests():
            yield first
            self.ended.wait(HANG)
        self.calls.append(call(requests(), timeout=HANG))

    def write(self):
        spec = tensor_pb2.TensorSpec(kind=tensor_pb2.TENSOR_KIND_WEIGHT, dtype=tensor_pb2.DATA_TYPE_F32, dims=(8, 8))
        piece = b"x" * 16
        self._open(self.client.tensors.WriteTensor.future, tensor_service_pb2.WriteTensorRequest(
            spec=spec, chunk=tensor_pb2.Chunk(data=piece, crc32c=crc32c(piece))))

    def prune(self):
        header = prune_service_pb2.PruneHeader(
            weight=tensor_pb2.TensorSpec(kind=tensor_pb2.TENSOR_KIND_WEIGHT, dtype=tensor_pb2.DATA_TYPE_F32, dims=(8, 8)),
            gram=tensor_pb2.TensorSpec(kind=tensor_pb2.TENSOR_KIND_GRAM, dtype=tensor_pb2.DATA_TYPE_F32, dims=(8, 8),
                                       token_count=1))
        header.spec.pattern.per_row.sparsity = 0.5
        self._open(self.client.jobs.Prune, prune_service_pb2.PruneRequest(header=header))

    def close(self):
        self.ended.set()
        for call in self.calls:
            call.cancel()


def test_a_kill_with_many_open_streams(state, start_server):
    """A start that asks for --discard-unmatched after that could be arranged by any client."""
    one = state()
    server = start_server("--state-dir", one.folder)
    client = Client(server.address)
    resumable = client.create_upload(TENSOR, "weight").name
    client.tensors.WriteTensor(iter([tensor_service_pb2.WriteTensorRequest(
        upload=resumable, chunk=tensor_pb2.Chunk(data=TENSOR.tobytes()[:128],
                                                 crc32c=crc32c(TENSOR.tobytes()[:128])))]),
                               timeout=HANG)
    streams = OpenStreams(client)
    for _ in range(40):
        streams.write()
        streams.prune()
    everything = lambda: [path for path in (one.folder / "spool").iterdir()
                          if path.suffix in (".tensor", ".part")]
    wait_until(lambda: len(everything()) >= 3 + 1 + 40 + 2 * 40, "all streams have their files")
    server.close()
    streams.close()
    client.close()
    server = start_server("--state-dir", one.folder)
    client = Client(server.address)
    names = [tensor.name for tensor in client.tensors.ListTensors(
        tensor_service_pb2.ListTensorsRequest(), timeout=HANG).tensors]
    assert sorted(names) == sorted(one.tensors)
    assert len(everything()) == 4, "what nobody can go on with is gone"
    tensor = client.write(resumable, TENSOR.tobytes(), begin=128).tensor.name
    assert client.read(tensor) == TENSOR.tobytes()
    client.close()


def test_many_deletions_while_the_database_is_full_and_a_kill(start_server):
    """The files are gone, since deletions must free room, and the records are not."""
    server = start_server()
    client = Client(server.address)
    names = [client.upload(TENSOR + i, "weight") for i in range(101)]
    server.limit_file_size(4096)
    with pytest.raises(grpc.RpcError) as raised:
        client.create_upload(TENSOR[:1, :1], "weight")
    assert error_info(raised.value)[1] == "STORE_FULL"
    for name in names[1:]:
        client.tensors.DeleteTensor(tensor_service_pb2.DeleteTensorRequest(name=name), timeout=HANG)
    spool = server.state_dir / "spool"
    assert len(list(spool.glob("*.tensor"))) == 1
    client.close()
    server.close()
    server = start_server("--state-dir", server.state_dir)
    client = Client(server.address)
    listed = client.tensors.ListTensors(tensor_service_pb2.ListTensorsRequest(), timeout=HANG)
    assert [tensor.name for tensor in listed.tensors] == names[:1]
    assert client.read(names[0]) == TENSOR.tobytes()
    assert not list(spool.glob("*.deleted")), "the records are gone, too"
    client.close()


def test_files_beyond_a_size_limit_are_errors_of_one_call(start_server, layer):
    """LimitFSIZE= of systemd, ulimit -f: the signal would end the server."""
    server = start_server()
    client = Client(server.address)
    inputs = (client.upload(layer.weight, "weight"), client.upload(layer.gram, "gram"))
    server.limit_file_size(4 << 20)
    with pytest.raises(grpc.RpcError) as raised:
        client.upload(np.zeros((2048, 1024), "<f4"), "weight")  # 8 MiB
    assert error_info(raised.value)[1] == "SPOOL_FULL"
    kept = client.upload(np.ones((64, 64), "<f4"), "weight")
    # The database and its log, too. Jobs that were accepted are there.
    labels = {f"key{i}": "x" * 255 for i in range(32)}
    request = prune_service_pb2.CreateJobRequest()
    request.spec.weight, request.spec.gram = inputs
    request.spec.pattern.per_row.sparsity = 0.5
    request.spec.labels.update(labels)
    jobs, reason = [], None
    while reason is None:
        try:
            jobs.append(client.jobs.CreateJob(request, timeout=HANG).name)
        except grpc.RpcError as error:
            reason, text = error_info(error)[1], error.details()
        assert len(jobs) < 5000, "there is no limit"
    assert reason == "STORE_FULL" and jobs, text
    assert client.read(kept) == np.ones((64, 64), "<f4").tobytes()
    for name in jobs[:3]:
        assert client.jobs.GetJob(prune_service_pb2.GetJobRequest(name=name), timeout=HANG)
    server.limit_file_size("unlimited")
    assert client.jobs.CreateJob(request, timeout=HANG).name, "and goes on without the limit"
    client.close()
    assert server.process.poll() is None
