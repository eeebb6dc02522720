"""The client for asyncio: as sparsefw.Client, with methods to await.

    client = await sparsefw.aio.connect("127.0.0.1:50051")
    async with client:
        weight, gram = await client.upload(w), await client.gram(batches)
        job = await client.submit(weight, gram, sparsity=0.6)
        async for event in job.events(): ...
        result = await job.result()

A client belongs to the event loop in which it was made. Cancelling a task ends its call; what the server
has accepted by then it keeps.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Unpack

from sparsefw import arrays, spec
from sparsefw._core import Core
from sparsefw._enums import numbers_of
from sparsefw._handles import JobHandle, TensorHandle
from sparsefw._inputs.job import Inputs
from sparsefw._progress import job_observer, transfer_observer
from sparsefw._rpc.aio import AioTransport
from sparsefw._rpc.credentials import PathLike
from sparsefw._rpc.session import Session
from sparsefw._rpc.target import Target
from sparsefw._rpc.upload import TransferProgress
from sparsefw.embedded import EmbeddedServer, start_in_thread
from sparsefw.errors import Error
from sparsefw.options import Options
from sparsefw.results import Event, Result
from sparsefw.spec import JobOptions
from sparsefw.sweep_results import SweepResult
from sparsefw.v1 import job_pb2, prune_service_pb2, tensor_pb2


async def connect(
    server: str | None = None,
    *,
    token: str | None = None,
    tls: bool = False,
    tls_ca: PathLike | None = None,
    tls_cert: PathLike | None = None,
    tls_key: PathLike | None = None,
    options: Options | None = None,
    server_flags: Sequence[str] = (),
) -> Client:
    """See sparsefw.connect."""
    target = Target(
        server, server_flags, token=token, tls=tls, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key
    )
    embedded = await start_in_thread(*server_flags) if target.embedded else None
    try:
        address = embedded.address if embedded else target.address
        client = Client(target.session(AioTransport, address, options), embedded)
    except BaseException:
        if embedded:
            embedded.close()
        raise
    try:
        await client.core.session.connect()
    except BaseException:
        await client.close()
        raise
    return client


class Tensor(TensorHandle):
    """See sparsefw.Tensor."""

    async def read(self, progress: bool | TransferProgress = False) -> Any:
        """See sparsefw.Tensor.read."""
        return await self._core.read(self.name, progress)

    async def delete(self) -> None:
        """See sparsefw.Tensor.delete."""
        await self._core.delete(self.name)

    async def __aenter__(self) -> Tensor:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            await self._core.give_back([self.name])
            return
        with contextlib.suppress(Error):
            await self.delete()


class Job(JobHandle):
    """See sparsefw.Job."""

    async def refresh(self) -> Job:
        """Asks the server."""
        self.message = await self._core.session.get_job(self.name)
        return self

    async def events(self, after_revision: int = 0, heartbeats: bool = False) -> AsyncGenerator[Event, None]:
        """See sparsefw.Job.events. Close it (contextlib.aclosing) if you leave it early."""
        source = self._core.session.watch(self.name, after_revision)
        async with contextlib.aclosing(source) as events:
            async for message in events:
                self.message = message.job
                event = Event.of(message)
                if heartbeats or event.kind != "HEARTBEAT":
                    yield event

    async def wait(self, progress: bool | Callable[[Event], None] = False) -> Job:
        """See sparsefw.Job.wait."""
        await self._until_end(progress)
        await self._core.discard(self._take_temporary())
        return self

    async def _until_end(self, progress: bool | Callable[[Event], None]) -> None:
        observer, close = job_observer(progress, self.name)
        try:
            self.message = await self._core.wait(self.message, observer)
        finally:
            close()

    async def result(self, progress: bool | Callable[[Event], None] = False) -> Result:
        """See sparsefw.Job.result."""
        await self._until_end(progress)
        return await self._fetch(self._core.result)

    async def sweep_result(self, progress: bool | Callable[[Event], None] = False) -> SweepResult:
        """See sparsefw.Job.sweep_result."""
        await self._until_end(progress)
        return await self._fetch(self._core.sweep_result)

    async def cancel(self) -> Job:
        """See sparsefw.Job.cancel."""
        self.message = await self._core.session.cancel_job(self.name)
        return self

    async def abandon(self) -> None:
        """See sparsefw.Job.abandon."""
        await self._core.abandon(self.name, self._take_temporary())

    async def delete(self) -> None:
        """See sparsefw.Job.delete."""
        await self._core.session.delete_job(self.name)
        await self._core.discard(self._take_temporary())


class Client:
    """See sparsefw.Client. An asynchronous context manager."""

    def __init__(self, session: Session, embedded: EmbeddedServer | None = None) -> None:
        self.core = Core(session)
        self._embedded = embedded

    @property
    def address(self) -> str:
        """The address of the server."""
        return self.core.session.address

    @property
    def server(self) -> EmbeddedServer | None:
        """The server that server="auto" started."""
        return self._embedded

    async def close(self) -> None:
        """See sparsefw.Client.close."""
        await self.core.session.transport.close()
        if self._embedded:
            await asyncio.to_thread(self._embedded.close)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def upload(
        self,
        array: arrays.ArrayLike,
        kind: str = "weight",
        *,
        tokens: int = 0,
        progress: bool | TransferProgress = False,
        request_id: str | None = None,
    ) -> Tensor:
        """See sparsefw.Client.upload."""
        observer, close = transfer_observer(progress, kind)
        try:
            message = await self.core.upload(array, kind, tokens, observer, request_id)
        finally:
            close()
        return Tensor(self.core, message)

    async def gram(
        self,
        batches: Any,
        *,
        dtype: str = "float32",
        progress: bool | TransferProgress = False,
        request_id: str | None = None,
    ) -> Tensor:
        """See sparsefw.Client.gram; an asynchronous iterable of batches will do as well."""
        observer, close = transfer_observer(progress, "activations")
        try:
            message = await self.core.gram(batches, dtype, observer, request_id)
        finally:
            close()
        return Tensor(self.core, message)

    async def sum_grams(
        self, parts: Iterable[Tensor | str], *, dtype: str = "float32", request_id: str | None = None
    ) -> Tensor:
        """See sparsefw.Client.sum_grams."""
        return Tensor(self.core, await self.core.sum_grams(parts, dtype, request_id))

    async def submit(
        self,
        weight: Any,
        gram: Any = None,
        *,
        activations: Any = None,
        points: Sequence[Mapping[str, Any]] | None = None,
        keep_all: bool = False,
        request_id: str | None = None,
        **options: Unpack[JobOptions],
    ) -> Job:
        """See sparsefw.Client.submit."""
        inputs = Inputs(weight, gram, activations, options.get("warm_start"))
        return Job(self.core, *await self.core.submit(inputs, options, points, keep_all, request_id))

    async def prune(
        self,
        weight: Any,
        gram: Any = None,
        *,
        activations: Any = None,
        progress: bool | Callable[[Event], None] = False,
        request_id: str | None = None,
        **options: Unpack[JobOptions],
    ) -> Result:
        """See sparsefw.Client.prune. Cancelling the task cancels the job."""
        job = await self.submit(weight, gram, activations=activations, request_id=request_id, **options)
        async with _cancelled_on_interrupt(job, request_id):
            return await job.result(progress)

    async def sweep(
        self,
        weight: Any,
        gram: Any = None,
        *,
        activations: Any = None,
        points: Sequence[Mapping[str, Any]] | None = None,
        keep_all: bool = False,
        progress: bool | Callable[[Event], None] = False,
        request_id: str | None = None,
        **options: Any,
    ) -> SweepResult:
        """See sparsefw.Client.sweep."""
        job_options, settings = spec.split_sweep(options, points)
        job = await self.submit(
            weight,
            gram,
            activations=activations,
            points=settings,
            keep_all=keep_all,
            request_id=request_id,
            **job_options,
        )
        async with _cancelled_on_interrupt(job, request_id):
            return await job.sweep_result(progress)

    async def jobs(
        self,
        states: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
        limit: int = 0,
    ) -> list[Job]:
        """See sparsefw.Client.jobs."""
        found = await self.core.session.list_jobs(
            numbers_of(job_pb2.JobState, states, "a state"), labels or {}, limit
        )
        return [Job(self.core, message) for message in found]

    async def get(self, name: str) -> Job | Tensor:
        """The job or tensor of this name."""
        if name.startswith("jobs/"):
            return await self.job(name)
        return await self.tensor(name)

    async def job(self, name: str) -> Job:
        """The job of this name."""
        return Job(self.core, await self.core.session.get_job(name))

    async def tensor(self, name: str) -> Tensor:
        """The tensor of this name."""
        return Tensor(self.core, await self.core.session.get_tensor(name))

    async def uploads(self, limit: int = 0) -> list[tensor_pb2.Upload]:
        """See sparsefw.Client.uploads."""
        return await self.core.session.list_uploads(limit)

    async def list(self, limit: int = 0, *, kinds: Sequence[str] = (), owner: str = "") -> list[Tensor]:
        """See sparsefw.Client.list."""
        found = await self.core.session.list_tensors(
            numbers_of(tensor_pb2.TensorKind, kinds, "a kind"), owner, limit
        )
        return [Tensor(self.core, message) for message in found]

    async def read(self, tensor: Tensor | str, progress: bool | TransferProgress = False) -> Any:
        """The values of a tensor; see sparsefw.Tensor.read."""
        return await self.core.read(tensor, progress)

    async def delete(self, what: Tensor | Job | str) -> None:
        """A tensor, or a job that has ended."""
        if isinstance(what, Job):
            await what.delete()
        else:
            await self.core.delete(what if isinstance(what, str) else what.name)

    async def info(self) -> prune_service_pb2.ServerInfo:
        """See sparsefw.Client.info."""
        return await self.core.session.server_info()

    def __repr__(self) -> str:
        return f"<sparsefw.aio.Client {self.address}>"


@contextlib.asynccontextmanager
async def _cancelled_on_interrupt(job: Job, request_id: str | None) -> AsyncGenerator[None, None]:
    try:
        yield
    except BaseException as error:
        if isinstance(error, Error):
            error.job = error.job or job.name
        # With an id somebody may come back for it. A job that has not ended goes on after a lost connection.
        if request_id is None and (job.ended or not isinstance(error, Error)):
            with contextlib.suppress(Error):
                await job.abandon()
        raise
