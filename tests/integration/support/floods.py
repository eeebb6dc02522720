"""Floods: many calls of one tenant that cost the server more than their sender."""
import re
import urllib.request
from collections import Counter, namedtuple

import numpy as np

from sparsefw.v1 import job_pb2, prune_service_pb2, tensor_pb2, tensor_service_pb2
from support.identity import TOKENS
from support.processes import HANG, wait_until
from support.rpc import DTYPES, KINDS, Client, chunks, crc32c

STREAMS = 200  # of a connection; the server lets 256 in


def metrics_of(server):
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as response:
        return response.read().decode()


def metric(server, name, **labels):
    """The value of a series; 0 where there is none yet."""
    return value_in(metrics_of(server), name, **labels)


def value_in(text, name, **labels):
    series = name
    if labels:
        series += "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


Usage = namedtuple("Usage", "queued oldest_wait begun withdrawn")


def usage_of(server, executor):
    """By one look, so that the values belong together."""
    text = metrics_of(server)
    return Usage(*(value_in(text, f"sparsefw_executor_{name}", executor=executor) for name in (
        "queue_length", "oldest_wait_seconds", "begun_total", "withdrawn_total")))


class Tenant:
    """A tenant's calls, on a connection of its own."""

    def __init__(self, address, name):
        self.address, self.name = address, name
        self.metadata = (("authorization", f"Bearer {TOKENS[name]}"),)
        self.client = Client(address)

    def call(self, stub, request):
        return stub(request, timeout=HANG, metadata=self.metadata)

    def upload(self, array, kind="weight"):
        spec = tensor_pb2.TensorSpec(kind=KINDS[kind], dtype=DTYPES[array.dtype.str],
                                     dims=array.shape)
        upload = self.call(self.client.tensors.CreateUpload,
                           tensor_service_pb2.CreateUploadRequest(tensor=spec)).upload.name
        return self.call(self.client.tensors.WriteTensor,
                         chunks(upload, array.tobytes())).tensor.name

    def zeros(self, spec, size, byte=b"\0"):
        """A tensor of equal bytes: their checksum is computed once."""
        data = byte * min(size, 1 << 20)
        checksum = crc32c(data)

        def requests():
            for offset in range(0, size, len(data)):
                yield tensor_service_pb2.WriteTensorRequest(
                    spec=spec if offset == 0 else None, finish=offset + len(data) == size,
                    chunk=tensor_pb2.Chunk(offset=offset, data=data, crc32c=checksum))

        return self.call(self.client.tensors.WriteTensor, requests()).tensor.name

    def gram(self, d_in, tokens=1):
        """A Gram matrix of few bytes sent: the server sums it."""
        data = np.ones((tokens, d_in), "<f4").tobytes()
        spec = tensor_pb2.GramSpec(d_in=d_in, activation_dtype=tensor_pb2.DATA_TYPE_F32)
        request = tensor_service_pb2.AccumulateGramRequest(spec=spec, data=data,
                                                           crc32c=crc32c(data), finish=True)
        return self.call(self.client.tensors.AccumulateGram, iter([request])).gram.name

    def small_spec(self, **fields):
        return job_pb2.JobSpec(weight=self.upload(np.ones((8, 8), "<f4")),
                               gram=self.upload(np.eye(8, dtype="<f4"), "gram"),
                               pattern=per_row(0.5), **fields)

    # Small calls, one of every kind of thread.
    def list_tensors(self):
        self.call(self.client.tensors.ListTensors, tensor_service_pb2.ListTensorsRequest())

    def create_upload(self):
        spec = tensor_pb2.TensorSpec(kind=KINDS["weight"], dtype=tensor_pb2.DATA_TYPE_F32, dims=(4, 4))
        upload = self.call(self.client.tensors.CreateUpload,
                           tensor_service_pb2.CreateUploadRequest(tensor=spec)).upload.name
        self.call(self.client.tensors.DeleteUpload,
                  tensor_service_pb2.DeleteUploadRequest(name=upload))

    def sum_grams(self, parts):
        tensor = self.call(self.client.tensors.SumGrams,
                           tensor_service_pb2.SumGramsRequest(grams=parts)).name
        self.call(self.client.tensors.DeleteTensor,
                  tensor_service_pb2.DeleteTensorRequest(name=tensor))

    def check_job(self, spec):
        self.call(self.client.jobs.CreateJob,
                  prune_service_pb2.CreateJobRequest(spec=spec, validate_only=True))

    def get_job(self, name):
        self.call(self.client.jobs.GetJob, prune_service_pb2.GetJobRequest(name=name))

    def cancel_job(self, name):
        self.call(self.client.jobs.CancelJob, prune_service_pb2.CancelJobRequest(name=name))

    def list_jobs(self):
        self.call(self.client.jobs.ListJobs, prune_service_pb2.ListJobsRequest())


def per_row(sparsity):
    return job_pb2.Pattern(per_row=job_pb2.Pattern.PerRow(sparsity=sparsity))


def keep_of_group(keep, group):
    return job_pb2.Pattern(nm=job_pb2.Pattern.KeepOfGroup(keep=keep, group=group))


