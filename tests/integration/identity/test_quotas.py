"""What a tenant may use: limits of its jobs and tensors, and its share of the work."""
import grpc
import numpy as np
import pytest

from sparsefw.v1 import job_pb2, prune_service_pb2, tensor_pb2, tensor_service_pb2
from support.identity import TOKENS, write_tokens
from support.processes import Server, wait_until
from support.rpc import DTYPES, KINDS, Client, chunks, error_info

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
ENDLESS = 1 << 40


class Tenant:
    """A client with the token of a tenant."""

    def __init__(self, address, name):
        self.client = Client(address)
        self.metadata = (("authorization", f"Bearer {TOKENS[name]}"),)
        self.inputs = None

    def call(self, stub, request):
        return stub(request, timeout=30, metadata=self.metadata)

    def create_upload(self, array, kind="weight"):
        spec = tensor_pb2.TensorSpec(kind=KINDS[kind], dtype=DTYPES[array.dtype.str],
                                     dims=array.shape)
        return self.call(self.client.tensors.CreateUpload,
                         tensor_service_pb2.CreateUploadRequest(tensor=spec)).upload.name

    def upload(self, array, kind="weight"):
        return self.call(self.client.tensors.WriteTensor,
                         chunks(self.create_upload(array, kind), array.tobytes())).tensor.name

    def delete_upload(self, name):
        self.call(self.client.tensors.DeleteUpload,
                  tensor_service_pb2.DeleteUploadRequest(name=name))

    def delete_tensor(self, name):
        self.call(self.client.tensors.DeleteTensor,
                  tensor_service_pb2.DeleteTensorRequest(name=name))

    def create_job(self, layer, iterations, **fields):
        if self.inputs is None:
            self.inputs = (self.upload(layer.weight), self.upload(layer.gram, "gram"))
        spec = job_pb2.JobSpec(weight=self.inputs[0], gram=self.inputs[1],
                               method=job_pb2.SPARSEFW, **fields)
        spec.pattern.per_row.sparsity = 0.5
        spec.sparsefw.iterations = iterations
        return self.call(self.client.jobs.CreateJob,
                         prune_service_pb2.CreateJobRequest(spec=spec)).name

    def job(self, name):
        return self.call(self.client.jobs.GetJob, prune_service_pb2.GetJobRequest(name=name))

    def state(self, name):
        return self.job(name).state

    def count(self, state):
        return len(self.call(self.client.jobs.ListJobs, prune_service_pb2.ListJobsRequest(
            states=[state], page_size=1000)).jobs)

    def cancel(self, name):
        self.call(self.client.jobs.CancelJob, prune_service_pb2.CancelJobRequest(name=name))


class World:
    def __init__(self, folder, *flags, **limits):
        self.folder, self.flags = folder, flags
        self.tenants_file = folder / "tenants"
        self.tokens = write_tokens(folder / "tokens", **TOKENS)
        self.limit(**limits)
        self.start()

    def limit(self, alice="", bob=""):
        """The sections of the two; [*] has no limits."""
        self.tenants_file.write_text(f"[alice]\n{alice}\n[bob]\n{bob}\n[*]\n")

    def start(self):
        self.server = Server(self.folder, "--tokens", self.tokens, "--tenants", self.tenants_file,
                             *self.flags)
        self.alice, self.bob = (Tenant(self.server.address, name) for name in ("alice", "bob"))

    def kill_and_start(self):
        self.server.close()
        self.start()


@pytest.fixture
def world(folder):
    worlds = []

    def start(*flags, **limits):
        worlds.append(World(folder, *flags, **limits))
        return worlds[-1]

    yield start
    for one in worlds:
        one.server.close()


