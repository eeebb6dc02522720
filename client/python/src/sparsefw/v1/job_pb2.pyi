from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.rpc import status_pb2 as _status_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

CANDIDATE_JOINT: Candidate
CANDIDATE_REFINED: Candidate
CANDIDATE_ROUNDED: Candidate
CANDIDATE_UNSPECIFIED: Candidate
CANDIDATE_WARM_START: Candidate
DESCRIPTOR: _descriptor.FileDescriptor
JOB_STATE_CANCELLED: JobState
JOB_STATE_FAILED: JobState
JOB_STATE_QUEUED: JobState
JOB_STATE_RUNNING: JobState
JOB_STATE_SUCCEEDED: JobState
JOB_STATE_UNSPECIFIED: JobState
METHOD_ALPS: Method
METHOD_MAGNITUDE: Method
METHOD_RIA: Method
METHOD_SPARSEFW: Method
METHOD_SPARSEGPT: Method
METHOD_UNSPECIFIED: Method
METHOD_WANDA: Method
PRESET_BALANCED: Preset
PRESET_BEST: Preset
PRESET_FAST: Preset
PRESET_PAPER: Preset
PRESET_UNSPECIFIED: Preset
PRODUCT_PRECISION_BF16: ProductPrecision
PRODUCT_PRECISION_FP32: ProductPrecision
PRODUCT_PRECISION_TF32: ProductPrecision
PRODUCT_PRECISION_UNSPECIFIED: ProductPrecision
STEP_RULE_AUTO: StepRule
STEP_RULE_LINE_SEARCH: StepRule
STEP_RULE_OPEN_LOOP: StepRule
STEP_RULE_UNSPECIFIED: StepRule
STOP_REASON_CANCELLED: StopReason
STOP_REASON_DEADLINE: StopReason
STOP_REASON_GAP: StopReason
STOP_REASON_ITERATIONS: StopReason
STOP_REASON_UNSPECIFIED: StopReason

