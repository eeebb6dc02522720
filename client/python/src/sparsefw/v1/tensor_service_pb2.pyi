from google.protobuf import empty_pb2 as _empty_pb2
from sparsefw.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AccumulateGramRequest(_message.Message):
    __slots__ = ["crc32c", "data", "finish", "spec", "token_offset", "upload"]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    TOKEN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    crc32c: int
    data: bytes
    finish: bool
    spec: _tensor_pb2.GramSpec
    token_offset: int
    upload: str
    def __init__(self, upload: _Optional[str] = ..., spec: _Optional[_Union[_tensor_pb2.GramSpec, _Mapping]] = ..., token_offset: _Optional[int] = ..., crc32c: _Optional[int] = ..., finish: bool = ..., data: _Optional[bytes] = ...) -> None: ...

class AccumulateGramResponse(_message.Message):
    __slots__ = ["committed_tokens", "gram"]
    COMMITTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GRAM_FIELD_NUMBER: _ClassVar[int]
    committed_tokens: int
    gram: _tensor_pb2.Tensor
    def __init__(self, committed_tokens: _Optional[int] = ..., gram: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class CreateUploadRequest(_message.Message):
    __slots__ = ["gram", "owner", "request_id", "tensor"]
    GRAM_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    gram: _tensor_pb2.GramSpec
    owner: str
    request_id: str
    tensor: _tensor_pb2.TensorSpec
    def __init__(self, tensor: _Optional[_Union[_tensor_pb2.TensorSpec, _Mapping]] = ..., gram: _Optional[_Union[_tensor_pb2.GramSpec, _Mapping]] = ..., request_id: _Optional[str] = ..., owner: _Optional[str] = ...) -> None: ...

class CreateUploadResponse(_message.Message):
    __slots__ = ["tensor", "upload"]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    tensor: _tensor_pb2.Tensor
    upload: _tensor_pb2.Upload
    def __init__(self, upload: _Optional[_Union[_tensor_pb2.Upload, _Mapping]] = ..., tensor: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class DeleteTensorRequest(_message.Message):
    __slots__ = ["name"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteUploadRequest(_message.Message):
    __slots__ = ["name"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetTensorRequest(_message.Message):
    __slots__ = ["name"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetUploadRequest(_message.Message):
    __slots__ = ["name"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListTensorsRequest(_message.Message):
    __slots__ = ["kinds", "owner", "page_size", "page_token"]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    kinds: _containers.RepeatedScalarFieldContainer[_tensor_pb2.TensorKind]
    owner: str
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., kinds: _Optional[_Iterable[_Union[_tensor_pb2.TensorKind, str]]] = ..., owner: _Optional[str] = ...) -> None: ...

class ListTensorsResponse(_message.Message):
    __slots__ = ["next_page_token", "tensors"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    tensors: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    def __init__(self, tensors: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListUploadsRequest(_message.Message):
    __slots__ = ["page_size", "page_token"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListUploadsResponse(_message.Message):
    __slots__ = ["next_page_token", "uploads"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    uploads: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Upload]
    def __init__(self, uploads: _Optional[_Iterable[_Union[_tensor_pb2.Upload, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ReadTensorRequest(_message.Message):
    __slots__ = ["limit", "name", "offset"]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    limit: int
    name: str
    offset: int
    def __init__(self, name: _Optional[str] = ..., offset: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ReadTensorResponse(_message.Message):
    __slots__ = ["chunk"]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    chunk: _tensor_pb2.Chunk
    def __init__(self, chunk: _Optional[_Union[_tensor_pb2.Chunk, _Mapping]] = ...) -> None: ...

class SumGramsRequest(_message.Message):
    __slots__ = ["gram_dtype", "grams", "owner", "request_id"]
    GRAMS_FIELD_NUMBER: _ClassVar[int]
    GRAM_DTYPE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    gram_dtype: _tensor_pb2.DataType
    grams: _containers.RepeatedScalarFieldContainer[str]
    owner: str
    request_id: str
    def __init__(self, grams: _Optional[_Iterable[str]] = ..., gram_dtype: _Optional[_Union[_tensor_pb2.DataType, str]] = ..., request_id: _Optional[str] = ..., owner: _Optional[str] = ...) -> None: ...

class WriteTensorRequest(_message.Message):
    __slots__ = ["chunk", "finish", "spec", "total_crc32c", "upload"]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    TOTAL_CRC32C_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    chunk: _tensor_pb2.Chunk
    finish: bool
    spec: _tensor_pb2.TensorSpec
    total_crc32c: int
    upload: str
    def __init__(self, upload: _Optional[str] = ..., spec: _Optional[_Union[_tensor_pb2.TensorSpec, _Mapping]] = ..., chunk: _Optional[_Union[_tensor_pb2.Chunk, _Mapping]] = ..., finish: bool = ..., total_crc32c: _Optional[int] = ...) -> None: ...

class WriteTensorResponse(_message.Message):
    __slots__ = ["committed_size", "tensor"]
    COMMITTED_SIZE_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    committed_size: int
    tensor: _tensor_pb2.Tensor
    def __init__(self, committed_size: _Optional[int] = ..., tensor: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...
