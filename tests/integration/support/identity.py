"""Tokens, and clients that carry credentials."""
import hashlib

import grpc

from support.rpc import Client

TOKENS = {"alice": "alices-token-0123456789", "bob": "bobs-token-0123456789"}


def token_line(tenant, token, expiry=""):
    digest = hashlib.sha256(token.encode()).hexdigest()
    return f"{tenant}:{digest}" + (f":{expiry}" if expiry else "") + "\n"


def write_tokens(path, **tokens):
    """Replaces the file: a server that looks at it while it is written sees no empty one."""
    new = path.with_name(f"{path.name}.new")
    new.write_text("".join(token_line(tenant, token) for tenant, token in tokens.items()))
    return new.replace(path)


class Bearer(grpc.AuthMetadataPlugin):
    """A token with every call; grpcio sends it over TLS only."""

    def __init__(self, token):
        self.token = token

    def __call__(self, context, callback):
        callback((("authorization", f"Bearer {self.token}"),), None)


class TlsClient(Client):
    """support.rpc.Client over TLS, with a connection of its own."""

    def __init__(self, address, authority, pair=None, token=None):
        key, certificate = (pair.pem()[1], pair.pem()[0]) if pair else (None, None)
        credentials = grpc.ssl_channel_credentials(authority.certificate.read_bytes(), key,
                                                   certificate)
        if token:
            credentials = grpc.composite_channel_credentials(
                credentials, grpc.metadata_call_credentials(Bearer(token)))
        self.use(grpc.secure_channel(
            address, credentials,
            [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]))
