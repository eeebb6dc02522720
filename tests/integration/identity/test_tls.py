"""TLS and mutual TLS of the gRPC port, and what is refused at the start."""
import calendar
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.request

import grpc
import pytest

from sparsefw.v1 import prune_service_pb2
from support.certificates import Authority
from support.identity import TOKENS, TlsClient, write_tokens
from support.processes import HANG, Server, as_nobody, in_time, wait_until
from support.rpc import Client

INFO = prune_service_pb2.GetServerInfoRequest()


@pytest.fixture
def authority(folder):
    return Authority(folder)


def info(client):
    return client.jobs.GetServerInfo(INFO, timeout=HANG)


def answers(address, authority, pair=None, token=None):
    """A new connection is served."""
    client = TlsClient(address, authority, pair, token)
    try:
        return info(client)
    finally:
        client.close()


def error(address, authority, pair=None):
    with pytest.raises(grpc.RpcError) as raised:
        answers(address, authority, pair)
    return raised.value


def flags(pair, authority=None):
    return (["--tls-cert", pair.certificate, "--tls-key", pair.key] +
            (["--tls-client-ca", authority.certificate] if authority else []))


def subject_served(address, authority):
    """Serial number of the certificate that a new handshake gets."""
    host, port = address.rsplit(":", 1)
    context = ssl.create_default_context(cafile=authority.certificate)
    context.set_alpn_protocols(["h2"])
    with socket.create_connection((host, int(port)), timeout=HANG) as plain:
        with context.wrap_socket(plain, server_hostname="localhost") as secure:
            return secure.getpeercert()["serialNumber"]


def install(pair, certificate, key):
    """As deployments do: each file is replaced by a rename."""
    for source, target in ((pair.certificate, certificate), (pair.key, key)):
        shutil.copy(source, f"{target}.new")
        os.rename(f"{target}.new", target)


def test_tls_serves_and_plain_text_is_refused(start_server, authority):
    server = start_server(*flags(authority.server()))
    assert answers(server.address, authority).version
    other = Authority(authority.folder, "other")
    assert error(server.address, other).code() == grpc.StatusCode.UNAVAILABLE
    plain = Client(server.address)
    with pytest.raises(grpc.RpcError) as raised:
        info(plain)
    assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
    plain.close()
    assert server.stop() == 0


def test_more_tls_connections_than_descriptors(start_server, authority):
    """The server's own acceptor stays in front of TLS."""
    server = start_server(*flags(authority.server()), descriptors=(200, 200))
    host, port = server.address.rsplit(":", 1)
    connections = [socket.create_connection((host, int(port)), timeout=HANG) for _ in range(260)]
    wait_until(lambda: "connections_refused" in server.log(), "connections are refused")
    for connection in connections:
        connection.close()

    def serves():
        try:
            return answers(server.address, authority)
        except grpc.RpcError:
            return None

    wait_until(serves, "served again")
    assert server.stop() == 0


def test_mutual_tls(start_server, authority):
    server = start_server(*flags(authority.server(), authority))
    assert answers(server.address, authority, authority.client("alice")).version
    for pair in (None, Authority(authority.folder, "other").client("alice"),
                 authority.client("alice", begin="20200101000000Z", end="20210101000000Z")):
        assert error(server.address, authority, pair).code() == grpc.StatusCode.UNAVAILABLE
    assert server.stop() == 0


def test_a_new_certificate_is_served_while_calls_run(start_server, authority, folder):
    certificate, key = folder / "tls.pem", folder / "tls.key"
    install(authority.server(), certificate, key)
    server = start_server("--tls-cert", certificate, "--tls-key", key)
    before = subject_served(server.address, authority)
    old = TlsClient(server.address, authority)
    assert info(old)
    install(authority.server(), certificate, key)
    wait_until(lambda: subject_served(server.address, authority) != before, "the new one")
    assert info(old), "its connection goes on"
    after = subject_served(server.address, authority)

    # A key that is not the certificate's: what is in use stays, and the log says why.
    shutil.copy(authority.server().key, key)
    wait_until(lambda: "reload_failed" in server.log(), "the error is logged")
    assert "must be that of the certificate" in server.log()
    assert subject_served(server.address, authority) == after
    assert answers(server.address, authority).version
    # Gone, and on demand.
    key.unlink()
    server.signal(signal.SIGHUP)
    wait_until(lambda: "No such file" in server.log(), "the error is logged")
    assert answers(server.address, authority).version
    # Mended.
    install(authority.server(), certificate, key)
    wait_until(lambda: subject_served(server.address, authority) != after, "the third")
    assert info(old)
    old.close()
    assert server.stop() == 0


def test_a_new_client_ca(start_server, authority, folder):
    ca = folder / "clients.pem"
    shutil.copy(authority.certificate, ca)
    server = start_server(*flags(authority.server()), "--tls-client-ca", ca)
    old, other = authority.client("alice"), Authority(folder, "other")
    new = other.client("alice")
    assert answers(server.address, authority, old)
    assert error(server.address, authority, new)
    shutil.copy(other.certificate, ca)

    def turned():
        try:
            return answers(server.address, authority, new)
        except grpc.RpcError:
            return None

    wait_until(turned, "the new CA counts")
    assert error(server.address, authority, old)
    assert server.stop() == 0


def test_a_client_certificate_expires_on_an_open_connection(start_server, authority):
    server = start_server(*flags(authority.server(), authority))

    def connected(seconds):
        end = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + seconds))
        client = TlsClient(server.address, authority, authority.client("alice", end=end))
        try:
            return info(client) and client
        except grpc.RpcError:
            client.close()
            return None

    client = in_time(connected, 4)

    def refused():
        try:
            return not info(client)
        except grpc.RpcError as failure:
            return failure

    failure = wait_until(refused, "it has expired")
    if failure.code() != grpc.StatusCode.UNAVAILABLE:  # a new handshake, refused
        assert failure.code() == grpc.StatusCode.UNAUTHENTICATED
        assert "expired" in failure.details()
    client.close()
    assert server.stop() == 0


