"""What strangers and hostile clients can make the server hold, and what others notice of it."""
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import grpc
import numpy
import pytest

from sparsefw.v1 import prune_service_pb2, tensor_service_pb2
from support.certificates import Authority
from support.identity import TOKENS, TlsClient, write_tokens
from support.processes import HANG, Server, wait_until
from support.rpc import Client

MIB = 1 << 20
HOSTILE = Path(__file__).parent / "support/hostile_client.py"
INFO = prune_service_pb2.GetServerInfoRequest()
# docs/operations.md, of the defaults: of a peer, and of all of them.
PEER, ALL = 256 * MIB, 2048 * MIB


class Memory:
    """The most of the process that was resident, above what there was before."""

    def __init__(self, server):
        self.path = f"/proc/{server.process.pid}/status"
        self.before = self.peak = self.now()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.look)

    def now(self):
        return int(re.search(r"VmRSS:\s+(\d+) kB", Path(self.path).read_text())[1]) << 10

    def look(self):
        while not self.done.wait(0.01):  # a pause, not a limit
            self.peak = max(self.peak, self.now())

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()

    @property
    def grown(self):
        return self.peak - self.before


def attack(server, mode, connections, seconds, *more):
    command = [sys.executable, HOSTILE, server.address, mode, connections, seconds, *more]
    return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)


def result(process):
    out, _ = process.communicate(timeout=HANG)
    assert process.returncode == 0
    return json.loads(out)


def metric(server, name):
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as response:
        return float(re.search(rf"^{re.escape(name)} (\S+)$", response.read().decode(), re.MULTILINE)[1])


def one_peer(server, mode, *more, connections=4, seconds=3):
    with Memory(server) as memory:
        done = result(attack(server, mode, connections, seconds, *more))
    print(f"{mode} {' '.join(more)}: {done}, memory grew by {memory.grown / MIB:.0f} MiB")
    assert done["bytes"] > 0
    return memory.grown, done


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """TLS and tokens."""
    folder = tmp_path_factory.mktemp("secured")
    pair = Authority(folder).issue("localhost", "DNS:localhost,IP:127.0.0.1")
    tokens = write_tokens(folder / "tokens", **TOKENS)
    server = Server(folder, *pair.cli(), "--tokens", tokens, "--log-level", "warning")
    yield server
    assert server.stop() == 0, server.log()[-2000:]
    server.close()


@pytest.mark.parametrize("mode", ["unary", "giant", "giant-stream", "stream", "tiny-frames",
                                  "reflection", "unknown"])
def test_a_stranger_cannot_send_a_message_at_all(secured, mode):
    """Who has no credentials is told so before a byte of the message is read."""
    grown, _ = one_peer(secured, mode, "--tls", connections=8, seconds=2)
    assert compared(grown) < 64 * MIB


@pytest.mark.parametrize("mode, connections", [("health", 8), ("health-watch", 2)])
def test_health_checks_need_no_credentials_and_take_no_memory(secured, mode, connections):
    grown, done = one_peer(secured, mode, "--tls", connections=connections)
    assert compared(grown) < PEER
    if mode == "health-watch":
        assert done["ended"] > 0, "a name of 2 MiB is kept"


@pytest.mark.parametrize("mode", ["unary", "giant", "giant-stream", "stream", "tiny-frames",
                                  "health", "reflection", "unknown", "calls"])
def test_one_peer_where_nobody_needs_credentials(shared_server, mode):
    grown, done = one_peer(shared_server, mode)
    assert compared(grown) < PEER
    if mode == "giant":
        assert done["lost"] > 0, "the connection of a message of 4 GiB is closed"


def test_long_names_of_uploads_are_not_kept(shared_server):
    """They would stay with the open streams after their messages were counted."""
    grown, done = one_peer(shared_server, "names")
    assert compared(grown) < PEER
    assert done["ended"] > 0, "a name of 2 MiB is kept"


def test_what_hides_behind_empty_messages_is_found(start_server):
    """Not by its bytes: streams whose message does not end are closed."""
    server = start_server("--peer-memory", "64MiB")
    wait_until(lambda: result(attack(server, "hide", 2, 15))["ended"] > 0, "streams are closed")
    assert metric(server, 'sparsefw_rpc_refused_total{reason="PEER_MEMORY"}') > 0


def served(client):
    """Once the address may connect again: it rests for a moment after a connection was closed."""
    def asked():
        try:
            return client.jobs.GetServerInfo(INFO, timeout=HANG)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE
    return wait_until(asked, "the address may connect")


def test_results_that_nobody_reads(shared_server):
    client = Client(shared_server.address)
    served(client)
    weight = client.upload(numpy.ones((2048, 2048), numpy.float32), "weight")
    # Once whole: the file's pages count as resident, whoever reads them.
    request = tensor_service_pb2.ReadTensorRequest(name=weight)
    assert sum(len(one.chunk.data) for one in client.tensors.ReadTensor(request)) == 16 * MIB
    grown, _ = one_peer(shared_server, "reads", "--tensor", weight, connections=10)
    assert compared(grown) < PEER
    client.close()


