"""One of a run's servers, and what the run has put there."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import grpc

from sparsefw import errors
from sparsefw._rpc.sync import run
from sparsefw.client import Client, stoppable
from sparsefw.handles import Job, Tensor

Outcome = TypeVar("Outcome")


class Server:
    """Knows every tensor of the run that is on it, until it is deleted. Thread-safe.

    Attributes:
        client: of the thread that made it.
        worker: of other threads; `stop` ends what they do.
    """

    def __init__(self, client: Client, own: bool, lasting: bool) -> None:
        """`own`: the client was made for this run. `lasting`: somebody may come back for what is there."""
        self.client, self.worker = client, stoppable(client)
        # A server of this run alone ends with it, and so does all that is there.
        self._ends_with_run = own and client.server is not None
        self._lasting = lasting
        self._lock = threading.Lock()
        self._made: dict[str, None] = {}

    def upload(self, client: Client, array: Any, kind: str, request: str, tokens: int = 0) -> Tensor:
        """By `self.client` or `self.worker`. A tensor of this request that is there already is taken."""
        # An upload without a name is given back where it is not finished; of a named one the server keeps
        # what it has.
        name = request if self._lasting else None
        return self.keep(client.upload(array, kind, tokens=tokens, request_id=name))

    def keep(self, tensor: Tensor) -> Tensor:
        """Notes a tensor that was made for this run."""
        with self._lock:
            self._made[tensor.name] = None
        return tensor

    def delete(self, client: Client, tensors: Iterable[Tensor]) -> None:
        """Deletes tensors that nobody needs any more. What that does not work for is noted for `clear`."""
        for tensor in tensors:
            try:
                client.delete(tensor)
            except (errors.Unavailable, errors.DeadlineExceeded):
                return  # retried long enough: not for every tensor again
            except errors.NotFound:
                pass
            except errors.Error:
                continue
            with self._lock:
                self._made.pop(tensor.name, None)

    def outcome(
        self,
        rows: Any,
        request: str,
        submit: Callable[[Tensor], Job],
        fetch: Callable[[Job], Outcome],
    ) -> Outcome:
        """The outcome of one job on a weight, by `self.worker`. Both are removed once the outcome
        is here or there will be none. After any other error they stay: whoever comes back finds
        them by their names.
        """
        weight = self.upload(self.worker, rows, "weight", f"{request}/weight")
        try:
            job = submit(weight)
        except errors.Error as error:
            if error.reason == "REQUEST_ID_REUSED":
                self.delete(self.worker, [weight])  # the next request has one of its own
            raise
        try:
            outcome = fetch(job)
            if job.state == "CANCELLED":  # its mask is not the one that was asked for
                raise errors.refuse(
                    grpc.StatusCode.CANCELLED,
                    "CANCELLED",
                    f"{job.name} was cancelled: its mask so far is not the result",
                )
        except errors.Error as error:
            if job.state in ("FAILED", "CANCELLED") or isinstance(error, errors.NotFound):
                self._remove(job, weight)
            raise
        self._remove(job, weight)
        return outcome

    def _remove(self, job: Job, weight: Tensor) -> None:
        # The job first: without its weight it would be in the way of the same request.
        with contextlib.suppress(errors.Error):
            job.delete()
        self.delete(self.worker, [weight])

    def stop(self) -> None:
        """Threads end what they do with `worker`, with an error."""
        self.worker.close()

    def clear(self, labels: Mapping[str, str]) -> None:
        """Ends the jobs with these labels, where any are given, and deletes them with their inputs and what
        this process has left there; in some seconds, as far as that works. No thread may be at work any more.
        """
        if not self._ends_with_run:
            run(self.client.core.clear(labels, list(self._made)))
