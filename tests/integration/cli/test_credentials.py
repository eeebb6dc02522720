"""sparsefw-cli over TLS, with certificates and tokens."""
import socket
import threading

import pytest

from support.certificates import Authority, openssl
from support.identity import TOKENS, write_tokens
from support.processes import Cli


@pytest.fixture
def authority(folder):
    return Authority(folder)


@pytest.fixture
def server(start_server, authority, folder):
    pair = authority.server()
    return start_server("--tls-cert", pair.certificate, "--tls-key", pair.key,
                        "--tls-client-ca", authority.certificate,
                        "--tokens", write_tokens(folder / "tokens", **TOKENS))


def test_a_whole_job_over_mutual_tls(server, authority, folder, layer):
    cli = Cli(server.address)
    tls = ["--tls-ca", authority.certificate, *authority.client("alice").cli()]
    cli.run(*layer.submit("--method", "sparsefw", "--iterations", "50"), *tls).expect(0)
    assert layer.mask().shape == layer.weight.shape
    job = cli.run(*layer.submit("--method", "wanda", "--detach", "--json", out=False),
                  *tls).expect(0).json()["job"]
    cli.run("watch", job, "--quiet", *tls).expect(0)
    cli.run("fetch", job, "--out", folder / "again.safetensors", *tls).expect(0)
    cli.run("gram", "--activations", layer.activations_file, "--out", folder / "gram.safetensors",
            *tls).expect(0)
    assert cli.run("list", "--json", *tls).expect(0).out
    cli.run("delete", job, *tls).expect(0)


def test_a_token_over_tls_and_the_environment(server, authority, folder, layer):
    cli = Cli(server.address)
    gateway = authority.issue("gateway")
    environment = {"SPARSEFW_TLS_CA": str(authority.certificate), "SPARSEFW_SERVER": server.address,
                   "SPARSEFW_TOKEN": TOKENS["alice"]}
    cli.run(*layer.submit("--method", "wanda"), *gateway.cli(), env=environment,
            server=False).expect(0)
    token = folder / "token"
    token.write_text("wrong\n")
    done = cli.run("info", *gateway.cli(), "--token-file", token, env=environment)
    done.refused(6, "does not know the token")
    assert "wrong" not in done.err and TOKENS["alice"] not in done.err
    bobs = authority.client("bob")
    cli.run("info", *bobs.cli(), env=environment).refused(6, "another tenant")


def test_what_does_not_connect(server, authority, folder):
    cli = Cli(server.address)
    pair = authority.client("alice")
    quick = ["--timeout", "2s", "--retry-for", "1s"]
    ca = ["--tls-ca", authority.certificate]
    cli.run("info", *quick).refused(3, "no server could be reached", "a server with TLS needs --tls-ca")
    other = Authority(folder, "other")
    cli.run("info", "--tls-ca", other.certificate, *pair.cli(), *quick).refused(
        3, "no server could be reached", "the CA of --tls-ca has not signed")
    cli.run("info", *ca, *other.client("alice").cli(), *quick).refused(
        3, "no server could be reached")
    done = cli.run("info", *ca, *quick).refused(3, "the server may ask for a certificate, --tls-cert")
    assert "needs --tls-ca" not in done.err
    cli.run("info", *ca, *pair.cli()).expect(0)


def test_tls_to_a_server_without_it_and_no_server(start_server, authority):
    ca = ["--tls-ca", authority.certificate, "--timeout", "2s"]
    cli = Cli(start_server().address)
    cli.run("info", *ca).refused(3, "a server without TLS takes no --tls-ca")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    done = Cli(address).run("info", "--timeout", "1s").refused(3, "Connection refused", "sparsefw-server starts one")
    assert "ipv4:" not in done.err


def test_bad_files_and_flags(server, authority, folder):
    cli = Cli(server.address)
    pair = authority.client("alice")
    none, text = folder / "none.pem", folder / "text.pem"
    text.write_text("no PEM\n")
    cli.run("info", "--tls-cert", pair.certificate).refused(2, "--tls-cert and --tls-key")
    cli.run("info", "--tls-key", pair.key).refused(2, "--tls-cert and --tls-key")
    cli.run("info", "--tls-ca", none).refused(2, "none.pem", "No such file")
    cli.run("info", "--tls-ca", text).refused(2, "text.pem", "certificate in PEM")
    cli.run("info", "--tls-cert", text, "--tls-key", pair.key).refused(2, "text.pem", "certificate")
    cli.run("info", "--tls-cert", pair.certificate, "--tls-key", text).refused(2, "text.pem", "key")
    for flags in (["--token-file", folder], ["--tls-ca", folder], ["--tls-cert", folder, "--tls-key", pair.key],
                  ["--tls-cert", pair.certificate, "--tls-key", folder]):
        cli.run("info", *flags).refused(2, f"{folder}: cannot be read", "Is a directory")


def test_a_token_that_is_none_is_named_by_its_file(folder):
    for text in ("two words", "line\nbreak", "\x7f"):
        path = folder / "token"
        path.write_text(text)
        done = Cli("127.0.0.1:1").run("info", "--token-file", path)
        done.refused(2, str(path), "printable ASCII", f"{len(text)} bytes")
        assert text not in done.err


def test_credentials_that_only_look_like_some(authority, folder):
    """Refused before anything is sent, for gRPC says no more than that it cannot connect."""
    cli = Cli("127.0.0.1:1")
    pair, other = authority.client("alice"), authority.client("alice")
    garbage, encrypted = folder / "garbage.pem", folder / "encrypted.key"
    garbage.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    openssl("ec", "-in", pair.key, "-aes128", "-passout", "pass:secret", "-out", encrypted, folder=folder)
    cli.run("info", "--tls-ca", garbage).refused(2, "garbage.pem", "certificate in PEM")
    cli.run("info", "--tls-cert", garbage, "--tls-key", pair.key).refused(2, "garbage.pem", "certificate in PEM")
    for key, words in ((encrypted, "not encrypted"), (other.key, "key of the certificate in")):
        cli.run("info", "--tls-cert", pair.certificate, "--tls-key", key).refused(2, str(key), words)


def test_a_token_never_travels_in_plain_text(folder):
    """Not even to a server that listens there."""
    received = []
    listener = socket.create_server(("0.0.0.0", 0))

    def accept():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            received.append(connection.recv(1 << 16))
            connection.close()

    threading.Thread(target=accept, daemon=True).start()
    port = listener.getsockname()[1]
    for host in (socket.gethostname(), "127.0.0.1.example.invalid", "192.0.2.1", "[::ffff:1.2.3.4]"):
        done = Cli().run("info", "--server", f"{host}:{port}", "--timeout", "1s",
                         env={"SPARSEFW_TOKEN": "a-secret"})
        done.refused(2, "only sent over TLS")
        assert "a-secret" not in done.err
    Cli().run("info", env={"SPARSEFW_TOKEN": "two words"}).refused(2, "printable")
    listener.close()
    assert received == []
