"""A server of the public protocol that lies where a test says so, for the programs that must not trust it."""
import threading
from concurrent import futures

import grpc
import numpy as np
from google.protobuf import empty_pb2
from sparsefw.v1 import (job_pb2, prune_service_pb2, prune_service_pb2_grpc, tensor_pb2,
                         tensor_service_pb2, tensor_service_pb2_grpc)

from support.rpc import crc32c

# Sets a title, clears the screen, forges a line, turns the text round; the last in C1.
ESCAPES = "\x1b]0;owned\x07\x1b[2J\nsparsefw-cli: all is well\u202e\x7f\u009b31m"


class Hostile:
    """Honest about jobs on a layer [rows, cols] whose masks keep everything, but for what is set:

    describe(tensor)       changes what GetTensor says
    chunks(request)        the chunks of ReadTensor, instead of the right ones
    change(job)            changes every job
    page(number)           (entries, token) of a list's page, from 0
    info                   the answer of GetServerInfo
    refusal                the message with which every call but GetServerInfo is refused
    on_upload(context)     called once, when an upload is made, before the answer
    committed_tokens       what every stream of activations has committed; `streams` counts these
    """

    def __init__(self, rows=24, cols=32):
        self.shape = rows, cols
        self.describe = self.change = lambda message: None
        self.chunks = self.page = self.refusal = self.on_upload = None
        self.info = prune_service_pb2.ServerInfo(version="1")
        self.pages = self.streams = self.committed_tokens = 0
        self.closed = threading.Event()
        self.deleted = []
        self.server = grpc.server(futures.ThreadPoolExecutor(8), interceptors=[_Refusals(self)])
        tensor_service_pb2_grpc.add_TensorServiceServicer_to_server(_Tensors(self), self.server)
        prune_service_pb2_grpc.add_PruneServiceServicer_to_server(_Jobs(self), self.server)
        self.address = "127.0.0.1:%d" % self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def close(self):
        self.closed.set()
        self.server.stop(0).wait()

    def silence(self, request):
        """Chunks that never come."""
        self.closed.wait()
        yield from ()

    @property
    def bytes(self):
        """The bytes of the mask."""
        rows, cols = self.shape
        return np.packbits(np.ones((rows, cols), bool), axis=1, bitorder="little").tobytes()

    def job(self, state=job_pb2.JOB_STATE_SUCCEEDED):
        job = job_pb2.Job(name="jobs/0123456789abcdef", state=state, shape=self.shape, revision=5)
        job.spec.pattern.per_row.sparsity = 0.5
        if state == job_pb2.JOB_STATE_SUCCEEDED:
            job.result.mask, job.result.device = "tensors/mask", "cpu"
            job.result.kept_count = self.shape[0] * self.shape[1]
            job.result.losses.full = 1
        self.change(job)
        return job


class _Refusals(grpc.ServerInterceptor):
    def __init__(self, owner):
        self.owner = owner

    def intercept_service(self, continuation, details):
        handler, refusal = continuation(details), self.owner.refusal
        if refusal is None or details.method.endswith("/GetServerInfo"):
            return handler

        def refuse(_, context):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, refusal)

        return grpc.unary_unary_rpc_method_handler(refuse)


class _Tensors(tensor_service_pb2_grpc.TensorServiceServicer):
    def __init__(self, owner):
        self.owner = owner

    def CreateUpload(self, request, context):
        on_upload, self.owner.on_upload = self.owner.on_upload, None
        if on_upload:
            on_upload(context)
        return tensor_service_pb2.CreateUploadResponse(
            upload=tensor_pb2.Upload(name="uploads/1", suggested_chunk_bytes=1 << 20))

    def WriteTensor(self, requests, context):
        size = sum(len(request.chunk.data) for request in requests)
        return tensor_service_pb2.WriteTensorResponse(
            committed_size=size, tensor=tensor_pb2.Tensor(name="tensors/input", byte_size=size))

    def AccumulateGram(self, requests, context):
        for _ in requests:
            pass
        self.owner.streams += 1
        return tensor_service_pb2.AccumulateGramResponse(committed_tokens=self.owner.committed_tokens)

    def DeleteUpload(self, request, context):
        self.owner.deleted.append(request.name)
        return empty_pb2.Empty()

    def GetTensor(self, request, context):
        data = self.owner.bytes
        tensor = tensor_pb2.Tensor(name=request.name, byte_size=len(data), crc32c=crc32c(data))
        tensor.spec.kind, tensor.spec.dtype = tensor_pb2.TENSOR_KIND_MASK, tensor_pb2.DATA_TYPE_U1
        tensor.spec.dims.extend(self.owner.shape)
        self.owner.describe(tensor)
        return tensor

    def ReadTensor(self, request, context):
        chunks = self.owner.chunks or self._all
        for data, offset in chunks(request):
            chunk = tensor_pb2.Chunk(data=data, offset=offset, crc32c=crc32c(data))
            yield tensor_service_pb2.ReadTensorResponse(chunk=chunk)
            if not context.is_active():
                return

    def _all(self, request):
        if request.offset < len(self.owner.bytes):
            yield self.owner.bytes[request.offset:], request.offset

    def ListTensors(self, request, context):
        entries, token = self.owner.page(self.owner.pages)
        self.owner.pages += 1
        tensors = [tensor_pb2.Tensor(name="tensors/mask")] * entries
        return tensor_service_pb2.ListTensorsResponse(tensors=tensors, next_page_token=token)

    def DeleteTensor(self, request, context):
        self.owner.deleted.append(request.name)
        return empty_pb2.Empty()


class _Jobs(prune_service_pb2_grpc.PruneServiceServicer):
    def __init__(self, owner):
        self.owner = owner

    def GetServerInfo(self, request, context):
        return self.owner.info

    def CheckJobOptions(self, request, context):
        return prune_service_pb2.CheckJobOptionsResponse()

    def CreateJob(self, request, context):
        return self.owner.job(job_pb2.JOB_STATE_QUEUED)

    def GetJob(self, request, context):
        return self.owner.job()

    def CancelJob(self, request, context):
        return self.owner.job()

    def DeleteJob(self, request, context):
        return empty_pb2.Empty()

    def ListJobs(self, request, context):
        entries, token = self.owner.page(self.owner.pages) if self.owner.page else (1, "")
        self.owner.pages += 1
        return prune_service_pb2.ListJobsResponse(jobs=[self.owner.job()] * entries,
                                                  next_page_token=token)

    def WatchJob(self, request, context):
        yield job_pb2.JobEvent(kind=job_pb2.JobEvent.KIND_SNAPSHOT, job=self.owner.job())
