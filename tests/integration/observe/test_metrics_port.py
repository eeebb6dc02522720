"""Whatever comes to the metrics port, the server lives and /metrics answers."""
import contextlib
import signal
import socket
import time
import urllib.request

import pytest

from support.layers import ENDLESS
from support.processes import HANG, Cli, wait_until


def ask(server, request):
    """The whole answer to these bytes."""
    host, port = server.metrics.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=HANG) as connection:
        answer = b""
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65536):
                answer += piece
        except OSError:
            pass  # closed before all was sent, or read
    return answer


def request(method, path, extra=""):
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{extra}Connection: close\r\n\r\n".encode()


def is_well(server):
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as response:
        assert response.status == 200
        assert b"sparsefw_build_info" in response.read()
    assert server.process.poll() is None, server.log()[-2000:]


STATUS_OF = [
    ("root", request("GET", "/"), b" 200 "),
    ("status", request("GET", "/status.json"), b" 200 "),
    ("elsewhere", request("GET", "/elsewhere"), b" 404 "),
    ("favicon", request("GET", "/favicon.ico"), b" 404 "),
    ("below", request("GET", "/metrics/more"), b" 404 "),
    ("query", request("GET", "/metrics?name=up"), b" 200 "),
    ("escapes", request("GET", "/%00%ff%2e%2e/%2e%2e/etc/passwd"), b" 404 "),
    ("post", request("POST", "/metrics", "Content-Length: 0\r\n"), b" 405 "),
    ("post_body", request("POST", "/metrics", "Content-Length: 5\r\n") + b"hello", b" 405 "),
    ("post_page", request("POST", "/", "Content-Length: 5\r\n") + b"hello", b" 405 "),
    ("post_elsewhere", request("POST", "/x", "Content-Length: 5\r\n") + b"hello", b" 404 "),
    ("put", request("PUT", "/metrics", "Content-Length: 5\r\n") + b"hello", b" 405 "),
    ("delete", request("DELETE", "/metrics"), b" 405 "),
    ("options", request("OPTIONS", "/metrics"), b" 405 "),
    ("unknown_method", request("BREW", "/metrics"), b" 405 "),
    ("head", request("HEAD", "/metrics"), b" 200 "),
    ("head_elsewhere", request("HEAD", "/nothing"), b" 404 "),
    ("http_1_0", b"GET / HTTP/1.0\r\n\r\n", b" 200 "),
]


@pytest.mark.parametrize("bytes_, status", [case[1:] for case in STATUS_OF],
                         ids=[case[0] for case in STATUS_OF])
def test_status(shared_server, bytes_, status):
    answer = ask(shared_server, bytes_)
    assert status in answer.split(b"\r\n")[0], answer[:200]
    if b" 405 " in answer.split(b"\r\n")[0]:
        assert b"\r\nAllow: GET, HEAD\r\n" in answer
    if bytes_.startswith(b"HEAD"):
        assert answer.endswith(b"\r\n\r\n"), "a HEAD with a body"
    is_well(shared_server)


def body_of(server, path):
    head, _, body = ask(server, request("GET", path)).partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def test_health_and_readiness(start_server, big_layer):
    server = start_server("--drain-grace", "1h")
    assert body_of(server, "/healthz") == (200, b"ok\n")
    assert body_of(server, "/readyz") == (200, b"ready\n")
    cli = Cli(server.address)
    job = cli.run(*big_layer.submit(*ENDLESS, "--detach", "--json", out=False)).json()["job"]
    wait_until(lambda: cli.run("status", job, "--json").json()["state"] == "RUNNING", "runs")
    server.signal(signal.SIGTERM)
    wait_until(lambda: body_of(server, "/readyz") == (503, b"draining\n"), "not ready")
    assert body_of(server, "/healthz") == (200, b"ok\n"), "a drain is no reason to be killed"
    assert cli.run("cancel", job).code == 0
    assert server.wait() == 0


