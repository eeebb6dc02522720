"""The synchronous client."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Unpack

from sparsefw import arrays, spec
from sparsefw._core import Core, Inputs, check_ended_well, kind_name
from sparsefw._credentials import PathLike, make_credentials
from sparsefw._progress import job_observer, transfer_observer
from sparsefw._session import TERMINAL, Session
from sparsefw._sync import SyncTransport, iterate, run
from sparsefw._upload import TransferProgress
from sparsefw.embedded import EmbeddedServer
from sparsefw.errors import Error, invalid
from sparsefw.options import Options
from sparsefw.results import Event, Result, SweepResult
from sparsefw.spec import JobOptions
from sparsefw.v1 import job_pb2, prune_service_pb2, tensor_pb2

DEFAULT_SERVER = "127.0.0.1:50051"


def resolve_address(server: str | None) -> str:
    """What was asked for, else SPARSEFW_SERVER, else a server of this machine."""
    return server or os.environ.get("SPARSEFW_SERVER", "") or DEFAULT_SERVER


def connect(
    server: str | None = None,
    *,
    token: str | None = None,
    tls: bool = False,
    tls_ca: PathLike | None = None,
    tls_cert: PathLike | None = None,
    tls_key: PathLike | None = None,
    options: Options | None = None,
) -> Client:
    """Connects to a server.

    Args:
        server:   "host:port", any name gRPC understands ("unix:/path"), or "auto": starts a server of
                  one's own (see `serve`) that ends with the client. None: SPARSEFW_SERVER, else
                  127.0.0.1:50051.
        token:    sent with every call; None: SPARSEFW_TOKEN. Only over TLS or to this machine.
        tls:      use TLS; implied by the files.
        tls_ca:   PEM file of the CA that signed the server's certificate; None: SPARSEFW_TLS_CA, else,
                  with tls=True, the roots that gRPC brings along.
        tls_cert, tls_key: PEM files of a certificate of one's own, where the server asks for one.
        options:  times, retries, chunk sizes.

    Raises:
        Unavailable (UNREACHABLE): no server within options.connect_timeout.
        InvalidArgument (CLIENT_ARGUMENT): see make_credentials.
    """
    address = resolve_address(server)
    embedded = None
    if address == "auto":
        if token or tls or tls_ca or tls_cert or tls_key:
            raise invalid('server="auto" is a server of this process alone: it takes no credentials')
        embedded = EmbeddedServer()
        address = embedded.address
    try:
        credentials = make_credentials(
            address,
            token=None if embedded else token or os.environ.get("SPARSEFW_TOKEN"),
            tls=tls,
            tls_ca=None if embedded else tls_ca or os.environ.get("SPARSEFW_TLS_CA"),
            tls_cert=tls_cert,
            tls_key=tls_key,
        )
        session = Session(address, SyncTransport(address, credentials), options or Options())
        client = Client(session, embedded)
    except BaseException:
        if embedded:
            embedded.close()
        raise
    try:
        run(session.connect())
    except BaseException:
        client.close()
        raise
    return client


class Tensor:
    """A tensor on the server. As a context manager it is deleted at the end.

    Attributes:
        name:      "tensors/<id>".
        kind:      "weight" and "pruned_weight" [d_out, d_in], "gram" [d_in, d_in], "saliency" and "mask"
                   [d_out, d_in].
        dtype:     "float32", "float16", "bfloat16", "float64", or "bool" (a bit an element).
        shape:     (rows, columns).
        tokens:    of a Gram matrix: how many were summed; 0: unknown.
        byte_size: on the wire.
    """

    def __init__(self, client: Client, message: tensor_pb2.Tensor) -> None:
        self._client = client
        self.message = message
        self.name = message.name
        self.kind = kind_name(message)
        self.dtype = arrays.dtype_name(message.spec.dtype)
        self.shape = tuple(message.spec.dims)
        self.tokens = message.spec.token_count
        self.byte_size = message.byte_size

    def read(self, progress: bool | TransferProgress = False) -> Any:
        """Its values as a NumPy array; masks are bool, bfloat16 as in `Result.weight`."""
        return self._client.read(self.name, progress)

    def delete(self) -> None:
        """Raises FailedPrecondition (TENSOR_IN_USE) while a queued or running job reads it."""
        self._client.delete(self)

    def __enter__(self) -> Tensor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with contextlib.suppress(Error):
            self.delete()

    def __repr__(self) -> str:
        return f"<{self.name} {self.kind} {self.dtype} {list(self.shape)}>"


class Job:
    """A job on the server.

    Attributes:
        name:    "jobs/<id>".
        message: the job as it was last seen (sparsefw.v1.Job).
    """

    def __init__(self, client: Client, message: job_pb2.Job, temporary: Sequence[str] = ()) -> None:
        self._client = client
        self._temporary = list(temporary)
        self.message = message
        self.name = message.name

    @property
    def state(self) -> str:
        """As last seen: "QUEUED", "RUNNING", "SUCCEEDED", "FAILED" or "CANCELLED"."""
        return job_pb2.JobState.Name(self.message.state)

    @property
    def ended(self) -> bool:
        """As last seen: it will not change any more."""
        return self.message.state in TERMINAL

    @property
    def revision(self) -> int:
        """As last seen; `events(after_revision=...)` goes on from there."""
        return self.message.revision

    @property
    def labels(self) -> dict[str, str]:
        """Kept with the job."""
        return dict(self.message.spec.labels)

    def refresh(self) -> Job:
        """Asks the server."""
        self.message = run(self._client.core.session.get_job(self.name))
        return self

    def events(self, after_revision: int = 0, heartbeats: bool = False) -> Iterator[Event]:
        """Every event until the job has ended, across broken connections and restarts of the server.

        The first is a SNAPSHOT, the last one of the end. No state change after `after_revision` is left
        out; of progress a slow reader sees the latest. Leaving the iteration never cancels the job.
        """
        source = iterate(self._client.core.session.watch(self.name, after_revision))
        with contextlib.closing(source) as events:  # type: ignore[type-var]
            for message in events:
                self.message = message.job
                event = Event.of(message)
                if heartbeats or event.kind != "HEARTBEAT":
                    yield event

    def wait(self, progress: bool | Callable[[Event], None] = False) -> Job:
        """Returns when the job has ended, whatever its state.

        Args:
            progress: True for a progress bar, or what is called with every event.
        """
        observer, close = job_observer(progress, self.name)
        try:
            self.message = run(self._client.core.wait(self.message, observer))
        finally:
            close()
        self._clean_up()
        return self

    def result(self, progress: bool | Callable[[Event], None] = False) -> Result:
        """Waits for the end, and fetches the mask and, where there are any, the pruned weights.

        Of a cancelled or overdue job this is its best mask so far. Of a sweep it is the best point.

        Raises:
            Error: the job failed, or ended before it had a mask; `.job` names it.
        """
        self.wait(progress)
        return run(self._client.core.result(self.message))

    def sweep_result(self, progress: bool | Callable[[Event], None] = False) -> SweepResult:
        """As `result`, of a sweep: every point."""
        self.wait(progress)
        return run(self._client.core.sweep_result(self.message))

    def cancel(self) -> Job:
        """Ends the job within 100 ms of solver work; it keeps its best mask so far. Safe to repeat."""
        self.message = run(self._client.core.session.cancel_job(self.name))
        return self

    def delete(self) -> None:
        """Removes the job, which must have ended, with its mask and weights."""
        run(self._client.core.session.delete_job(self.name))
        self._clean_up()

    def _clean_up(self) -> None:
        """Arrays that were uploaded for this job alone are of no use after its end."""
        names, self._temporary = self._temporary, []
        run(self._client.core.discard(names))

    def __repr__(self) -> str:
        return f"<{self.name} {self.state}>"


class Client:
    """Two connections to a server, one for data and one for control. Made by `connect`; thread-safe.

    Every call retries what is safe to retry, with the bounds of Options.retry. Errors are sparsefw.Error.
    A context manager; `close` ends what still runs, never a job, except those of a server="auto".
    """

    def __init__(self, session: Session, embedded: EmbeddedServer | None = None) -> None:
        self.core = Core(session)
        self._embedded = embedded

    @property
    def address(self) -> str:
        """Of the server."""
        return self.core.session.address

    @property
    def server(self) -> EmbeddedServer | None:
        """The server that server="auto" started."""
        return self._embedded

    def close(self) -> None:
        """Closes the connections, and ends the server of server="auto". Safe to call again."""
        run(self.core.session.transport.close())
        if self._embedded:
            self._embedded.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def upload(
        self,
        array: arrays.ArrayLike,
        kind: str = "weight",
        *,
        tokens: int = 0,
        progress: bool | TransferProgress = False,
        request_id: str | None = None,
    ) -> Tensor:
        """Sends a tensor in checksummed chunks.

        A broken connection or a restarted server is picked up at the last byte that the server has. An
        array that is contiguous in this machine's memory is not copied; it must not change meanwhile.

        Args:
            array: NumPy, PyTorch or alike. "weight" [d_out, d_in] of float32, float16 or bfloat16, the
                   layout of torch.nn.Linear.weight; "gram" [d_in, d_in] of float32 or float64, X^T X of
                   activations X [tokens, d_in]; "saliency" [d_out, d_in] of float32; "mask" [d_out, d_in]
                   of bool.
            kind:  see above.
            tokens: of a Gram matrix, how many were summed; kept with it.
            progress: True for a progress bar, or what is called with (bytes sent, all bytes).
            request_id: makes it idempotent across processes: the same id goes on with the same upload, or
                   returns the tensor that it became.
        """
        observer, close = transfer_observer(progress, kind)
        try:
            message = run(self.core.upload(array, kind, tokens, observer, request_id))
        finally:
            close()
        return Tensor(self, message)

    def gram(
        self,
        batches: Any,
        *,
        dtype: str = "float32",
        progress: bool | TransferProgress = False,
        request_id: str | None = None,
    ) -> Tensor:
        """Streams activations, whose Gram matrix G = sum of x x^T [d_in, d_in] the server sums.

        Resumes as `upload` does, at whole tokens: none counts twice.

        Args:
            batches: an array, or an iterable of arrays, [tokens, d_in] or [..., d_in], of float32, float16
                   or bfloat16. An iterable is read once, in this thread, as fast as the server takes it.
                   Up to Options.gram_window_bytes are kept for the case of a broken connection.
            dtype: of the matrix: "float32" or "float64". Sums are float64 either way.
            progress: True for a progress bar, or what is called with (bytes sent, 0).
            request_id: as in `upload`; the same batches must come again.
        """
        observer, close = transfer_observer(progress, "activations")
        try:
            message = run(self.core.gram(batches, dtype, observer, request_id))
        finally:
            close()
        return Tensor(self, message)

    def submit(
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
        """Queues a job. Everything is checked before it is queued, options before anything is uploaded.

        Args:
            weight: a Tensor, its name, or an array [d_out, d_in] that is uploaded for this job and deleted
                    when `wait` or `result` has seen its end.
            gram:   likewise, [d_in, d_in].
            activations: instead of gram, what `Client.gram` takes.
            points: makes it a sweep: settings of method, pattern, sparsity, alpha, swaps, reconstruct.
            keep_all: of a sweep: keep every point's mask, not only the best of every pattern.
            request_id: makes it idempotent across processes: the same id with the same options and tensors
                    returns the same job.
            options: see JobOptions.

        Raises:
            InvalidArgument, FailedPrecondition, ResourceExhausted: the server refuses it; `.reason` says
                why, `.metadata["field"]` of which input.
        """
        inputs = Inputs(weight, gram, activations, options.get("warm_start"))
        return Job(self, *run(self.core.submit(inputs, options, points, keep_all, request_id)))

    def prune(
        self,
        weight: Any,
        gram: Any = None,
        *,
        activations: Any = None,
        progress: bool | Callable[[Event], None] = False,
        request_id: str | None = None,
        **options: Unpack[JobOptions],
    ) -> Result:
        """`submit` and `Job.result` in one. Ctrl-C cancels the job.

        >>> result = client.prune(weight, gram, sparsity=0.6, iterations=500)    # doctest: +SKIP
        >>> pruned = weight * result.mask                                        # doctest: +SKIP
        """
        job = self.submit(weight, gram, activations=activations, request_id=request_id, **options)
        with _cancelled_on_interrupt(job):
            return job.result(progress)

    def sweep(
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
        """Many settings on one weight and Gram matrix in one job.

        Every combination of the options that are lists (method, pattern, sparsity, alpha, swaps,
        reconstruct), the last one varying fastest; or exactly `points`. At most 256.

        >>> table = client.sweep(w, g, alpha=[0, 0.5, 0.9], sparsity=[0.5, 0.6])   # doctest: +SKIP
        >>> table.best.mask, table.best_setting, table.to_pandas()                 # doctest: +SKIP
        """
        job_options, settings = spec.split_sweep(options, points)
        job = self.submit(
            weight,
            gram,
            activations=activations,
            points=settings,
            keep_all=keep_all,
            request_id=request_id,
            **job_options,
        )
        with _cancelled_on_interrupt(job):
            return job.sweep_result(progress)

    def jobs(
        self,
        states: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
        limit: int = 0,
    ) -> list[Job]:
        """Newest first.

        Args:
            states: of these only, such as "RUNNING"; none: all.
            labels: every one must match.
            limit:  0: all.
        """
        numbers = state_numbers(states)
        found = run(self.core.session.list_jobs(numbers, labels or {}, limit))
        return [Job(self, message) for message in found]

    def get(self, name: str) -> Job | Tensor:
        """The job or tensor of this name."""
        if name.startswith("jobs/"):
            return self.job(name)
        return self.tensor(name)

    def job(self, name: str) -> Job:
        """The job of this name. Raises NotFound (JOB_NOT_FOUND)."""
        return Job(self, run(self.core.session.get_job(name)))

    def tensor(self, name: str) -> Tensor:
        """The tensor of this name. Raises NotFound (TENSOR_NOT_FOUND)."""
        return Tensor(self, run(self.core.session.get_tensor(name)))

    def list(self, limit: int = 0) -> list[Tensor]:
        """Tensors on the server, newest first; limit 0: all."""
        return [Tensor(self, message) for message in run(self.core.session.list_tensors(limit))]

    def read(self, tensor: Tensor | str, progress: bool | TransferProgress = False) -> Any:
        """The values of a tensor; see Tensor.read."""
        name = tensor if isinstance(tensor, str) else tensor.name
        observer, close = transfer_observer(progress, name)
        try:
            data, dtype, shape = run(self.core.read(name, observer))
        finally:
            close()
        return arrays.from_bytes(data, dtype, shape)

    def delete(self, what: Tensor | Job | str) -> None:
        """A tensor, or a job that has ended."""
        name = what if isinstance(what, str) else what.name
        if isinstance(what, Job):
            what.delete()
        elif name.startswith("jobs/"):
            run(self.core.session.delete_job(name))
        else:
            run(self.core.session.delete_tensor(name))

    def info(self) -> prune_service_pb2.ServerInfo:
        """Version, devices, limits and load of the server."""
        return run(self.core.session.server_info())

    def __repr__(self) -> str:
        return f"<sparsefw.Client {self.address}>"


def state_numbers(states: Sequence[str]) -> list[int]:
    """Of their names."""
    known = {name: number for name, number in job_pb2.JobState.items() if number}
    wrong = [state for state in states if state.upper() not in known]
    if wrong:
        raise invalid(f"a state must be one of {', '.join(known)}; got {wrong[0]}")
    return [known[state.upper()] for state in states]


@contextlib.contextmanager
def _cancelled_on_interrupt(job: Job) -> Iterator[None]:
    try:
        yield
    except Error:
        raise
    except BaseException:
        # Nobody else knows this job. Not waited for, like its tensors: the server sees to both.
        with contextlib.suppress(Error):
            job.cancel()
        raise


__all__ = ["Client", "Job", "Tensor", "check_ended_well", "connect"]
