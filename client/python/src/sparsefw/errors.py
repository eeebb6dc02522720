"""What can go wrong, as exceptions.

Every error has the gRPC status code (`code`), a stable machine-readable `reason` and `metadata`; the
server's documentation (docs/errors.md) lists the reasons. Reasons that the client makes itself:

    UNREACHABLE        no server within `connect_timeout`, or a watch on which nothing came any more
    CLIENT_ARGUMENT    arguments that are wrong or contradict each other
    CHECKSUM_MISMATCH  bytes from the server that fail their checksum, again and again
    CLIENT_MEMORY      a tensor that does not fit into this machine's memory
    PROTOCOL           answers that break the protocol: sizes that do not fit, chunks of no bytes, lists
                       without an end
    CLOSED             the client was closed meanwhile
    SERVER_MISSING     server="auto", and no program was found
    SERVER_FAILED      server="auto", and the program did not start
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import grpc
from google.rpc import error_details_pb2, status_pb2

from sparsefw._text import printable

# A cluster has lost hidden states, and could not make them again.
CALIBRATION_LOST: Final = "CALIBRATION_LOST"
_DETAILS_KEY: Final = "grpc-status-details-bin"


class Error(Exception):
    """The base of all errors of this package.

    Attributes:
        code:        the gRPC status code.
        reason:      a stable name of what is wrong, such as "NON_FINITE"; "" where gRPC itself failed.
        metadata:    facts of the reason, such as {"field": "gram"}.
        message:     one sentence for people; a server's has escapes instead of characters that could steer
                     a terminal, str(error) always.
        retry_delay: seconds after which the server asked to try again, or None.
        job:         name of the job that failed, or on which `prune` or `sweep` could not wait; or "".
    """

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        retry_delay: float | None = None,
        job: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.metadata: dict[str, str] = dict(metadata or {})
        self.retry_delay = retry_delay
        self.job = job

    def __str__(self) -> str:
        text = f"{self.job}: {self.message}" if self.job else self.message
        return printable(f"{text} ({self.reason or self.code.name})")

    def with_message(self, message: str) -> Error:
        """The same error with another message."""
        return type(self)(
            message,
            code=self.code,
            reason=self.reason,
            metadata=self.metadata,
            retry_delay=self.retry_delay,
            job=self.job,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions cross processes by pickle; the default knows positional arguments only.
        fields = (self.message, self.code, self.reason, self.metadata, self.retry_delay, self.job)
        return _restore, (type(self), *fields)


def _restore(
    kind: type[Error],
    message: str,
    code: grpc.StatusCode,
    reason: str,
    metadata: dict[str, str],
    retry_delay: float | None,
    job: str,
) -> Error:
    return kind(message, code=code, reason=reason, metadata=metadata, retry_delay=retry_delay, job=job)


class InvalidArgument(Error, ValueError):
    """A shape, dtype, value or option is wrong."""


class NotFound(Error, LookupError):
    """There is no such tensor, upload or job."""


class FailedPrecondition(Error):
    """Not now, or not here: an input is missing, a tensor in use, a device not there."""


class OutOfRange(Error):
    """Past the end."""


class ResourceExhausted(Error):
    """It does not fit: memory, disk, queue."""


class Unavailable(Error):
    """No server, or one that is shutting down. Safe to try again."""


class DeadlineExceeded(Error):
    """No answer in time, or a job's deadline was over before it had a mask."""


class Cancelled(Error):
    """The job or the call was cancelled."""


class DataLoss(Error):
    """Bytes are not those that were sent."""


class Unauthenticated(Error):
    """Credentials are missing, wrong or expired."""


class PermissionDenied(Error):
    """These credentials may not do that."""


class Aborted(Error):
    """A job was given up."""


class Unimplemented(Error):
    """An older server does not know this call."""


class Internal(Error):
    """A fault of the server, of its disk or of its device."""


_BY_CODE: Final[dict[grpc.StatusCode, type[Error]]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.OUT_OF_RANGE: OutOfRange,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.DATA_LOSS: DataLoss,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.ABORTED: Aborted,
    grpc.StatusCode.UNIMPLEMENTED: Unimplemented,
    grpc.StatusCode.INTERNAL: Internal,
}
_CODES: Final[dict[int, grpc.StatusCode]] = {code.value[0]: code for code in grpc.StatusCode}


def refuse(code: grpc.StatusCode, reason: str, message: str, **metadata: str) -> Error:
    """An error that this client makes itself."""
    return _BY_CODE.get(code, Error)(message, code=code, reason=reason, metadata=metadata)


def invalid(message: str) -> Error:
    """An argument is wrong (CLIENT_ARGUMENT)."""
    return refuse(grpc.StatusCode.INVALID_ARGUMENT, "CLIENT_ARGUMENT", message)


def protocol(message: str) -> Error:
    """The server's answer breaks the protocol (PROTOCOL)."""
    return refuse(grpc.StatusCode.INTERNAL, "PROTOCOL", message)


def from_status(status: status_pb2.Status, job: str = "") -> Error:
    """The error of google.rpc.Status: an RPC's details, or Job.error."""
    code = _CODES.get(status.code, grpc.StatusCode.UNKNOWN)
    reason, metadata, delay = "", dict[str, str](), None
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    for detail in status.details:
        if detail.Unpack(info):
            reason, metadata = info.reason, dict(info.metadata)
        elif detail.Unpack(retry):
            delay = max(0.0, retry.retry_delay.seconds + retry.retry_delay.nanos * 1e-9)
    return _BY_CODE.get(code, Error)(
        printable(status.message), code=code, reason=reason, metadata=metadata, retry_delay=delay, job=job
    )


def from_rpc(error: grpc.RpcError) -> Error:
    """The error of a call that failed. grpc's errors are also calls, with code(), details() and
    metadata.
    """
    call = cast(grpc.Call, error)
    code, text = call.code(), call.details() or ""
    for key, value in cast("Iterable[tuple[str, Any]]", call.trailing_metadata() or ()):
        if key == _DETAILS_KEY and isinstance(value, bytes):
            status = status_pb2.Status()
            try:
                status.ParseFromString(value)
            except ValueError:  # protobuf's DecodeError
                break
            if status.code == code.value[0]:
                return from_status(status)
    return _BY_CODE.get(code, Error)(printable(text), code=code)


def is_transient(error: Error) -> bool:
    """The same call may succeed later without any change."""
    if isinstance(error, Unavailable):
        return True
    if isinstance(error, ResourceExhausted):
        return error.retry_delay is not None
    # Errors of the server have a reason. Without one these come from gRPC: a server that is being
    # shut down cancels its calls, and a connection that breaks inside a response is INTERNAL.
    if error.reason:
        return False
    return isinstance(error, Cancelled) or (isinstance(error, Internal) and "RST_STREAM" in error.message)
