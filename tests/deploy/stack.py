"""Servers under load, scraped and probed as deploy/prometheus says: a real Prometheus and a real
blackbox_exporter. Two servers: `busy`, with tenants, emulated CUDA devices and clients that do what they
may and what they may not; `cards`, idle, whose GPUs a fake NVML describes."""
import contextlib
import json
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import grpc

from conftest import SOURCE_DIR
from support import layers
from support.identity import TOKENS, write_tokens
from support.processes import BIN_DIR, FAKE_CUDA, HANG, Server, wait_until
from support.rpc import (DTYPES, KINDS, Client, chunks, job_pb2, prune_service_pb2, tensor_pb2,
                         tensor_service_pb2)

EMULATED = BIN_DIR.parent / "tests/libsparsefw_cuda_module_on_host.so"
TENANTS = "[alice]\nmax-queued-jobs = 2\npriority-max = 10\n[bob]\nweight = 2\nmax-uploads = 4\n"
METHODS = (("cpu", job_pb2.METHOD_SPARSEFW), ("cuda:0", job_pb2.METHOD_SPARSEFW), ("cpu", job_pb2.METHOD_WANDA),
           ("cuda:1", job_pb2.METHOD_SPARSEFW), ("cpu", job_pb2.METHOD_SPARSEGPT))
TERMINAL = (job_pb2.JOB_STATE_SUCCEEDED, job_pb2.JOB_STATE_FAILED, job_pb2.JOB_STATE_CANCELLED)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def missing():
    """The Debian packages without which there is no stack; the emulated device is a build target."""
    packages = [package for program, package in (("prometheus", "prometheus"),
                                                 ("prometheus-blackbox-exporter",) * 2)
                if shutil.which(program) is None]
    return packages + [str(path) for path in (EMULATED, FAKE_CUDA) if not path.exists()]


