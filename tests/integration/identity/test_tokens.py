"""Tokens: who is refused, how, and when."""
import signal
import threading
import time
import urllib.request

import grpc
import health_pb2
import health_pb2_grpc
import pytest
import reflection_pb2
import reflection_pb2_grpc

from sparsefw.v1 import job_pb2, prune_service_pb2, tensor_pb2, tensor_service_pb2
from support.certificates import Authority
from support.identity import TOKENS, TlsClient, token_line, write_tokens
from support.processes import HANG, Cli, wait_until
from support.rpc import DTYPES, KINDS, Client, chunks, error_info, refusal

INFO = prune_service_pb2.GetServerInfoRequest()
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
DENIED = grpc.StatusCode.PERMISSION_DENIED


@pytest.fixture
def tokens(folder):
    return write_tokens(folder / "tokens", **TOKENS)


@pytest.fixture
def server(start_server, tokens):
    """Plain text on the loopback: tokens do not depend on TLS."""
    return start_server("--tokens", tokens, "--log-level", "debug")


@pytest.fixture
def client(server):
    client = Client(server.address)
    yield client
    client.close()


def bearer(token):
    return (("authorization", f"Bearer {token}"),)


def info(client, metadata=None):
    return client.jobs.GetServerInfo(INFO, timeout=HANG, metadata=metadata)


def test_every_call_is_judged_by_itself(server, client):
    """On one connection: nothing of a call is left for the next."""
    for _ in range(3):
        assert info(client, bearer(TOKENS["alice"]))
        assert refusal(lambda: info(client)) == (UNAUTHENTICATED, "CREDENTIALS_MISSING")
        assert refusal(lambda: info(client, bearer("wrong"))) == (UNAUTHENTICATED,
                                                                  "CREDENTIALS_INVALID")
        assert info(client, bearer(TOKENS["bob"]))
    for metadata in ((("authorization", TOKENS["alice"]),),
                     (("authorization", f"Basic {TOKENS['alice']}"),),
                     bearer(TOKENS["alice"]) + bearer(TOKENS["bob"])):
        assert refusal(lambda: info(client, metadata)) == (UNAUTHENTICATED, "CREDENTIALS_INVALID")
    assert server.stop() == 0
    for token in (*TOKENS.values(), "wrong"):
        assert token not in server.log()


def every_rpc(client):
    """(name, call): a call of every RPC there is, judged by the descriptors."""
    for stub, service in ((client.jobs, "PruneService"), (client.tensors, "TensorService")):
        file = prune_service_pb2 if service == "PruneService" else tensor_service_pb2
        for method in file.DESCRIPTOR.services_by_name[service].methods:
            request = method.input_type._concrete_class()
            call = getattr(stub, method.name)
            streaming = isinstance(call, (grpc.StreamUnaryMultiCallable,
                                          grpc.StreamStreamMultiCallable))
            answers = isinstance(call, (grpc.UnaryStreamMultiCallable,
                                        grpc.StreamStreamMultiCallable))

            def run(metadata=None, call=call, request=request, streaming=streaming,
                    answers=answers):
                response = call(iter([request]) if streaming else request, timeout=HANG,
                                metadata=metadata)
                return list(response) if answers else response

            yield f"{service}/{method.name}", run


def test_every_rpc_asks_for_credentials(client):
    names = []
    for name, run in every_rpc(client):
        assert refusal(run) == (UNAUTHENTICATED, "CREDENTIALS_MISSING"), name
        assert refusal(lambda: run(bearer("wrong"))) == (UNAUTHENTICATED,
                                                         "CREDENTIALS_INVALID"), name
        # With a token the empty request is answered, or refused for what it is.
        try:
            run(bearer(TOKENS["alice"]))
        except grpc.RpcError as error:
            assert error.code() not in (UNAUTHENTICATED, DENIED), name
        names.append(name)
    assert len(names) >= 18, names


def reflection(client, metadata=None):
    question = reflection_pb2.ServerReflectionRequest(list_services="*")
    stub = reflection_pb2_grpc.ServerReflectionStub(client.channel)
    return list(stub.ServerReflectionInfo(iter([question]), timeout=HANG, metadata=metadata))


def test_health_is_open_and_reflection_asks_who_calls(server, client):
    stub = health_pb2_grpc.HealthStub(client.channel)
    assert stub.Check(health_pb2.HealthCheckRequest(), timeout=HANG).status == 1
    assert refusal(lambda: reflection(client)) == (UNAUTHENTICATED, "CREDENTIALS_MISSING")
    (answer,) = reflection(client, bearer(TOKENS["alice"]))
    assert len(answer.list_services_response.service) == 4


