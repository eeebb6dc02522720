"""Tokens and certificates."""

import pytest

import sparsefw
from layers import Layer
from support.certificates import Authority
from support.identity import TOKENS, write_tokens

FAST = sparsefw.Options(connect_timeout=3)


@pytest.fixture
def authority(folder):
    return Authority(folder)


def secure_server(start_server, authority, *flags):
    pair = authority.server()
    return start_server("--tls-cert", pair.certificate, "--tls-key", pair.key, *flags)


def test_a_token_is_sent_with_every_call(start_server, folder):
    server = start_server("--tokens", write_tokens(folder / "tokens", **TOKENS))
    layer = Layer()
    with sparsefw.connect(server.address, token=TOKENS["alice"]) as client:
        gram = client.gram(layer.activations)
        result = client.prune(layer.weight, gram, sparsity=0.5, iterations=10)
        assert result.mask.any()
        with sparsefw.connect(server.address, token=TOKENS["bob"]) as other:
            with pytest.raises(sparsefw.NotFound):
                other.job(result.job)
            assert other.list() == []


def test_credentials_that_are_refused(start_server, folder, monkeypatch):
    server = start_server("--tokens", write_tokens(folder / "tokens", **TOKENS))
    with sparsefw.connect(server.address) as client, pytest.raises(sparsefw.Unauthenticated) as missing:
        client.info()
    assert missing.value.reason == "CREDENTIALS_MISSING"
    with sparsefw.connect(server.address, token="wrong") as client:
        for call in (client.info, lambda: client.upload(Layer().weight), client.jobs):
            with pytest.raises(sparsefw.Unauthenticated) as wrong:
                call()
            assert wrong.value.reason == "CREDENTIALS_INVALID"
    monkeypatch.setenv("SPARSEFW_TOKEN", TOKENS["bob"])
    monkeypatch.setenv("SPARSEFW_SERVER", server.address)
    with sparsefw.connect() as client:
        assert client.info().version


def test_a_token_never_travels_in_plain_text(monkeypatch):
    monkeypatch.setenv("SPARSEFW_TOKEN", "secret-token")
    with pytest.raises(sparsefw.InvalidArgument, match="plain text") as refused:
        sparsefw.connect("192.0.2.1:50051")
    assert refused.value.reason == "CLIENT_ARGUMENT"
    assert "secret-token" not in str(refused.value)


def test_tls_and_a_token(start_server, authority, folder, monkeypatch):
    server = secure_server(start_server, authority, "--tokens",
                           write_tokens(folder / "tokens", **TOKENS))
    with sparsefw.connect(server.address, tls_ca=authority.certificate,
                          token=TOKENS["alice"]) as client:
        assert client.upload(Layer().weight).read().shape == (24, 32)
    monkeypatch.setenv("SPARSEFW_TLS_CA", str(authority.certificate))
    with sparsefw.connect(server.address, token=TOKENS["alice"]) as client:
        assert client.info().version


def test_a_server_of_another_authority_is_no_server(start_server, authority, folder):
    server = secure_server(start_server, authority)
    other = Authority(folder, "other")
    with pytest.raises(sparsefw.Unavailable) as refused:
        sparsefw.connect(server.address, tls_ca=other.certificate, options=FAST)
    assert refused.value.reason == "UNREACHABLE"


def test_a_certificate_of_ones_own(start_server, authority):
    server = secure_server(start_server, authority, "--tls-client-ca", authority.certificate)
    pair = authority.client("alice")
    with sparsefw.connect(server.address, tls_ca=authority.certificate, tls_cert=pair.certificate,
                          tls_key=pair.key) as client:
        assert client.info().version
    with pytest.raises(sparsefw.Unavailable):
        sparsefw.connect(server.address, tls_ca=authority.certificate, options=FAST)


def test_files_that_are_no_certificates(authority, folder):
    text = folder / "text.pem"
    text.write_text("no certificate")
    for arguments, words in (
        ({"tls_ca": folder / "none.pem"}, "cannot be read"),
        ({"tls_ca": text}, "must hold a CERTIFICATE"),
        ({"tls_ca": authority.certificate, "tls_cert": authority.certificate}, "only the certificate"),
        ({"tls_ca": authority.certificate, "tls_cert": authority.certificate,
          "tls_key": authority.certificate}, "must hold a PRIVATE KEY"),
    ):
        with pytest.raises(sparsefw.InvalidArgument, match=words):
            sparsefw.connect("127.0.0.1:1", **arguments)
