"""The image of script/container, run by podman. Skipped where there is no podman or no image of these
sources; `script/container --test` builds it and runs this. By hand:

    SPARSEFW_IMAGE=localhost/sparsefw:latest /usr/bin/python3 -m pytest tests/container
"""
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
import uuid
from pathlib import Path

import pytest

SOURCE_DIR = Path(__file__).resolve().parents[2]
sys.path.append(str(SOURCE_DIR / "tests/integration"))
from support.processes import HANG, wait_until  # noqa: E402

IMAGE = os.environ.get("SPARSEFW_IMAGE", "localhost/sparsefw:latest")
SOURCES = ("CMakeLists.txt", "CMakePresets.json", "cmake", "client/CMakeLists.txt", "client/cpp", "core",
           "deploy/backup", "deploy/container", "deploy/debian", "deploy/grafana", "deploy/prometheus",
           "deploy/server.conf", "deploy/systemd", "proto", "server", "script/bootstrap")
LAYER = "encoder.layer.5.attention.output.dense"
# These work where there is no systemd, too, and inside another container.
PODMAN = ["podman", "--cgroup-manager", "cgroupfs",
          *(["--runtime", "runc"] if shutil.which("runc", path="/usr/sbin:/usr/bin") else [])]
LIMITS = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"]


def run(*command, code=0):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=HANG)
    assert code is None or done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


def why_not():
    if shutil.which("podman") is None:
        return "podman is not installed"
    found = subprocess.run([*PODMAN, "image", "inspect", IMAGE], capture_output=True, text=True)
    if found.returncode != 0:
        return f"there is no image {IMAGE}: script/container --test makes it"
    sources = subprocess.run(["script/lib/tree-hash", *SOURCES], capture_output=True, text=True,
                             check=True, cwd=SOURCE_DIR).stdout.strip()
    if json.loads(found.stdout)[0]["Labels"].get("sparsefw.sources") != sources:
        return f"{IMAGE} is of other sources: script/container --test makes it anew"
    return ""


REASON = why_not()
if REASON and "SPARSEFW_IMAGE" in os.environ:
    sys.exit(f"tests/container: {REASON}")
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Container:
    """A server with a read-only root and no capability, on ports of the loopback."""

    def __init__(self, *flags):
        self.name = f"sparsefw-test-{uuid.uuid4().hex[:8]}"
        self.address, self.metrics = (f"127.0.0.1:{free_port()}" for _ in range(2))
        # The network of the machine: bridges need more rights than a nested podman has.
        variables = ["SPARSEFW_INSECURE=true", f"SPARSEFW_LISTEN={self.address}", f"SPARSEFW_METRICS_LISTEN={self.metrics}",
                     f"SPARSEFW_SERVER={self.address}"]
        run(*PODMAN, "run", "--detach", "--name", self.name, *LIMITS, "--network", "host",
            "--read-only", "--read-only-tmpfs=false", "--cap-drop", "all",
            "--security-opt", "no-new-privileges", *(f"--env={one}" for one in variables),
            "--volume", f"{SOURCE_DIR}/tests/fixtures/minilm:/layers:ro", IMAGE, *flags)

    def exec(self, *command, code=0):
        return run(*PODMAN, "exec", self.name, *command, code=code)

    def inspect(self, field):
        return run(*PODMAN, "inspect", "--format", field, self.name).stdout.strip()

    def log(self):
        done = run(*PODMAN, "logs", self.name)
        return done.stdout + done.stderr

    def ready(self):
        def listens():
            assert self.inspect("{{.State.Status}}") == "running", self.log()
            return "listening on" in self.log()

        wait_until(listens, "the server listens")
        return self

    def close(self):
        run(*PODMAN, "rm", "--force", "--volumes", "--time", "1", self.name, code=None)


@pytest.fixture
def start():
    containers = []

    def start(*flags):
        containers.append(Container(*flags))
        return containers[-1]

    yield start
    for one in containers:
        one.close()


def submit(container, *flags):
    file = f"/layers/{LAYER}.safetensors"
    return container.exec("sparsefw-cli", "submit", "--weights", f"{file}:{LAYER}.weight", "--gram",
                          f"{file}:gram", "--pattern", "per-row", "--sparsity", "0.6", *flags)


def test_a_job_as_nobody_on_a_read_only_root(start):
    server = start().ready()
    assert server.exec("id", "-u").stdout.strip() == "10001"
    assert server.exec("sh", "-c", "cat /proc/1/comm").stdout.strip() == "sparsefw-server"
    status = server.exec("cat", "/proc/1/status").stdout
    assert re.search(r"^Uid:\t10001\t10001\t10001", status, re.M)
    assert re.search(r"^CapEff:\t0+$", status, re.M) and re.search(r"^NoNewPrivs:\t1$", status, re.M)
    for path in ("/etc/x", "/usr/bin/x", "/tmp/x", "/x"):
        assert server.exec("touch", path, code=None).returncode != 0, f"{path} can be written"
    result = submit(server, "--preset", "balanced", "--json", "--out", "/var/lib/sparsefw/mask.safetensors")
    assert json.loads(result.stdout)["state"] == "SUCCEEDED"
    # Only what runs is in the image.
    for tool in ("g++", "cmake", "python3", "curl"):
        assert server.exec("sh", "-c", f"command -v {tool}", code=None).returncode != 0, tool


def test_the_health_check_is_that_of_grpc(start):
    server = start().ready()
    assert run(*PODMAN, "healthcheck", "run", server.name, code=None).returncode == 0
    with urllib.request.urlopen(f"http://{server.metrics}/readyz", timeout=HANG) as answer:
        assert answer.status == 200
    # Alive, and of no use: frozen.
    run(*PODMAN, "kill", "--signal", "STOP", server.name)
    done = run(*PODMAN, "healthcheck", "run", server.name, code=None)
    run(*PODMAN, "kill", "--signal", "CONT", server.name)
    assert done.returncode != 0
    assert run(*PODMAN, "healthcheck", "run", server.name, code=None).returncode == 0


def test_sigterm_drains_and_the_volume_keeps_what_was_accepted(start):
    server = start("--drain-grace", "200ms", "--fetch-grace", "200ms").ready()
    job = json.loads(submit(server, "--iterations", "1000000", "--detach", "--json").stdout)["job"]
    run(*PODMAN, "stop", "--time", f"{HANG / 2:g}", server.name)
    assert server.inspect("{{.State.ExitCode}}") == "0", "it was killed"
    assert "drain" in server.log()
    run(*PODMAN, "start", server.name)
    wait_until(lambda: server.exec("sparsefw-cli", "health", code=None).returncode == 0, "it serves")
    state = json.loads(server.exec("sparsefw-cli", "status", job, "--json").stdout)
    assert state["state"] in ("QUEUED", "RUNNING") and job in state["job"]
    server.exec("sparsefw-cli", "cancel", job)


def test_without_tls_or_a_word_it_does_not_serve_the_world():
    done = run(*PODMAN, "run", "--rm", *LIMITS, "--network", "none", IMAGE, code=None)
    assert done.returncode == 2 and "tls" in done.stderr.lower(), done.stderr