MALFORMED = {
    "garbage": b"\x00\xff\x16\x03\x01 garbage\r\n\r\n",
    "http2_preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00" * 9,
    "no_path": b"GET\r\n\r\n",
    "http_9_9": b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    "bad_header": b"GET /metrics HTTP/1.1\r\nno colon here\r\n\r\n",
    "long_url": b"GET /" + b"%" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "long_path": b"GET /" + b"a" * 8000 + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "long_header": b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 100_000 + b"\r\n\r\n",
    "many_headers": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
    "negative_length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "huge_length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 40 + b"\r\n\r\n",
    "bad_chunk": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "cut_off": b"GET /metr",
    "nothing": b"",
}


@pytest.mark.parametrize("bytes_", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_requests(shared_server, bytes_):
    answer = ask(shared_server, bytes_)
    assert answer == b"" or answer.split(b" ")[1][:1] in (b"4", b"5"), answer[:200]
    is_well(shared_server)


def test_the_server_still_drains(start_server):
    server = start_server()
    for _ in range(3):
        assert b" 404 " in ask(server, request("GET", "/elsewhere")).split(b"\r\n")[0]
    assert Cli(server.address).run("info").code == 0
    assert server.stop() == 0, server.log()[-2000:]


def test_unfinished_requests_block_nobody(shared_server):
    host, port = shared_server.metrics.rsplit(":", 1)
    stalled = [socket.create_connection((host, int(port)), timeout=HANG) for _ in range(20)]
    for connection in stalled:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost")
    # Answered while all of these are still open.
    is_well(shared_server)
    stalled[0].sendall(b": x\r\nConnection: close\r\n\r\n")
    assert stalled[0].recv(100).startswith(b"HTTP/1.1 200 ")
    for connection in stalled:
        connection.close()


def test_silent_connections_are_closed(shared_server):
    host, port = shared_server.metrics.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=HANG) as silent:
        silent.sendall(b"GET /metrics HTTP/1.1\r\nHost")
        silent.setblocking(False)

        def closed():
            try:
                return silent.recv(1000) == b""
            except BlockingIOError:
                return False
            except ConnectionResetError:
                return True

        wait_until(closed, "the silent connection is closed")
    is_well(shared_server)


def test_slow_requests_take_nobody_s_place(shared_server):
    """More of them than there are places, and a byte now and then so that none is silent."""
    host, port = shared_server.metrics.rsplit(":", 1)

    def slow():
        connection = socket.create_connection((host, int(port)), timeout=HANG)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nX-a: ")
        return connection

    def alive(connection):
        try:
            connection.sendall(b"b")
            return True
        except OSError:
            return False

    connections = [slow() for _ in range(300)]
    first = connections[-1]
    while connections:  # until the time of a request is over for the last
        for path in ("/healthz", "/readyz", "/metrics"):
            url = f"http://{shared_server.metrics}{path}"
            with urllib.request.urlopen(url, timeout=HANG) as response:
                assert response.status == 200
        connections = [one for one in connections if alive(one)]
        time.sleep(0.2)
    assert not alive(first)


def test_an_address_does_not_take_the_places_of_another(start_server):
    """A connection that waits stays while another address asks for more than there are."""
    server = start_server()
    host, port = server.metrics.rsplit(":", 1)

    def stays():
        begin = time.monotonic()
        with contextlib.ExitStack() as connections:
            waiting = connections.enter_context(socket.socket())
            waiting.bind(("127.0.0.2", 0))
            waiting.connect((host, int(port)))
            waiting.settimeout(HANG)
            waiting.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n")
            for _ in range(300):
                connections.enter_context(socket.create_connection((host, int(port)), timeout=HANG))
            is_well(server)
            try:
                waiting.sendall(b"\r\n")
                answer = waiting.recv(65536)
            except OSError:
                answer = b""
        # The time of a request is 10 s, whoever sends it: a test that takes as long says nothing.
        assert b" 200 " in answer or time.monotonic() - begin > 9
        return b" 200 " in answer

    wait_until(stays, "an answer in time")
    assert server.stop() == 0
