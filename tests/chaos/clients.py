"""Clients that use the server while it is killed, and keep what they were told."""
import dataclasses
import random
import threading
import time
import uuid

import grpc

from support.processes import HANG, Cli
from support.rpc import (Client, crc32c, error_info, job_pb2, prune_service_pb2, tensor_pb2,
                         tensor_service_pb2)
from variants import packed

STALLED = 30  # seconds, after which a call is tried again: its connection may be half open
TERMINAL = (job_pb2.JOB_STATE_SUCCEEDED, job_pb2.JOB_STATE_FAILED, job_pb2.JOB_STATE_CANCELLED)
# The errors of a broken connection, a dead server and a full one.
TRANSIENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED,
             grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED)


class Violation(Exception):
    """A promise that the server broke."""


def require(condition, what):
    if not condition:
        raise Violation(what)


@dataclasses.dataclass
class Record:
    """A job as its client last knew it."""
    name: str
    request: prune_service_pb2.CreateJobRequest
    variant: object
    revision: int = 0
    running: bool = False  # when it was last heard of
    ended: object = None  # the Job, once its end was seen
    deleted: bool = False
    tensors: list = dataclasses.field(default_factory=list)


class Worker(threading.Thread):
    """Runs `life` again and again until it is told to stop; the first error ends it."""

    def __init__(self, address, variants, seed):
        super().__init__(daemon=True)
        self.address, self.variants = address, variants
        self.random = random.Random(seed)
        self.stopping = threading.Event()
        self.error = None
        self.jobs = 0
        self.retries = 0

    def run(self):
        try:
            while not self.stopping.is_set():
                self.life()
                self.jobs += 1
        except Exception as error:
            self.error = error


class CliWorker(Worker):
    """sparsefw-cli submit, as users run it."""

    def __init__(self, address, variants, seed, folder):
        super().__init__(address, variants, seed)
        self.folder = folder
        folder.mkdir()

    def life(self):
        variant = self.random.choice(self.variants)
        out = self.folder / f"{self.jobs}.safetensors"
        done = Cli(self.address).run(*variant.arguments(out), "--retry-for", f"{HANG:g}s", timeout=2 * HANG)
        self.retries += done.err.count("trying again")
        require(done.code == 0, f"sparsefw-cli ended with {done.code}: {done.err[-1500:]}")
        require(packed(out) == variant.mask, f"sparsefw-cli got another mask for {variant.flags}")
        out.unlink()


