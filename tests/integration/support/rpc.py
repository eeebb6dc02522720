"""A plain grpcio client of sparsefw.v1: nothing of ours but the .proto files."""
import os

import grpc
from google.rpc import error_details_pb2, status_pb2

from sparsefw.v1 import job_pb2, prune_service_pb2, prune_service_pb2_grpc  # noqa: F401
from sparsefw.v1 import tensor_pb2, tensor_service_pb2, tensor_service_pb2_grpc
from support.processes import HANG

# Between calls nobody polls a channel but gRPC itself, every 5 s unless told otherwise: it would
# notice that late that a server is back. Read when the first channel is made.
os.environ.setdefault("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "50")

KINDS = {"weight": tensor_pb2.TENSOR_KIND_WEIGHT, "gram": tensor_pb2.TENSOR_KIND_GRAM}
DTYPES = {"<f2": tensor_pb2.DATA_TYPE_F16, "<f4": tensor_pb2.DATA_TYPE_F32, "<f8": tensor_pb2.DATA_TYPE_F64}


def _crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc_table()


def crc32c(data):
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Client:
    def __init__(self, address):
        # Each channel its own connection: grpcio would share one between equal channels.
        self.address = address
        self.use(grpc.insecure_channel(
            address, [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0),
                      ("grpc.initial_reconnect_backoff_ms", 50),
                      ("grpc.max_reconnect_backoff_ms", 500)]))

    def use(self, channel):
        self.channel = channel
        self.tensors = tensor_service_pb2_grpc.TensorServiceStub(channel)
        self.jobs = prune_service_pb2_grpc.PruneServiceStub(channel)

    def close(self):
        self.channel.close()

    def create_upload(self, array, kind, **fields):
        spec = tensor_pb2.TensorSpec(kind=KINDS[kind], dtype=DTYPES[array.dtype.str],
                                     dims=array.shape)
        request = tensor_service_pb2.CreateUploadRequest(tensor=spec, **fields)
        return self.tensors.CreateUpload(request, timeout=HANG).upload

    def write(self, upload, data, begin=0, chunk=65536, finish=True):
        return self.tensors.WriteTensor(chunks(upload, data, begin, chunk, finish), timeout=HANG)

    def upload(self, array, kind):
        upload = self.create_upload(array, kind)
        return self.write(upload.name, array.tobytes(), chunk=1 << 20).tensor.name

    def read(self, name):
        request = tensor_service_pb2.ReadTensorRequest(name=name)
        data = b""
        for response in self.tensors.ReadTensor(request, timeout=HANG):
            assert response.chunk.offset == len(data)
            assert response.chunk.crc32c == crc32c(response.chunk.data)
            data += response.chunk.data
        return data


def chunks(upload, data, begin=0, chunk=65536, finish=True):
    """The requests of a WriteTensor call."""
    first = True
    for offset in range(begin, max(len(data), begin + 1), chunk):
        piece = data[offset:offset + chunk]
        last = offset + chunk >= len(data)
        request = tensor_service_pb2.WriteTensorRequest(
            upload=upload if first else None, finish=finish and last,
            chunk=tensor_pb2.Chunk(offset=offset, crc32c=crc32c(piece), data=piece))
        if request.finish:
            request.total_crc32c = crc32c(data)
        yield request
        first = False


def prune_stream(client, layer, detach, iterations=1 << 40, request_id=""):
    """The responses of a Prune call and the name of its job, which does not end."""
    spec = job_pb2.JobSpec(method=job_pb2.METHOD_SPARSEFW)
    spec.pattern.per_row.sparsity = 0.5
    spec.sparsefw.iterations = iterations
    header = prune_service_pb2.PruneHeader(spec=spec, detach=detach, request_id=request_id)
    requests = [prune_service_pb2.PruneRequest(header=header)]
    for name, array, kind in (("weight", layer.weight, tensor_pb2.TENSOR_KIND_WEIGHT),
                              ("gram", layer.gram, tensor_pb2.TENSOR_KIND_GRAM)):
        getattr(header, name).CopyFrom(tensor_pb2.TensorSpec(
            kind=kind, dtype=tensor_pb2.DATA_TYPE_F32, dims=array.shape))
        data = array.tobytes()
        requests.append(prune_service_pb2.PruneRequest(**{name: tensor_pb2.Chunk(
            offset=0, data=data, crc32c=crc32c(data))}))
    requests[0].header.CopyFrom(header)
    responses = client.jobs.Prune(iter(requests))
    return responses, next(responses).accepted.job


def error_info(error):
    """(code, reason, metadata) of an RpcError of ours."""
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    status = status_pb2.Status.FromString(details)
    assert status.code == error.code().value[0] and status.message == error.details()
    for detail in status.details:
        if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            info = error_details_pb2.ErrorInfo()
            detail.Unpack(info)
            assert info.domain == "sparsefw"
            return error.code(), info.reason, dict(info.metadata)
    raise AssertionError(f"no ErrorInfo: {error}")


def refusal(call):
    """(code, reason) with which the call is refused."""
    try:
        call()
    except grpc.RpcError as error:
        return error_info(error)[:2]
    raise AssertionError("the call was not refused")
