"""Which devices the programs see, which one they choose, and what they say about it: log,
GetServerInfo, metrics, refusals. A fake module stands for CUDA's."""
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest

from support.processes import BIN_DIR, FAKE_CUDA, HANG, Cli, clean_environment
from support.refusals import loopback, refuses, run

OFF = {"SPARSEFW_CUDA_MODULE": "none"}
FAKE = {"SPARSEFW_CUDA_MODULE": str(FAKE_CUDA)}
NO_DRIVER = {**FAKE, "SPARSEFW_FAKE_CUDA": "no_driver"}
OFF_REASON = "SPARSEFW_CUDA_MODULE=none turns CUDA off"
NO_DRIVER_REASON = "no CUDA driver: libcuda.so.1 is not installed"


def metrics_of(server):
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as response:
        return response.read().decode()


def devices_in(metrics):
    """device -> (default, description, reason) of sparsefw_device_info."""
    found = {}
    for line in metrics.splitlines():
        if line.startswith("sparsefw_device_info{"):
            labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', line))
            assert line.endswith(" 1"), line
            found[labels["device"]] = (labels["default"], labels["description"], labels["reason"])
    return found


def info_of(server):
    return Cli(server.address).run("info", "--json").expect(0).json()


@pytest.mark.parametrize("env, reason", [(OFF, OFF_REASON), (NO_DRIVER, NO_DRIVER_REASON)])
def test_auto_without_cuda_says_why(start_server, env, reason):
    server = start_server("--device", "auto", env=env)
    why = f"auto: no CUDA device ({reason}), so cpu"
    assert server.device == "cpu"
    log = server.log()
    assert f'reason="{why}"' in log and f'no device device=cuda reason="{reason}"' in log
    info = info_of(server)
    assert info["default_device"] == "cpu" and info["default_device_reason"] == why
    assert [device["name"] for device in info["devices"]] == ["cpu", "reference"]
    assert all(0 < device["memory_free_bytes"] <= device["memory_bytes"]
               for device in info["devices"])
    devices = devices_in(metrics_of(server))
    assert set(devices) == {"cpu", "reference"}
    assert devices["cpu"] == ("true", info["devices"][0]["description"], why)
    assert devices["reference"][0] == "false" and devices["reference"][2] == ""


def test_a_chosen_device_is_the_reason_and_what_is_missing_is_logged(start_server):
    server = start_server("--device", "reference")
    assert info_of(server)["default_device_reason"] == "--device reference"
    assert devices_in(metrics_of(server))["reference"][2] == "--device reference"
    assert OFF_REASON in server.log()


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
@pytest.mark.parametrize("env, reason", [
    (OFF, OFF_REASON),
    ({"SPARSEFW_CUDA_MODULE": ""}, "SPARSEFW_CUDA_MODULE= turns CUDA off"),
    ({"SPARSEFW_CUDA_MODULE": "/no/such/module.so"}, "cannot load the CUDA module: /no/such/module.so"),
    ({**FAKE, "SPARSEFW_FAKE_CUDA": "other_build"}, "made for another build"),
    (NO_DRIVER, NO_DRIVER_REASON),
])
def test_cuda_is_refused_where_there_is_none(folder, device, env, reason):
    refuses(1, [f"device must be one of cpu, reference; got {device}, and there is no CUDA device: ",
                reason], *loopback(folder, "--device", device), env=env)
    _, _, err = run(*loopback(folder, "--device", device), env=env)
    assert len(err.splitlines()) == 1, "one sentence and nothing else"


def test_a_job_for_cuda_is_refused_where_there_is_none(start_server, layer):
    server = start_server(env=NO_DRIVER)
    done = Cli(server.address).run(*layer.submit("--device", "cuda"))
    done.refused(3, "got cuda, and there is no CUDA device", NO_DRIVER_REASON)
    assert not layer.mask_file.exists()


def test_auto_prefers_cuda(start_server, layer):
    server = start_server("--device", "auto", env=FAKE)
    assert server.device == "cuda:0"
    assert "auto: cuda:0 is the first device" in server.log()
    assert "no device" not in server.log()
    info = info_of(server)
    assert info["default_device"] == "cuda:0"
    assert info["default_device_reason"] == "auto: cuda:0 is the first device"
    assert [device["name"] for device in info["devices"]] == ["cuda:0", "cuda:1", "cpu", "reference"]
    assert info["devices"][1]["description"] == "Fake GPU B"
    assert info["devices"][1]["memory_bytes"] == 2 << 30
    assert info["devices"][1]["memory_free_bytes"] == 1 << 30

    cli = Cli(server.address)
    # cuda:1 has more memory.
    for flags, device in (([], "cuda:1"), (["--device", "cuda:0"], "cuda:0"),
                          (["--device", "cpu"], "cpu")):
        result = cli.run(*layer.submit("--iterations", "20", "--json", *flags)).expect(0).json()
        assert result["device"] == device
    cli.run(*layer.submit("--device", "cuda:2")).refused(3, "cuda:0, cuda:1, cpu", "got cuda:2")
    metrics = metrics_of(server)
    devices = devices_in(metrics)
    assert devices["cuda:0"] == ("true", "Fake GPU A", "auto: cuda:0 is the first device")
    assert devices["cuda:1"] == ("false", "Fake GPU B", "")
    assert 'sparsefw_job_solve_seconds_count{device="cuda",method="sparsefw"} 2' in metrics