def test_an_expired_server_certificate_is_a_warning(start_server, authority):
    pair = authority.server(begin="20200101000000Z", end="20210101000000Z")
    server = start_server(*flags(pair))
    assert "certificate_not_valid" in server.log() and "CN=server" in server.log()
    assert server.stop() == 0


def refused_at_start(folder, *flags, program=None):
    server = Server(folder, *flags, wait=False, program=program)
    try:
        code = server.wait()
        return code, server.log().splitlines()[-1]
    finally:
        server.close()


@pytest.mark.parametrize("name", ["TOKENS", "TENANTS", "TLS_CERT", "TLS_KEY", "TLS_CLIENT_CA", "CONFIG"])
def test_an_empty_variable_leaves_no_server_without_identity(folder, name):
    """Of a script whose own variable is not set."""
    server = Server(folder, wait=False, env={f"SPARSEFW_{name}": ""})
    try:
        assert server.wait() == 2
        flag = "--" + name.lower().replace("_", "-")
        assert server.log() == f"sparsefw-server: {flag}: must name a file; got an empty name\n"
    finally:
        server.close()


def test_what_is_refused_at_the_start(folder, authority):
    good, other = authority.server(), authority.server()
    broken = folder / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    none = folder / "none.pem"
    tokens = folder / "tokens"
    tokens.write_text("alice:secret-that-is-no-hash\n")
    for arguments, words in (
            (["--tls-key", good.key], "--tls-cert and --tls-key"),
            (["--tls-cert", good.certificate], "--tls-cert and --tls-key"),
            (["--tls-client-ca", authority.certificate], "--tls-client-ca needs"),
            (["--tls-cert", none, "--tls-key", good.key], "none.pem: No such file"),
            (["--tls-cert", good.certificate, "--tls-key", none], "none.pem: No such file"),
            ([*flags(good), "--tls-client-ca", none], "none.pem: No such file"),
            (["--tls-cert", broken, "--tls-key", good.key], "must hold a certificate"),
            ([*flags(good), "--tls-client-ca", broken], "must hold a certificate"),
            (["--tls-cert", good.certificate, "--tls-key", broken], "unencrypted private key"),
            (["--tls-cert", good.certificate, "--tls-key", other.key], "that of the certificate"),
            (["--tokens", none], "none.pem: No such file"),
            (["--tokens", tokens], "tokens:1: the hash"),
            (["--tenants", tokens], "tokens:1: "),
    ):
        code, line = refused_at_start(folder, *arguments)
        assert code == 2, (arguments, line)
        assert words in line, (arguments, line)
        assert "secret" not in line


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_key_that_may_not_be_read(folder, authority):
    pair = authority.server()
    authority.folder.chmod(0o755)
    pair.certificate.chmod(0o644)
    pair.key.chmod(0o600)
    command = as_nobody(folder, "sparsefw-server")
    done = subprocess.run([*command, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0",
                           "--state-dir", str(folder / "nobody"), *map(str, flags(pair))],
                          capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 2 and "Permission denied" in done.stderr, done.stderr


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_a_public_address_needs_tls(folder, start_server, authority, address):
    code, line = refused_at_start(folder, "--listen", address)
    assert code == 2 and "--tls-cert" in line and "--insecure" in line, line
    # A token does not make plain text safe.
    tokens = folder / "tokens"
    write_tokens(tokens, **TOKENS)
    code, line = refused_at_start(folder, "--listen", address, "--tokens", tokens)
    assert code == 2 and "--tls-cert" in line, line
    code, line = refused_at_start(folder, "--metrics-listen", address)
    assert code == 2 and "--insecure-metrics" in line, line
    assert not (folder / "state").exists(), "refused before anything is opened"
    server = start_server("--listen", address, *flags(authority.server()))
    assert answers("localhost:" + server.address.rsplit(":", 1)[1], authority)
    assert server.stop() == 0
    server = start_server("--listen", address, "--metrics-listen", address, "--insecure",
                          "--insecure-metrics")
    assert server.stop() == 0


def test_loopback_by_any_name_needs_none(start_server):
    for address in ("localhost:0", "127.1.2.3:0", "[::1]:0"):
        server = start_server("--listen", address)
        assert server.stop() == 0


def expiry(server):
    """The metric, or None where there is none."""
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as answer:
        found = re.search(r"^sparsefw_tls_certificate_expiry_timestamp_seconds (\S+)$",
                          answer.read().decode(), re.M)
    return found and float(found[1])


def test_the_expiry_of_the_certificate_is_watched(start_server, authority, folder):
    certificate, key = folder / "tls.pem", folder / "tls.key"
    install(authority.server(begin="20260101000000Z", end="20290201000000Z"), certificate, key)
    server = start_server("--tls-cert", certificate, "--tls-key", key)
    assert expiry(server) == calendar.timegm((2029, 2, 1, 0, 0, 0))
    assert "certificate_expires_soon" not in server.log()
    soon = time.gmtime(time.time() + 13 * 86400)
    install(authority.server(end=time.strftime("%Y%m%d%H%M%SZ", soon)), certificate, key)
    wait_until(lambda: expiry(server) == calendar.timegm(soon), "that of the new one")
    assert server.log().count("certificate_expires_soon") == 1
    assert server.stop() == 0
    assert expiry(start_server()) is None
