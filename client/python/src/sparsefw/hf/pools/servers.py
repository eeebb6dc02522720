"""The layers of a block as jobs on one or several servers."""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from sparsefw import arrays
from sparsefw._losses import keep_point
from sparsefw.client import Client, connect
from sparsefw.errors import Error
from sparsefw.handles import Job, Tensor
from sparsefw.hf.calibration.step import Step
from sparsefw.hf.calibration.walk import walk
from sparsefw.hf.layout import Block
from sparsefw.hf.pools.server import Server
from sparsefw.hf.pools.tasks import (
    Pool,
    Rows,
    Solved,
    Task,
    cost,
    merged,
    merged_curves,
    parts_of,
)
from sparsefw.hf.source import Source
from sparsefw.results import Event, Result
from sparsefw.spec import split_sweep
from sparsefw.sweep_results import SweepResult

# Jobs that are waited for at the same time on one server; it runs as many as it has workers.
_JOBS: Final = 4
# Seconds for the errors of other matrices, once one has failed.
_MOMENT: Final = 1.0
# Seconds between two looks for an interrupt.
_LOOK: Final = 0.5
# Label of a run's jobs.
_RUN: Final = "sparsefw.run"
Outcome = TypeVar("Outcome")


class Servers(Pool):
    """Servers, and Gram matrices that are on them. A context manager.

    Requests are named by their content, so that the same work after a crash finds what a server that
    lived on has done, and other work never does.
    """

    def __init__(
        self, servers: Sequence[str | Client], run: str, split_above: int, lasting: bool, trace: bool = False
    ) -> None:
        """`lasting`: another process may come back for what an interrupted one leaves on the servers.
        `trace`: records keep the losses of their report points.
        """
        self._stack = contextlib.ExitStack()
        self._servers: list[Server] = []
        self._lasting = lasting
        # Nobody comes back: two such runs with the same inputs on one server must not meet.
        self._run = run if lasting else f"{run}-{uuid.uuid4().hex[:12]}"
        self._split_above = split_above
        self._trace = trace
        self._grams: dict[str, dict[int, Tensor]] = {}
        self._digests: dict[str, str] = {}
        self._nameless = False  # the Gram matrices are such that nobody can find again
        self._threads = concurrent.futures.ThreadPoolExecutor(_JOBS * len(servers), "sparsefw-layer")
        try:
            for server in servers:
                own = not isinstance(server, Client)
                client = server if isinstance(server, Client) else self._stack.enter_context(connect(server))
                self._servers.append(Server(client, own, lasting))
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """After an error: the threads end at their next step and are waited for. Only then is it known
        what they have left on the servers, and may the same call be made again in this process.
        """
        try:
            self._threads.shutdown(wait=False, cancel_futures=True)
            if kind is not None:
                for server in self._servers:
                    server.stop()
            self._threads.shutdown()
            for server in self._servers:
                # At a good end also what earlier processes of the run have left there.
                if kind is None or not self._lasting or self._nameless:
                    server.clear({_RUN: self._run})
        finally:
            self._stack.close()

    @property
    def clients(self) -> list[Client]:
        """The clients of the servers, for the thread that made the pool."""
        return [server.client for server in self._servers]

    @property
    def name(self) -> str:
        return ", ".join(client.address for client in self.clients)

    def walk(
        self, source: Source, samples: Sequence[Any], folder: Path, layout: Sequence[Block], streams: int = 1
    ) -> Iterator[Step]:
        return walk(source, samples, folder, layout, streams)

    def facts(self) -> None:
        return None

    @property
    def version(self) -> str:
        return ", ".join(dict.fromkeys(client.info().version for client in self.clients))

    def add_gram(self, key: str, matrix: Any, tokens: int) -> None:
        """Sends it to every server."""
        data = arrays.as_buffer(matrix, "gram", ("float32",))
        digest = _digest(data.data)
        self._digests[key] = digest
        request = f"{self._run}/{_digest(f'{key} {digest}'.encode())}"
        for index, server in enumerate(self._servers):
            tensor = server.upload(server.client, matrix, "gram", request, tokens)
            self._grams.setdefault(key, {})[index] = tensor

    def stream_gram(self, key: str, batches: Callable[[], Generator[Any, None, None]]) -> int:
        """As `add_gram`, of activations that every server sums; returns the tokens."""
        # Without a request id: there is no name for a content that nobody has seen yet.
        self._nameless = True
        for index, server in enumerate(self._servers):
            # Closed here: after an error the exception would keep it, and what it holds.
            with contextlib.closing(batches()) as inputs:
                self._grams.setdefault(key, {})[index] = server.keep(server.client.gram(inputs))
        tensor = self._grams[key][0]
        self._digests[key] = tensor.name
        return tensor.tokens

    def drop_grams(self) -> None:
        for index, server in enumerate(self._servers):
            server.delete(server.client, [of_key[index] for of_key in self._grams.values()])
        self._grams.clear()
        self._digests.clear()
        self._nameless = False

    def solve(self, tasks: Sequence[Task], on_event: Callable[[Task, Event], None]) -> Iterator[Solved]:
        traces: dict[str, list[dict[str, float]]] = {}

        def seen(task: Task, event: Event) -> None:
            on_event(task, event)
            if event.progress is not None:
                keep_point(traces.setdefault(task.matrix.name, []), event.progress)

        for task, results in self._each(
            tasks, lambda task, part, server: self._prune(task, part, server, seen)
        ):
            solved = merged(task, results)
            # No report has the whole matrix's losses where its row ranges are jobs of their own.
            if self._trace and len(results) == 1:
                solved.record["trace"] = traces.get(task.matrix.name, [])
            yield solved

    def sweep(
        self, tasks: Sequence[Task], sparsities: Sequence[float]
    ) -> Iterator[tuple[Task, list[dict[str, float]]]]:
        for task, results in self._each(
            tasks, lambda task, part, server: self._curve(task, part, server, sparsities)
        ):
            yield task, merged_curves(results)

    def _each(
        self, tasks: Sequence[Task], work: Callable[[Task, Rows, int], Any]
    ) -> Iterator[tuple[Task, list[Any]]]:
        jobs = [(task, part) for task in tasks for part in parts_of(task, self._split_above)]
        # These jobs alone decide where each runs: a run that goes on must find them where they are.
        load = [0] * len(self._servers)
        begun = {}
        # The longest first, so that servers end at about the same time.
        for index in sorted(range(len(jobs)), key=lambda index: -cost(*jobs[index])):
            number = load.index(min(load))
            load[number] += cost(*jobs[index])
            begun[index] = self._threads.submit(work, *jobs[index], number)
        owner = {begun[index]: task for index, (task, _) in enumerate(jobs)}
        running = set(owner)
        for task in tasks:
            parts = [future for future, of_task in owner.items() if of_task is task]
            # An error is raised at once, not after hours of the matrices before it.
            while not running.isdisjoint(parts):
                # An interrupt that another thread takes is seen when the wait ends.
                ended, running = concurrent.futures.wait(
                    running, timeout=_LOOK, return_when=concurrent.futures.FIRST_COMPLETED
                )
                if any(future.exception() for future in ended):
                    _raise_first(owner)
            yield task, [future.result() for future in parts]

    def _request(self, task: Task, part: Rows, extra: Any = None) -> str:
        dtypes = ("float32", "float16", "bfloat16")
        weight = arrays.as_buffer(task.weight[part[0] : part[1]], "weight", dtypes)
        facts = [task.matrix.name, part, dict(task.options), _digest(weight.data), extra]
        facts.append(self._digests[task.gram])
        return f"{self._run}/{_digest(json.dumps(facts, sort_keys=True, default=str).encode())}"

    def _job_options(self, task: Task) -> dict[str, Any]:
        return {"labels": {_RUN: self._run, "sparsefw.matrix": task.matrix.name[-60:]}, **task.options}

    def _prune(self, task: Task, part: Rows, number: int, on_event: Callable[[Task, Event], None]) -> Result:
        server = self._servers[number]

        def run(request: str) -> Result:
            return server.outcome(
                task.weight[part[0] : part[1]],
                request,
                lambda weight: server.worker.submit(
                    weight, self._grams[task.gram][number], request_id=request, **self._job_options(task)
                ),
                lambda job: job.result(lambda event: on_event(task, event)),
            )

        result = _named(self._request(task, part), run)
        result.check_weight()
        return result

    def _curve(self, task: Task, part: Rows, number: int, sparsities: Sequence[float]) -> SweepResult:
        server = self._servers[number]
        options = {key: value for key, value in self._job_options(task).items() if key != "sparsity"}
        job_options, points = split_sweep({**options, "sparsity": list(sparsities)}, None)

        def run(request: str) -> SweepResult:
            return server.outcome(
                task.weight[part[0] : part[1]],
                request,
                lambda weight: server.worker.submit(
                    weight, self._grams[task.gram][number], points=points, request_id=request, **job_options
                ),
                Job.sweep_result,
            )

        return _named(self._request(task, part, list(sparsities)), run)


def _raise_first(owner: Mapping[concurrent.futures.Future[Any], Task]) -> None:
    """Raises the error of the first matrix that has one; the message names it. At least one has.

    Those before it get a moment: a weight that is no number makes the inputs of matrices after it such.
    """
    concurrent.futures.wait(owner, timeout=_MOMENT)
    for future, task in owner.items():
        error = future.exception() if future.done() else None
        if isinstance(error, Error):
            raise error.with_message(f"{task.matrix.name}: {error.message}") from error
        if error is not None:
            raise error


def _named(request: str, run: Callable[[str], Outcome]) -> Outcome:
    """Runs a request under its name, or under the next one where that is of a job whose inputs an
    earlier process has already removed.
    """
    for attempt in range(1, 4):
        try:
            return run(f"{request}/{attempt}")
        except Error as error:
            if error.reason != "REQUEST_ID_REUSED" or attempt == 3:
                raise
    raise AssertionError  # the loop returns or raises


def _digest(data: Any) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
