"""Jobs on a server with --device cuda, from submit to mask. The device is the emulated one of
tests/cuda_on_host (the CUDA engine's own sources, on the host) unless the machine has a real one
and SPARSEFW_REQUIRE_GPU=1 asks for it."""
import os
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from support import safetensors
from support.layers import Layer
from support.processes import BIN_DIR, HANG, Cli, wait_until

FAKE_NVML = BIN_DIR.parent / "tests/fake_nvml"
EMULATED = BIN_DIR.parent / "tests/libsparsefw_cuda_module_on_host.so"
REAL = os.environ.get("SPARSEFW_REQUIRE_GPU") == "1"


@pytest.fixture
def server(start_server):
    env = {"SPARSEFW_CUDA_MODULE": None if REAL else str(EMULATED)}
    if not REAL:
        env["LD_LIBRARY_PATH"] = str(FAKE_NVML)
        env["SPARSEFW_CUDA_ON_HOST_MEMORY"] = str(16 << 30)  # with room for Gram sums
    return start_server("--device", "cuda", env=env)


def both(cli, layer, *flags, **options):
    """The results of one job on the CUDA device and on the CPU, and the two masks."""
    results, masks = [], []
    for device in ("cuda", "cpu"):
        arguments = layer.submit("--iterations", "60", "--json", "--device", device, *flags, **options)
        results.append(cli.run(*arguments).expect(0).json())
        masks.append(layer.mask())
    assert results[0]["device"] == "cuda:0" and results[1]["device"] == "cpu"
    return results, masks


def test_the_server_says_which_device_it_uses(server):
    assert server.device == "cuda:0"
    assert 'reason="--device cuda"' in server.log()
    info = Cli(server.address).run("info", "--json").expect(0).json()
    assert info["default_device"] == "cuda:0"
    device = info["devices"][0]
    assert ("emulated on the host" in device["description"]) == (not REAL)
    assert 0 < device["memory_free_bytes"] <= device["memory_bytes"]


def test_the_card_is_measured(server):
    """By the PCI bus id that the engine tells; on a real device, through the real NVML."""
    def memory():
        with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as response:
            lines = response.read().decode().splitlines()
        names = {f'sparsefw_gpu_memory_{kind}_bytes{{device="cuda:0"}}': kind
                 for kind in ("used", "capacity")}
        values = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {names[name]: float(value) for name, value in values if name in names}

    found = wait_until(memory, f"memory of the card; log:\n{server.log()}")
    assert 0 < found["used"] < found["capacity"]
    if not REAL:
        assert found == {"used": 2 << 30, "capacity": 80 << 30}
    assert "no GPU metrics" not in server.log()


@pytest.mark.parametrize("pattern", ["unstructured", "per-row", "2:4"])
@pytest.mark.parametrize("rule", ["open-loop", "line-search"])
def test_a_job_gives_what_the_cpu_gives(server, layer, pattern, rule):
    results, masks = both(Cli(server.address), layer, "--step-rule", rule, pattern=pattern)
    cuda, cpu = (result["losses"] for result in results)
    for name in ("full", "warm_start", "relaxed", "rounded", "final", "lower_bound"):
        assert cuda[name] == pytest.approx(cpu[name], rel=1e-9), name
    assert np.array_equal(*masks)  # small layers are computed in float64 on both


def test_swaps_and_reconstruction(server, layer):
    plain, _ = both(Cli(server.address), layer)
    results, masks = both(Cli(server.address), layer, "--swaps", "--reconstruct")
    for result, mask in zip(results, masks):
        losses = result["losses"]
        assert losses["final"] < plain[0]["losses"]["final"]
        assert losses["reconstructed"] < losses["final"]
        assert mask.sum() == 24 * (32 - int(32 * 0.6))
    # Swaps in rows so narrow may end in another local optimum.
    assert results[0]["losses"]["final"] == pytest.approx(results[1]["losses"]["final"], rel=0.05)


