"""What a tenant may use: limits of its jobs and tensors, and its share of the work."""
import re
import urllib.request

import grpc
import numpy as np
import pytest
from google.protobuf import duration_pb2

from sparsefw.v1 import job_pb2, prune_service_pb2, tensor_pb2, tensor_service_pb2
from support.identity import TOKENS as TWO
from support.identity import write_tokens
from support.processes import HANG, Server, wait_until
from support.rpc import DTYPES, KINDS, Client, chunks, error_info

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
ENDLESS = 1 << 40
TOKENS = {**TWO, "carol": "carols-token-0123456789"}


def metric(server, name):
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as answer:
        return float(re.search(rf"^{name} (\S+)$", answer.read().decode(), re.M)[1])


class Tenant:
    """A client with the token of a tenant."""

    def __init__(self, address, name):
        self.client = Client(address)
        self.metadata = (("authorization", f"Bearer {TOKENS[name]}"),)
        self.inputs = None

    def call(self, stub, request):
        return stub(request, timeout=HANG, metadata=self.metadata)

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

    def create_job(self, layer, iterations, request_id="", **fields):
        if self.inputs is None:
            self.inputs = (self.upload(layer.weight), self.upload(layer.gram, "gram"))
        spec = job_pb2.JobSpec(weight=self.inputs[0], gram=self.inputs[1],
                               method=job_pb2.METHOD_SPARSEFW, **fields)
        spec.pattern.per_row.sparsity = 0.5
        spec.sparsefw.iterations = iterations
        return self.call(self.client.jobs.CreateJob,
                         prune_service_pb2.CreateJobRequest(spec=spec, request_id=request_id)).name

    def job(self, name):
        return self.call(self.client.jobs.GetJob, prune_service_pb2.GetJobRequest(name=name))

    def state(self, name):
        return self.job(name).state

    def jobs(self, state):
        return self.call(self.client.jobs.ListJobs, prune_service_pb2.ListJobsRequest(
            states=[state], page_size=1000)).jobs

    def count(self, state):
        return len(self.jobs(state))

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


def test_kept_jobs_count_also_once_they_have_ended(world, layer):
    """Labels, a sweep and a long result_ttl cost the database up to 100 KB a job."""
    server = world(alice="max-job-bytes = 1MiB")
    alice, bob = server.alice, server.bob
    labels = {f"key{i}": "x" * 255 for i in range(32)}
    sweep = job_pb2.Sweep(points=[job_pb2.SweepPoint(alpha=k / 256) for k in range(256)])
    jobs, error = [], None
    while error is None:
        try:
            jobs.append(alice.create_job(layer, 1, sweep=sweep, labels=labels))
            alice.cancel(jobs[-1])
        except grpc.RpcError as refusal:
            error = refusal
        assert len(jobs) < 100, "there is no limit"
    code, reason, metadata = error_info(error)
    assert (code, reason) == (EXHAUSTED, "QUOTA_JOB_BYTES")
    assert (metadata["quota"], metadata["limit"]) == ("max-job-bytes", str(1 << 20))
    assert len(jobs) > 3 and all(alice.job(name) for name in jobs), "nothing is removed for another"
    assert bob.create_job(layer, 1, sweep=sweep, labels=labels)
    # What an earlier server kept counts.
    server.kill_and_start()
    alice = server.alice
    kept = len(jobs)
    with pytest.raises(grpc.RpcError) as raised:
        # The last ones may have ended only after the refusal: then they count for less now.
        while len(jobs) < 2 * kept:
            jobs.append(alice.create_job(layer, 1, sweep=sweep, labels=labels))
            alice.cancel(jobs[-1])
    assert error_info(raised.value)[1] == "QUOTA_JOB_BYTES"
    for name in jobs:
        alice.call(alice.client.jobs.DeleteJob, prune_service_pb2.DeleteJobRequest(name=name))
    assert alice.create_job(layer, 1, sweep=sweep, labels=labels)