class Job(_message.Message):
    __slots__ = ["attempts", "create_time", "end_time", "error", "expire_time", "name", "owner", "preset_overrides", "progress", "queue_position", "result", "revision", "shape", "spec", "start_time", "state"]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PRESET_OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_POSITION_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    attempts: int
    create_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    error: _status_pb2.Status
    expire_time: _timestamp_pb2.Timestamp
    name: str
    owner: str
    preset_overrides: _containers.RepeatedScalarFieldContainer[str]
    progress: Progress
    queue_position: int
    result: JobResult
    revision: int
    shape: _containers.RepeatedScalarFieldContainer[int]
    spec: JobSpec
    start_time: _timestamp_pb2.Timestamp
    state: JobState
    def __init__(self, name: _Optional[str] = ..., spec: _Optional[_Union[JobSpec, _Mapping]] = ..., state: _Optional[_Union[JobState, str]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., result: _Optional[_Union[JobResult, _Mapping]] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., revision: _Optional[int] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., queue_position: _Optional[int] = ..., owner: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., attempts: _Optional[int] = ..., preset_overrides: _Optional[_Iterable[str]] = ...) -> None: ...

class JobEvent(_message.Message):
    __slots__ = ["job", "kind"]
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    JOB_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    KIND_HEARTBEAT: JobEvent.Kind
    KIND_PROGRESS: JobEvent.Kind
    KIND_SNAPSHOT: JobEvent.Kind
    KIND_STATE_CHANGE: JobEvent.Kind
    KIND_UNSPECIFIED: JobEvent.Kind
    job: Job
    kind: JobEvent.Kind
    def __init__(self, kind: _Optional[_Union[JobEvent.Kind, str]] = ..., job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class JobResult(_message.Message):
    __slots__ = ["best_point", "candidate", "damping", "device", "drift", "iterations", "joint", "kept_count", "losses", "mask", "pruned_weight", "relative_reduction", "screening", "stop_reason", "swaps", "sweep", "timings"]
    BEST_POINT_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_FIELD_NUMBER: _ClassVar[int]
    DAMPING_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    DRIFT_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    JOINT_FIELD_NUMBER: _ClassVar[int]
    KEPT_COUNT_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    PRUNED_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_REDUCTION_FIELD_NUMBER: _ClassVar[int]
    SCREENING_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    SWAPS_FIELD_NUMBER: _ClassVar[int]
    SWEEP_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    best_point: int
    candidate: Candidate
    damping: float
    device: str
    drift: float
    iterations: int
    joint: JointOutcome
    kept_count: int
    losses: Losses
    mask: str
    pruned_weight: str
    relative_reduction: float
    screening: Screening
    stop_reason: StopReason
    swaps: int
    sweep: _containers.RepeatedCompositeFieldContainer[SweepOutcome]
    timings: Timings
    def __init__(self, mask: _Optional[str] = ..., pruned_weight: _Optional[str] = ..., kept_count: _Optional[int] = ..., losses: _Optional[_Union[Losses, _Mapping]] = ..., relative_reduction: _Optional[float] = ..., iterations: _Optional[int] = ..., stop_reason: _Optional[_Union[StopReason, str]] = ..., candidate: _Optional[_Union[Candidate, str]] = ..., device: _Optional[str] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., swaps: _Optional[int] = ..., drift: _Optional[float] = ..., damping: _Optional[float] = ..., sweep: _Optional[_Iterable[_Union[SweepOutcome, _Mapping]]] = ..., best_point: _Optional[int] = ..., screening: _Optional[_Union[Screening, _Mapping]] = ..., joint: _Optional[_Union[JointOutcome, _Mapping]] = ...) -> None: ...

class JobSpec(_message.Message):
    __slots__ = ["deadline", "device", "gram", "labels", "method", "pattern", "preset", "priority", "product_precision", "reconstruct", "refine", "result_ttl", "return_pruned_weight", "shrinkage", "sparsefw", "sparsegpt", "sweep", "warm_start", "weight"]
    class LabelsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    GRAM_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PRODUCT_PRECISION_FIELD_NUMBER: _ClassVar[int]
    RECONSTRUCT_FIELD_NUMBER: _ClassVar[int]
    REFINE_FIELD_NUMBER: _ClassVar[int]
    RESULT_TTL_FIELD_NUMBER: _ClassVar[int]
    RETURN_PRUNED_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    SHRINKAGE_FIELD_NUMBER: _ClassVar[int]
    SPARSEFW_FIELD_NUMBER: _ClassVar[int]
    SPARSEGPT_FIELD_NUMBER: _ClassVar[int]
    SWEEP_FIELD_NUMBER: _ClassVar[int]
    WARM_START_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    deadline: _duration_pb2.Duration
    device: str
    gram: str
    labels: _containers.ScalarMap[str, str]
    method: Method
    pattern: Pattern
    preset: Preset
    priority: int
    product_precision: ProductPrecision
    reconstruct: bool
    refine: Refine
    result_ttl: _duration_pb2.Duration
    return_pruned_weight: bool
    shrinkage: float
    sparsefw: SparseFwOptions
    sparsegpt: SparseGptOptions
    sweep: Sweep
    warm_start: WarmStart
    weight: str
    def __init__(self, weight: _Optional[str] = ..., gram: _Optional[str] = ..., method: _Optional[_Union[Method, str]] = ..., pattern: _Optional[_Union[Pattern, _Mapping]] = ..., warm_start: _Optional[_Union[WarmStart, _Mapping]] = ..., sparsefw: _Optional[_Union[SparseFwOptions, _Mapping]] = ..., priority: _Optional[int] = ..., deadline: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., result_ttl: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., device: _Optional[str] = ..., return_pruned_weight: bool = ..., refine: _Optional[_Union[Refine, _Mapping]] = ..., reconstruct: bool = ..., sparsegpt: _Optional[_Union[SparseGptOptions, _Mapping]] = ..., sweep: _Optional[_Union[Sweep, _Mapping]] = ..., product_precision: _Optional[_Union[ProductPrecision, str]] = ..., preset: _Optional[_Union[Preset, str]] = ..., shrinkage: _Optional[float] = ...) -> None: ...

class JointOutcome(_message.Message):
    __slots__ = ["converged", "exchanges", "reduction", "start_loss"]
    CONVERGED_FIELD_NUMBER: _ClassVar[int]
    EXCHANGES_FIELD_NUMBER: _ClassVar[int]
    REDUCTION_FIELD_NUMBER: _ClassVar[int]
    START_LOSS_FIELD_NUMBER: _ClassVar[int]
    converged: bool
    exchanges: int
    reduction: float
    start_loss: float
    def __init__(self, start_loss: _Optional[float] = ..., reduction: _Optional[float] = ..., exchanges: _Optional[int] = ..., converged: bool = ...) -> None: ...

class Losses(_message.Message):
    __slots__ = ["full", "lower_bound", "mask", "reconstructed", "relaxed", "rounded", "unshrunk", "warm_start"]
    class Unshrunk(_message.Message):
        __slots__ = ["full", "result", "warm_start"]
        FULL_FIELD_NUMBER: _ClassVar[int]
        RESULT_FIELD_NUMBER: _ClassVar[int]
        WARM_START_FIELD_NUMBER: _ClassVar[int]
        full: float
        result: float
        warm_start: float
        def __init__(self, full: _Optional[float] = ..., warm_start: _Optional[float] = ..., result: _Optional[float] = ...) -> None: ...
    FULL_FIELD_NUMBER: _ClassVar[int]
    LOWER_BOUND_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    RECONSTRUCTED_FIELD_NUMBER: _ClassVar[int]
    RELAXED_FIELD_NUMBER: _ClassVar[int]
    ROUNDED_FIELD_NUMBER: _ClassVar[int]
    UNSHRUNK_FIELD_NUMBER: _ClassVar[int]
    WARM_START_FIELD_NUMBER: _ClassVar[int]
    full: float
    lower_bound: float
    mask: float
    reconstructed: float
    relaxed: float
    rounded: float
    unshrunk: Losses.Unshrunk
    warm_start: float
    def __init__(self, full: _Optional[float] = ..., warm_start: _Optional[float] = ..., relaxed: _Optional[float] = ..., rounded: _Optional[float] = ..., mask: _Optional[float] = ..., lower_bound: _Optional[float] = ..., reconstructed: _Optional[float] = ..., unshrunk: _Optional[_Union[Losses.Unshrunk, _Mapping]] = ...) -> None: ...

class Pattern(_message.Message):
    __slots__ = ["nm", "per_row", "unstructured"]
    class KeepOfGroup(_message.Message):
        __slots__ = ["group", "keep"]
        GROUP_FIELD_NUMBER: _ClassVar[int]
        KEEP_FIELD_NUMBER: _ClassVar[int]
        group: int
        keep: int
        def __init__(self, keep: _Optional[int] = ..., group: _Optional[int] = ...) -> None: ...
    class PerRow(_message.Message):
        __slots__ = ["sparsity"]
        SPARSITY_FIELD_NUMBER: _ClassVar[int]
        sparsity: float
        def __init__(self, sparsity: _Optional[float] = ...) -> None: ...
    class Unstructured(_message.Message):
        __slots__ = ["sparsity"]
        SPARSITY_FIELD_NUMBER: _ClassVar[int]
        sparsity: float
        def __init__(self, sparsity: _Optional[float] = ...) -> None: ...
    NM_FIELD_NUMBER: _ClassVar[int]
    PER_ROW_FIELD_NUMBER: _ClassVar[int]
    UNSTRUCTURED_FIELD_NUMBER: _ClassVar[int]
    nm: Pattern.KeepOfGroup
    per_row: Pattern.PerRow
    unstructured: Pattern.Unstructured
    def __init__(self, unstructured: _Optional[_Union[Pattern.Unstructured, _Mapping]] = ..., per_row: _Optional[_Union[Pattern.PerRow, _Mapping]] = ..., nm: _Optional[_Union[Pattern.KeepOfGroup, _Mapping]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ["best_loss", "elapsed", "gap", "iteration", "iterations_total", "relaxed_loss", "remaining_estimate", "rounded_loss", "step_size", "swaps", "sweep_point", "threshold_residual", "warm_start_loss"]
    BEST_LOSS_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    RELAXED_LOSS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    ROUNDED_LOSS_FIELD_NUMBER: _ClassVar[int]
    STEP_SIZE_FIELD_NUMBER: _ClassVar[int]
    SWAPS_FIELD_NUMBER: _ClassVar[int]
    SWEEP_POINT_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_RESIDUAL_FIELD_NUMBER: _ClassVar[int]
    WARM_START_LOSS_FIELD_NUMBER: _ClassVar[int]
    best_loss: float
    elapsed: _duration_pb2.Duration
    gap: float
    iteration: int
    iterations_total: int
    relaxed_loss: float
    remaining_estimate: _duration_pb2.Duration
    rounded_loss: float
    step_size: float
    swaps: int
    sweep_point: int
    threshold_residual: float
    warm_start_loss: float
    def __init__(self, iteration: _Optional[int] = ..., iterations_total: _Optional[int] = ..., relaxed_loss: _Optional[float] = ..., gap: _Optional[float] = ..., step_size: _Optional[float] = ..., threshold_residual: _Optional[float] = ..., rounded_loss: _Optional[float] = ..., best_loss: _Optional[float] = ..., elapsed: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., remaining_estimate: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., swaps: _Optional[int] = ..., sweep_point: _Optional[int] = ..., warm_start_loss: _Optional[float] = ...) -> None: ...

class Refine(_message.Message):
    __slots__ = ["joint", "joint_damping", "joint_excluded", "keep_fixed", "swaps"]
    JOINT_DAMPING_FIELD_NUMBER: _ClassVar[int]
    JOINT_EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    JOINT_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIXED_FIELD_NUMBER: _ClassVar[int]
    SWAPS_FIELD_NUMBER: _ClassVar[int]
    joint: bool
    joint_damping: float
    joint_excluded: float
    keep_fixed: bool
    swaps: bool
    def __init__(self, swaps: bool = ..., keep_fixed: bool = ..., joint: bool = ..., joint_damping: _Optional[float] = ..., joint_excluded: _Optional[float] = ...) -> None: ...

class Screening(_message.Message):
    __slots__ = ["active_share", "epochs", "iterations"]
    ACTIVE_SHARE_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    active_share: float
    epochs: int
    iterations: int
    def __init__(self, epochs: _Optional[int] = ..., iterations: _Optional[int] = ..., active_share: _Optional[float] = ...) -> None: ...

class SparseFwOptions(_message.Message):
    __slots__ = ["alpha", "iterations", "rel_gap", "report_every", "step_rule"]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    REL_GAP_FIELD_NUMBER: _ClassVar[int]
    REPORT_EVERY_FIELD_NUMBER: _ClassVar[int]
    STEP_RULE_FIELD_NUMBER: _ClassVar[int]
    alpha: float
    iterations: int
    rel_gap: float
    report_every: int
    step_rule: StepRule
    def __init__(self, alpha: _Optional[float] = ..., iterations: _Optional[int] = ..., step_rule: _Optional[_Union[StepRule, str]] = ..., rel_gap: _Optional[float] = ..., report_every: _Optional[int] = ...) -> None: ...

class SparseGptOptions(_message.Message):
    __slots__ = ["block_size", "damping"]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    DAMPING_FIELD_NUMBER: _ClassVar[int]
    block_size: int
    damping: float
    def __init__(self, damping: _Optional[float] = ..., block_size: _Optional[int] = ...) -> None: ...

class Sweep(_message.Message):
    __slots__ = ["keep", "new_weights_losses", "points"]
    class Keep(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    KEEP_ALL: Sweep.Keep
    KEEP_BEST: Sweep.Keep
    KEEP_FIELD_NUMBER: _ClassVar[int]
    KEEP_UNSPECIFIED: Sweep.Keep
    NEW_WEIGHTS_LOSSES_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    keep: Sweep.Keep
    new_weights_losses: bool
    points: _containers.RepeatedCompositeFieldContainer[SweepPoint]
    def __init__(self, points: _Optional[_Iterable[_Union[SweepPoint, _Mapping]]] = ..., keep: _Optional[_Union[Sweep.Keep, str]] = ..., new_weights_losses: bool = ...) -> None: ...

class SweepOutcome(_message.Message):
    __slots__ = ["error", "loss_with_new_weights", "point", "result"]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LOSS_WITH_NEW_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    POINT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    error: _status_pb2.Status
    loss_with_new_weights: float
    point: SweepPoint
    result: JobResult
    def __init__(self, point: _Optional[_Union[SweepPoint, _Mapping]] = ..., result: _Optional[_Union[JobResult, _Mapping]] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., loss_with_new_weights: _Optional[float] = ...) -> None: ...

class SweepPoint(_message.Message):
    __slots__ = ["alpha", "joint", "method", "pattern", "reconstruct", "swaps"]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    JOINT_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    RECONSTRUCT_FIELD_NUMBER: _ClassVar[int]
    SWAPS_FIELD_NUMBER: _ClassVar[int]
    alpha: float
    joint: bool
    method: Method
    pattern: Pattern
    reconstruct: bool
    swaps: bool
    def __init__(self, method: _Optional[_Union[Method, str]] = ..., pattern: _Optional[_Union[Pattern, _Mapping]] = ..., alpha: _Optional[float] = ..., swaps: bool = ..., reconstruct: bool = ..., joint: bool = ...) -> None: ...

class Timings(_message.Message):
    __slots__ = ["load", "queue", "solve"]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SOLVE_FIELD_NUMBER: _ClassVar[int]
    load: _duration_pb2.Duration
    queue: _duration_pb2.Duration
    solve: _duration_pb2.Duration
    def __init__(self, queue: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., load: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., solve: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WarmStart(_message.Message):
    __slots__ = ["mask", "method", "ria_exponent", "saliency"]
    MASK_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    RIA_EXPONENT_FIELD_NUMBER: _ClassVar[int]
    SALIENCY_FIELD_NUMBER: _ClassVar[int]
    mask: str
    method: Method
    ria_exponent: float
    saliency: str
    def __init__(self, method: _Optional[_Union[Method, str]] = ..., mask: _Optional[str] = ..., saliency: _Optional[str] = ..., ria_exponent: _Optional[float] = ...) -> None: ...

class Method(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class Preset(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class StepRule(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class ProductPrecision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class StopReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class Candidate(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
