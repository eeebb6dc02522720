"""What is not ours: reflection, health checks, a real Prometheus."""
import json
import re
import shutil
import signal
import socket
import subprocess
import threading
import urllib.parse
import urllib.request

import grpc
import health_pb2
import health_pb2_grpc
import pytest
import reflection_pb2
import reflection_pb2_grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from support.layers import ENDLESS
from support.processes import HANG, Cli, wait_until
from support.rpc import Client

SERVICES = ["sparsefw.v1.PruneService", "sparsefw.v1.TensorService"]
SERVING, NOT_SERVING = (health_pb2.HealthCheckResponse.SERVING,
                        health_pb2.HealthCheckResponse.NOT_SERVING)


class Reflection:
    """What grpcurl does: knows no .proto file, asks the server for everything."""

    def __init__(self, channel):
        self.stub = reflection_pb2_grpc.ServerReflectionStub(channel)

    def ask(self, **question):
        request = reflection_pb2.ServerReflectionRequest(**question)
        (response,) = self.stub.ServerReflectionInfo(iter([request]), timeout=HANG)
        return response

    def services(self):
        return [s.name for s in self.ask(list_services="*").list_services_response.service]

    def pool_for(self, symbol):
        pool, added = descriptor_pool.DescriptorPool(), {}

        def add(file):
            if file.name in added:
                return
            added[file.name] = file
            for dependency in file.dependency:
                if dependency not in added:
                    for wanted in files(self.ask(file_by_filename=dependency)):
                        add(wanted)
            pool.Add(file)

        def files(response):
            assert not response.HasField("error_response"), response.error_response
            for raw in response.file_descriptor_response.file_descriptor_proto:
                yield descriptor_pb2.FileDescriptorProto.FromString(raw)

        received = {file.name: file for file in files(self.ask(file_containing_symbol=symbol))}
        for file in received.values():
            for dependency in file.dependency:
                if dependency in received:
                    add(received[dependency])
        for file in received.values():
            add(file)
        return pool


def test_reflection_is_enough_to_make_calls(client):
    reflection = Reflection(client.channel)
    names = reflection.services()
    for name in SERVICES + ["grpc.health.v1.Health"]:
        assert name in names, names
    assert any(name.startswith("grpc.reflection") for name in names)
    pool = reflection.pool_for("sparsefw.v1.PruneService")
    service = pool.FindServiceByName("sparsefw.v1.PruneService")
    assert {"CreateJob", "WatchJob", "Prune", "GetServerInfo"} <= set(service.methods_by_name)
    factory = message_factory.MessageFactory(pool)

    def call(method, text):
        descriptor = service.methods_by_name[method]
        request = factory.GetPrototype(descriptor.input_type)()
        json_format.Parse(text, request)
        stub = client.channel.unary_unary(f"/{service.full_name}/{method}",
                                          request_serializer=lambda m: m.SerializeToString(),
                                          response_deserializer=factory.GetPrototype(
                                              descriptor.output_type).FromString)
        return json.loads(json_format.MessageToJson(stub(request, timeout=HANG)))

    assert "METHOD_WANDA" in call("GetServerInfo", "{}")["methods"]
    with pytest.raises(grpc.RpcError) as raised:
        call("GetJob", '{"name": "jobs/none"}')
    assert raised.value.code() == grpc.StatusCode.NOT_FOUND


def test_reflection_of_an_unknown_symbol(client):
    response = Reflection(client.channel).ask(file_containing_symbol="no.such.Thing")
    assert response.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


def test_streams_of_reflection_hold_no_threads(shared_server, client):
    def threads():
        with open(f"/proc/{shared_server.process.pid}/status") as status:
            return int(re.search(r"Threads:\s+(\d+)", status.read())[1])

    stub = reflection_pb2_grpc.ServerReflectionStub(client.channel)
    question = reflection_pb2.ServerReflectionRequest(list_services="*")
    before, done = threads(), threading.Event()

    def ask():
        yield question
        done.wait(HANG)

    streams = [stub.ServerReflectionInfo(ask(), timeout=HANG) for _ in range(150)]
    for stream in streams:
        assert next(stream).list_services_response.service
    grown = threads() - before
    done.set()
    for stream in streams:
        stream.cancel()
    assert grown < 20


def check(channel, service):
    stub = health_pb2_grpc.HealthStub(channel)
    return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=HANG).status