class Tenant(threading.Thread):
    """Uploads a layer, submits jobs of several kinds, reads masks, and now and then breaks a rule."""

    def __init__(self, address, name, layer, stop):
        super().__init__(daemon=True)
        self.client, self.layer, self.stop = Client(address), layer, stop
        self.metadata = (("authorization", f"Bearer {TOKENS[name]}"),)
        self.refused, self.ended, self.error = 0, 0, None

    def call(self, stub, request):
        return stub(request, timeout=HANG, metadata=self.metadata)

    def create_upload(self, array, kind):
        spec = tensor_pb2.TensorSpec(kind=KINDS[kind], dtype=DTYPES[array.dtype.str], dims=array.shape)
        return self.call(self.client.tensors.CreateUpload,
                         tensor_service_pb2.CreateUploadRequest(tensor=spec)).upload.name

    def upload(self, array, kind):
        upload = self.create_upload(array, kind)
        return self.call(self.client.tensors.WriteTensor, chunks(upload, array.tobytes())).tensor.name

    def upload_badly(self, array):
        """A chunk with a wrong checksum."""
        upload = self.create_upload(array, "weight")
        [request, *_] = chunks(upload, array.tobytes())
        request.chunk.crc32c ^= 1
        self.fails(self.call, self.client.tensors.WriteTensor, iter([request]))
        self.call(self.client.tensors.DeleteUpload, tensor_service_pb2.DeleteUploadRequest(name=upload))

    def submit(self, inputs, number, **fields):
        device, method = METHODS[number % len(METHODS)]
        spec = job_pb2.JobSpec(weight=inputs[0], gram=inputs[1], method=method, device=device, **fields)
        spec.pattern.per_row.sparsity = 0.5
        if method == job_pb2.METHOD_SPARSEFW:
            # An emulated device is slow.
            spec.sparsefw.iterations = 600 if device == "cpu" else 5
            spec.sparsefw.alpha = (0.5, 0.9)[number // 2 % 2]
        return self.call(self.client.jobs.CreateJob, prune_service_pb2.CreateJobRequest(spec=spec)).name

    def fails(self, call, *arguments, **fields):
        try:
            call(*arguments, **fields)
        except grpc.RpcError:
            self.refused += 1

    def run(self):
        try:
            self.work()
        except Exception as error:  # noqa: BLE001: the test tells
            if not self.stop.is_set():
                self.error = error

    def work(self):
        inputs = self.upload(self.layer.weight, "weight"), self.upload(self.layer.gram, "gram")
        number = 0
        while not self.stop.is_set():
            jobs = []
            for _ in range(4):
                try:
                    jobs.append(self.submit(inputs, number))
                except grpc.RpcError as error:
                    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
                    self.refused += 1
                number += 1
            self.fails(self.submit, inputs, 0, priority=99)
            self.fails(self.client.jobs.ListJobs, prune_service_pb2.ListJobsRequest(), timeout=HANG)
            self.fails(self.call, self.client.jobs.GetJob, prune_service_pb2.GetJobRequest(name="jobs/none"))
            self.upload(self.layer.weight, "weight")
            self.upload_badly(self.layer.weight)
            for job in jobs:
                watch = self.client.jobs.WatchJob(prune_service_pb2.WatchJobRequest(name=job),
                                                  metadata=self.metadata, timeout=HANG)
                *_, last = watch
                assert last.job.state in TERMINAL, last
                self.ended += 1
                for response in self.client.tensors.ReadTensor(
                        tensor_service_pb2.ReadTensorRequest(name=last.job.result.mask),
                        metadata=self.metadata, timeout=HANG):
                    assert response.chunk.data


class Stack(contextlib.ExitStack):
    """Everything runs when it is entered."""

    def __init__(self, folder, scrape="500ms"):
        super().__init__()
        self.folder, self.scrape, self.stop = Path(folder), scrape, threading.Event()

    def __enter__(self):
        super().__enter__()
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def server(self, name, *flags, env):
        folder = self.folder / name
        folder.mkdir()
        server = Server(folder, *flags, env=env)
        self.callback(server.close)
        return server

    def start(self):
        tokens = write_tokens(self.folder / "tokens", **TOKENS)
        (self.folder / "tenants").write_text(TENANTS)
        self.busy = self.server(
            "busy", "--device", "auto", "--tokens", tokens, "--tenants", self.folder / "tenants",
            "--disk-budget", "1GiB", "--host-memory", "1GiB", "--gc-interval", "1s", "--tensor-ttl", "5s",
            env={"SPARSEFW_CUDA_MODULE": str(EMULATED), "SPARSEFW_CUDA_ON_HOST_DEVICES": "2"})
        self.cards = self.server(
            "cards", "--device", "auto", "--max-connections", "1", "--gpu-metrics-period", "200ms",
            env={"SPARSEFW_CUDA_MODULE": str(FAKE_CUDA),
                 "LD_LIBRARY_PATH": str(BIN_DIR.parent / "tests/fake_nvml")})
        self.start_prometheus()
        layer = layers.Layer(self.folder, 64, 96, seed=5)
        self.tenants = [Tenant(self.busy.address, name, layer, self.stop) for name in TOKENS]
        self.callback(self.stop.set)
        for tenant in self.tenants:
            tenant.start()

    def process(self, name, *command):
        log = open(self.folder / f"{name}.log", "wb")
        process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log,
                                   cwd=self.folder)

        def end():
            process.terminate()
            process.wait(HANG)
            log.close()
        self.callback(end)

    def start_prometheus(self):
        """With the files of deploy/prometheus: other addresses, and quicker."""
        source = SOURCE_DIR / "deploy/prometheus"
        blackbox, self.port = f"127.0.0.1:{free_port()}", free_port()
        text = (source / "prometheus.yml").read_text()
        for old, new in (("15s", f"{self.scrape}\n  evaluation_interval: {self.scrape}"),
                         ("127.0.0.1:9115", blackbox)):
            assert old in text, old
            text = text.replace(old, new)

        def both(port):
            """The list item of one server, for two."""
            nonlocal text
            item = re.search(rf'^      - targets: \["127.0.0.1:{port}"\]\n        labels: .*\n', text, re.M)[0]
            text = text.replace(item, "".join(
                f'      - targets: ["{address}"]\n        labels: {{server: {name}}}\n'
                for name, address in (("busy", self.busy.metrics if port == 9464 else self.busy.address),
                                      ("cards", self.cards.metrics if port == 9464 else self.cards.address))))
        both(9464)
        both(50051)
        (self.folder / "prometheus.yml").write_text(text)
        for name in ("rules.yml", "alerts.yml"):
            shutil.copy(source / name, self.folder)
        self.process("blackbox", "prometheus-blackbox-exporter", f"--config.file={source}/blackbox.yml",
                     f"--web.listen-address={blackbox}")
        self.process("prometheus", "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
                     f"--web.listen-address=127.0.0.1:{self.port}")
        wait_until(self.is_ready, "Prometheus")

    def is_ready(self):
        try:
            return self.get("/-/ready")
        except urllib.error.URLError:
            return False

    def get(self, path, **query):
        url = f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=HANG) as answer:
            return answer.read().decode()

    def ask(self, expression):
        """The result of an instant query; an expression that Prometheus does not parse is an error."""
        try:
            return json.loads(self.get("/api/v1/query", query=expression))["data"]["result"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from error

    def range(self, expression, begin, end, step):
        return json.loads(self.get("/api/v1/query_range", query=expression, start=begin, end=end,
                                   step=step))["data"]["result"]

    def run_for(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.2)
            self.check()

    def check(self):
        for tenant in self.tenants:
            assert tenant.error is None, f"{tenant.metadata}: {tenant.error!r}"


def concrete(expression, interval="20s"):
    """As Grafana asks it: all servers."""
    return expression.replace("$server", ".+").replace("$__rate_interval", interval)
