"""What clients do to the port: more connections than descriptors, compressed messages."""
import os
import re
import resource
import socket
import urllib.request

import grpc
import pytest

from sparsefw.v1 import prune_service_pb2, tensor_pb2, tensor_service_pb2
from support.processes import HANG, Cli, wait_until
from support.rpc import Client

LIMIT = 200


def metric(server, name):
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as response:
        text = response.read().decode()
    return float(re.search(rf"^{name} (\S+)$", text, re.MULTILINE)[1])


def connect(address, count):
    host, port = address.rsplit(":", 1)
    return [socket.create_connection((host, int(port)), timeout=HANG) for _ in range(count)]


def is_closed(connection):
    connection.setblocking(False)
    try:
        while True:
            if connection.recv(65536) == b"":
                return True
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def answers(client):
    return client.jobs.GetServerInfo(prune_service_pb2.GetServerInfoRequest(), timeout=HANG)


def serves(server):
    """A new client gets an answer."""
    client = Client(server.address)
    try:
        return answers(client)
    finally:
        client.close()


def test_more_connections_than_descriptors(start_server):
    server = start_server(descriptors=(LIMIT, LIMIT))
    assert metric(server, "sparsefw_max_descriptors") == LIMIT
    before = Client(server.address)
    assert answers(before)
    for _ in range(2):
        connections = connect(server.address, LIMIT + 100)
        # The rest is closed, not left waiting; and who is connected is served.
        wait_until(lambda: sum(map(is_closed, connections)) >= 100, "connections are refused")
        assert answers(before)
        assert LIMIT / 2 < metric(server, "sparsefw_open_descriptors") < LIMIT
        for connection in connections:
            connection.close()
        wait_until(lambda: metric(server, "sparsefw_open_descriptors") < LIMIT / 2, "descriptors are free again")
        assert serves(server)
    assert metric(server, "sparsefw_connections_refused_total") >= 200
    assert "connections_refused" in server.log()
    before.close()
    assert server.stop() == 0


def test_the_metrics_port_refuses_as_well(start_server):
    server = start_server(descriptors=(LIMIT, LIMIT))

    def has_room():
        try:
            return metric(server, "sparsefw_open_descriptors") < LIMIT / 2
        except OSError:
            return False  # refused: the server has not noticed yet that the others are closed

    for _ in range(5):
        connections = connect(server.metrics, LIMIT + 100)
        wait_until(lambda: sum(map(is_closed, connections)) >= 100, "connections are refused")
        assert serves(server)
        for connection in connections:
            connection.close()
        wait_until(has_room, "the metrics port answers again")
    assert metric(server, "sparsefw_connections_refused_total") >= 500
    assert server.stop() == 0


@pytest.mark.skipif(bool(os.environ.get("SPARSEFW_SANITIZER")),
                    reason="UBSan looks at objects through a pipe, for which there are no descriptors")
def test_accepts_again_after_nothing_was_left(start_server):
    """Whoever took the descriptors: here the limit sinks below what is open."""
    server = start_server(descriptors=(LIMIT, LIMIT))
    before = Client(server.address)
    assert answers(before)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (5, LIMIT))
    (waiting,) = connect(server.address, 1)  # by the system; nobody can accept it
    assert answers(before)
    assert not is_closed(waiting)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    assert serves(server)
    waiting.close()
    before.close()
    assert server.stop() == 0


def test_the_soft_limit_is_raised(start_server):
    assert metric(start_server(descriptors=(64, LIMIT)), "sparsefw_max_descriptors") == LIMIT


def resident_bytes(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read())[1]) << 10


@pytest.mark.parametrize("algorithm", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_messages_are_refused(start_server, algorithm):
    server = start_server()
    client = Client(server.address)
    assert answers(client)
    before = resident_bytes(server)
    chunk = tensor_pb2.Chunk(offset=0, data=bytes(400 << 20))  # 400 KB on the wire
    request = tensor_service_pb2.WriteTensorRequest(upload="uploads/none", chunk=chunk)
    with pytest.raises(grpc.RpcError) as raised:
        client.tensors.WriteTensor(iter([request]), timeout=HANG, compression=algorithm)
    assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED, raised.value
    assert "ompression" in raised.value.details()
    assert resident_bytes(server) - before < 32 << 20
    # The next call of the same connection is served.
    assert answers(client)
    client.close()
    assert Cli(server.address).run("info").code == 0
    assert server.stop() == 0