def expiring_soon(tokens):
    """Gives the token "later" an end while the server runs, and returns it: whatever took long before, the
    token was good until then."""
    at = int(time.time()) + 2
    tokens.write_text(
        token_line("alice", "later", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))))
    return at


def test_a_token_expires(start_server, folder):
    tokens = folder / "tokens"
    tokens.write_text(token_line("alice", "later", "2100-01-01T00:00:00Z") +
                      token_line("alice", "past", "2020-01-01T00:00:00Z"))
    server = start_server("--tokens", tokens)
    client = Client(server.address)
    assert info(client, bearer("later"))
    assert refusal(lambda: info(client, bearer("past"))) == (UNAUTHENTICATED,
                                                             "CREDENTIALS_EXPIRED")
    at = expiring_soon(tokens)

    def refused():
        try:
            return not info(client, bearer("later"))
        except grpc.RpcError as error:
            return error

    assert error_info(wait_until(refused, "it has expired"))[:2] == (UNAUTHENTICATED,
                                                                     "CREDENTIALS_EXPIRED")
    assert time.time() >= at, "too early"
    client.close()
    assert server.stop() == 0


def start_job(client, layer, token):
    """An endless job of this client's, watched: (name, the watch, its first event)."""
    metadata = bearer(token)

    def upload(array, kind):
        spec = tensor_pb2.TensorSpec(kind=KINDS[kind], dtype=DTYPES[array.dtype.str],
                                     dims=array.shape)
        request = tensor_service_pb2.CreateUploadRequest(tensor=spec)
        made = client.tensors.CreateUpload(request, timeout=HANG, metadata=metadata).upload
        return client.tensors.WriteTensor(chunks(made.name, array.tobytes(), chunk=1 << 20),
                                          timeout=HANG, metadata=metadata).tensor.name

    spec = job_pb2.JobSpec(weight=upload(layer.weight, "weight"), gram=upload(layer.gram, "gram"),
                           method=job_pb2.METHOD_SPARSEFW)
    spec.pattern.per_row.sparsity = 0.5
    spec.sparsefw.iterations = 1 << 40
    request = prune_service_pb2.CreateJobRequest(spec=spec)
    job = client.jobs.CreateJob(request, timeout=HANG, metadata=metadata).name
    watch = client.jobs.WatchJob(prune_service_pb2.WatchJobRequest(name=job), metadata=metadata)
    return job, watch, next(watch)


def end_of(stream):
    """How it ends; its events are read meanwhile."""
    end = time.monotonic() + HANG
    with pytest.raises(grpc.RpcError) as raised:
        for _ in stream:
            assert time.monotonic() < end, "it goes on"
    return error_info(raised.value)[:2]


class SilentRequests:
    """The requests of a client that sends nothing and does not end."""

    def __init__(self):
        self.ended = threading.Event()

    def __iter__(self):
        return self

    def __next__(self):
        self.ended.wait(HANG)
        raise StopIteration


def test_a_revoked_token_ends_its_streams_and_no_others(server, client, tokens, layer):
    _, mine, _ = start_job(client, layer, TOKENS["alice"])
    _, other, _ = start_job(client, layer, TOKENS["bob"])
    held = SilentRequests()
    intake = client.tensors.WriteTensor.future(held, metadata=bearer(TOKENS["alice"]))
    write_tokens(tokens, bob=TOKENS["bob"])
    assert end_of(mine) == (UNAUTHENTICATED, "CREDENTIALS_INVALID")
    # A stream on which the client sends nothing ends as well.
    wait_until(intake.done, "the silent upload ends")
    assert intake.exception().code() == UNAUTHENTICATED
    held.ended.set()
    assert refusal(lambda: info(client, bearer(TOKENS["alice"]))) == (UNAUTHENTICATED,
                                                                      "CREDENTIALS_INVALID")
    assert info(client, bearer(TOKENS["bob"]))
    assert next(other), "another's watch goes on"
    other.cancel()
    # A broken file changes nothing.
    tokens.write_text("nonsense\n")
    wait_until(lambda: "reload_failed" in server.log(), "the error is logged")
    assert info(client, bearer(TOKENS["bob"]))
    assert "nonsense" not in server.log()
    # And back.
    write_tokens(tokens, **TOKENS)

    def back():
        try:
            return info(client, bearer(TOKENS["alice"]))
        except grpc.RpcError:
            return None

    wait_until(back, "the token counts again")
    for token in TOKENS.values():
        assert token not in server.log()


