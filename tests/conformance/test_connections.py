"""Who may connect, and to which of several addresses."""
import socket
import time

import pytest

from support.certificates import Authority
from support.identity import TOKENS, token_line, write_tokens
from support.processes import HANG, wait_until
from test_jobs import ENDLESS


def test_a_token_that_is_replaced(driver, start_server, folder, layer):
    tokens = write_tokens(folder / "tokens", **TOKENS)
    server = start_server("--tokens", tokens)
    assert driver.connect(server.address).refuses("info").kind == ("UNAUTHENTICATED", "CREDENTIALS_MISSING")
    client = driver.connect(server.address, token=TOKENS["alice"])
    job = client.job(layer, **ENDLESS)
    watch = client.start("watch", name=job)
    wait_until(lambda: watch.events, "the watch has begun")
    write_tokens(tokens, alice="another-token-0123456789", bob=TOKENS["bob"])
    assert watch.error().kind == ("UNAUTHENTICATED", "CREDENTIALS_INVALID")
    for op, arguments in (("info", {}), ("get_job", {"name": job}), ("upload", layer.weight.upload),
                          ("gram", layer.activations.gram), ("watch", {"name": job})):
        assert client.refuses(op, **arguments).kind == ("UNAUTHENTICATED", "CREDENTIALS_INVALID"), op
    assert client.retries == [], "a refusal is not tried again"
    fresh = driver.connect(server.address, token="another-token-0123456789")
    assert fresh.call("cancel_job", name=job)["name"] == job
    other = driver.connect(server.address, token=TOKENS["bob"])
    assert other.refuses("get_job", name=job).kind == ("NOT_FOUND", "JOB_NOT_FOUND")


def test_a_token_that_expires(driver, start_server, folder, layer):
    tokens = folder / "tokens"
    tokens.write_text(token_line("alice", "a-token"))
    server = start_server("--tokens", tokens)
    client = driver.connect(server.address, token="a-token")
    watch = client.start("watch", name=client.job(layer, **ENDLESS))
    wait_until(lambda: watch.events, "the watch has begun")
    at = int(time.time()) + 2
    tokens.write_text(token_line("alice", "a-token", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))))
    assert watch.error().kind == ("UNAUTHENTICATED", "CREDENTIALS_EXPIRED")
    assert time.time() >= at
    assert client.refuses("upload", **layer.weight.upload).kind == ("UNAUTHENTICATED", "CREDENTIALS_EXPIRED")
    assert client.retries == []


def test_a_token_never_travels_in_plain_text(driver):
    for server in ("192.0.2.1:50051", "127.0.0.1:1,192.0.2.1:50051"):
        error = driver.refuses(server, token="secret-token")
        assert error.kind == ("INVALID_ARGUMENT", "CLIENT_ARGUMENT")
        assert "secret-token" not in error.message and "192.0.2.1:50051" in error.message


def test_tls(driver, start_server, folder, layer):
    authority, stranger = Authority(folder), Authority(folder, "stranger")
    pair = authority.server()
    flags = ("--tls-cert", pair.certificate, "--tls-key", pair.key)
    server = start_server(*flags, "--tokens", write_tokens(folder / "tokens", **TOKENS))
    client = driver.connect(server.address, tls_ca=authority.certificate, token=TOKENS["alice"])
    job = client.job(layer, method="wanda")
    assert client.call("watch", name=job)["state"] == "SUCCEEDED"
    mutual = start_server(*flags, "--tls-client-ca", authority.certificate)
    alice = authority.client("alice")
    client = driver.connect(mutual.address, tls_ca=authority.certificate, tls_cert=alice.certificate,
                            tls_key=alice.key)
    client.upload(layer.weight)
    # Each of several addresses is checked by its own name.
    both = driver.connect(f"localhost:1,{server.address}", tls_ca=authority.certificate,
                          token=TOKENS["alice"])
    both.call("info")
    for address, credentials in ((server.address, {"tls_ca": stranger.certificate}), (server.address, {}),
                                 (mutual.address, {"tls_ca": authority.certificate})):
        error = driver.refuses(address, connect_timeout=0.5, **credentials)
        assert error.kind == ("UNAVAILABLE", "UNREACHABLE") and address in error.message
    error = driver.refuses(server.address, tls_ca=folder / "none.pem")
    assert error.kind == ("INVALID_ARGUMENT", "CLIENT_ARGUMENT") and "none.pem" in error.message


@pytest.fixture(params=["refuses", "is silent"])
def dead(request):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        if request.param == "is silent":
            one.listen(64)
        yield "127.0.0.1:%d" % one.getsockname()[1]


def test_of_two_addresses_one_is_dead(driver, shared_server, dead, layer, folder):
    for server in (f"{dead},{shared_server.address}", f"{shared_server.address},{dead}"):
        client = driver.connect(server, connect_timeout=10 * HANG)  # it does not wait for the dead one
        assert client.read(client.upload(layer.weight), folder / "read") == layer.weight.bytes
        client.close()
    error = driver.refuses(f"{dead},127.0.0.1:1", connect_timeout=0.6)
    assert error.kind == ("UNAVAILABLE", "UNREACHABLE") and dead in error.message


def test_of_two_addresses_the_first_dies(driver, restartable, shared_server, client, make_proxy, big, folder):
    """In the middle of an upload: it begins anew on the other server."""
    first = restartable()
    proxy = make_proxy(first.address)
    pair = driver.connect(f"{proxy.address},{shared_server.address}", chunk_bytes=64 << 10)
    tensor = pair.upload(big.gram)
    assert client.refuses("get_tensor", name=tensor).code == "NOT_FOUND", "the first was used"
    proxy.arm("hold", len(big.weight.bytes) // 2)
    call = pair.start("upload", **big.weight.upload)
    assert proxy.held.wait(HANG)
    first.kill()
    proxy.release()
    proxy.close()
    name = call.result()["name"]
    assert client.read(name, folder / "read") == big.weight.bytes
    assert pair.refuses("get_tensor", name=tensor).kind == ("NOT_FOUND", "TENSOR_NOT_FOUND")
    pair.close()


def test_two_addresses_of_one_server(driver, shared_server, make_proxy, layer):
    """A job and its watch go over to the other way to the same server."""
    ways = [make_proxy(shared_server.address) for _ in range(2)]
    client = driver.connect(",".join(way.address for way in ways))
    job = client.job(layer, **ENDLESS)
    watch = client.start("watch", name=job)
    wait_until(lambda: watch.events, "the watch has begun")
    # The second where the first took longer than its head start, on a slow machine.
    other, used = sorted(ways, key=lambda way: way.total())
    assert other.total() < len(layer.weight.bytes), "at most a connection was made to it"
    before = other.total()
    used.cut()
    wait_until(lambda: other.total() > before, "the other is used")
    client.call("cancel_job", name=job)
    assert watch.result()["state"] == "CANCELLED"
    client.close()


def test_addresses_that_are_none(driver):
    for server in ("127.0.0.1:1,", ",127.0.0.1:1"):
        error = driver.refuses(server)
        assert error.kind == ("INVALID_ARGUMENT", "CLIENT_ARGUMENT") and server in error.message
