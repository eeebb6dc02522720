"""Tests of the Python package over real servers; ctest runs them with build/venv. By hand:

    script/python && build/venv/bin/python -m pytest tests/client/python

SPARSEFW_BIN_DIR is where sparsefw-server is. Helpers are those of tests/integration.
"""

import os
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BIN_DIR = Path(os.environ.get("SPARSEFW_BIN_DIR", ROOT / "build/bin")).resolve()
os.environ["SPARSEFW_BIN_DIR"] = str(BIN_DIR)
sys.path[:0] = [str(ROOT / "tests/integration")]
# The package of the checkout, whatever the environment has installed.
sys.path[:0] = [str(ROOT / "client/python/src")]
# Settings of this machine's user are not the tests'.
for name in ("SPARSEFW_SERVER", "SPARSEFW_TOKEN", "SPARSEFW_TLS_CA", "SPARSEFW_SERVER_PROGRAM"):
    os.environ.pop(name, None)
for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
    del os.environ[name]
# A shell without job control starts background commands with SIGINT ignored, and programs inherit that:
# tests that interrupt a program would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest  # noqa: E402

import sparsefw  # noqa: E402
from support.fixtures import folder, start_server  # noqa: E402, F401

assert Path(sparsefw.__file__).is_relative_to(ROOT), "another sparsefw than the checkout's"


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory):
    """One server for the tests of a file; it must drain at the end."""
    from support.processes import Server

    server = Server(tmp_path_factory.mktemp("server"), "--workers", "2", "--fetch-grace", "0s")
    yield server
    try:
        assert server.stop() == 0, server.log()[-4000:]
    finally:
        server.close()


@pytest.fixture
def client(shared_server):
    with sparsefw.connect(shared_server.address) as client:
        yield client


@pytest.fixture
def proxy():
    """proxy(target, cuts) -> CuttingProxy"""
    from support.proxy import CuttingProxy

    proxies = []

    def start(target, cuts):
        proxies.append(CuttingProxy(target, cuts))
        return proxies[-1]

    yield start
    for one in proxies:
        one.close()


@pytest.fixture
def restartable(start_server):
    """restartable(*flags) -> a server that is killed and started again on the same address."""

    class Restartable:
        def __init__(self, *flags):
            self.flags = flags
            self.server = start_server(*flags)
            self.address = self.server.address

        def kill(self):
            self.server.signal(9)
            self.server.wait()

        def again(self):
            self.server = start_server(
                "--listen", self.address, "--state-dir", self.server.state_dir, *self.flags
            )

    return Restartable
