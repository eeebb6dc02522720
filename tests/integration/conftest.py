"""Tests of the real programs over real sockets.

SPARSEFW_BIN_DIR is where sparsefw-server and sparsefw-cli are, SPARSEFW_STUBS_DIR where the
generated Python modules are; ctest sets both. By hand:

    SPARSEFW_BIN_DIR=build/bin /usr/bin/python3 -m pytest tests/integration
"""
import importlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BIN_DIR = Path(os.environ.get("SPARSEFW_BIN_DIR", HERE.parents[1] / "build/bin")).resolve()
os.environ["SPARSEFW_BIN_DIR"] = str(BIN_DIR)
STUBS_DIR = Path(os.environ.get("SPARSEFW_STUBS_DIR",
                                BIN_DIR.parent / "tests/integration/stubs")).resolve()
sys.path[:0] = [str(HERE), str(STUBS_DIR)]

import pytest  # noqa: E402

from support.fixtures import folder, start_server  # noqa: E402, F401


def pytest_sessionstart(session):
    missing = []
    for module, package in (("numpy", "python3-numpy"), ("grpc", "python3-grpcio"),
                            ("google.protobuf", "python3-protobuf")):
        try:
            importlib.import_module(module)
        except ImportError:
            missing.append(package)
    if missing:
        pytest.exit(f"missing Debian packages: {' '.join(missing)}; run script/bootstrap", 1)
    for program in ("sparsefw-server", "sparsefw-cli"):
        if not (BIN_DIR / program).exists():
            pytest.exit(f"{BIN_DIR / program} does not exist; run script/build", 1)
    if not (STUBS_DIR / "sparsefw/v1/job_pb2.py").exists():
        pytest.exit(f"{STUBS_DIR} holds no generated modules; run script/build", 1)


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory):
    """One server for the tests of a file. It must still be there, and drain, at the end."""
    from support.processes import Server
    server = Server(tmp_path_factory.mktemp("server"), "--workers", "2")
    yield server
    try:
        assert server.process.poll() is None, f"the server ended:\n{server.log()[-4000:]}"
        assert server.stop() == 0, server.log()[-4000:]
        assert len(server.output) == 1, f"more than the ready line: {server.output}"
    finally:
        server.close()


@pytest.fixture
def cli(shared_server):
    from support.processes import Cli
    return Cli(shared_server.address)


@pytest.fixture
def layer(folder):
    """A small layer in files; see support.layers."""
    from support.layers import Layer
    return Layer(folder, d_out=24, d_in=32, seed=7)


@pytest.fixture
def big_layer(folder):
    """Large enough that a job runs for as long as one likes."""
    from support.layers import Layer
    return Layer(folder, d_out=256, d_in=256, seed=11)


@pytest.fixture
def client(shared_server):
    from support.rpc import Client
    client = Client(shared_server.address)
    yield client
    client.close()


@pytest.fixture
def cutting_proxy():
    """cutting_proxy(target, cuts) -> CuttingProxy"""
    from support.proxy import CuttingProxy
    proxies = []

    def start(target, cuts):
        proxies.append(CuttingProxy(target, cuts))
        return proxies[-1]

    yield start
    for proxy in proxies:
        proxy.close()