def refused(call, quota, limit, current, retry=True):
    with pytest.raises(grpc.RpcError) as raised:
        call()
    code, reason, metadata = error_info(raised.value)
    assert (code, reason) == (EXHAUSTED, "QUOTA_" + quota.split("max-")[1].replace("-", "_").upper())
    assert (metadata["quota"], metadata["limit"], metadata["current"]) == (
        quota, str(limit), str(current)), metadata
    assert ("retry_delay_ms" in metadata) == retry, metadata
    assert quota in raised.value.details()


def test_uploads_and_bytes(world):
    server = world(alice="max-uploads = 2\nmax-tensor-bytes = 10KiB")
    alice, bob = server.alice, server.bob
    small = np.ones((32, 32), "<f4")  # 4096 bytes
    first, second = alice.create_upload(small), alice.create_upload(small)
    refused(lambda: alice.create_upload(np.ones((1, 1), "<f4")), "max-uploads", 2, 2)
    for _ in range(3):
        bob.create_upload(small)
    # What there is counts after a kill too.
    server.kill_and_start()
    alice = server.alice
    refused(lambda: alice.create_upload(np.ones((1, 1), "<f4")), "max-uploads", 2, 2)
    alice.delete_upload(first)
    refused(lambda: alice.create_upload(np.ones((64, 32), "<f4")), "max-tensor-bytes", 10240, 4096)
    refused(lambda: alice.create_upload(np.ones((64, 64), "<f4")), "max-tensor-bytes", 10240, 4096,
            retry=False)
    alice.delete_upload(second)
    tensor = alice.upload(np.ones((64, 32), "<f4"))
    refused(lambda: alice.create_upload(small), "max-tensor-bytes", 10240, 8192)
    alice.delete_tensor(tensor)
    alice.upload(small)
    # Without a restart, and without a signal.
    server.limit()
    wait_until(lambda: "reloaded" in server.server.log(), 10, "the file is read")
    alice.upload(np.ones((64, 64), "<f4"))


def test_queued_and_running_jobs(world, layer):
    server = world("--workers", "3", alice="max-queued-jobs = 2\nmax-running-jobs = 1")
    alice, bob = server.alice, server.bob
    running = alice.create_job(layer, ENDLESS)
    wait_until(lambda: alice.state(running) == job_pb2.RUNNING, 20, "it runs")
    queued = [alice.create_job(layer, ENDLESS) for _ in range(2)]
    refused(lambda: alice.create_job(layer, ENDLESS), "max-queued-jobs", 2, 2)
    others = bob.create_job(layer, ENDLESS)
    wait_until(lambda: bob.state(others) == job_pb2.RUNNING, 20, "bob's runs beside it")
    assert alice.count(job_pb2.RUNNING) == 1, "two workers are free"
    assert [alice.job(name).queue_position for name in queued] == [0, 1]
    # The jobs of the killed server count, and still one at a time runs.
    server.kill_and_start()
    alice = server.alice
    wait_until(lambda: alice.count(job_pb2.RUNNING) == 1, 20, "one runs again")
    refused(lambda: alice.create_job(layer, ENDLESS), "max-queued-jobs", 2, 2)
    # A change counts at once, without anything else happening.
    server.limit(alice="max-queued-jobs = 2\nmax-running-jobs = 2")
    wait_until(lambda: alice.count(job_pb2.RUNNING) == 2, 20, "two run")
    for name in (running, *queued):
        alice.cancel(name)


def test_many_jobs_of_one_tenant_do_not_hold_back_another(world, layer):
    server = world("--workers", "1")
    alice, bob = server.alice, server.bob
    blocker = alice.create_job(layer, ENDLESS)
    for _ in range(300):
        alice.create_job(layer, 2000)
    mine = bob.create_job(layer, 2000)
    assert bob.job(mine).queue_position == 0, "of one's own jobs"
    alice.cancel(blocker)
    wait_until(lambda: bob.state(mine) == job_pb2.SUCCEEDED, 60, "bob's job ends")
    assert alice.count(job_pb2.SUCCEEDED) <= 10, "it waited for no more than its share"
