"""A drain under load: running jobs, many watches and uploads. It ends in time; every client is told
to come back, does so by itself, and finishes after the restart with the same result."""
import signal
import threading
import time
import uuid

import grpc
import numpy as np

from support import safetensors
from support.processes import HANG, Cli, finish, wait_until
from support.rpc import Client, crc32c, job_pb2, prune_service_pb2, tensor_pb2, tensor_service_pb2

# What a client may see of a server that goes away: it comes back. CANCELLED: gRPC's own, where a
# busy machine has not ended a call in time.
RETRYABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
FLAGS = ("--workers", "4", "--drain-grace", "1s", "--checkpoint-period", "100ms")
TERMINAL = (job_pb2.JOB_STATE_SUCCEEDED, job_pb2.JOB_STATE_FAILED, job_pb2.JOB_STATE_CANCELLED)


class Worker(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.error, self.interrupted = None, 0
        self.begun, self.stopping = threading.Event(), threading.Event()

    def run(self):
        try:
            self.work()
        except Exception as error:
            self.error = error

    def come_back(self, error):
        assert error.code() in RETRYABLE, f"{error.code()}: {error.details()}"
        assert error.code() == grpc.StatusCode.UNAVAILABLE or "grpc-status-details-bin" not in \
            dict(error.trailing_metadata() or ()), "CANCELLED with a reason of ours"
        self.interrupted += 1
        time.sleep(0.1)


class Watcher(Worker):
    def __init__(self, client, job):
        super().__init__()
        self.client, self.job = client, job
        self.last = None

    def work(self):
        while self.last is None or self.last.state not in TERMINAL:
            request = prune_service_pb2.WatchJobRequest(
                name=self.job, after_revision=self.last.revision if self.last else 0)
            try:
                for event in self.client.jobs.WatchJob(request):
                    assert not self.last or event.job.revision >= self.last.revision
                    self.last = event.job
                    self.begun.set()
            except grpc.RpcError as error:
                self.come_back(error)


class Uploader(Worker):
    """One chunk every 50 ms; the second half once the drain has interrupted it."""
    CHUNK = 8192

    def __init__(self, client, array):
        super().__init__()
        self.client, self.data = client, array.tobytes()
        self.create = tensor_service_pb2.CreateUploadRequest(
            tensor=tensor_pb2.TensorSpec(kind=tensor_pb2.TENSOR_KIND_WEIGHT, dtype=tensor_pb2.DATA_TYPE_F32,
                                         dims=array.shape), request_id=str(uuid.uuid4()))
        self.tensor, self.committed = None, 0

    def chunks(self, upload):
        for begin in range(self.committed, len(self.data), self.CHUNK):
            data = self.data[begin:begin + self.CHUNK]
            yield tensor_service_pb2.WriteTensorRequest(
                upload=upload, finish=begin + self.CHUNK >= len(self.data),
                chunk=tensor_pb2.Chunk(offset=begin, crc32c=crc32c(data), data=data))
            if begin - self.committed > 4 * self.CHUNK:
                self.begun.set()
            time.sleep(0.05)
            while begin > len(self.data) / 2 and not self.interrupted and not self.stopping.is_set():
                time.sleep(0.05)

    def work(self):
        while self.tensor is None:
            try:
                made = self.client.tensors.CreateUpload(self.create, timeout=HANG)
                if made.HasField("tensor"):
                    self.tensor = made.tensor
                    return
                assert made.upload.committed_size >= self.committed
                self.committed = made.upload.committed_size
                self.tensor = self.client.tensors.WriteTensor(self.chunks(made.upload.name)).tensor
            except grpc.RpcError as error:
                self.come_back(error)


def running(cli):
    jobs = cli.run("list", "--json").expect(0).json()["jobs"]
    return [job["job"] for job in jobs if job["state"] == "RUNNING"]


def begin(start_server, layer, names, long):
    """A server under load; None where a job ended before the last client had begun."""
    server = start_server(*FLAGS)
    cli = Cli(server.address)
    submits = [cli.start(*layer.submit(*long, "--out", name)) for name in names]

    def all_run():
        found = running(cli)
        return found if len(found) == 4 or any(submit.poll() is not None for submit in submits) else None

    jobs = wait_until(all_run, "4 jobs run")
    clients = [Client(server.address) for _ in range(4)]
    workers = []
    if len(jobs) == 4:
        weight = np.random.default_rng(1).standard_normal((512, 256)).astype("<f4")
        workers = [Watcher(clients[number % 4], jobs[number // 4 % 4]) for number in range(100)]
        workers += [Uploader(clients[number % 4], weight) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        assert worker.begun.wait(HANG), worker.error
    if workers and len(running(cli)) == 4:
        return server, submits, clients, workers
    for worker in workers:
        worker.stopping.set()
    for submit in submits:
        finish(submit).expect(0)
    for worker in workers:
        worker.join(HANG)
    for client in clients:
        client.close()
    return None


def test_everybody_comes_back_and_finishes(start_server, layer, folder):
    names = [folder / f"mask{number}.safetensors" for number in range(4)]
    iterations, begun = 200_000, None
    while begun is None:
        iterations *= 2
        long = ("--method", "sparsefw", "--iterations", str(iterations), "--report-every", "2000")
        begun = begin(start_server, layer, names, long)
    server, submits, clients, workers = begun

    server.signal(signal.SIGTERM)
    assert server.wait() == 0, server.log()[-3000:]
    again = start_server("--listen", server.address, "--state-dir", server.state_dir, *FLAGS)

    for worker in workers:
        worker.join(HANG)
        assert not worker.is_alive(), "a client hangs"
        assert worker.error is None, repr(worker.error)
        assert worker.interrupted > 0, "the drain did not reach it"
        if isinstance(worker, Watcher):
            assert worker.last.state == job_pb2.JOB_STATE_SUCCEEDED
        else:
            assert worker.tensor.crc32c == crc32c(worker.data)
    for submit in submits:
        finish(submit).expect(0)
    masks = [safetensors.read(name)[0]["mask"] for name in names]
    Cli(again.address).run(*layer.submit(*long)).expect(0)
    assert all(np.array_equal(mask, layer.mask()) for mask in masks)
    for client in clients:
        client.close()
    assert again.stop() == 0
