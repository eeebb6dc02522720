"""What /metrics tells of GPUs. A fake module stands for CUDA's, a fake library for NVML; see
tests/testing/fake_nvml.cc."""
import re
import time
import urllib.request

import pytest

from support.processes import BIN_DIR, FAKE_CUDA, HANG, Cli, wait_until
from support.refusals import loopback, refuses

NVML = {"LD_LIBRARY_PATH": str(BIN_DIR.parent / "tests/fake_nvml")}
FAKE = {"SPARSEFW_CUDA_MODULE": str(FAKE_CUDA), **NVML}
OFTEN = ("--device", "auto", "--gpu-metrics-period", "100ms")
GIB = 1 << 30


def scrape(server):
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as response:
        return response.read().decode()


def gpu_metrics(server):
    """'memory_bytes{device="cuda:0",kind="used"}' -> value"""
    found = re.findall(r"^sparsefw_gpu_(\S+) (\S+)$", scrape(server), re.M)
    return {name: float(value) for name, value in found}


def measured(server):
    return wait_until(lambda: gpu_metrics(server), "GPU metrics")


def expected(device, card):
    """The metrics of the fake library's card, all there are."""
    label = f'{{device="{device}"}}'
    return {
        f"memory_used_bytes{label}": (card + 1) * GIB,
        f"memory_capacity_bytes{label}": 80 * GIB,
        f"utilization_ratio{label}": (card + 1) / 10,
        f"memory_utilization_ratio{label}": (card + 1) / 20,
        f"temperature_celsius{label}": 40 + card,
        f"power_watts{label}": 100.5 + card,
    }


def warnings(server):
    return [line for line in server.log().splitlines() if "no GPU metrics" in line]


def test_devices_have_the_numbers_of_cuda_whatever_those_of_nvml(start_server):
    server = start_server("--device", "auto", env=FAKE)
    assert measured(server) == pytest.approx({**expected("cuda:0", 2), **expected("cuda:1", 0)})
    assert not warnings(server)
    text = scrape(server)
    for name in ("memory_used_bytes", "memory_capacity_bytes", "utilization_ratio", "memory_utilization_ratio",
                 "temperature_celsius", "power_watts"):
        assert f"# TYPE sparsefw_gpu_{name} gauge" in text
    assert server.stop() == 0


def test_free_memory_in_the_servers_info_is_what_was_measured(start_server):
    """And never more than the device has: NVML's card may be larger than what CUDA shows of it."""
    script = f"memory@2=value:{80 * GIB - GIB // 2}"
    server = start_server(*OFTEN, env={**FAKE, "SPARSEFW_FAKE_NVML": script})
    measured(server)
    devices = Cli(server.address).run("info", "--json").expect(0).json()["devices"]
    assert [device["memory_bytes"] for device in devices[:2]] == [GIB, 2 * GIB]
    assert [device["memory_free_bytes"] for device in devices[:2]] == [GIB // 2, 2 * GIB]


def test_what_a_device_does_not_support_is_absent(start_server):
    script = "power@2=error:3,utilization=error:3,temperature@0=value:91,memory@0=error:15"
    server = start_server("--device", "auto", env={**FAKE, "SPARSEFW_FAKE_NVML": script})
    assert measured(server) == {
        'memory_used_bytes{device="cuda:0"}': 3 * GIB,
        'memory_capacity_bytes{device="cuda:0"}': 80 * GIB,
        'temperature_celsius{device="cuda:0"}': 42,
        'temperature_celsius{device="cuda:1"}': 91,
        'power_watts{device="cuda:1"}': 100.5,
    }
    assert not warnings(server)


def test_a_device_that_nvml_does_not_know_is_absent(start_server):
    server = start_server("--device", "auto", env={**FAKE, "SPARSEFW_FAKE_NVML": "find@2=error:6"})
    assert measured(server) == pytest.approx(expected("cuda:1", 0))


@pytest.mark.parametrize("script, reason", [
    ("init=error:9", "NVML does not start: Driver Not Loaded (NVML error 9)"),
    ("find=error:6", "NVML does not know cuda:0 at 00000000:82:00.0: Not Found (NVML error 6)"),
])
def test_nvml_that_cannot_be_used_is_logged_once(start_server, script, reason):
    server = start_server(*OFTEN, env={**FAKE, "SPARSEFW_FAKE_NVML": script})
    wait_until(lambda: warnings(server), "the warning")
    time.sleep(0.5)  # would be five measurements
    assert len(warnings(server)) == 1 and reason in warnings(server)[0]
    assert "warning" in warnings(server)[0]
    assert gpu_metrics(server) == {}
    assert server.stop() == 0


def test_a_missing_nvml_is_logged_once(start_server, folder):
    (folder / "libnvidia-ml.so.1").write_text("no library")
    server = start_server("--device", "auto", env={**FAKE, "LD_LIBRARY_PATH": str(folder)})
    wait_until(lambda: warnings(server), "the warning")
    assert len(warnings(server)) == 1
    assert gpu_metrics(server) == {}


def test_without_cuda_devices_nothing_is_measured_and_nothing_said(start_server):
    server = start_server(*OFTEN, env=NVML)
    assert gpu_metrics(server) == {}
    assert server.stop() == 0
    assert not warnings(server)


def test_a_period_of_0_turns_it_off(start_server):
    # With an NVML that would be complained of.
    server = start_server("--device", "auto", "--gpu-metrics-period", "0",
                          env={**FAKE, "SPARSEFW_FAKE_NVML": "init=error:9"})
    assert gpu_metrics(server) == {}
    assert server.stop() == 0
    assert not warnings(server)


@pytest.mark.parametrize("call", ["init", "find", "memory", "power@0"])
def test_an_nvml_that_hangs_holds_nothing_up(start_server, layer, call):
    server = start_server(*OFTEN, "--drain-grace", "1s", "--fetch-grace", "1s",
                          env={**FAKE, "SPARSEFW_FAKE_NVML": f"{call}=block"})
    assert gpu_metrics(server) == {}
    Cli(server.address).run(*layer.submit("--iterations", "20")).expect(0)
    assert 'sparsefw_jobs_finished_total' in scrape(server)
    assert server.stop() == 0, "the watchdog had to end it"
    assert "the drain is stuck" not in server.log()


@pytest.mark.parametrize("period", ["1ms", "-1s", "often"])
def test_a_period_that_makes_no_sense_is_refused(folder, period):
    refuses(2, ["--gpu-metrics-period"], *loopback(folder, f"--gpu-metrics-period={period}"))