def test_a_list_restricts_the_server_to_its_devices(start_server, layer):
    server = start_server("--device", "cuda:1,0", env=FAKE)
    assert server.device == "cuda:1"
    assert info_of(server)["default_device_reason"] == "--device cuda:1,0"
    server = start_server("--device", "cuda:1", env=FAKE)
    assert [device["name"] for device in info_of(server)["devices"]] == ["cuda:1", "cpu", "reference"]
    assert set(devices_in(metrics_of(server))) == {"cuda:1", "cpu", "reference"}
    cli = Cli(server.address)
    for flags in ([], ["--device", "cuda"], ["--device", "cuda:1"]):
        result = cli.run(*layer.submit("--iterations", "20", "--json", *flags)).expect(0).json()
        assert result["device"] == "cuda:1"
    cli.run(*layer.submit("--device", "cuda:0")).refused(
        3, "started with: cuda:1, cpu, reference", "got cuda:0")


@pytest.mark.parametrize("device, code, texts", [
    ("cuda:0,7", 1, ["got cuda:7"]),
    ("cuda:1,1", 2, ["names cuda:1 twice", "got cuda:1,1"]),
    ("cuda:0,", 2, ['which "" is not', "got cuda:0,"]),
    ("cuda:0,gpu", 2, ['which "gpu" is not', "got cuda:0,gpu"]),
])
def test_a_wrong_list_names_the_wrong_entry(folder, device, code, texts):
    refuses(code, texts, *loopback(folder, "--device", device), env=FAKE)


def test_working_memory_is_the_hosts_whatever_the_device(start_server):
    def budget(server):
        return re.search(r"^sparsefw_solve_memory_budget_bytes (\S+)$", metrics_of(server), re.M)[1]

    assert budget(start_server("--device", "cuda", env=FAKE)) == budget(start_server())


def test_the_module_is_found_beside_the_program(start_server, folder):
    for name in ("bin", "lib"):
        (folder / name).mkdir()
    program = folder / "bin/sparsefw-server"
    shutil.copy(BIN_DIR / "sparsefw-server", program)
    server = start_server("--device", "auto", program=program, env={"SPARSEFW_CUDA_MODULE": None})
    assert "no CUDA module libsparsefw_cuda.so beside the program" in server.log()
    shutil.copy(FAKE_CUDA, folder / "lib/libsparsefw_cuda.so")
    server = start_server("--device", "auto", program=program, env={"SPARSEFW_CUDA_MODULE": None})
    assert server.device == "cuda:0"


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_the_cpu_computes_in_float32_at_least_whatever_the_precision(cli, layer, precision):
    flags = ("--iterations", "20", "--json")
    plain = cli.run(*layer.submit(*flags)).expect(0).json()
    result = cli.run(*layer.submit("--precision", precision, *flags)).expect(0).json()
    assert result["losses"] == plain["losses"]


def test_nothing_of_cuda_is_needed_to_start():
    """Neither the programs nor the module name a library of CUDA; where the module was built, it
    is found beside the programs and says why there is no device, with the toolkit hidden, too."""
    module = BIN_DIR / "libsparsefw_cuda.so"
    for file in (BIN_DIR / "sparsefw-server", BIN_DIR / "sparsefw-cli", module):
        if not file.exists():
            assert file == module, f"{file} was not built"
            pytest.skip("this build has no CUDA module")
        needed = subprocess.run(["readelf", "-d", str(file)], capture_output=True, text=True,
                                check=True).stdout
        assert not re.search(r"NEEDED.*\[lib(cu|nv)", needed), needed


def test_the_server_starts_where_the_toolkit_is_hidden(folder):
    hide = "mount -t tmpfs none /usr/local/cuda && exec \"$@\""
    prefix = ["unshare", "--map-root-user", "--mount", "sh", "-c", hide, "sh"]
    if not Path("/usr/local/cuda").exists():
        prefix = []
    elif subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not hide folders: unshare --mount is not permitted")
    arguments = [*prefix, str(BIN_DIR / "sparsefw-server"), *loopback(folder, "--device", "cuda:7")]
    environment = {**clean_environment()}
    del environment["SPARSEFW_CUDA_MODULE"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=HANG, check=False,
                          env=environment)
    # No machine has eight devices and hides them: it starts, looks, and refuses.
    assert done.returncode == 1, done.stderr
    assert "device must be one of" in done.stderr and "got cuda:7" in done.stderr
    assert len(done.stderr.splitlines()) == 1
