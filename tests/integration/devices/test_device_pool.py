"""A pool of emulated CUDA devices (tests/cuda_on_host): what is reserved, what is refused, and
what happens when one of them is lost in the middle of a job."""
import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import health_pb2
import health_pb2_grpc
import numpy as np
import pytest

from support.processes import BIN_DIR, HANG, Cli
from support.refusals import loopback, refuses
from support.rpc import Client, crc32c, prune_service_pb2, tensor_pb2, tensor_service_pb2

EMULATED = BIN_DIR.parent / "tests/libsparsefw_cuda_module_on_host.so"
# Calls of a device: enough for a server to start, too few for a job of 200 iterations.
FAULT_CALLS = 100


def emulated(devices, **more):
    return {"SPARSEFW_CUDA_MODULE": str(EMULATED), "SPARSEFW_CUDA_ON_HOST_DEVICES": str(devices),
            **more}


def lost(device, calls=FAULT_CALLS):
    return {"SPARSEFW_CUDA_ON_HOST_FAULT": f"{device}:{calls}"}


def gauges(server, name):
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as response:
        text = response.read().decode()
    found = re.findall(rf'^{name}{{device="([^"]+)"}} (\S+)$', text, re.M)
    return {device: float(value) for device, value in found}


def health(server):
    client = Client(server.address)
    try:
        stub = health_pb2_grpc.HealthStub(client.channel)
        return stub.Check(health_pb2.HealthCheckRequest(), timeout=HANG).status
    finally:
        client.close()


def run(server, layer, *flags):
    return Cli(server.address).run(*layer.submit("--iterations", "200", "--json", *flags))


def test_the_pool_is_reported(start_server):
    server = start_server("--device", "auto", "--device-memory", "50%", "--streams-per-device", "3",
                          env=emulated(2, SPARSEFW_CUDA_ON_HOST_MEMORY="1000000000"))
    both = ["cuda:0", "cuda:1"]
    assert gauges(server, "sparsefw_device_memory_budget_bytes") == dict.fromkeys(both, 5e8)
    assert gauges(server, "sparsefw_device_streams") == dict.fromkeys(both, 3)
    for name in ("lost", "jobs", "memory_used_bytes"):
        assert gauges(server, f"sparsefw_device_{name}") == dict.fromkeys(both, 0)
    client = Client(server.address)
    request = prune_service_pb2.GetServerInfoRequest()
    devices = client.jobs.GetServerInfo(request, timeout=HANG).devices
    client.close()
    assert [(d.streams, d.job_memory_bytes, d.lost) for d in devices] == [
        (3, 500_000_000, False), (3, 500_000_000, False), (0, 0, False), (0, 0, False)]
    assert "device=cuda:1" in server.log() and "job_memory_bytes=500000000" in server.log()
    cli = Cli(server.address)
    assert "; 0 of 3 streams busy, 0 B of 476.8 MiB reserved" in cli.run("info").expect(0).out
    told = {device["name"]: device for device in cli.run("info", "--json").expect(0).json()["devices"]}
    assert told["cuda:1"]["job_memory_bytes"] == 500_000_000 and told["cuda:1"]["lost"] is False
    assert "streams" not in told["cpu"]


def test_a_layer_that_never_fits_is_refused_with_both_numbers(start_server, layer):
    server = start_server("--device", "auto", "--device-memory", "1MiB", env=emulated(1))
    run(server, layer).refused(3, "bytes of device memory", "may use 1048576 on cuda:0 together")
    assert run(server, layer, "--device", "cpu").expect(0).json()["device"] == "cpu"


def test_jobs_wait_for_room_and_all_run(start_server, layer):
    # Each reserves a little over the 4 MiB of its workspace: one at a time.
    server = start_server("--device", "auto", "--device-memory", "6MiB", env=emulated(2))

    def one(number):
        out = layer.mask_file.with_name(f"mask-{number}")
        return run(server, layer, "--out", out).expect(0).json()

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(one, range(6)))
    assert all(result["device"].startswith("cuda:") for result in results)
    assert len({result["losses"]["final"] for result in results}) == 1
    assert gauges(server, "sparsefw_device_memory_used_bytes") == {"cuda:0": 0, "cuda:1": 0}


