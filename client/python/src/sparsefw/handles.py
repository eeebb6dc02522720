"""Tensors and jobs on a server, as the synchronous client hands them out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sparsefw import arrays
from sparsefw._core import kind_name
from sparsefw._enums import short_name
from sparsefw._progress import job_observer
from sparsefw._rpc.session import TERMINAL
from sparsefw._rpc.sync import iterate, run
from sparsefw._rpc.upload import TransferProgress
from sparsefw._text import printable
from sparsefw.errors import Error
from sparsefw.results import Event, Result
from sparsefw.sweep_results import SweepResult
from sparsefw.v1 import job_pb2, tensor_pb2

if TYPE_CHECKING:
    from sparsefw.client import Client


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
        if kind is not None:
            run(self._client.core.give_back([self.name]))
            return
        with contextlib.suppress(Error):
            self.delete()

    def __repr__(self) -> str:
        return printable(f"<{self.name} {self.kind} {self.dtype} {list(self.shape)}>")


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
        return short_name(job_pb2.JobState, self.message.state)

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

    def abandon(self) -> None:
        """Cancels the job and deletes the arrays that were uploaded for it; waits a second at most."""
        names, self._temporary = self._temporary, []
        run(self._client.core.abandon(self.name, names))

    def delete(self) -> None:
        """Removes the job, which must have ended, with its mask and weights."""
        run(self._client.core.session.delete_job(self.name))
        self._clean_up()

    def _clean_up(self) -> None:
        """Arrays that were uploaded for this job alone are of no use after its end."""
        names, self._temporary = self._temporary, []
        run(self._client.core.discard(names))

    def __repr__(self) -> str:
        return printable(f"<{self.name} {self.state}>")