def test_health_of_every_service(client):
    for service in ["", *SERVICES]:
        assert check(client.channel, service) == SERVING
    with pytest.raises(grpc.RpcError) as raised:
        check(client.channel, "no.such.Service")
    assert raised.value.code() == grpc.StatusCode.NOT_FOUND


def test_health_is_honest_while_draining(start_server, big_layer):
    server = start_server("--drain-grace", "20s")
    cli = Cli(server.address)
    job = cli.run(*big_layer.submit(*ENDLESS, "--detach", "--json", out=False)).expect(0).json()["job"]
    wait_until(lambda: cli.run("status", job, "--json").json()["state"] == "RUNNING", "runs")
    client = Client(server.address)
    statuses = []

    def watch():
        stub = health_pb2_grpc.HealthStub(client.channel)
        request = health_pb2.HealthCheckRequest(service="sparsefw.v1.PruneService")
        try:
            for response in stub.Watch(request):
                statuses.append(response.status)
        except grpc.RpcError:
            pass  # the server has gone

    watcher = threading.Thread(target=watch)
    watcher.start()
    wait_until(lambda: statuses == [SERVING], "first status")
    server.signal(signal.SIGTERM)
    wait_until(lambda: statuses[-1] == NOT_SERVING, "the watch is told")
    for service in ["", *SERVICES]:
        assert check(client.channel, service) == NOT_SERVING
    cli.run("cancel", job)
    assert server.wait() == 0
    watcher.join(HANG)
    assert not watcher.is_alive()
    client.close()


def metrics_of(server):
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as response:
        return response.read().decode()


def need(program):
    path = shutil.which(program)
    assert path, f"{program} is missing: apt-get install prometheus, or run script/bootstrap"
    return path


def test_metrics_are_well_formed(shared_server, cli, layer):
    cli.run(*layer.submit("--method", "sparsefw", "--iterations", "20")).expect(0)
    cli.run("status", "jobs/none").expect(3)
    text = metrics_of(shared_server)
    done = subprocess.run([need("promtool"), "check", "metrics"], input=text, text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    samples = {line.split()[0] for line in text.splitlines() if line and line[0] != "#"}
    for word in ("queue", "build_info", "memory", "solve", "iterations", "reduction", "draining"):
        assert any(word in sample for sample in samples), f"{word}: {sorted(samples)}"
    for label in ('method="', 'code="OK"', 'code="NOT_FOUND"', 'state="'):
        assert label in text, label
    assert all(line.split("{")[0].split()[0].startswith("sparsefw_") or "exposer" in line
               for line in text.splitlines() if line and line[0] != "#")


@pytest.fixture
def prometheus(shared_server, folder):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = "127.0.0.1:%d" % free.getsockname()[1]
    config = folder / "prometheus.yml"
    config.write_text("global: {scrape_interval: 1s}\n"
                      "scrape_configs:\n"
                      "  - job_name: sparsefw\n"
                      f"    static_configs: [{{targets: ['{shared_server.metrics}']}}]\n")
    log = open(folder / "prometheus.log", "wb")
    process = subprocess.Popen(
        [need("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
         f"--web.listen-address={address}"], stdout=log, stderr=log, cwd=folder)

    def query(expression):
        url = f"http://{address}/api/v1/query?query=" + urllib.parse.quote(expression)
        try:
            with urllib.request.urlopen(url, timeout=HANG) as response:
                answer = json.load(response)
        except OSError:
            assert process.poll() is None, (folder / "prometheus.log").read_text()[-2000:]
            return []
        assert answer["status"] == "success", answer
        return answer["data"]["result"]

    yield query
    process.terminate()
    process.wait(HANG)
    log.close()


def test_a_real_prometheus_scrapes_and_answers(prometheus, shared_server, cli, layer):
    def value(expression):
        result = prometheus(expression)
        return float(result[0]["value"][1]) if result else None

    wait_until(lambda: value("up") == 1, "prometheus scrapes the server")
    count = 'sum(sparsefw_rpc_duration_seconds_count{method="PruneService/CreateJob",code="OK"})'
    before = value(count) or 0
    for _ in range(3):
        cli.run(*layer.submit("--method", "wanda")).expect(0)
    wait_until(lambda: value(count) == before + 3, f"{count} counts three jobs")
    assert value("sum(sparsefw_build_info)") == 1