class Flood:
    """Many calls of `method` at once, over as many connections as they need."""
    method = executor = ""

    def __init__(self, sender):
        self.sender = sender
        self.pending = {}  # by connection
        self.ended = Counter()  # (code, details) of those that were seen to end
        self.prepare()

    def prepare(self):
        raise NotImplementedError

    def call_of(self, client):
        """(stub, request)"""
        raise NotImplementedError

    def one(self):
        """A single call, awaited."""
        stub, request = self.call_of(self.sender.client)
        self.sender.call(stub, request)

    def send(self, count):
        """`count` calls more."""
        self.look()
        futures = []
        while len(futures) < count:
            client = next((one for one, calls in self.pending.items() if len(calls) < STREAMS), None)
            if client is None:
                client = Client(self.sender.address)
                self.pending[client] = []
            calls = self.pending[client]
            stub, request = self.call_of(client)
            futures += (more := [stub.future(request, timeout=HANG, metadata=self.sender.metadata)
                                 for _ in range(min(STREAMS - len(calls), count - len(futures)))])
            calls += more
        return futures

    def look(self):
        """How many are pending; counts those that have ended, and forgets what they brought."""
        for client, calls in self.pending.items():
            done = {call for call in calls if call.done()}
            self.ended.update((call.code(), call.details()) for call in done)
            self.pending[client] = [call for call in calls if call not in done]
        return sum(map(len, self.pending.values()))

    def top_up(self, count):
        """Sends what `count` pending calls lack."""
        self.send(count - self.look())

    def started(self, server):
        return metric(server, "sparsefw_rpc_started_total", method=self.method)

    def await_arrival(self, server, before, count):
        wait_until(lambda: self.started(server) - before >= count, "the flood has come")

    def close(self):
        for client in self.pending:
            client.close()
        self.pending = {}
        self.ended.clear()


class Sums(Flood):
    """Sums of many Gram matrices, in a few kilobytes a call."""
    method, executor = "TensorService/SumGrams", "sums"
    parts_count, width = 64, 512

    def prepare(self):
        self.parts = [self.sender.gram(self.width) for _ in range(self.parts_count)]

    def call_of(self, client):
        return client.tensors.SumGrams, tensor_service_pb2.SumGramsRequest(grams=self.parts)


class Lists(Flood):
    """Lists of jobs with as many labels as there may be."""
    method, executor = "PruneService/ListJobs", "jobs"

    def prepare(self):
        spec = self.sender.small_spec(
            method=job_pb2.METHOD_WANDA,
            labels={f"k{index:02}": "v" * 256 for index in range(64)})
        for _ in range(100):
            self.sender.call(self.sender.client.jobs.CreateJob,
                             prune_service_pb2.CreateJobRequest(spec=spec))

    def call_of(self, client):
        return client.jobs.ListJobs, prune_service_pb2.ListJobsRequest(
            page_size=1000, labels={"k00": "v" * 256, "k63": "v" * 256})


class Checks(Flood):
    """Jobs that are validated only, with a warm mask that must be read for each of several patterns."""
    method, executor = "PruneService/CreateJob", "jobs"
    size = 4096

    def prepare(self):
        size = self.size
        weight = self.sender.zeros(
            tensor_pb2.TensorSpec(kind=tensor_pb2.TENSOR_KIND_WEIGHT, dtype=tensor_pb2.DATA_TYPE_BF16, dims=(size, size)),
            2 * size * size)
        mask = self.sender.zeros(
            tensor_pb2.TensorSpec(kind=tensor_pb2.TENSOR_KIND_MASK, dtype=tensor_pb2.DATA_TYPE_U1, dims=(size, size)),
            size * size // 8, b"\x55")
        self.spec = job_pb2.JobSpec(weight=weight, gram=self.sender.gram(size),
                                    warm_start=job_pb2.WarmStart(mask=mask))
        for keep in (1, 2, 4, 8, 16):
            self.spec.sweep.points.add(pattern=keep_of_group(keep, 2 * keep))

    def call_of(self, client):
        return client.jobs.CreateJob, prune_service_pb2.CreateJobRequest(spec=self.spec,
                                                                         validate_only=True)


class Wide(Flood):
    """Five endless accumulations of a wide layer, whatever the count."""
    method, executor = "TensorService/AccumulateGram", "sums"
    width, tokens = 4096, 240

    def prepare(self):
        self.data = b"\0" * (2 * self.tokens * self.width)
        self.checksum = crc32c(self.data)

    def requests(self):
        index = 0
        while not self.stopping:
            yield tensor_service_pb2.AccumulateGramRequest(
                spec=tensor_pb2.GramSpec(d_in=self.width, activation_dtype=tensor_pb2.DATA_TYPE_F16)
                if index == 0 else None,
                token_offset=self.tokens * index, data=self.data, crc32c=self.checksum)
            index += 1

    def send(self, count):
        if not self.pending:
            self.stopping = False
            for client in [Client(self.sender.address) for _ in range(5)]:
                self.pending[client] = [client.tensors.AccumulateGram.future(
                    self.requests(), timeout=HANG, metadata=self.sender.metadata)]
        return [stream for streams in self.pending.values() for stream in streams]

    def close(self):
        self.stopping = True
        for streams in self.pending.values():
            streams[0].cancel()
        super().close()


FLOODS = (Sums, Lists, Checks)