def test_a_tokens_file_that_is_cut_short_locks_nobody_out(server, client, tokens, start_server, layer):
    """What a full disk leaves, and what an editor and a shell's > leave for a moment."""
    _, watch, _ = start_job(client, layer, TOKENS["alice"])
    failures = 0
    for content in ("", "\n", "# no token\n", token_line("alice", TOKENS["alice"])[:40]):
        tokens.write_text(content)
        server.process.send_signal(signal.SIGHUP)
        failures += 1
        wait_until(lambda: server.log().count("reload_failed") >= failures, "it is refused")
        assert info(client, bearer(TOKENS["alice"])), content
    # The same without a signal.
    tokens.write_text("# another\n")
    wait_until(lambda: server.log().count("reload_failed") > failures, "it is refused")
    assert info(client, bearer(TOKENS["alice"]))
    assert watch.is_active(), "streams go on"
    watch.cancel()
    refused = start_server("--tokens", tokens, wait=False)
    assert refused.wait() == 2 and "a token at least" in refused.log(), refused.log()


def test_an_expired_token_ends_its_streams(start_server, folder, layer):
    tokens = folder / "tokens"
    tokens.write_text(token_line("alice", "later"))
    server = start_server("--tokens", tokens)
    client = Client(server.address)
    _, watch, _ = start_job(client, layer, "later")
    at = expiring_soon(tokens)
    assert end_of(watch) == (UNAUTHENTICATED, "CREDENTIALS_EXPIRED")
    assert time.time() >= at, "too early"
    client.close()


def test_tenants_that_are_not_in_the_file_may_not(start_server, folder, tokens, layer):
    tenants = folder / "tenants"
    tenants.write_text("[alice]\nweight = 2\n[bob]\n")
    server = start_server("--tokens", tokens, "--tenants", tenants)
    client = Client(server.address)
    _, watch, _ = start_job(client, layer, TOKENS["alice"])
    assert info(client, bearer(TOKENS["bob"]))
    tenants.write_text("[bob]\n")
    assert end_of(watch) == (DENIED, "TENANT_NOT_ALLOWED")
    assert refusal(lambda: info(client, bearer(TOKENS["alice"]))) == (DENIED, "TENANT_NOT_ALLOWED")
    assert refusal(lambda: reflection(client, bearer(TOKENS["alice"]))) == (
        DENIED, "TENANT_NOT_ALLOWED")
    assert info(client, bearer(TOKENS["bob"]))
    client.close()


def test_tokens_beside_client_certificates(start_server, folder, tokens):
    authority = Authority(folder)
    pair = authority.server()
    server = start_server("--tls-cert", pair.certificate, "--tls-key", pair.key,
                          "--tls-client-ca", authority.certificate, "--tokens", tokens)
    alices, gateways = authority.client("alice"), authority.issue("gateway")

    def outcome(pair, token=None):
        client = TlsClient(server.address, authority, pair, token)
        try:
            return info(client) and "OK"
        except grpc.RpcError as error:
            return error_info(error)[1]
        finally:
            client.close()

    assert outcome(alices) == "OK"
    assert outcome(gateways, TOKENS["alice"]) == "OK"
    assert outcome(gateways, "wrong") == "CREDENTIALS_INVALID"
    assert outcome(alices, TOKENS["alice"]) == "OK"
    assert outcome(alices, TOKENS["bob"]) == "TENANT_MISMATCH"
    assert outcome(authority.issue("no tenant")) == "CREDENTIALS_INVALID"
    assert server.stop() == 0


def test_metrics_name_no_tenant_and_no_job(server, client, layer):
    job, watch, _ = start_job(client, layer, TOKENS["alice"])
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as response:
        text = response.read().decode()
    watch.cancel()
    assert 'code="OK"' in text
    for secret in ("alice", job, job.split("/")[1], "tensors/"):
        assert secret not in text


def test_the_cli_says_what_is_missing(server, folder, layer):
    cli = Cli(server.address)
    cli.run("info").refused(6, "token", "--token-file")
    good, wrong, empty = folder / "good", folder / "wrong", folder / "empty"
    good.write_text(TOKENS["alice"] + "\n")
    wrong.write_text("wrong-token")
    empty.write_text("\n")
    cli.run("info", "--token-file", good).expect(0)
    cli.run("info", env={"SPARSEFW_TOKEN": TOKENS["alice"]}).expect(0)
    cli.run("info", "--token-file", wrong).refused(6, "does not know the token")
    # The flag wins over the environment.
    cli.run("info", "--token-file", wrong, env={"SPARSEFW_TOKEN": TOKENS["alice"]}).expect(6)
    cli.run("info", "--token-file", empty).refused(2, "empty")
    cli.run("info", "--token-file", folder / "none").refused(2, "none", "No such file")
    cli.run(*layer.submit("--method", "wanda"), "--token-file", good).expect(0)
    assert layer.mask().shape == layer.weight.shape
