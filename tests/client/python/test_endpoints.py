"""Several addresses, of which one is used."""

import asyncio
import contextlib
import socket

import numpy as np
import pytest

import sparsefw
import sparsefw.aio
from layers import Layer
from sparsefw._rpc.endpoints import split_addresses
from support.processes import HANG

OPTIONS = sparsefw.Options(
    connect_timeout=10 * HANG,  # a dead address is not waited for
    retry=sparsefw.Retry(initial_backoff=0.02, max_backoff=0.1, give_up_after=HANG),
)


@contextlib.contextmanager
def dead_address(silent):
    """Refuses connections, or takes them and never says anything."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        if silent:
            one.listen(64)
        yield "127.0.0.1:%d" % one.getsockname()[1]


class Async:
    """The asyncio client with the methods of the other one that these tests use."""

    def __init__(self, server, **arguments):
        self.loop = asyncio.new_event_loop()
        self.client = self.run(sparsefw.aio.connect(server, **arguments))

    def run(self, awaitable):
        return self.loop.run_until_complete(awaitable)

    def upload(self, array, **options):
        return self.run(self.client.upload(array, **options))

    def read(self, tensor):
        return self.run(self.client.read(tensor.name))

    def close(self):
        self.run(self.client.close())
        self.loop.close()


@pytest.fixture(params=["sync", "asyncio"])
def connect(request):
    return Async if request.param == "asyncio" else sparsefw.connect


@pytest.mark.parametrize("silent", [False, True])
def test_one_that_does_not_answer_is_passed_over(shared_server, connect, silent):
    with dead_address(silent) as dead:
        client = connect(f"{dead},{shared_server.address}", options=OPTIONS)
    weight = Layer().weight
    np.testing.assert_array_equal(client.read(client.upload(weight)), weight)
    client.close()


def test_a_lost_one_is_replaced(restartable, shared_server, connect):
    first = restartable()
    client = connect(f"{first.address},{shared_server.address}", options=OPTIONS)
    direct = sparsefw.connect(first.address, options=OPTIONS)
    weight = Layer().weight
    assert direct.tensor(client.upload(weight).name), "the first is used"
    direct.close()
    first.kill()
    tensor = client.upload(weight)
    with sparsefw.connect(shared_server.address) as other:
        np.testing.assert_array_equal(other.read(tensor.name), weight)
    client.close()


def test_an_upload_begins_anew_on_a_server_that_does_not_know_it(restartable, shared_server, connect):
    first = restartable()
    client = connect(f"{first.address},{shared_server.address}",
                     options=sparsefw.Options(retry=OPTIONS.retry, chunk_bytes=10_000))
    weight = np.random.default_rng(1).standard_normal((512, 512)).astype(np.float32)
    killed = []

    def kill(sent, total):
        if not killed and sent > total / 2:
            first.kill()
            killed.append(sent)

    tensor = client.upload(weight, progress=kill)
    assert killed
    np.testing.assert_array_equal(client.read(tensor), weight)
    client.close()


def test_addresses_are_all_checked(connect):
    for server in ("127.0.0.1:1,", ",127.0.0.1:1"):
        with pytest.raises(sparsefw.InvalidArgument, match="HOST:PORT"):
            connect(server)
    with pytest.raises(sparsefw.InvalidArgument, match=r"192\.0\.2\.1:1 would be plain text"):
        connect("127.0.0.1:1,192.0.2.1:1", token="secret")
    with dead_address(False) as one, dead_address(True) as two:
        with pytest.raises(sparsefw.Unavailable, match=one) as nobody:
            connect(f"{one},{two}", options=sparsefw.Options(connect_timeout=0.5))
    assert nobody.value.reason == "UNREACHABLE"


@pytest.mark.parametrize("wrong", [
    "127.0.0.1", "localhost", "auto,127.0.0.1:1", ":1", ":abc", ":99999", "localhost:", "localhost:abc", "localhost:0",
    "localhost:65536", "localhost:-1", "localhost:1 ", "127.0.0.1:1, 127.0.0.1:2", "http://localhost:1",
    "http://localhost", "grpc:localhost:1", "::1:1", "[::1]", "[localhost]:1", "unix:"])
def test_what_is_no_address_is_refused_before_it_is_looked_for(connect, wrong):
    rule = "an address must be HOST:PORT with a port in \\[1, 65535\\], .*; got "
    with pytest.raises(sparsefw.InvalidArgument, match=rule) as refused:
        connect(wrong, options=sparsefw.Options(connect_timeout=0.5))
    assert refused.value.reason == "CLIENT_ARGUMENT"
    assert any(f'got "{one}"' in refused.value.message for one in wrong.split(","))


@pytest.mark.parametrize("server", [
    "127.0.0.1:50051", "localhost:1", "[::1]:50051", "[fe80::1%eth0]:65535", "a-b.example.org:443", "node_7:1",
    "unix:/run/s", "unix:///run/s", "unix-abstract:s", "dns:a.example.org:1", "dns:///a.example.org:1",
    "ipv4:127.0.0.1:1", "ipv6:[::1]:1", "a:1,b:2"])
def test_what_grpc_understands_is_an_address(server):
    assert split_addresses(server) == server.split(",")


def test_an_address_of_a_unix_socket_is_used(folder, connect):
    """It is no file that anybody listens on: what cannot be reached is told from what is no address."""
    with pytest.raises(sparsefw.Unavailable, match="No such file") as nobody:
        connect(f"unix:{folder}/none", options=sparsefw.Options(connect_timeout=0.5))
    assert nobody.value.reason == "UNREACHABLE"


def test_wrong_types_of_arguments_are_refused(connect):
    for arguments, message in (
        ({"server": 5}, "server must be a text; got 5"),
        ({"server": b"localhost:1"}, "server must be a text; got b'localhost:1'"),
        ({"token": 3}, "token must be a text; got one of type int"),
        ({"token": b"secret"}, "token must be a text; got one of type bytes"),
        ({"tls_ca": 3}, "tls_ca must be the path of a file; got 3"),
    ):
        with pytest.raises(sparsefw.InvalidArgument) as refused:
            connect(**{"server": "127.0.0.1:1", **arguments})
        assert (refused.value.reason, refused.value.message) == ("CLIENT_ARGUMENT", message)


@pytest.mark.parametrize("made", [sparsefw.Client, sparsefw.aio.Client])
def test_an_address_is_for_connect(made):
    with pytest.raises(TypeError, match="got '127.0.0.1:1'; sparsefw.connect"):
        made("127.0.0.1:1")
