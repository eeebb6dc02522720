"""The operations of a client, once for both kinds of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import grpc

from sparsefw import arrays, errors, spec
from sparsefw._inputs.job import (
    DTYPES,
    Inputs,
    check_activations,
    each_batch,
    warn_of_rank,
    warn_of_square,
    warn_of_tokens,
    warn_of_zero_activations,
    warn_of_zeros,
)
from sparsefw._progress import transfer_observer
from sparsefw._rpc import wire
from sparsefw._rpc.gram import ACTIVATION_DTYPES, GramContent
from sparsefw._rpc.pages import PageWalk
from sparsefw._rpc.read import read_tensor
from sparsefw._rpc.session import TERMINAL, Session, chosen_request_id
from sparsefw._rpc.upload import TensorContent, TransferProgress, tensor_spec, upload
from sparsefw.arrays import Buffer, as_buffer
from sparsefw.errors import Error, invalid
from sparsefw.results import Event, Result
from sparsefw.spec import JobOptions
from sparsefw.sweep_results import SweepPoint, SweepResult
from sparsefw.v1 import job_pb2, prune_service_pb2, tensor_pb2, tensor_service_pb2

OnEvent = Callable[[Event], None]
# Seconds of one call after an error, and of all calls of `Core.clear`.
_ONE_CALL: Final = 1.0
_ALL_CALLS: Final = 10.0


def kind_name(tensor: tensor_pb2.Tensor) -> str:
    """ "weight", "gram", "saliency", "mask" or "pruned_weight"."""
    return arrays.kind_name(tensor.spec.kind)


class Core:
    """Uploads, jobs and results over one session."""

    def __init__(self, session: Session) -> None:
        if not isinstance(session, Session):
            raise TypeError(
                f"Client takes a session, got {session!r}; sparsefw.connect (or aio.connect) makes clients"
            )
        self.session = session
        # The report of a whole model says how many tokens each matrix had.
        self.warns = True

    async def upload(
        self,
        value: Any,
        kind: str,
        tokens: int = 0,
        progress: TransferProgress | None = None,
        request_id: str | None = None,
    ) -> tensor_pb2.Tensor:
        if kind not in DTYPES:
            known = ", ".join(f'"{name}"' for name in DTYPES)
            raise invalid(f'kind must be one of {known}; got "{kind}"')
        buffer = as_buffer(value, kind, DTYPES[kind])
        if kind == "gram" and self.warns:
            warn_of_rank(buffer, tokens)
            warn_of_zeros(buffer)
        content = TensorContent(buffer, tensor_spec(kind, buffer, tokens), self.session.options, progress)
        return await upload(self.session, content, request_id)

    async def gram(
        self,
        batches: Any,
        dtype: str = "float32",
        progress: TransferProgress | None = None,
        request_id: str | None = None,
        weight: tuple[int, ...] = (),
    ) -> tensor_pb2.Tensor:
        """`weight`: the shape of the matrix whose inputs these are; (): unknown."""
        if dtype not in DTYPES["gram"]:
            raise invalid(f'dtype of a Gram matrix must be "float32" or "float64"; got "{dtype}"')
        async with contextlib.aclosing(each_batch(batches)) as rest:
            try:
                first = await rest.__anext__()
            except StopAsyncIteration:
                raise invalid("there must be at least one batch of activations") from None
            buffer = as_buffer(first, "activations", ACTIVATION_DTYPES)
            if weight:
                check_activations(buffer.shape, weight)
            if self.warns and arrays.is_array(batches):
                warn_of_square(buffer.shape)
            content = GramContent(buffer, rest, dtype, self.session.options, progress)
            tensor = await upload(self.session, content, request_id)
            if self.warns and content.only_zeros:
                warn_of_zero_activations()
            return tensor

    async def sum_grams(
        self, parts: Iterable[Any], dtype: str = "float32", request_id: str | None = None
    ) -> tensor_pb2.Tensor:
        if dtype not in DTYPES["gram"]:
            raise invalid(f'dtype of a Gram matrix must be "float32" or "float64"; got "{dtype}"')
        names = [part if isinstance(part, str) else part.name for part in parts]
        wire_dtype = tensor_pb2.DATA_TYPE_F64 if dtype == "float64" else tensor_pb2.DATA_TYPE_F32
        return await self.session.sum_grams(names, wire_dtype, request_id)

    async def submit(
        self,
        inputs: Inputs,
        options: JobOptions,
        settings: Sequence[Mapping[str, Any]] | None,
        keep_all: bool,
        request_id: str | None,
    ) -> tuple[job_pb2.Job, list[str]]:
        """(job, names of the tensors that were uploaded for it alone)."""
        message = spec.make_spec(options)
        if settings is not None:
            message.sweep.CopyFrom(spec.make_points(options, settings))
            message.sweep.keep = job_pb2.Sweep.KEEP_ALL if keep_all else job_pb2.Sweep.KEEP_BEST
            if options.get("return_weight") is None:
                message.return_pruned_weight = spec.updates_weights(message)
        uploads = _uploads(inputs)
        if uploads or inputs.activations is not None:
            await self.session.check_options(_check_request(message, inputs))
        made: list[str] = []
        job_id, asked = chosen_request_id(request_id), False

        def within(field: str) -> str | None:
            # The same call again finds what this one has uploaded.
            return f"{request_id}/{field}" if request_id else None

        try:
            for field, buffer in uploads.items():
                kind = inputs.warm_kind if field == "warm_start" else field
                made.append((await self.upload(buffer, kind, request_id=within(field))).name)
                _name_input(message, inputs, field, made[-1])
            if inputs.activations is not None:
                tensor = await self.gram(
                    inputs.activations, request_id=within("activations"), weight=inputs.shape
                )
                made.append(tensor.name)
                message.gram = made[-1]
                inputs.tokens = tensor.spec.token_count
            if self.warns and inputs.shape:
                warn_of_tokens(inputs.tokens, inputs.shape[1])
            for field in ("weight", "gram", "warm_start"):
                named = getattr(inputs, field)
                if isinstance(named, str):
                    _name_input(message, inputs, field, named)
            asked = True
            job = await self.session.create_job(message, job_id)
            if isinstance(inputs.weight, Buffer):
                _check_shape(job, inputs.weight.shape)
            return job, made
        except BaseException as error:
            if request_id is None:
                # A refusal of the server has a reason, and there is no job.
                unknown = asked and not isinstance(error, GeneratorExit)
                unknown = unknown and getattr(error, "reason", "") in ("", "PROTOCOL")
                jobs = await self._cancel_asked(message, job_id) if unknown else []
                await self.give_back([*jobs, *made])
            raise

    async def _cancel_asked(self, message: job_pb2.JobSpec, request_id: str) -> list[str]:
        """Cancels the job of a CreateJob whose answer was lost: the same request names it."""
        request = self.session.job_request(message, request_id)
        jobs: list[str] = []
        with contextlib.suppress(Error):
            jobs.append((await self.session.transport.unary(wire.CREATE_JOB, request, _ONE_CALL)).name)
            await self._cancel(jobs[0])
        return jobs

    async def discard(self, names: Sequence[str]) -> None:
        """Deletes tensors that nobody needs any more, as far as that works. Not after an error."""
        for name in names:
            with contextlib.suppress(Error):
                await self.session.delete_tensor(name)

    async def give_back(self, names: Sequence[str]) -> None:
        """Deletes jobs and tensors after an error: whoever waits for the error must not wait for retries.

        Attempts of a second each, and none once the server cannot be reached. For a second beyond them they
        are made again: a job that was cancelled just now holds its inputs until it ends.
        """
        with contextlib.suppress(errors.Unavailable):
            await self._delete_all(names, time.monotonic() + _ONE_CALL * (1 + len(names)))

    async def abandon(self, job: str, temporary: Sequence[str]) -> None:
        """Cancels a job that nobody waits for any more, and deletes its inputs; in a second or two."""
        with contextlib.suppress(errors.Unavailable):
            await self._cancel(job)
            await self._delete_all(temporary, time.monotonic() + _ONE_CALL)

    async def clear(self, labels: Mapping[str, str], tensors: Sequence[str]) -> None:
        """At the end of a run: cancels and deletes the jobs with these labels, if any, with their weights and
        Gram matrices, and deletes tensors.

        As far as that works: every call is made once and may take a second, all of them ten, and none is
        made once the server cannot be reached.
        """
        end = time.monotonic() + _ALL_CALLS
        with contextlib.suppress(errors.Unavailable):
            jobs = await self._labelled(labels) if labels else []
            for job in jobs:
                if job.state not in TERMINAL:
                    await self._cancel(job.name)
            inputs = [name for job in jobs for name in (job.spec.weight, job.spec.gram)]
            # A job that was cancelled takes a moment to end, and holds its inputs until then.
            names = [*(job.name for job in jobs), *inputs, *tensors]
            await self._delete_all(list(dict.fromkeys(names)), end)

    async def _labelled(self, labels: Mapping[str, str]) -> list[job_pb2.Job]:
        jobs: list[job_pb2.Job] = []
        walk = PageWalk("ListJobs")
        request = prune_service_pb2.ListJobsRequest(labels=dict(labels))
        try:
            while True:
                page = await self.session.transport.unary(wire.LIST_JOBS, request, _ONE_CALL)
                jobs.extend(page.jobs)
                request.page_token = page.next_page_token
                walk.take(len(page.jobs), page.ByteSize(), page.next_page_token)
                if not request.page_token:
                    return jobs
        except errors.Unavailable:
            raise
        except Error:
            return jobs

    async def _cancel(self, job: str) -> None:
        """Raises Unavailable; else as far as that works."""
        try:
            request = prune_service_pb2.CancelJobRequest(name=job)
            await self.session.transport.unary(wire.CANCEL_JOB, request, _ONE_CALL)
        except errors.Unavailable:
            raise
        except Error:
            return

    async def _delete_all(self, names: Sequence[str], end: float) -> None:
        """Jobs and tensors, until `end` those that are still in use again and again."""
        left = list(names)
        while left:
            busy = []
            for name in left:
                if not await self._is_gone(name):
                    busy.append(name)
                if time.monotonic() > end:
                    return
            left = busy
            if left:
                await self.session.transport.sleep(0.1)

    async def _is_gone(self, name: str) -> bool:
        """Deletes a job or a tensor; False while it is in use. Raises Unavailable."""
        transport = self.session.transport
        try:
            if name.startswith("jobs/"):
                delete_job = prune_service_pb2.DeleteJobRequest(name=name)
                await transport.unary(wire.DELETE_JOB, delete_job, _ONE_CALL)
            else:
                delete_tensor = tensor_service_pb2.DeleteTensorRequest(name=name)
                await transport.unary(wire.DELETE_TENSOR, delete_tensor, _ONE_CALL)
        except errors.Unavailable:
            raise
        except Error as error:
            return error.reason not in ("TENSOR_IN_USE", "JOB_NOT_FINISHED")
        return True

    async def wait(self, job: job_pb2.Job, on_event: OnEvent | None) -> job_pb2.Job:
        """The job after its end."""
        if job.state in TERMINAL:
            return job
        last = job
        async with contextlib.aclosing(self.session.watch(job.name, 0)) as events:
            async for event in events:
                last = event.job
                if on_event:
                    on_event(Event.of(event))
        _check_shape(last, tuple(job.shape))
        return last

    async def result(self, job: job_pb2.Job) -> Result:
        """The result of a job that has ended, with its mask and weights."""
        check_ended_well(job)
        return await self._fetch(job, job.result)

    async def sweep_result(self, job: job_pb2.Job) -> SweepResult:
        """The result of a sweep that has ended, with every mask that it kept."""
        check_ended_well(job)
        count, chosen = len(job.result.sweep), job.result.best_point
        if not count:
            raise invalid(f"{job.name} is not a sweep")
        if count > spec.MOST_POINTS or chosen >= count:
            most = f"{job.name}: must have at most {spec.MOST_POINTS} points, the best among them"
            raise errors.protocol(f"{most}; got {count} and point {chosen}")
        best = await self._fetch(job, job.result)
        points = []
        for index, outcome in enumerate(job.result.sweep):
            result, error = None, None
            if outcome.HasField("error") and outcome.error.code:
                error = errors.from_status(outcome.error, job.name)
            elif index == chosen:
                result = best
            else:
                result = await self._fetch(job, outcome.result)
            new = outcome.loss_with_new_weights if outcome.HasField("loss_with_new_weights") else None
            points.append(SweepPoint(spec.describe_point(outcome.point), result, error, new))
        return SweepResult(job.name, points, chosen, best)

    async def _fetch(self, job: job_pb2.Job, result: job_pb2.JobResult) -> Result:
        mask, weight = None, None
        if len(job.shape) != 2:
            raise errors.protocol(f"{job.name}: must have two dims; the server says {list(job.shape)}")
        if result.mask:
            expected = tensor_pb2.TensorSpec(
                kind=tensor_pb2.TENSOR_KIND_MASK, dtype=tensor_pb2.DATA_TYPE_U1, dims=job.shape
            )
            mask = (await read_tensor(self.session, result.mask, expected=expected))[1]
        if result.pruned_weight:
            expected = tensor_pb2.TensorSpec(kind=tensor_pb2.TENSOR_KIND_PRUNED_WEIGHT, dims=job.shape)
            tensor, data = await read_tensor(self.session, result.pruned_weight, expected=expected)
            weight = (data, arrays.dtype_name(tensor.spec.dtype))
        return Result.of(job, result, mask, weight)

    async def read(self, tensor: Any, progress: bool | TransferProgress) -> Any:
        """The values of a tensor, by its name or handle."""
        name = tensor if isinstance(tensor, str) else tensor.name
        observer, close = transfer_observer(progress, name)
        try:
            found, data = await read_tensor(self.session, name, observer)
        finally:
            close()
        return arrays.from_bytes(data, arrays.dtype_name(found.spec.dtype), tuple(found.spec.dims))

    async def delete(self, name: str) -> None:
        """A tensor, an upload that has not ended, or a job that has."""
        if name.startswith("jobs/"):
            await self.session.delete_job(name)
        elif name.startswith("uploads/"):
            await self.session.delete_upload(name)
        else:
            await self.session.delete_tensor(name)


def _check_shape(job: job_pb2.Job, shape: tuple[int, ...]) -> None:
    """It is about the layer that was sent."""
    if tuple(job.shape) != shape:
        raise errors.protocol(
            f"{job.name}: must have the layer's shape {list(shape)}; the server says {list(job.shape)}"
        )


def check_ended_well(job: job_pb2.Job) -> None:
    """Raises the error of a job that failed, or that was cancelled before it had a mask."""
    if job.state == job_pb2.JOB_STATE_FAILED:
        raise errors.from_status(job.error, job.name)
    if job.state == job_pb2.JOB_STATE_CANCELLED and not job.HasField("result"):
        if job.HasField("error") and job.error.code:
            raise errors.from_status(job.error, job.name)
        raise errors.Cancelled(
            "cancelled before there was a mask",
            code=grpc.StatusCode.CANCELLED,
            reason="CANCELLED",
            job=job.name,
        )


def _uploads(inputs: Inputs) -> dict[str, Buffer]:
    fields = ("weight", "gram", "warm_start")
    return {name: value for name in fields if isinstance(value := getattr(inputs, name), Buffer)}


def _name_input(message: job_pb2.JobSpec, inputs: Inputs, field: str, name: str) -> None:
    if field != "warm_start":
        setattr(message, field, name)
    elif inputs.warm_kind == "mask":
        message.warm_start.mask = name
    else:
        message.warm_start.saliency = name


def _check_request(message: job_pb2.JobSpec, inputs: Inputs) -> prune_service_pb2.CheckJobOptionsRequest:
    request = prune_service_pb2.CheckJobOptionsRequest(spec=message)
    for field in ("weight", "gram", "warm_start"):
        value = getattr(inputs, field)
        if isinstance(value, str):
            _name_input(request.spec, inputs, field, value)
        elif isinstance(value, Buffer):
            kind = inputs.warm_kind if field == "warm_start" else field
            getattr(request, field).CopyFrom(tensor_spec(kind, value))
    return request