def test_activations_are_summed_and_precision_and_sweeps_are_taken(server, layer):
    cli = Cli(server.address)
    from_gram = cli.run(*layer.submit("--iterations", "40", "--json")).expect(0).json()
    from_activations = cli.run(
        "submit", "--weights", layer.weights_file, "--activations", layer.activations_file,
        "--pattern", "per-row", "--sparsity", "0.6", "--iterations", "40", "--out", layer.mask_file, "--overwrite",
        "--json").expect(0).json()
    assert from_activations["device"] == "cuda:0"
    assert from_activations["losses"]["final"] == pytest.approx(
        from_gram["losses"]["final"], rel=1e-4)
    tf32 = cli.run(*layer.submit("--iterations", "40", "--precision", "tf32", "--json"))
    relaxed = tf32.expect(0).json()["losses"]["relaxed"]
    assert relaxed == pytest.approx(from_gram["losses"]["relaxed"], rel=2e-3)
    assert relaxed != from_gram["losses"]["relaxed"]
    cli.run(*layer.submit("--iterations", "20", "--sweep", "alpha=0,0.5,0.9")).expect(0)


@pytest.mark.parametrize("method", ["sparsegpt", "alps"])
@pytest.mark.parametrize("pattern", ["unstructured", "per-row", "2:4"])
def test_methods_with_weights_of_their_own(server, layer, method, pattern):
    results, masks = both(Cli(server.address), layer, "--method", method, pattern=pattern)
    cuda, cpu = (result["losses"] for result in results)
    for name in ("full", "warm_start", "final", "reconstructed"):
        assert cuda[name] == pytest.approx(cpu[name], rel=1e-6), name
    assert np.array_equal(*masks)


def test_auto_places_them_on_the_device_beside_other_methods(server, layer):
    cli = Cli(server.address)
    for method in ("alps", "sparsegpt"):
        one = cli.run(*layer.submit("--method", method, "--reconstruct", "--json")).expect(0).json()
        assert one["device"] == "cuda:0"
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as response:
        samples = response.read().decode().splitlines()
    for method in ("alps", "sparsegpt"):
        assert f'sparsefw_job_solve_seconds_count{{device="cuda",method="{method}"}} 1' in samples
    mixed = layer.submit("--iterations", "20", "--sweep", "method=sparsegpt,alps,sparsefw", "--json")
    for device in ((), ("--device", "cuda")):
        found = cli.run(*mixed, *device).expect(0).json()
        assert found["device"] == "cuda:0" and len(found["sweep"]) == 3


@pytest.mark.skipif(REAL, reason="the emulation stands for a machine without cuSOLVER")
def test_without_cusolver_they_run_on_the_cpu_and_say_so(start_server, layer):
    cli = Cli(start_server("--device", "cuda", env={
        "SPARSEFW_CUDA_MODULE": str(EMULATED), "LD_LIBRARY_PATH": str(FAKE_NVML),
        "SPARSEFW_CUDA_ON_HOST_NO_CUSOLVER": "1"}).address)
    here = cli.run(*layer.submit("--method", "sparsegpt", "--json")).expect(0).json()
    assert here["device"] == "cpu"
    there = cli.run(*layer.submit("--method", "sparsegpt", "--json", "--device", "cpu"))
    assert there.expect(0).json()["losses"] == here["losses"]
    for device in ("cuda", "cuda:0"):
        cli.run(*layer.submit("--method", "alps", "--device", device)).refused(
            2, "device must be cpu for ALPS (cuSOLVER", f"got {device}")
    mixed = layer.submit("--iterations", "20", "--sweep", "method=sparsegpt,sparsefw", "--json")
    cli.run(*mixed).refused(2, "mix SPARSEGPT (cuSOLVER", "cuda:0", "set device to cpu")
    assert cli.run(*mixed, "--device", "cpu").expect(0).json()["device"] == "cpu"