class HistoryWorker(Worker):
    """A client by itself, over the bare protocol: every answer is checked against what was
    promised before."""

    def __init__(self, address, variants, seed, delete=0.4):
        """`delete`: the share of jobs that it deletes once they have ended."""
        super().__init__(address, variants, seed)
        self.records, self.delete_share = [], delete

    def run(self):
        self.client = Client(self.address)
        super().run()
        self.client.close()

    # --- calls ---

    def call(self, method, request, missing=None):
        """The answer, after as many attempts as it takes; `missing` for NOT_FOUND, if given."""
        deadline = time.monotonic() + HANG
        while True:
            try:
                return method(request, timeout=STALLED)
            except grpc.RpcError as error:
                if missing is not None and error.code() == grpc.StatusCode.NOT_FOUND:
                    return missing
                require(error.code() in TRANSIENT, f"{error.code()} {error.details()} for "
                        f"{type(request).__name__}")
                require(time.monotonic() < deadline, f"no answer in {HANG:g} s: {error.details()}")
                self.pause()

    def pause(self):
        self.retries += 1
        time.sleep(self.random.uniform(0.02, 0.2))

    # --- one life ---

    def life(self):
        variant = self.random.choice(self.variants)
        weight = self.upload(variant.layer.weight, tensor_pb2.TENSOR_KIND_WEIGHT)
        gram = self.accumulate(variant.layer.activations) if variant.from_activations \
            else self.upload(variant.layer.gram, tensor_pb2.TENSOR_KIND_GRAM)
        request = prune_service_pb2.CreateJobRequest(
            spec=variant.spec(weight, gram), request_id=str(uuid.uuid4()))
        job = self.call(self.client.jobs.CreateJob, request)
        record = Record(job.name, request, variant, job.revision, tensors=[weight, gram])
        self.records.append(record)
        self.watch(record)
        self.check_result(record)
        if self.random.random() < self.delete_share:
            self.delete(record)

    def upload(self, array, kind):
        spec = tensor_pb2.TensorSpec(kind=kind, dtype=tensor_pb2.DATA_TYPE_F32, dims=array.shape)
        data = array.tobytes()

        def requests(upload, begin, end):
            for offset in range(begin, max(end, begin + 1), 16384):
                piece = data[offset:min(offset + 16384, end)]
                yield tensor_service_pb2.WriteTensorRequest(
                    upload=upload if offset == begin else None, finish=end == len(data) and
                    offset + 16384 >= end, chunk=tensor_pb2.Chunk(
                        offset=offset, crc32c=crc32c(piece), data=piece))

        tensor = self.transfer(
            tensor_service_pb2.CreateUploadRequest(tensor=spec, request_id=str(uuid.uuid4())),
            len(data), "committed_size", self.client.tensors.WriteTensor, requests)
        require(tensor.crc32c == crc32c(data), f"{tensor.name} has another checksum")
        return tensor.name

    def accumulate(self, activations):
        spec = tensor_pb2.GramSpec(d_in=activations.shape[1], activation_dtype=tensor_pb2.DATA_TYPE_F32,
                                   gram_dtype=tensor_pb2.DATA_TYPE_F32)

        def requests(upload, begin, end):
            for token in range(begin, max(end, begin + 1), 16):
                piece = activations[token:min(token + 16, end)].tobytes()
                yield tensor_service_pb2.AccumulateGramRequest(
                    upload=upload if token == begin else None, token_offset=token, data=piece,
                    crc32c=crc32c(piece), finish=end == len(activations) and token + 16 >= end)

        return self.transfer(
            tensor_service_pb2.CreateUploadRequest(gram=spec, request_id=str(uuid.uuid4())),
            len(activations), "committed_tokens", self.client.tensors.AccumulateGram,
            requests).name

    def transfer(self, create, total, field, method, requests):
        """The tensor, from as many streams as it takes; some stop half way on purpose."""
        acknowledged = 0
        while True:
            made = self.call(self.client.tensors.CreateUpload, create)
            if made.HasField("tensor"):
                return made.tensor
            committed = getattr(made.upload, field)
            require(committed >= acknowledged, f"{made.upload.name}: {field} fell from "
                    f"{acknowledged} to {committed}")
            acknowledged = committed
            end = total if self.random.random() < 0.6 else self.random.randint(committed, total)
            try:
                response = method(requests(made.upload.name, committed, end), timeout=STALLED)
                acknowledged = max(acknowledged, getattr(response, field))
            except grpc.RpcError as error:
                # NOT_FOUND: finished, but the answer was lost.
                require(error.code() in (*TRANSIENT, grpc.StatusCode.NOT_FOUND),
                        f"{error.code()} {error.details()} for a stream to {made.upload.name}")
                self.pause()

    def watch(self, record):
        deadline = time.monotonic() + HANG
        while record.ended is None:
            require(time.monotonic() < deadline, f"{record.name} did not end in {HANG:g} s")
            try:
                for event in self.client.jobs.WatchJob(prune_service_pb2.WatchJobRequest(
                        name=record.name, after_revision=record.revision), timeout=STALLED):
                    self.take(record, event)
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.OUT_OF_RANGE:
                    require(error_info(error)[1] == "REVISION_UNKNOWN", str(error))
                    record.revision = 0  # progress that was not on the disk yet
                else:
                    require(error.code() in TRANSIENT,
                            f"{error.code()} {error.details()} for a watch of {record.name}")
                self.pause()

    @staticmethod
    def take(record, event):
        job = event.job
        require(job.revision >= record.revision, f"{record.name}: revision {job.revision} after "
                f"{record.revision}")
        record.revision = job.revision
        record.running = job.state == job_pb2.JOB_STATE_RUNNING
        if job.state in TERMINAL:
            require(record.ended is None or record.ended == job, f"{record.name} ended twice")
            record.ended = job

    def check_result(self, record):
        job = record.ended
        require(job.state == job_pb2.JOB_STATE_SUCCEEDED, f"{record.name} ended as "
                f"{job_pb2.JobState.Name(job.state)}: {job.error.message}")
        require(self.read(job.result.mask) == record.variant.mask,
                f"{record.name} has another mask than an undisturbed run")

    def read(self, name):
        data = b""
        while True:
            try:
                for response in self.client.tensors.ReadTensor(
                        tensor_service_pb2.ReadTensorRequest(name=name, offset=len(data)),
                        timeout=STALLED):
                    data += response.chunk.data
                return data
            except grpc.RpcError as error:
                require(error.code() in TRANSIENT, f"{error.code()} {error.details()} for {name}")
                self.pause()

    def delete(self, record):
        gone = object()
        self.call(self.client.jobs.DeleteJob,
                  prune_service_pb2.DeleteJobRequest(name=record.name), missing=gone)
        for tensor in record.tensors:
            self.call(self.client.tensors.DeleteTensor,
                      tensor_service_pb2.DeleteTensorRequest(name=tensor), missing=gone)
        record.deleted = True
