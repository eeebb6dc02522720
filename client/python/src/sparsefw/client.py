"""The synchronous client."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Unpack

from sparsefw import arrays, spec
from sparsefw._core import Core
from sparsefw._enums import numbers_of
from sparsefw._inputs.job import Inputs
from sparsefw._progress import transfer_observer
from sparsefw._rpc.credentials import PathLike
from sparsefw._rpc.session import Session
from sparsefw._rpc.stoppable import StoppableTransport
from sparsefw._rpc.sync import SyncTransport, run
from sparsefw._rpc.target import Target
from sparsefw._rpc.upload import TransferProgress
from sparsefw.embedded import EmbeddedServer
from sparsefw.errors import Error
from sparsefw.handles import Job, Tensor
from sparsefw.options import Options
from sparsefw.results import Event, Result
from sparsefw.spec import JobOptions
from sparsefw.sweep_results import SweepResult
from sparsefw.v1 import job_pb2, prune_service_pb2, tensor_pb2


def connect(
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
    """Connects to a server.

    Args:
        server:   "host:port", any name gRPC understands ("unix:/path"), or several with commas between
                  them, of which the first that can be reached is used until its connection is lost. Or
                  "auto": starts a server of one's own (see `serve`) that ends with the client. None:
                  SPARSEFW_SERVER, else 127.0.0.1:50051.
        token:    sent with every call; None: SPARSEFW_TOKEN. Only over TLS or to this machine.
        tls:      use TLS; implied by the files.
        tls_ca:   PEM file of the CA that signed the server's certificate; None: SPARSEFW_TLS_CA, else,
                  with tls=True, the roots that gRPC brings along.
        tls_cert, tls_key: PEM files of a certificate of one's own, where the server asks for one.
        options:  times, retries, chunk sizes.
        server_flags: of server="auto": more flags of sparsefw-server, such as ["--host-memory", "32GiB"].

    Raises:
        Unavailable (UNREACHABLE): no server within options.connect_timeout.
        InvalidArgument (CLIENT_ARGUMENT): see make_credentials.
    """
    target = Target(
        server, server_flags, token=token, tls=tls, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key
    )
    embedded = EmbeddedServer(*server_flags) if target.embedded else None
    try:
        address = embedded.address if embedded else target.address
        client = Client(target.session(SyncTransport, address, options), embedded)
    except BaseException:
        if embedded:
            embedded.close()
        raise
    try:
        run(client.core.session.connect())
    except BaseException:
        client.close()
        raise
    return client


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
        """The address of the server."""
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
        return Tensor(self.core, message)

    def gram(
        self,
        batches: Any,
        *,
        dtype: str = "float32",
        progress: bool | TransferProgress = False,
        request_id: str | None = None,
    ) -> Tensor:
        """Streams activations, whose Gram matrix [d_in, d_in] the server sums: x.T @ x over batches x.

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
        return Tensor(self.core, message)

    def sum_grams(
        self, parts: Iterable[Tensor | str], *, dtype: str = "float32", request_id: str | None = None
    ) -> Tensor:
        """The sum of Gram matrices that are on the server, as one more tensor; the parts stay.

        For calibration by several workers: each calls `gram` with its own batches and a request_id of
        its own, one of them this with all the parts.

        Args:
            parts: Gram matrices [d_in, d_in] or their names, 1 to 256, each once. They are added in
                   this order, in float64.
            dtype: of the sum: "float32" or "float64".
            request_id: the same call again gives the same tensor, while the parts are there.
        """
        return Tensor(self.core, run(self.core.sum_grams(parts, dtype, request_id)))

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
                    when `Job.wait` has seen its end or `Job.result` has fetched its result.
            gram:   likewise, [d_in, d_in].
            activations: instead of gram, what `Client.gram` takes.
            points: makes it a sweep: settings of method, pattern, sparsity, alpha, swaps, reconstruct,
                    joint.
            keep_all: of a sweep: keep every point's mask, not only the best of every pattern.
            request_id: makes it idempotent across processes: the same id with the same options and inputs
                    goes on with the same uploads and returns the same job. At most 116 bytes in UTF-8. Once
                    arrays that were uploaded for it are deleted (see weight), the same call is refused
                    (REQUEST_ID_REUSED) until the job is deleted.
            options: see JobOptions.

        Raises:
            InvalidArgument, FailedPrecondition, ResourceExhausted: the server refuses it; `.reason` says
                why, `.metadata["field"]` of which input.
        """
        inputs = Inputs(weight, gram, activations, options.get("warm_start"))
        return Job(self.core, *run(self.core.submit(inputs, options, points, keep_all, request_id)))

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
        """`submit` and `Job.result` in one. Ctrl-C cancels the job, unless a request_id can find it again.

        Examples:
            >>> result = client.prune(weight, gram, sparsity=0.6, iterations=500)    # doctest: +SKIP
            >>> pruned = weight * result.mask                                        # doctest: +SKIP
        """
        job = self.submit(weight, gram, activations=activations, request_id=request_id, **options)
        with _cancelled_on_interrupt(job, request_id):
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
        reconstruct, joint), the last one varying fastest; or exactly `points`, which take what they leave out
        from the other options. At most 256.

        Examples:
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
        with _cancelled_on_interrupt(job, request_id):
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
        numbers = numbers_of(job_pb2.JobState, states, "a state")
        found = run(self.core.session.list_jobs(numbers, labels or {}, limit))
        return [Job(self.core, message) for message in found]

    def get(self, name: str) -> Job | Tensor:
        """The job or tensor of this name."""
        if name.startswith("jobs/"):
            return self.job(name)
        return self.tensor(name)

    def job(self, name: str) -> Job:
        """The job of this name. Raises NotFound (JOB_NOT_FOUND)."""
        return Job(self.core, run(self.core.session.get_job(name)))

    def tensor(self, name: str) -> Tensor:
        """The tensor of this name. Raises NotFound (TENSOR_NOT_FOUND)."""
        return Tensor(self.core, run(self.core.session.get_tensor(name)))

    def uploads(self, limit: int = 0) -> list[tensor_pb2.Upload]:
        """Uploads that have not ended, newest first, as the wire has them; limit 0: all."""
        return run(self.core.session.list_uploads(limit))

    def list(self, limit: int = 0, *, kinds: Sequence[str] = (), owner: str = "") -> list[Tensor]:
        """Tensors on the server, newest first.

        Args:
            limit: 0: all.
            kinds: of these only: "weight", "gram", "saliency", "mask", "pruned-weight"; none: all.
            owner: only what was uploaded with this `Options.owner`; "": all.
        """
        found = run(
            self.core.session.list_tensors(numbers_of(tensor_pb2.TensorKind, kinds, "a kind"), owner, limit)
        )
        return [Tensor(self.core, message) for message in found]

    def read(self, tensor: Tensor | str, progress: bool | TransferProgress = False) -> Any:
        """The values of a tensor; see Tensor.read."""
        return run(self.core.read(tensor, progress))

    def delete(self, what: Tensor | Job | str) -> None:
        """A tensor, an upload that has not ended, or a job that has."""
        if isinstance(what, Job):
            what.delete()
        else:
            run(self.core.delete(what if isinstance(what, str) else what.name))

    def info(self) -> prune_service_pb2.ServerInfo:
        """Version, devices, limits and load of the server."""
        return run(self.core.session.server_info())

    def __repr__(self) -> str:
        return f"<sparsefw.Client {self.address}>"


def stoppable(client: Client) -> Client:
    """A client over the same connections. `close` ends what it does, in any thread, and leaves them open."""
    session = client.core.session
    assert isinstance(session.transport, SyncTransport)
    made = Client(Session(session.address, StoppableTransport(session.transport), session.options))
    made.core.warns = False
    return made


@contextlib.contextmanager
def _cancelled_on_interrupt(job: Job, request_id: str | None) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if isinstance(error, Error):
            error.job = error.job or job.name
        # With an id somebody may come back for it. A job that has not ended goes on after a lost connection.
        if request_id is None and (job.ended or not isinstance(error, Error)):
            with contextlib.suppress(Error):
                job.abandon()
        raise
