"""The calls of sparsefw.v1, and the messages that carry tensor bytes.

Messages with data are put together by hand: protobuf would copy every chunk twice more.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final, Generic, TypeVar

from google.protobuf import empty_pb2

from sparsefw._rpc.checksum import crc32c
from sparsefw.v1 import job_pb2, prune_service_pb2, tensor_pb2, tensor_service_pb2

Response = TypeVar("Response")


@dataclasses.dataclass(frozen=True)
class Method(Generic[Response]):
    """One RPC. Requests are serialized by the caller, responses parsed by gRPC."""

    service: str
    name: str
    response: type[Response]

    @property
    def path(self) -> str:
        """As gRPC spells it."""
        return f"/sparsefw.v1.{self.service}/{self.name}"

    def parse(self, data: bytes) -> Response:
        """The response of these bytes."""
        parsed: Response = self.response.FromString(data)  # type: ignore[attr-defined]
        return parsed


_T, _P = "TensorService", "PruneService"
_t, _p = tensor_service_pb2, prune_service_pb2

CREATE_UPLOAD: Final = Method(_T, "CreateUpload", _t.CreateUploadResponse)
WRITE_TENSOR: Final = Method(_T, "WriteTensor", _t.WriteTensorResponse)
ACCUMULATE_GRAM: Final = Method(_T, "AccumulateGram", _t.AccumulateGramResponse)
SUM_GRAMS: Final = Method(_T, "SumGrams", tensor_pb2.Tensor)
GET_UPLOAD: Final = Method(_T, "GetUpload", tensor_pb2.Upload)
DELETE_UPLOAD: Final = Method(_T, "DeleteUpload", empty_pb2.Empty)
LIST_UPLOADS: Final = Method(_T, "ListUploads", _t.ListUploadsResponse)
GET_TENSOR: Final = Method(_T, "GetTensor", tensor_pb2.Tensor)
LIST_TENSORS: Final = Method(_T, "ListTensors", _t.ListTensorsResponse)
DELETE_TENSOR: Final = Method(_T, "DeleteTensor", empty_pb2.Empty)
READ_TENSOR: Final = Method(_T, "ReadTensor", _t.ReadTensorResponse)
CREATE_JOB: Final = Method(_P, "CreateJob", job_pb2.Job)
CHECK_JOB_OPTIONS: Final = Method(_P, "CheckJobOptions", _p.CheckJobOptionsResponse)
GET_JOB: Final = Method(_P, "GetJob", job_pb2.Job)
LIST_JOBS: Final = Method(_P, "ListJobs", _p.ListJobsResponse)
DELETE_JOB: Final = Method(_P, "DeleteJob", empty_pb2.Empty)
WATCH_JOB: Final = Method(_P, "WatchJob", job_pb2.JobEvent)
CANCEL_JOB: Final = Method(_P, "CancelJob", job_pb2.Job)
GET_SERVER_INFO: Final = Method(_P, "GetServerInfo", _p.ServerInfo)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _tag(field: int) -> bytes:
    """The tag of a length-delimited field."""
    return _varint(field << 3 | 2)


_CHUNK_DATA: Final = _tag(tensor_pb2.Chunk.DATA_FIELD_NUMBER)
_GRAM_DATA: Final = _tag(tensor_service_pb2.AccumulateGramRequest.DATA_FIELD_NUMBER)
_CHUNK: Final = _tag(tensor_service_pb2.WriteTensorRequest.CHUNK_FIELD_NUMBER)


def write_chunk(data: memoryview, offset: int, fields: dict[str, Any]) -> bytes:
    """A WriteTensorRequest with `data`, and `fields` of it beside the chunk."""
    head = tensor_pb2.Chunk(offset=offset, crc32c=crc32c(data)).SerializeToString()
    head += _CHUNK_DATA + _varint(len(data))
    rest = tensor_service_pb2.WriteTensorRequest(**fields).SerializeToString()
    return b"".join((rest, _CHUNK, _varint(len(head) + len(data)), head, data))


def gram_chunk(data: bytes | memoryview, token_offset: int) -> bytes:
    """An AccumulateGramRequest with `data`; whole tokens."""
    head = tensor_service_pb2.AccumulateGramRequest(
        token_offset=token_offset, crc32c=crc32c(data)
    ).SerializeToString()
    return b"".join((head, _GRAM_DATA, _varint(len(data)), data))


def gram_fields(**fields: Any) -> bytes:
    """More of an AccumulateGramRequest: serialized messages that follow each other are merged."""
    return tensor_service_pb2.AccumulateGramRequest(**fields).SerializeToString()