def test_a_sweep_that_was_accepted_ends_with_all_its_results(world, layer):
    """The room that acceptance took covers what the end needs."""
    server = world(alice="max-job-bytes = 1MiB")
    sweep = job_pb2.Sweep(points=[job_pb2.SweepPoint(alpha=k / 256) for k in range(256)])
    name = server.alice.create_job(layer, 2, sweep=sweep)
    accepted = metric(server.server, "sparsefw_job_used_bytes")
    job_of = lambda: server.alice.job(name)
    wait_until(lambda: job_of().state > job_pb2.JOB_STATE_RUNNING, "the sweep ends")
    assert job_of().state == job_pb2.JOB_STATE_SUCCEEDED and len(job_of().result.sweep) == 256
    assert 50_000 < metric(server.server, "sparsefw_job_used_bytes") < accepted


def test_result_ttl_has_an_upper_end(world, layer):
    server = world("--max-result-ttl", "48h")
    with pytest.raises(grpc.RpcError) as raised:
        server.alice.create_job(layer, 1, result_ttl=duration_pb2.Duration(seconds=48 * 3600 + 1))
    assert error_info(raised.value)[:2] == (grpc.StatusCode.INVALID_ARGUMENT, "OPTION_INVALID")
    assert "--max-result-ttl" in raised.value.details() and "48h" in raised.value.details()
    assert server.alice.create_job(layer, 1, result_ttl=duration_pb2.Duration(seconds=48 * 3600))


def test_a_repeated_request_finds_its_job_whatever_the_limits_are_by_now(world, layer):
    server = world("--max-result-ttl", "48h")
    fields = {"priority": 5, "result_ttl": duration_pb2.Duration(seconds=48 * 3600)}
    first = server.alice.create_job(layer, 1, request_id="twice", **fields)
    inputs = server.alice.inputs
    server.flags = ("--max-result-ttl", "1h")
    server.limit(alice="priority-max = 0")
    server.kill_and_start()
    server.alice.inputs = inputs
    assert server.alice.create_job(layer, 1, request_id="twice", **fields) == first
    with pytest.raises(grpc.RpcError) as raised:
        server.alice.create_job(layer, 1, result_ttl=fields["result_ttl"])
    assert error_info(raised.value)[:2] == (grpc.StatusCode.INVALID_ARGUMENT, "OPTION_INVALID")
    with pytest.raises(grpc.RpcError) as raised:
        server.alice.create_job(layer, 1, priority=5)
    assert error_info(raised.value)[:2] == (grpc.StatusCode.PERMISSION_DENIED, "PRIORITY_NOT_ALLOWED")


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
    wait_until(lambda: "reloaded" in server.server.log(), "the file is read")
    alice.upload(np.ones((64, 64), "<f4"))


def test_queued_and_running_jobs(world, layer):
    server = world("--workers", "3", alice="max-queued-jobs = 2\nmax-running-jobs = 1")
    alice, bob = server.alice, server.bob
    running = alice.create_job(layer, ENDLESS)
    wait_until(lambda: alice.state(running) == job_pb2.JOB_STATE_RUNNING, "it runs")
    queued = [alice.create_job(layer, ENDLESS) for _ in range(2)]
    refused(lambda: alice.create_job(layer, ENDLESS), "max-queued-jobs", 2, 2)
    others = bob.create_job(layer, ENDLESS)
    wait_until(lambda: bob.state(others) == job_pb2.JOB_STATE_RUNNING, "bob's runs beside it")
    assert alice.count(job_pb2.JOB_STATE_RUNNING) == 1, "two workers are free"
    assert [alice.job(name).queue_position for name in queued] == [0, 1]
    # The jobs of the killed server count, and still one at a time runs.
    server.kill_and_start()
    alice = server.alice
    wait_until(lambda: alice.count(job_pb2.JOB_STATE_RUNNING) == 1, "one runs again")
    refused(lambda: alice.create_job(layer, ENDLESS), "max-queued-jobs", 2, 2)
    # A change counts at once, without anything else happening.
    server.limit(alice="max-queued-jobs = 2\nmax-running-jobs = 2")
    wait_until(lambda: alice.count(job_pb2.JOB_STATE_RUNNING) == 2, "two run")
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
    wait_until(lambda: bob.state(mine) == job_pb2.JOB_STATE_SUCCEEDED, "bob's job ends")
    end = bob.job(mine).end_time.ToNanoseconds()
    before = [job for job in alice.jobs(job_pb2.JOB_STATE_SUCCEEDED) if job.end_time.ToNanoseconds() < end]
    assert len(before) <= 10, "it waited for no more than its share"


