from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DATA_TYPE_BF16: DataType
DATA_TYPE_F16: DataType
DATA_TYPE_F32: DataType
DATA_TYPE_F64: DataType
DATA_TYPE_U1: DataType
DATA_TYPE_UNSPECIFIED: DataType
DESCRIPTOR: _descriptor.FileDescriptor
TENSOR_KIND_GRAM: TensorKind
TENSOR_KIND_MASK: TensorKind
TENSOR_KIND_PRUNED_WEIGHT: TensorKind
TENSOR_KIND_SALIENCY: TensorKind
TENSOR_KIND_UNSPECIFIED: TensorKind
TENSOR_KIND_WEIGHT: TensorKind

class Chunk(_message.Message):
    __slots__ = ["crc32c", "data", "offset"]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    crc32c: int
    data: bytes
    offset: int
    def __init__(self, offset: _Optional[int] = ..., crc32c: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class GramSpec(_message.Message):
    __slots__ = ["activation_dtype", "d_in", "gram_dtype"]
    ACTIVATION_DTYPE_FIELD_NUMBER: _ClassVar[int]
    D_IN_FIELD_NUMBER: _ClassVar[int]
    GRAM_DTYPE_FIELD_NUMBER: _ClassVar[int]
    activation_dtype: DataType
    d_in: int
    gram_dtype: DataType
    def __init__(self, d_in: _Optional[int] = ..., activation_dtype: _Optional[_Union[DataType, str]] = ..., gram_dtype: _Optional[_Union[DataType, str]] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ["byte_size", "crc32c", "create_time", "expire_time", "name", "owner", "reference_count", "spec"]
    BYTE_SIZE_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_COUNT_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    byte_size: int
    crc32c: int
    create_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    name: str
    owner: str
    reference_count: int
    spec: TensorSpec
    def __init__(self, name: _Optional[str] = ..., spec: _Optional[_Union[TensorSpec, _Mapping]] = ..., byte_size: _Optional[int] = ..., crc32c: _Optional[int] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., owner: _Optional[str] = ..., reference_count: _Optional[int] = ...) -> None: ...

class TensorSpec(_message.Message):
    __slots__ = ["dims", "dtype", "kind", "token_count"]
    DIMS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    dims: _containers.RepeatedScalarFieldContainer[int]
    dtype: DataType
    kind: TensorKind
    token_count: int
    def __init__(self, kind: _Optional[_Union[TensorKind, str]] = ..., dtype: _Optional[_Union[DataType, str]] = ..., dims: _Optional[_Iterable[int]] = ..., token_count: _Optional[int] = ...) -> None: ...

class Upload(_message.Message):
    __slots__ = ["committed_crc32c", "committed_size", "committed_tokens", "create_time", "expire_time", "gram", "name", "spec", "suggested_chunk_bytes"]
    COMMITTED_CRC32C_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_SIZE_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    GRAM_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    SUGGESTED_CHUNK_BYTES_FIELD_NUMBER: _ClassVar[int]
    committed_crc32c: int
    committed_size: int
    committed_tokens: int
    create_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    gram: GramSpec
    name: str
    spec: TensorSpec
    suggested_chunk_bytes: int
    def __init__(self, name: _Optional[str] = ..., spec: _Optional[_Union[TensorSpec, _Mapping]] = ..., committed_size: _Optional[int] = ..., committed_tokens: _Optional[int] = ..., committed_crc32c: _Optional[int] = ..., suggested_chunk_bytes: _Optional[int] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., gram: _Optional[_Union[GramSpec, _Mapping]] = ...) -> None: ...

class TensorKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class DataType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
