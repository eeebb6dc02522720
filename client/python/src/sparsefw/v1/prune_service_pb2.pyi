from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import empty_pb2 as _empty_pb2
from sparsefw.v1 import job_pb2 as _job_pb2
from sparsefw.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CancelJobRequest(_message.Message):
    __slots__ = ["name"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class CheckJobOptionsRequest(_message.Message):
    __slots__ = ["activations", "gram", "spec", "warm_start", "weight"]
    ACTIVATIONS_FIELD_NUMBER: _ClassVar[int]
    GRAM_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    WARM_START_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    activations: _tensor_pb2.GramSpec
    gram: _tensor_pb2.TensorSpec
    spec: _job_pb2.JobSpec
    warm_start: _tensor_pb2.TensorSpec
    weight: _tensor_pb2.TensorSpec
    def __init__(self, spec: _Optional[_Union[_job_pb2.JobSpec, _Mapping]] = ..., weight: _Optional[_Union[_tensor_pb2.TensorSpec, _Mapping]] = ..., gram: _Optional[_Union[_tensor_pb2.TensorSpec, _Mapping]] = ..., activations: _Optional[_Union[_tensor_pb2.GramSpec, _Mapping]] = ..., warm_start: _Optional[_Union[_tensor_pb2.TensorSpec, _Mapping]] = ...) -> None: ...

class CheckJobOptionsResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class CreateJobRequest(_message.Message):
    __slots__ = ["owner", "request_id", "spec", "validate_only"]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    owner: str
    request_id: str
    spec: _job_pb2.JobSpec
    validate_only: bool
    def __init__(self, spec: _Optional[_Union[_job_pb2.JobSpec, _Mapping]] = ..., request_id: _Optional[str] = ..., validate_only: bool = ..., owner: _Optional[str] = ...) -> None: ...

class DeleteJobRequest(_message.Message):
    __slots__ = ["name"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ["description", "job_memory_bytes", "job_memory_used_bytes", "lost", "memory_bytes", "memory_free_bytes", "name", "running_jobs", "streams"]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    JOB_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    JOB_MEMORY_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RUNNING_JOBS_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    description: str
    job_memory_bytes: int
    job_memory_used_bytes: int
    lost: bool
    memory_bytes: int
    memory_free_bytes: int
    name: str
    running_jobs: int
    streams: int
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., memory_bytes: _Optional[int] = ..., memory_free_bytes: _Optional[int] = ..., job_memory_bytes: _Optional[int] = ..., job_memory_used_bytes: _Optional[int] = ..., streams: _Optional[int] = ..., running_jobs: _Optional[int] = ..., lost: bool = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ["name"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetServerInfoRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ["labels", "page_size", "page_token", "states"]
    class LabelsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.ScalarMap[str, str]
    page_size: int
    page_token: str
    states: _containers.RepeatedScalarFieldContainer[_job_pb2.JobState]
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., states: _Optional[_Iterable[_Union[_job_pb2.JobState, str]]] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ["jobs", "next_page_token"]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[_job_pb2.Job]
    next_page_token: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[_job_pb2.Job, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class PruneHeader(_message.Message):
    __slots__ = ["activation_tokens", "activations", "detach", "gram", "owner", "request_id", "spec", "weight"]
    ACTIVATIONS_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DETACH_FIELD_NUMBER: _ClassVar[int]
    GRAM_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    activation_tokens: int
    activations: _tensor_pb2.GramSpec
    detach: bool
    gram: _tensor_pb2.TensorSpec
    owner: str
    request_id: str
    spec: _job_pb2.JobSpec
    weight: _tensor_pb2.TensorSpec
    def __init__(self, spec: _Optional[_Union[_job_pb2.JobSpec, _Mapping]] = ..., weight: _Optional[_Union[_tensor_pb2.TensorSpec, _Mapping]] = ..., gram: _Optional[_Union[_tensor_pb2.TensorSpec, _Mapping]] = ..., activations: _Optional[_Union[_tensor_pb2.GramSpec, _Mapping]] = ..., activation_tokens: _Optional[int] = ..., request_id: _Optional[str] = ..., detach: bool = ..., owner: _Optional[str] = ...) -> None: ...

class PruneRequest(_message.Message):
    __slots__ = ["activations", "gram", "header", "weight"]
    ACTIVATIONS_FIELD_NUMBER: _ClassVar[int]
    GRAM_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    activations: _tensor_pb2.Chunk
    gram: _tensor_pb2.Chunk
    header: PruneHeader
    weight: _tensor_pb2.Chunk
    def __init__(self, header: _Optional[_Union[PruneHeader, _Mapping]] = ..., weight: _Optional[_Union[_tensor_pb2.Chunk, _Mapping]] = ..., gram: _Optional[_Union[_tensor_pb2.Chunk, _Mapping]] = ..., activations: _Optional[_Union[_tensor_pb2.Chunk, _Mapping]] = ...) -> None: ...

class PruneResponse(_message.Message):
    __slots__ = ["accepted", "event", "job", "mask", "pruned_weight"]
    class Accepted(_message.Message):
        __slots__ = ["gram", "job", "weight"]
        GRAM_FIELD_NUMBER: _ClassVar[int]
        JOB_FIELD_NUMBER: _ClassVar[int]
        WEIGHT_FIELD_NUMBER: _ClassVar[int]
        gram: str
        job: str
        weight: str
        def __init__(self, job: _Optional[str] = ..., weight: _Optional[str] = ..., gram: _Optional[str] = ...) -> None: ...
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    PRUNED_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    accepted: PruneResponse.Accepted
    event: _job_pb2.JobEvent
    job: _job_pb2.Job
    mask: _tensor_pb2.Chunk
    pruned_weight: _tensor_pb2.Chunk
    def __init__(self, accepted: _Optional[_Union[PruneResponse.Accepted, _Mapping]] = ..., event: _Optional[_Union[_job_pb2.JobEvent, _Mapping]] = ..., mask: _Optional[_Union[_tensor_pb2.Chunk, _Mapping]] = ..., pruned_weight: _Optional[_Union[_tensor_pb2.Chunk, _Mapping]] = ..., job: _Optional[_Union[_job_pb2.Job, _Mapping]] = ...) -> None: ...

class ServerInfo(_message.Message):
    __slots__ = ["default_device", "default_device_reason", "devices", "draining", "gram_dtypes", "host_memory_bytes", "host_memory_used_bytes", "max_message_bytes", "max_queued_jobs", "max_tensor_bytes", "methods", "patterns", "queued_jobs", "running_jobs", "settings", "suggested_chunk_bytes", "uptime", "version", "weight_dtypes", "workers"]
    DEFAULT_DEVICE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_DEVICE_REASON_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    GRAM_DTYPES_FIELD_NUMBER: _ClassVar[int]
    HOST_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    HOST_MEMORY_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUED_JOBS_FIELD_NUMBER: _ClassVar[int]
    MAX_TENSOR_BYTES_FIELD_NUMBER: _ClassVar[int]
    METHODS_FIELD_NUMBER: _ClassVar[int]
    PATTERNS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_JOBS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_JOBS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    SUGGESTED_CHUNK_BYTES_FIELD_NUMBER: _ClassVar[int]
    UPTIME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DTYPES_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    default_device: str
    default_device_reason: str
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    draining: bool
    gram_dtypes: _containers.RepeatedScalarFieldContainer[_tensor_pb2.DataType]
    host_memory_bytes: int
    host_memory_used_bytes: int
    max_message_bytes: int
    max_queued_jobs: int
    max_tensor_bytes: int
    methods: _containers.RepeatedScalarFieldContainer[_job_pb2.Method]
    patterns: _containers.RepeatedScalarFieldContainer[str]
    queued_jobs: int
    running_jobs: int
    settings: _containers.RepeatedCompositeFieldContainer[Setting]
    suggested_chunk_bytes: int
    uptime: _duration_pb2.Duration
    version: str
    weight_dtypes: _containers.RepeatedScalarFieldContainer[_tensor_pb2.DataType]
    workers: int
    def __init__(self, version: _Optional[str] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., default_device: _Optional[str] = ..., default_device_reason: _Optional[str] = ..., methods: _Optional[_Iterable[_Union[_job_pb2.Method, str]]] = ..., patterns: _Optional[_Iterable[str]] = ..., weight_dtypes: _Optional[_Iterable[_Union[_tensor_pb2.DataType, str]]] = ..., gram_dtypes: _Optional[_Iterable[_Union[_tensor_pb2.DataType, str]]] = ..., workers: _Optional[int] = ..., max_tensor_bytes: _Optional[int] = ..., host_memory_bytes: _Optional[int] = ..., host_memory_used_bytes: _Optional[int] = ..., max_message_bytes: _Optional[int] = ..., suggested_chunk_bytes: _Optional[int] = ..., max_queued_jobs: _Optional[int] = ..., queued_jobs: _Optional[int] = ..., running_jobs: _Optional[int] = ..., draining: bool = ..., uptime: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., settings: _Optional[_Iterable[_Union[Setting, _Mapping]]] = ...) -> None: ...

class Setting(_message.Message):
    __slots__ = ["name", "source", "value"]
    class Source(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_DEFAULT: Setting.Source
    SOURCE_ENVIRONMENT: Setting.Source
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FILE: Setting.Source
    SOURCE_FLAG: Setting.Source
    SOURCE_UNSPECIFIED: Setting.Source
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    source: Setting.Source
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[_Union[Setting.Source, str]] = ...) -> None: ...

class WatchJobRequest(_message.Message):
    __slots__ = ["after_revision", "heartbeat_interval", "name"]
    AFTER_REVISION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    after_revision: int
    heartbeat_interval: _duration_pb2.Duration
    name: str
    def __init__(self, name: _Optional[str] = ..., after_revision: _Optional[int] = ..., heartbeat_interval: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...