def fill(tenant, why):
    """Small tensors until one is refused; how many there were."""
    small = np.zeros((1, 1), "<f4")
    for count in range(1000):
        try:
            tenant.upload(small)
        except grpc.RpcError as error:
            why.append(error_info(error))
            return count
    raise AssertionError("there is no limit")


def test_one_tenant_cannot_take_the_places_of_others(world, layer):
    server = world("--max-tensors", "40", "--workers", "2")
    alice, bob = server.alice, server.bob
    points = [job_pb2.SweepPoint(alpha=alpha) for alpha in (0.25, 0.5, 0.75)]
    job = bob.create_job(layer, ENDLESS, sweep=job_pb2.Sweep(points=points, keep=job_pb2.Sweep.KEEP_ALL),
                         return_pruned_weight=True)
    wait_until(lambda: bob.state(job) == job_pb2.JOB_STATE_RUNNING, "it runs")
    assert metric(server.server, "sparsefw_tensors_limit") == 40
    assert metric(server.server, "sparsefw_tensors_reserved") == 4
    why = []
    assert fill(alice, why) == 17, "half of what bob leaves: 40 less two inputs, four results"
    assert why[0][:2] == (EXHAUSTED, "QUOTA_TENSORS")
    assert (why[0][2]["quota"], why[0][2]["limit"]) == ("max-tensors", "17")
    assert fill(bob, why) == 5
    carol = Tenant(server.server.address, "carol")
    assert fill(carol, why) > 0, "nobody takes the last places"
    # The job was promised its places: over a restart on a server that is full, too.
    server.flags = ("--max-tensors", "20", "--workers", "2")
    server.kill_and_start()
    alice, bob = server.alice, server.bob
    info = bob.call(bob.client.jobs.GetServerInfo, prune_service_pb2.GetServerInfoRequest())
    assert {"max-tensors": "20"}.items() <= {s.name: s.value for s in info.settings}.items()
    fill(alice, why)
    assert why[-1][:2] == (EXHAUSTED, "TOO_MANY_TENSORS")
    wait_until(lambda: bob.state(job) == job_pb2.JOB_STATE_RUNNING, "it runs again")
    bob.cancel(job)
    wait_until(lambda: bob.state(job) == job_pb2.JOB_STATE_CANCELLED, "it ends")
    ended = bob.job(job)
    assert ended.result.mask, ended.error
    assert ended.result.pruned_weight, ended.error


def test_tensors_of_a_tenant(world, layer):
    server = world("--max-tensors", "40", alice="max-tensors = 4", bob="max-tensors = 30")
    alice, bob = server.alice, server.bob
    small = np.zeros((1, 1), "<f4")
    running = alice.create_job(layer, ENDLESS)
    refused(lambda: alice.create_job(layer, ENDLESS, return_pruned_weight=True), "max-tensors", 4, 3)
    upload = alice.create_upload(small)
    refused(lambda: alice.create_upload(small), "max-tensors", 4, 4)
    refused(lambda: alice.create_job(layer, ENDLESS), "max-tensors", 4, 4)
    # What there is and what was promised counts after a kill.
    server.kill_and_start()
    alice, bob = server.alice, server.bob
    refused(lambda: alice.create_upload(small), "max-tensors", 4, 4)
    alice.delete_upload(upload)
    tensor = alice.upload(small)
    refused(lambda: alice.upload(small), "max-tensors", 4, 4)
    alice.cancel(running)
    wait_until(lambda: alice.state(running) == job_pb2.JOB_STATE_CANCELLED, "it ends")
    assert alice.job(running).result.mask, "it has its place"
    refused(lambda: alice.upload(small), "max-tensors", 4, 4)
    alice.delete_tensor(tensor)
    alice.upload(small)
    why = []
    assert fill(bob, why) == 30, "a limit of its own may be more than half"
    assert why[0][1] == "QUOTA_TENSORS"
