"""Jobs that name one Gram matrix upload it once to each device that they run on, and give what
they give one by one. The devices are the emulated ones of tests/cuda_on_host."""
import re
import urllib.request

import pytest

from support.layers import Layer
from support.processes import BIN_DIR, HANG, wait_until
from support.rpc import Client, job_pb2, prune_service_pb2

EMULATED = BIN_DIR.parent / "tests/libsparsefw_cuda_module_on_host.so"
DEVICES = ("cuda:0", "cuda:1")
ENDED = (job_pb2.JOB_STATE_SUCCEEDED, job_pb2.JOB_STATE_FAILED, job_pb2.JOB_STATE_CANCELLED)


@pytest.fixture
def server(start_server):
    """Two devices with one stream each, so that jobs wait."""
    return start_server("--device", "cuda", "--streams-per-device", "1",
                        env={"SPARSEFW_CUDA_MODULE": str(EMULATED),
                             "SPARSEFW_CUDA_ON_HOST_DEVICES": "2"})


@pytest.fixture
def rpc(server):
    client = Client(server.address)
    yield client
    client.close()


def values(server, name):
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as response:
        text = response.read().decode()
    found = re.findall(rf'^sparsefw_device_{name}{{device="([^"]+)"}} (\S+)$', text, re.M)
    return {device: float(value) for device, value in found}


def spec_of(weight, gram, sparsity=0.6, device="", iterations=20, **more):
    pattern = job_pb2.Pattern(per_row=job_pb2.Pattern.PerRow(sparsity=sparsity))
    return job_pb2.JobSpec(
        weight=weight, gram=gram, method=job_pb2.METHOD_SPARSEFW, pattern=pattern, device=device,
        sparsefw=job_pb2.SparseFwOptions(iterations=iterations, report_every=5), **more)


def create(rpc, spec):
    return rpc.jobs.CreateJob(prune_service_pb2.CreateJobRequest(spec=spec), timeout=HANG).name


def cancel(rpc, name):
    rpc.jobs.CancelJob(prune_service_pb2.CancelJobRequest(name=name), timeout=HANG)


def job_of(rpc, name):
    return rpc.jobs.GetJob(prune_service_pb2.GetJobRequest(name=name), timeout=HANG)


def result_of(rpc, name):
    """(where it ran, everything that must not depend on that)"""
    def ended():
        job = job_of(rpc, name)
        return job if job.state in ENDED else None

    job = wait_until(ended, f"{name} has ended")
    assert job.state == job_pb2.JOB_STATE_SUCCEEDED, job.error
    result = job.result
    weight = rpc.read(result.pruned_weight) if result.pruned_weight else b""
    return result.device, (result.losses.SerializeToString(deterministic=True),
                           rpc.read(result.mask), weight)


def block(rpc, layer, device):
    """A job that keeps the only stream of a device until it is cancelled."""
    name = create(rpc, spec_of(rpc.upload(layer.weight, "weight"), rpc.upload(layer.gram, "gram"),
                               device=device, iterations=10**12))
    wait_until(lambda: job_of(rpc, name).state == job_pb2.JOB_STATE_RUNNING, f"{name} runs")
    return name


def nothing_is_left(server):
    return all(value == 0 for name in ("gram_bytes", "memory_used_bytes", "jobs")
               for value in values(server, name).values())


def test_one_upload_a_device_for_all_jobs_of_a_gram(server, rpc, folder):
    layer = Layer(folder, d_out=24, d_in=40, seed=31)
    blockers = [block(rpc, layer, device) for device in DEVICES]
    wait_until(lambda: values(server, "gram_uploads_total") == dict.fromkeys(DEVICES, 1), "the blockers have their Grams")
    gram = rpc.upload(layer.gram, "gram")
    weight = rpc.upload(layer.weight, "weight")
    specs = [spec_of(weight, gram, sparsity=0.5),
             spec_of(weight, gram, sparsity=0.7),
             spec_of(weight, gram, shrinkage=0.25, refine=job_pb2.Refine(swaps=True)),
             spec_of(weight, gram, reconstruct=True, return_pruned_weight=True)] * 2
    waiting = [create(rpc, spec) for spec in specs]
    for name in blockers:
        cancel(rpc, name)
    together = [result_of(rpc, name) for name in waiting]
    used = {device for device, _ in together}
    uploads = values(server, "gram_uploads_total")
    assert uploads == {device: 1 + (device in used) for device in DEVICES}
    assert sum(values(server, "gram_reuses_total").values()) == len(specs) - len(used)
    wait_until(lambda: nothing_is_left(server), "the Grams are gone with the last job")
    # One by one, each with an upload of its own.
    for spec, (_, outcome) in zip(specs[:4], together):
        before = sum(values(server, "gram_uploads_total").values())
        assert result_of(rpc, create(rpc, spec))[1] == outcome
        wait_until(lambda: nothing_is_left(server), "the Gram is gone with the job")
        assert sum(values(server, "gram_uploads_total").values()) == before + 1
    assert [outcome for _, outcome in together[:4]] == [outcome for _, outcome in together[4:]]


def test_it_goes_with_the_last_job_that_waits(server, rpc, folder):
    layer = Layer(folder, d_out=24, d_in=40, seed=32)
    gram = rpc.upload(layer.gram, "gram")
    weight = rpc.upload(layer.weight, "weight")
    first = create(rpc, spec_of(weight, gram, device="cuda:0", iterations=10**12))
    wait_until(lambda: values(server, "gram_uploads_total")["cuda:0"] == 1, "it has its Gram")
    bytes_of_one = values(server, "gram_bytes")["cuda:0"]
    assert bytes_of_one >= layer.gram.nbytes
    other = create(rpc, spec_of(weight, rpc.upload(layer.gram, "gram"), device="cuda:0",
                                iterations=10**12, priority=1))
    waiting = create(rpc, spec_of(weight, gram, device="cuda:0"))
    cancel(rpc, first)
    wait_until(lambda: values(server, "gram_bytes")["cuda:0"] == 2 * bytes_of_one, "both are there")
    cancel(rpc, waiting)
    wait_until(lambda: values(server, "gram_bytes")["cuda:0"] == bytes_of_one, "that of the other is there alone")
    cancel(rpc, other)
    wait_until(lambda: nothing_is_left(server), "nothing is left")


def test_the_job_of_a_lost_device_uploads_it_to_the_other(start_server, folder):
    server = start_server("--device", "cuda", env={"SPARSEFW_CUDA_MODULE": str(EMULATED),
                                                   "SPARSEFW_CUDA_ON_HOST_DEVICES": "2",
                                                   "SPARSEFW_CUDA_ON_HOST_FAULT": "0:150"})
    rpc = Client(server.address)
    layer = Layer(folder, d_out=24, d_in=40, seed=33)
    spec = spec_of(rpc.upload(layer.weight, "weight"), rpc.upload(layer.gram, "gram"),
                   iterations=100)
    device, _ = result_of(rpc, create(rpc, spec))
    assert device == "cuda:1"
    assert values(server, "lost") == {"cuda:0": 1, "cuda:1": 0}
    assert values(server, "gram_uploads_total") == {"cuda:0": 1, "cuda:1": 1}
    wait_until(lambda: values(server, "gram_bytes") == {"cuda:0": 0, "cuda:1": 0}, "nothing is left on either")
    rpc.close()