@pytest.mark.parametrize("pattern", ["unstructured", "per-row", "2:4"])
def test_the_joint_search_runs_on_the_device_as_on_the_cpu(server, layer, pattern):
    cli = Cli(server.address)

    def search(*flags):
        joint = layer.submit("--method", "wanda", "--joint", "--json", *flags, pattern=pattern)
        return cli.run(*joint).expect(0).json()

    here, there = search(), search("--device", "cpu")
    assert (here["device"], there["device"]) == ("cuda:0", "cpu")
    assert here["joint"]["converged"] and here["joint"]["exchanges"] > 0
    assert here["losses"]["reconstructed"] == pytest.approx(there["losses"]["reconstructed"], rel=1e-6)
    mixed = layer.submit("--iterations", "20", "--sweep", "joint=on,off", "--json", pattern=pattern)
    assert cli.run(*mixed).expect(0).json()["device"] == "cuda:0"


def loss(result):
    """With new weights where there are any."""
    losses = result["losses"]
    return losses["final"] if losses.get("reconstructed") is None else losses["reconstructed"]


@pytest.mark.parametrize("pattern", ["unstructured", "per-row", "2:4"])
@pytest.mark.parametrize("flags, tolerance", [
    # Swaps between rows, and with groups, may end in another local optimum: rows of 32 columns are
    # groups there.
    (["--preset", "fast"], 0.05), (["--preset", "balanced"], 0.05), (["--preset", "best"], 1e-6),
    (["--preset", "paper", "--iterations", "60"], 1e-9),
    (["--method", "ria", "--ria-exponent", "0.3"], 1e-9), (["--method", "magnitude"], 1e-9),
    (["--warm-start", "ria", "--iterations", "60", "--alpha", "0.5"], 1e-9),
    (["--shrinkage", "0.1", "--iterations", "60"], 1e-9)],
    ids=["fast", "balanced", "best", "paper", "ria", "magnitude", "warm-ria", "shrinkage"])
def test_every_preset_and_option_runs_there(server, layer, pattern, flags, tolerance):
    cli = Cli(server.address)
    there, here = (cli.run(*layer.submit("--json", "--device", device, *flags, pattern=pattern)).expect(0).json()
                   for device in ("cuda", "cpu"))
    assert (there["device"], here["device"]) == ("cuda:0", "cpu")
    assert loss(there) == pytest.approx(loss(here), rel=tolerance)
    assert there["kept"] == here["kept"]


@pytest.mark.parametrize("flags", [
    ["--preset", "fast"], ["--preset", "balanced"], ["--iterations", "60", "--alpha", "0.5", "--swaps", "--reconstruct"]],
    ids=["fast", "balanced", "reconstruct"])
def test_swaps_in_rows_take_the_exchanges_of_the_cpu(server, folder, flags):
    """In rows that are no narrow group for the device."""
    layer = Layer(folder, d_out=24, d_in=96, seed=8)
    results, masks = [], []
    for device in ("cuda", "cpu"):
        arguments = layer.submit("--json", "--device", device, *flags)
        results.append(Cli(server.address).run(*arguments).expect(0).json())
        masks.append(layer.mask())
    assert np.array_equal(*masks)
    there, here = results
    assert there["swaps"] == here["swaps"] > 24
    assert loss(there) == pytest.approx(loss(here), rel=1e-6)


def test_jobs_beside_each_other_give_what_they_give_alone(server, layer):
    def run(pattern):
        out = layer.mask_file.with_name(pattern.replace(":", "of"))
        arguments = layer.submit("--iterations", "40", "--json", "--out", out, pattern=pattern)
        losses = Cli(server.address).run(*arguments).expect(0).json()["losses"]
        return losses, safetensors.read(out)[0]["mask"].tobytes()

    patterns = ("unstructured", "per-row", "2:4")
    alone = [run(pattern) for pattern in patterns]
    with ThreadPoolExecutor(len(patterns)) as pool:
        assert list(pool.map(run, patterns)) == alone
