"""One connection's policy of retries, and the calls that are not streams of tensor bytes."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import grpc
from google.protobuf import duration_pb2, empty_pb2

from sparsefw import errors
from sparsefw._rpc import wire
from sparsefw._rpc.backoff import Backoff
from sparsefw._rpc.pages import PageWalk
from sparsefw._rpc.transport import Transport
from sparsefw._rpc.unreachable import explained
from sparsefw._rpc.wire import Method
from sparsefw.errors import Error
from sparsefw.options import Options
from sparsefw.v1 import job_pb2, prune_service_pb2, tensor_pb2, tensor_service_pb2

Response = TypeVar("Response")
Entry = TypeVar("Entry")

# Attempts of a call that the server does not answer in time.
_ATTEMPTS_IN_SILENCE = 3
# Seconds for a look at all addresses. The next attempt looks again.
_RECONNECT = 1.0
_PAGE = 1000
TERMINAL = (job_pb2.JOB_STATE_SUCCEEDED, job_pb2.JOB_STATE_FAILED, job_pb2.JOB_STATE_CANCELLED)


def chosen_request_id(given: str | None) -> str:
    """What makes a creating call safe to repeat: the caller's own, else a new one.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): it is no text.
    """
    if given is not None and not isinstance(given, str):
        raise errors.invalid(f"request_id must be a text; got {given!r}")
    return given or str(uuid.uuid4())


class Session:
    """The client's logic, over either transport."""

    def __init__(self, address: str, transport: Transport, options: Options) -> None:
        self.address = address
        self.transport = transport
        self.options = options

    async def connect(self) -> None:
        """Raises Unavailable (UNREACHABLE) after connect_timeout."""
        if await self.transport.connect(self.options.connect_timeout):
            return
        try:  # only a call tells why
            await self.transport.unary(wire.GET_SERVER_INFO, prune_service_pb2.GetServerInfoRequest(), 1.0)
        except Error as error:
            raise errors.refuse(
                grpc.StatusCode.UNAVAILABLE,
                "UNREACHABLE",
                f"no server could be reached at {self.address} within "
                f"{self.options.connect_timeout:g} s: {explained(error.message)}",
            ) from None

    def backoff(self) -> Backoff:
        """For one operation."""
        return Backoff(self.options.retry, time.monotonic())

    async def wait_to_retry(self, error: Error, backoff: Backoff) -> None:
        """After an error that is worth another attempt; raises it when the time is up."""
        delay = backoff.next(time.monotonic(), error.retry_delay)
        if delay is None:
            patience = self.options.retry.give_up_after
            raise error.with_message(
                f"{error.message}; gave up after {patience:g} s without progress"
            ) from None
        if self.options.on_retry:
            self.options.on_retry(error, delay)
        await self.transport.sleep(delay)
        if isinstance(error, errors.Unavailable) and not error.reason:
            await self.transport.reconnect(_RECONNECT)

    async def call(
        self,
        method: Method[Response],
        request: Any,
        timeout: float | None = None,
        deleted: Response | None = None,
    ) -> Response:
        """A call that is safe to repeat, until it succeeds, fails for good, or retrying took too long.

        One that is not answered in time is made three times. `deleted` is what a deletion answers: also where
        nothing is found after an attempt whose answer was lost.
        """
        timeout = timeout or self.options.call_timeout
        backoff, silent, lost = self.backoff(), 0, False
        while True:
            try:
                return await self.transport.unary(method, request, timeout)
            except Error as error:
                if lost and deleted is not None and isinstance(error, errors.NotFound):
                    return deleted
                lost = lost or not error.reason  # the server's own refusals have one
                if isinstance(error, errors.DeadlineExceeded) and not error.reason:
                    silent += 1
                    error = error.with_message(
                        f"{self.address}: no answer to {method.name} within {timeout:g} s"
                    )
                    if silent == _ATTEMPTS_IN_SILENCE:
                        raise error from None
                    # Counted, not timed: one attempt may take longer than all retrying may.
                    if self.options.on_retry:
                        self.options.on_retry(error, 0.0)
                    backoff.reset(time.monotonic())
                    continue
                if not errors.is_transient(error):
                    raise
                await self.wait_to_retry(error, backoff)

    async def _delete(self, method: Method[empty_pb2.Empty], request: Any) -> None:
        await self.call(method, request, deleted=empty_pb2.Empty())

    async def get_tensor(self, name: str) -> tensor_pb2.Tensor:
        return await self.call(wire.GET_TENSOR, tensor_service_pb2.GetTensorRequest(name=name))

    async def sum_grams(
        self, names: Sequence[str], dtype: tensor_pb2.DataType, request_id: str | None
    ) -> tensor_pb2.Tensor:
        request = tensor_service_pb2.SumGramsRequest(
            grams=names, gram_dtype=dtype, request_id=chosen_request_id(request_id), owner=self.options.owner
        )
        return await self.call(wire.SUM_GRAMS, request)

    async def delete_tensor(self, name: str) -> None:
        await self._delete(wire.DELETE_TENSOR, tensor_service_pb2.DeleteTensorRequest(name=name))

    async def list_tensors(self, kinds: Sequence[int], owner: str, limit: int) -> list[tensor_pb2.Tensor]:
        request = tensor_service_pb2.ListTensorsRequest(owner=owner)
        request.kinds.extend(kinds)  # type: ignore[arg-type]
        return await self._all_pages(wire.LIST_TENSORS, request, lambda page: page.tensors, limit)

    async def list_uploads(self, limit: int) -> list[tensor_pb2.Upload]:
        request = tensor_service_pb2.ListUploadsRequest()
        return await self._all_pages(wire.LIST_UPLOADS, request, lambda page: page.uploads, limit)

    async def delete_upload(self, name: str) -> None:
        await self._delete(wire.DELETE_UPLOAD, tensor_service_pb2.DeleteUploadRequest(name=name))

    async def _all_pages(
        self,
        method: Method[Response],
        request: Any,
        entries: Callable[[Response], Iterable[Entry]],
        limit: int,
    ) -> list[Entry]:
        """The entries of all pages, at most `limit` of them; 0: all."""
        found: list[Entry] = []
        walk = PageWalk(method.name)
        while True:
            request.page_size = min(limit - len(found), _PAGE) if limit else _PAGE
            page: Any = await self.call(method, request)
            more = list(entries(page))
            found.extend(more)
            request.page_token = page.next_page_token
            walk.take(len(more), page.ByteSize(), page.next_page_token)
            if not request.page_token or (limit and len(found) >= limit):
                return found

    def job_request(self, spec: job_pb2.JobSpec, request_id: str) -> prune_service_pb2.CreateJobRequest:
        return prune_service_pb2.CreateJobRequest(spec=spec, request_id=request_id, owner=self.options.owner)

    async def create_job(self, spec: job_pb2.JobSpec, request_id: str) -> job_pb2.Job:
        return await self.call(wire.CREATE_JOB, self.job_request(spec, request_id))

    async def check_options(self, request: prune_service_pb2.CheckJobOptionsRequest) -> None:
        """What CreateJob would refuse, before anything is uploaded."""
        # An older server does not know the call: CreateJob will tell.
        with contextlib.suppress(errors.Unimplemented):
            await self.call(wire.CHECK_JOB_OPTIONS, request)

    async def get_job(self, name: str) -> job_pb2.Job:
        return await self.call(wire.GET_JOB, prune_service_pb2.GetJobRequest(name=name))

    async def list_jobs(
        self, states: Sequence[int], labels: Mapping[str, str], limit: int
    ) -> list[job_pb2.Job]:
        request = prune_service_pb2.ListJobsRequest(labels=dict(labels))
        request.states.extend(states)  # type: ignore[arg-type]
        return await self._all_pages(wire.LIST_JOBS, request, lambda page: page.jobs, limit)

    async def cancel_job(self, name: str) -> job_pb2.Job:
        return await self.call(wire.CANCEL_JOB, prune_service_pb2.CancelJobRequest(name=name))

    async def delete_job(self, name: str) -> None:
        await self._delete(wire.DELETE_JOB, prune_service_pb2.DeleteJobRequest(name=name))

    async def server_info(self) -> prune_service_pb2.ServerInfo:
        return await self.call(wire.GET_SERVER_INFO, prune_service_pb2.GetServerInfoRequest())

    async def watch(self, name: str, after_revision: int) -> AsyncGenerator[job_pb2.JobEvent, None]:
        """Every event of the job until it has ended, over as many streams as it takes.

        A watch that breaks or that the server ends is taken up at the last revision seen; at the job as
        it is where the server does not know that revision. Leaving never cancels the job.
        """
        backoff = self.backoff()
        known = job_pb2.Job()
        heartbeat = duration_pb2.Duration()
        # The server takes a day for "never".
        heartbeat.FromNanoseconds(int(min(self.options.watch_silence / 3, 86400.0) * 1e9))
        while True:
            request = prune_service_pb2.WatchJobRequest(
                name=name, after_revision=after_revision, heartbeat_interval=heartbeat
            )
            heard = False
            stream = self.transport.read(
                wire.WATCH_JOB, request, data=False, silence=self.options.watch_silence
            )
            try:
                async with contextlib.aclosing(stream):
                    async for event in stream:
                        heard = True
                        after_revision = max(after_revision, event.job.revision)
                        known = _completed(event.job, known)
                        yield event
                        if event.job.state in TERMINAL:
                            return
                # A server may end a watch at any time. That is no error, yet waiting keeps one that
                # does so at once from making this a busy loop.
                error = errors.refuse(
                    grpc.StatusCode.UNAVAILABLE,
                    "PROTOCOL",
                    f"the watch of {name} ended before the job did",
                )
            except Error as broken:
                # Only as the first answer: after an event it would begin the same stream again for ever.
                if broken.reason == "REVISION_UNKNOWN" and after_revision and not heard:
                    after_revision = 0
                    continue
                if not errors.is_transient(broken):
                    raise
                error = broken
            if heard:
                backoff.reset(time.monotonic())
            await self.wait_to_retry(error, backoff)


def _completed(job: job_pb2.Job, known: job_pb2.Job) -> job_pb2.Job:
    """The job, with what PROGRESS and HEARTBEAT leave out (spec, owner, shape) taken from `known`."""
    if not job.HasField("spec") and known.HasField("spec"):
        job.spec.CopyFrom(known.spec)
        job.owner = known.owner
        job.shape[:] = known.shape
    return job
