"""Tensors and jobs on a server, as the synchronous client hands them out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from sparsefw._handles import JobHandle, TensorHandle
from sparsefw._progress import job_observer
from sparsefw._rpc.sync import iterate, run
from sparsefw._rpc.upload import TransferProgress
from sparsefw.errors import Error
from sparsefw.results import Event, Result
from sparsefw.sweep_results import SweepResult


class Tensor(TensorHandle):
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

    def read(self, progress: bool | TransferProgress = False) -> Any:
        """Its values as a NumPy array; masks are bool, bfloat16 as in `Result.weight`."""
        return run(self._core.read(self.name, progress))

    def delete(self) -> None:
        """Raises FailedPrecondition (TENSOR_IN_USE) while a queued or running job reads it."""
        run(self._core.delete(self.name))

    def __enter__(self) -> Tensor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            run(self._core.give_back([self.name]))
            return
        with contextlib.suppress(Error):
            self.delete()


class Job(JobHandle):
    """A job on the server.

    Attributes:
        name:    "jobs/<id>".
        message: the job as it was last seen (sparsefw.v1.Job).
    """

    def refresh(self) -> Job:
        """Asks the server."""
        self.message = run(self._core.session.get_job(self.name))
        return self

    def events(self, after_revision: int = 0, heartbeats: bool = False) -> Iterator[Event]:
        """Every event until the job has ended, across broken connections and restarts of the server.

        The first is a SNAPSHOT, the last one of the end. No state change after `after_revision` is left
        out; of progress a slow reader sees the latest. Leaving the iteration never cancels the job.
        """
        source = iterate(self._core.session.watch(self.name, after_revision))
        with contextlib.closing(source) as events:  # type: ignore[type-var]
            for message in events:
                self.message = message.job
                event = Event.of(message)
                if heartbeats or event.kind != "HEARTBEAT":
                    yield event

    def wait(self, progress: bool | Callable[[Event], None] = False) -> Job:
        """Returns when the job has ended, whatever its state. Arrays that were uploaded for it are deleted.

        Args:
            progress: True for a progress bar, or what is called with every event.
        """
        self._until_end(progress)
        run(self._core.discard(self._take_temporary()))
        return self

    def _until_end(self, progress: bool | Callable[[Event], None]) -> None:
        observer, close = job_observer(progress, self.name)
        try:
            self.message = run(self._core.wait(self.message, observer))
        finally:
            close()

    def result(self, progress: bool | Callable[[Event], None] = False) -> Result:
        """Waits for the end, and fetches the mask and, where there are any, the pruned weights.

        A cancelled or overdue job has its best mask so far, a sweep its best point. Arrays that were uploaded
        for the job are deleted once the result is here, or there will be none.

        Raises:
            Error: the job failed, or ended before it had a mask; `.job` names it.
        """
        self._until_end(progress)
        return run(self._fetch(self._core.result))

    def sweep_result(self, progress: bool | Callable[[Event], None] = False) -> SweepResult:
        """As `result`, of a sweep: every point."""
        self._until_end(progress)
        return run(self._fetch(self._core.sweep_result))

    def cancel(self) -> Job:
        """Ends the job within 100 ms of solver work; it keeps its best mask so far. Safe to repeat."""
        self.message = run(self._core.session.cancel_job(self.name))
        return self

    def abandon(self) -> None:
        """Cancels the job and deletes the arrays that were uploaded for it; waits a second at most."""
        run(self._core.abandon(self.name, self._take_temporary()))

    def delete(self) -> None:
        """Removes the job, which must have ended, with its mask and weights."""
        run(self._core.session.delete_job(self.name))
        run(self._core.discard(self._take_temporary()))
