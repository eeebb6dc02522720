"""One suite for every client. SPARSEFW_CONFORMANCE_DRIVER is the command of a client's driver program (see
driver.py); ctest has an entry a client (client_conformance_*), which run.py starts. By hand:

    tests/conformance/run.py build cpp|python|python_aio|go [PYTEST-ARGUMENT ...]

What one client does, all do: a scenario never asks which client it is.
"""
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN_DIR = Path(os.environ.get("SPARSEFW_BIN_DIR", ROOT / "build/bin")).resolve()
os.environ["SPARSEFW_BIN_DIR"] = str(BIN_DIR)
STUBS_DIR = BIN_DIR.parent / "tests/integration/stubs"
sys.path[:0] = [str(ROOT / "tests/integration"), str(ROOT / "tests/chaos"), str(STUBS_DIR)]

import numpy as np  # noqa: E402
import pytest  # noqa: E402

from breaking_proxy import BreakingProxy  # noqa: E402
from driver import Driver  # noqa: E402
from support.fixtures import folder, start_server  # noqa: E402, F401
from support.processes import Server  # noqa: E402


@pytest.fixture(scope="session")
def driver():
    driver = Driver()
    yield driver
    driver.close()


class Restartable:
    """A server on an address that stays, behind whatever comes between."""

    def __init__(self, start, *flags):
        self.start, self.flags = start, flags
        self.server = start(*flags)
        self.address = self.server.address

    def kill(self):
        self.server.signal(9)
        self.server.wait()

    def stop(self):
        self.server.signal(15)
        assert self.server.wait() == 0, self.server.log()[-4000:]

    def again(self):
        self.server = self.start("--listen", self.address, "--state-dir", self.server.state_dir, *self.flags)


@pytest.fixture
def restartable(start_server):
    return lambda *flags: Restartable(start_server, *flags)


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server"), "--workers", "2", "--fetch-grace", "0s")
    yield server
    try:
        assert server.stop() == 0, server.log()[-4000:]
    finally:
        server.close()


@pytest.fixture
def client(driver, shared_server):
    client = driver.connect(shared_server.address)
    yield client
    client.close()


@pytest.fixture
def make_proxy():
    proxies = []

    def make(target, kind=BreakingProxy, *arguments):
        proxies.append(kind(target, *arguments))
        return proxies[-1]

    yield make
    for proxy in proxies:
        if isinstance(proxy, BreakingProxy):
            proxy.release()
        proxy.close()


class Tensor:
    """A file of float32, and how it is uploaded."""

    def __init__(self, path, array, kind):
        self.array = np.ascontiguousarray(array, "<f4")
        self.path, self.bytes = path, self.array.tobytes()
        path.write_bytes(self.bytes)
        self.upload = {"kind": kind, "shape": list(self.array.shape), "file": str(path)}
        # The Gram is of activations.
        self.gram = {"d_in": self.array.shape[1], "file": str(path)}


class Layer:
    def __init__(self, folder, rows, cols, tokens, seed=7):
        random = np.random.default_rng(seed)
        activations = random.standard_normal((tokens, cols)) + random.standard_normal((tokens, 1))
        self.activations = Tensor(folder / "x.f32", activations, "activations")
        self.weight = Tensor(folder / "w.f32", random.standard_normal((rows, cols)), "weight")
        inputs = self.activations.array.astype(np.float64)
        self.gram = Tensor(folder / "g.f32", inputs.T @ inputs, "gram")


@pytest.fixture(scope="session")
def layer(tmp_path_factory):
    return Layer(tmp_path_factory.mktemp("layer"), rows=24, cols=32, tokens=200)


@pytest.fixture(scope="session")
def big(tmp_path_factory):
    """4 MiB of weights, 4 MiB of activations, a Gram matrix of 1 MiB."""
    return Layer(tmp_path_factory.mktemp("big"), rows=2048, cols=512, tokens=2048, seed=9)