def test_gram_sums_take_a_part_of_the_device_and_then_the_cpu(start_server):
    """A ninth of 400 MB has room for one such sum."""
    server = start_server("--device", "auto", "--device-memory", "400MB",
                          env=emulated(1, SPARSEFW_CUDA_ON_HOST_MEMORY="2000000000"))
    tokens = np.random.default_rng(3).standard_normal((64, 128)).astype(np.float32)
    client = Client(server.address)

    def metric(name):
        with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as response:
            return float(re.search(rf"^sparsefw_{name} (\S+)$", response.read().decode(), re.M)[1])

    assert metric("device_sum_budget_bytes") == 400_000_000 // 9
    uploads = []
    for _ in range(2):
        spec = tensor_pb2.GramSpec(d_in=128, activation_dtype=tensor_pb2.DATA_TYPE_F32,
                                   gram_dtype=tensor_pb2.DATA_TYPE_F32)
        request = tensor_service_pb2.CreateUploadRequest(gram=spec)
        uploads.append(client.tensors.CreateUpload(request, timeout=HANG).upload.name)
    used = metric("device_sum_used_bytes")
    assert 32 << 20 < used < 400_000_000 // 9
    assert metric("sums_without_device_room_total") == 1
    for upload in uploads:
        request = tensor_service_pb2.AccumulateGramRequest(
            upload=upload, data=tokens.tobytes(), crc32c=crc32c(tokens.tobytes()), finish=True)
        tensor = client.tensors.AccumulateGram(iter([request]), timeout=HANG).gram
        found = np.frombuffer(client.read(tensor.name), "<f4").reshape(128, 128)
        np.testing.assert_allclose(found, tokens.T.astype(np.float64) @ tokens, rtol=1e-5, atol=1e-4)
    assert metric("device_sum_used_bytes") == 0
    client.close()


@pytest.mark.parametrize("calls", [FAULT_CALLS, 200])
def test_a_job_whose_device_is_lost_runs_on_the_other(start_server, layer, calls):
    plain = run(start_server("--device", "auto", env=emulated(2)), layer).expect(0).json()
    assert plain["device"] == "cuda:0"
    server = start_server("--device", "auto", env=emulated(2, **lost(0, calls)))
    moved = run(server, layer).expect(0).json()
    assert moved["device"] == "cuda:1" and moved["losses"] == plain["losses"]
    assert gauges(server, "sparsefw_device_lost") == {"cuda:0": 1, "cuda:1": 0}
    assert "device_lost" in server.log()
    assert health(server) == health_pb2.HealthCheckResponse.SERVING
    assert run(server, layer).expect(0).json()["device"] == "cuda:1"
    run(server, layer, "--device", "cuda:0").refused(3, "cuda:0", "lost until the server restarts")


def test_a_sweep_moves_as_a_whole(start_server, layer):
    server = start_server("--device", "auto", env=emulated(2, **lost(0)))
    result = run(server, layer, "--sweep", "alpha=0,0.5").expect(0).json()
    assert result["device"] == "cuda:1"


@pytest.mark.parametrize("device", ["auto", "cuda:0"])
def test_without_another_device_the_job_fails_and_health_says_so(start_server, layer, device):
    server = start_server("--device", device, env=emulated(1, **lost(0)))
    assert health(server) == health_pb2.HealthCheckResponse.SERVING
    failed = run(server, layer)
    assert failed.code != 0 and "illegal memory access" in failed.err
    assert health(server) == health_pb2.HealthCheckResponse.NOT_SERVING
    run(server, layer).refused(3, "lost until the server restarts")
    assert run(server, layer, "--device", "cpu").expect(0).json()["device"] == "cpu"


def test_bad_flags_are_refused(folder):
    refuses(2, ["--device-memory", "must be a size like 40GiB or a share from 1% to 100%", "got 0%"],
            *loopback(folder, "--device-memory", "0%"))
    refuses(2, ["--streams-per-device", "0"], *loopback(folder, "--streams-per-device", "0"))
