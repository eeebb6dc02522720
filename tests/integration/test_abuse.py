"""Clients that want more than their share of a connection or of connections."""
import re
import socket
import struct
import time
import urllib.request

import grpc
import pytest

from sparsefw.v1 import prune_service_pb2
from support.processes import HANG, wait_until
from support.rpc import Client

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GOAWAY = 4, 6, 7
ENHANCE_YOUR_CALM = 11


def frame(kind, payload=b"", flags=0, stream=0):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


class RawConnection:
    """HTTP/2 by hand."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=HANG)
        self.buffer = b""
        self.socket.sendall(PREFACE + frame(SETTINGS))

    def frames(self):
        """(kind, flags, payload) until the server closes the connection."""
        while True:
            while len(self.buffer) < 9 or len(self.buffer) < 9 + self._length():
                try:
                    data = self.socket.recv(65536)
                except ConnectionError:
                    return
                if not data:
                    return
                self.buffer += data
            length = self._length()
            kind, flags = self.buffer[3], self.buffer[4]
            payload, self.buffer = self.buffer[9:9 + length], self.buffer[9 + length:]
            yield kind, flags, payload

    def _length(self):
        return int.from_bytes(self.buffer[:3], "big")

    def send(self, data):
        try:
            self.socket.sendall(data)
            return True
        except OSError:
            return False


def info(client):
    return client.jobs.GetServerInfo(prune_service_pb2.GetServerInfoRequest(), timeout=HANG)


def test_a_flood_of_pings_is_ended(shared_server, client):
    raw = RawConnection(shared_server.address)
    sent, end = 0, time.monotonic() + HANG
    # Pings that arrive in one piece are still answered.
    while raw.send(frame(PING, struct.pack(">Q", sent))):
        assert time.monotonic() < end, "it goes on"
        sent += 1
        time.sleep(0.01)
    seen = list(raw.frames())  # ends: the server closes
    goaways = [payload for kind, _, payload in seen if kind == GOAWAY]
    assert goaways, seen
    assert struct.unpack(">I", goaways[-1][4:8])[0] == ENHANCE_YOUR_CALM
    assert info(client), "others are served"


def test_pings_of_a_careful_client_are_answered(shared_server):
    raw = RawConnection(shared_server.address)
    answered = 0
    for number in range(4):
        assert raw.send(frame(PING, struct.pack(">Q", number)))
        for kind, flags, _ in raw.frames():
            if kind == PING and flags & 1:
                answered += 1
                break
        time.sleep(5.2 if number < 3 else 0)
    assert answered == 4
    raw.socket.close()


def test_a_flood_of_settings_does_not_fill_the_memory(shared_server, client):
    def resident():
        with open(f"/proc/{shared_server.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1]) << 10

    assert info(client)
    before = resident()
    raw = RawConnection(shared_server.address)
    raw.socket.settimeout(2)  # not a limit: it reads no more, or is slow
    # Nothing is read: acknowledgements pile up on the server's side, if it lets them.
    flood = frame(SETTINGS) * 1000
    sent = 0
    try:
        for _ in range(5000):
            raw.socket.sendall(flood)
            sent += 1000
    except OSError:
        pass  # it reads no more, or has closed
    assert resident() - before < 64 << 20, sent
    assert info(client)
    raw.socket.close()


def test_metadata_beyond_its_limit(shared_server, client):
    def call(size):
        return client.jobs.GetServerInfo(prune_service_pb2.GetServerInfoRequest(), timeout=HANG,
                                         metadata=(("x-fill", "x" * size),))

    assert call(8 << 10)
    with pytest.raises(grpc.RpcError) as raised:
        call(64 << 10)
    assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED

    def answers():
        try:
            return info(client)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE
            return False

    # gRPC ends the connection of such a call a moment later: the next call may still be on it.
    wait_until(answers, "the server answers over a new connection")


def test_connections_beyond_their_limit(start_server):
    server = start_server("--max-connections", "3")
    clients = [Client(server.address) for _ in range(3)]
    assert all(info(client) for client in clients)
    beyond = Client(server.address)
    with pytest.raises(grpc.RpcError) as raised:
        info(beyond)
    assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
    assert all(info(client) for client in clients), "who is connected stays"
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as response:
        assert re.search(r"^sparsefw_connections_refused_total [1-9]", response.read().decode(),
                         re.MULTILINE)
    clients.pop().close()

    def served():
        try:
            return info(beyond)
        except grpc.RpcError:
            return None

    wait_until(served, "there is room again")
    for client in [*clients, beyond]:
        client.close()
    assert server.stop() == 0


def test_a_connection_that_says_nothing_is_closed(shared_server):
    host, port = shared_server.address.rsplit(":", 1)
    begin = time.monotonic()
    with socket.create_connection((host, int(port)), timeout=HANG) as silent:
        while silent.recv(65536):
            pass
    assert time.monotonic() - begin > 15, "it was given no time"