class Good(threading.Thread):
    """Asks and uploads for as long as it may; keeps its times."""

    def __init__(self, server):
        super().__init__()
        self.client, self.stop, self.errors = Client(server.address), threading.Event(), []
        self.asked, self.uploaded = [], []
        self.array = numpy.ones((256, 1024), numpy.float32)

    def timed(self, times, call):
        begin = time.monotonic()
        try:
            call()
        except grpc.RpcError as error:
            self.errors.append(error)
        times.append(time.monotonic() - begin)

    def run(self):
        while not self.stop.wait(0.02):  # a pause, not a limit
            self.timed(self.asked, lambda: self.client.jobs.GetServerInfo(INFO, timeout=HANG))
            if len(self.asked) % 20 == 0:
                self.timed(self.uploaded, self.upload)

    def upload(self):
        name = self.client.upload(self.array, "weight")
        self.client.tensors.DeleteTensor(tensor_service_pb2.DeleteTensorRequest(name=name),
                                         timeout=HANG)

    def end(self):
        self.stop.set()
        self.join()
        self.client.close()


def p99(times):
    return 1e3 * sorted(times)[len(times) * 99 // 100]


def compared(grown):
    """Sanitizers keep memory that was freed: there the attack is made, and nothing compared."""
    return 0 if os.environ.get("SPARSEFW_SANITIZER") else grown


@pytest.mark.parametrize("mode", ["unary", "giant", "stream"])
def test_64_hostile_connections_of_as_many_addresses(start_server, mode):
    server = start_server("--log-level", "warning")
    alone = Good(server)
    alone.start()
    wait_until(lambda: len(alone.uploaded) >= 5, "calls without the attack")
    alone.end()
    beside = Good(server)
    with Memory(server) as memory:
        beside.start()
        done = {}
        while len(beside.uploaded) < 5:
            done = result(attack(server, mode, 64, 5, "--addresses"))
        beside.end()
    print(f"{mode}, 64 connections: {done}, memory grew by {memory.grown / MIB:.0f} MiB, closed "
          f"{metric(server, 'sparsefw_connections_closed_total'):.0f}; GetServerInfo p99 "
          f"{p99(beside.asked):.1f} ms ({p99(alone.asked):.1f} alone), upload of 1 MiB "
          f"{p99(beside.uploaded):.0f} ms ({p99(alone.uploaded):.0f} alone)")
    assert not alone.errors and not beside.errors, beside.errors
    assert compared(memory.grown) < ALL
    assert server.stop() == 0


def test_a_peer_beyond_its_connections(start_server):
    server = start_server("--max-peer-connections", "2")
    clients = [Client(server.address) for _ in range(2)]
    for client in clients:
        client.jobs.GetServerInfo(INFO, timeout=HANG)
    third = Client(server.address)
    with pytest.raises(grpc.RpcError) as raised:
        third.jobs.GetServerInfo(INFO, timeout=HANG)
    assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
    # Another address has a share of its own.
    done = result(attack(server, "calls", 1, 1, "--addresses"))
    assert done["bytes"] > 0 and done["lost"] == 0
    for client in [*clients, third]:
        client.close()


def test_many_streams_of_one_address_all_arrive(shared_server):
    """More than may bring a message at the same time, beside as many that are silent."""
    clients = [Client(shared_server.address) for _ in range(2)]
    for client in clients:
        served(client)
    arrays = [numpy.full((64, 8192), k, numpy.float32) for k in range(48)]
    names, errors, over = {}, [], threading.Event()

    def upload(k):
        while k not in names:
            try:
                names[k] = clients[k % 2].upload(arrays[k], "weight")
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:  # closed: too much at once
                    errors.append(error)
                    return

    silent = [clients[k % 2].tensors.WriteTensor.future(nothing_of(over)) for k in range(24)]
    threads = [threading.Thread(target=upload, args=(k,)) for k in range(48)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    assert not errors and len(names) == 48
    for one in silent:
        one.cancel()
    for client in clients:
        client.close()


def nothing_of(over):
    """Requests of a stream in which none comes."""
    over.wait(HANG)
    yield from ()


def test_a_tls_client_is_served_after_all_that(secured):
    client = TlsClient(secured.address, _authority_of(secured), token=TOKENS["alice"])
    assert client.jobs.GetServerInfo(INFO, timeout=HANG)
    client.close()


def _authority_of(server):
    class Found:
        certificate = server.state_dir.parent / "ca/ca.pem"
    return Found


def test_a_sum_that_nobody_reads_holds_none_of_its_parts(start_server):
    """The client has its answer for as long as it likes; what the sum was made of is gone."""
    server = start_server()
    client = Client(server.address)
    name = client.upload(numpy.eye(256, dtype="<f4"), "gram")
    hostile = attack(server, "sums", 1, 30, "--tensor", name)
    try:
        wait_until(lambda: metric(server, "sparsefw_tensors") == 21, "all sums are made")
        maps = Path(f"/proc/{server.process.pid}/maps")
        wait_until(lambda: name.split("/")[1] not in maps.read_text() or hostile.poll() is not None,
                   "the part is no longer mapped")
        assert hostile.poll() is None, "it is mapped as long as nobody reads the answers"
    finally:
        hostile.kill()
        hostile.communicate()
        client.close()
