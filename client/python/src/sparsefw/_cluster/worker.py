"""A node's worker: an actor with a server of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from sparsefw import arrays
from sparsefw._cluster.node import here, processor
from sparsefw._cluster.stored import array_of, joined
from sparsefw._losses import keep_point
from sparsefw.client import Client, connect
from sparsefw.errors import Error
from sparsefw.handles import Tensor
from sparsefw.results import Event, Progress, Result
from sparsefw.spec import split_sweep
from sparsefw.sweep_results import SweepResult


@dataclasses.dataclass(frozen=True)
class Solve:
    """One job.

    Attributes:
        name:     for Ray's dashboard.
        rows:     of the matrix, [first, last + 1).
        expert, transposed: where the matrix is in its parameter (arrays.matrix_of).
        weight, gram: objects, in tuples so that Ray does not fetch them before the job begins; the Gram
                  matrix is in strips of rows.
        gram_key: of the Gram matrix.
        live:     keys of the Gram matrices that more jobs need.
        sparsities: of a sweep; None: the options have the one.
        trace:    keep the losses of the report points.
    """

    name: str
    rows: tuple[int, int]
    expert: int | None
    transposed: bool
    options: Mapping[str, Any]
    weight: tuple[Any]
    gram: tuple[Any, ...]
    gram_key: str
    live: frozenset[str]
    tokens: int
    sparsities: tuple[float, ...] | None
    trace: bool


def weight_of(job: Solve) -> arrays.Buffer:
    """The rows of the weight that the job is for."""
    parameter = ray.get(job.weight[0])
    matrix = arrays.matrix_of(array_of(parameter), job.expert, job.transposed)
    return arrays.buffer_of(matrix[slice(*job.rows)], parameter.dtype)


@dataclasses.dataclass
class Done:
    """The outcome of a job: `result` or `error`. Errors of the server are values, so that Ray's own errors
    are those of lost workers.

    Attributes:
        gram_bytes: read from the object store for this job: 0 where the worker had the matrix.
        gram_seconds: waiting for them, and handing them to the server.
        log:      the end of the server's log, with an error.
    """

    node: str
    result: Result | SweepResult | None = None
    error: Error | None = None
    trace: list[dict[str, float]] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    gram_bytes: int = 0
    gram_seconds: float = 0.0
    log: str = ""


@dataclasses.dataclass(frozen=True)
class Started:
    """A worker, its server's version and its node's type of processor."""

    node: str
    version: str
    processor: str


class Worker:
    """Runs one job at a time; meanwhile `seen` tells how far it is."""

    def __init__(self, environment: Mapping[str, str], flags: Sequence[str]) -> None:
        """`environment`: of the driver, which says where the server's program is. `flags`: of the server."""
        os.environ.update(environment)
        self._flags = tuple(flags)
        self._client: Client | None = None
        self._grams: dict[str, Tensor] = {}
        self._progress: tuple[str, Progress] | None = None
        self._node = here()

    def start(self) -> Done | Started:
        """Once the server listens."""
        try:
            self._client = connect("auto", server_flags=self._flags)
            return Started(self._node, str(self._client.info().version), processor())
        except Error as error:
            return Done(self._node, error=error)

    @ray.method(concurrency_group="seen")  # type: ignore[untyped-decorator]
    def seen(self) -> tuple[str, Progress] | None:
        """The name and the last report of the running job."""
        return self._progress

    def solve(self, job: Solve) -> Done:
        """The outcome of a job."""
        started = time.monotonic()
        done = Done(self._node)
        try:
            done.result = self._solve(job, done)
        except Error as error:
            done.error, done.log = error, self._log()
        self._progress = None
        done.seconds = time.monotonic() - started
        return done

    def _solve(self, job: Solve, done: Done) -> Result | SweepResult:
        client = self._client
        assert client is not None
        for key in [key for key in self._grams if key not in job.live]:
            with contextlib.suppress(Error):
                self._grams.pop(key).delete()
        gram = self._gram(client, job, done)
        matrix = weight_of(job)
        if job.sparsities is not None:
            others = {key: value for key, value in job.options.items() if key != "sparsity"}
            options, points = split_sweep({**others, "sparsity": list(job.sparsities)}, None)
            table = client.submit(matrix, gram, points=points, **options)
            found = table.sweep_result()
            table.delete()
            return found
        running = client.submit(matrix, gram, **job.options)
        result = running.result(self._observer(job, done))
        running.delete()
        result.check_weight()
        return result

    def _gram(self, client: Client, job: Solve, done: Done) -> Tensor:
        if job.gram_key not in self._grams:
            started = time.monotonic()
            matrix = joined(job.gram)
            done.gram_bytes = matrix.nbytes
            self._grams[job.gram_key] = client.upload(matrix, "gram", tokens=job.tokens)
            done.gram_seconds = time.monotonic() - started
        return self._grams[job.gram_key]

    def _observer(self, job: Solve, done: Done) -> Callable[[Event], None]:
        def observe(event: Event) -> None:
            if event.progress is not None:
                self._progress = job.name, event.progress
                if job.trace:
                    keep_point(done.trace, event.progress)

        return observe

    def _log(self) -> str:
        server = self._client.server if self._client else None
        if server is None:
            return ""
        with contextlib.suppress(OSError):
            return "\n".join(server.log.read_text(errors="replace").splitlines()[-20:])
        return ""
