"""The layers of a block as jobs on the nodes of a Ray cluster."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import grpc
import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from sparsefw import errors
from sparsefw._cluster.seen import Seen
from sparsefw._cluster.stored import Stored
from sparsefw._cluster.worker import Done, Solve
from sparsefw.errors import CALIBRATION_LOST, Error, InvalidArgument
from sparsefw.hf.calibration.step import Step
from sparsefw.hf.cluster import step, tasks
from sparsefw.hf.cluster.facts import Facts
from sparsefw.hf.cluster.objects import Detached, Objects
from sparsefw.hf.cluster.session import connect_cluster, nothing, task_size, wait_for_cores
from sparsefw.hf.cluster.settings import Ray
from sparsefw.hf.cluster.workers import Workers
from sparsefw.hf.layout import Block, Matrix
from sparsefw.hf.pools.tasks import Pool, Rows, Solved, Task, cost, merged, merged_curves, parts_of
from sparsefw.hf.progress import Progress
from sparsefw.hf.source import Source
from sparsefw.results import Event
from sparsefw.results import Progress as Report
from sparsefw.v1 import job_pb2

# Seconds until the first task has run, PyTorch loaded.
_PATIENCE: Final = 300.0
# Seconds for an object to come from another node. After these the second that is saved does not count.
_FETCH: Final = 2.0
# Seconds for what the last tasks cost to arrive.
_MOMENT: Final = 2.0


class RayPool(Pool):
    """A context manager.

    Attributes:
        objects: what this process puts into the object store.
        threads, device: of PyTorch in every task.
    """

    def __init__(self, settings: Ray, split_above: int, trace: bool, progress: Progress) -> None:
        connect_cluster(settings)
        self.threads = wait_for_cores(settings, progress.wait)
        self.device = "cuda" if settings.gpus else "cpu"
        self.objects = Objects()
        self._settings, self._split_above = settings, split_above
        self._trace, self._progress = trace, progress
        self._facts = Facts()
        self._weights: dict[str, Any] = {}
        self._grams: dict[str, tuple[tuple[Any, ...], int]] = {}
        self._functions: dict[Any, Any] = {}
        self._refining: Any = None
        self._pass = 0
        self._seen: Any = None
        self._workers = Workers(settings, self.threads, self._facts)

    def __enter__(self) -> RayPool:
        self._workers.__enter__()
        try:
            self._workers.start()
            self._check_room()
        except BaseException:
            self._workers.__exit__()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._refining is not None:
            # The next call must not wait for it. Other tasks, a pass over the samples at most, run out:
            # Ray 2.60 ends this process where a task is cancelled just as its arguments have come.
            with contextlib.suppress(RayError, ValueError):
                ray.cancel(self._refining, force=True)
        self._refining = None
        if self._seen is not None:
            with contextlib.suppress(RayError):
                ray.kill(self._seen)
        self._workers.__exit__()
        self._grams.clear()
        self._weights.clear()

    def _check_room(self) -> None:
        """A task fits beside the workers, unless other runs have the cores."""
        size = task_size(self.threads, self._settings.gpus)
        first = ray.remote(max_retries=-1, **size)(nothing).remote()  # whatever nodes are lost meanwhile
        try:
            ray.get(first, timeout=_PATIENCE)
        except GetTimeoutError:
            ray.cancel(first, force=True)
            raise errors.refuse(
                grpc.StatusCode.FAILED_PRECONDITION,
                "DEVICE_UNAVAILABLE",
                f"no node of the Ray cluster has had cores for a task for {_PATIENCE:.0f} s; another run has "
                "them (a cluster is for one at a time), or tasks of a run of this process that failed",
            ) from None

    @property
    def version(self) -> str:
        # Another number of threads gives other bits: a run that goes on with one warns.
        return f"{self._workers.version} on Ray, {self.threads} threads"

    def walk(
        self, source: Source, samples: Sequence[Any], folder: Path, layout: Sequence[Block], streams: int = 1
    ) -> Iterator[Step]:
        return step.walk(self, source, samples, folder, layout, streams)

    def facts(self) -> dict[str, Any]:
        self._facts.read_tasks(_MOMENT)
        return self._facts.to_dict(self.objects.sent)

    def start(
        self, function: Any, name: str, *args: Any, returns: int = 1, retries: int, gpu: bool = True
    ) -> Any:
        """Starts a task, which has the name in Ray's dashboard; its objects, but for what it cost, which the
        pool reads.
        """
        if function not in self._functions:
            size = task_size(self.threads, self._settings.gpus if gpu else 0)
            self._functions[function] = ray.remote(**size)(function)
        options = {"name": name, "num_returns": returns + 1, "max_retries": retries}
        *found, spent = self._functions[function].options(**options).remote(*args)
        self._facts.task(function.__name__, spent)
        return found if returns > 1 else found[0]

    def refine(
        self, name: str, on_epoch: Callable[[int, float], None], *args: Any
    ) -> tuple[dict[str, Any], Any]:
        """(record, object of the tensors) of tasks.refine, which is cancelled where the run fails: its
        arguments are there already.
        """
        record, arrays = self.start(tasks.refine, name, *args, returns=2, retries=self._settings.max_attempts)
        self._refining = record
        found = self.get(record, "refinement", on_epoch)
        self._refining = None
        return found, arrays

    def put_block(self, block: Any, layout: Block) -> Detached:
        """The block's skeleton and tensors. Jobs read their weights from the same objects."""
        detached, refs = self.objects.detach_block(block)
        self._weights = {matrix.parameter: refs[id(matrix.of(block))] for matrix in layout.matrices}
        return detached

    def seen(self) -> Any:
        """The actor that refinement tells of its epochs."""
        if self._seen is None:
            here = ray.get_runtime_context().get_node_id()
            near = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=True)
            self._seen = ray.remote(num_cpus=0)(Seen).options(scheduling_strategy=near).remote()
        return self._seen

    def put_outcome(self, tensors: dict[str, Stored] | None) -> Any:
        """The object of a block's outcome."""
        self.objects.sent["outcome"] += sum(value.data.nbytes for value in (tensors or {}).values())
        return ray.put(tensors)

    def get(self, ref: Any, what: str, on_epoch: Callable[[int, float], None] | None = None) -> Any:
        """The object, once it is there.

        Args:
            what:     it is waited for.
            on_epoch: gets what a refinement tells meanwhile.

        Raises:
            Unavailable (CALIBRATION_LOST): Ray cannot make it again.
        """
        started = time.monotonic()
        try:
            while not ray.wait([ref], timeout=1.0, fetch_local=False)[0]:
                if on_epoch:
                    self._tell(on_epoch)
            # `get` alone sees an object of another node up to a second after it has come. `wait` alone would
            # never see one that this node has no room for, which `get` puts on disk.
            ray.wait([ref], timeout=_FETCH)
            return ray.get(ref)
        except RayError as error:
            cause: BaseException = error
            while isinstance(cause, RayTaskError):  # of a task, or of one whose outcome it needed
                cause = cause.cause
            if isinstance(cause, Error):
                raise cause from None
            if not isinstance(cause, RayError):  # a fault of the program
                raise
            raise errors.refuse(
                grpc.StatusCode.UNAVAILABLE,
                CALIBRATION_LOST,
                f"{what} of the calibration are lost, and Ray could not make them again: {error}",
            ) from error
        finally:
            self._facts.waited[what] += time.monotonic() - started

    def wait(self, refs: Sequence[Any], what: str) -> None:
        """Returns once all of the objects are made, wherever, or cannot be."""
        started = time.monotonic()
        ray.wait(list(refs), num_returns=len(refs), fetch_local=False)
        self._facts.waited[what] += time.monotonic() - started

    def _tell(self, on_epoch: Callable[[int, float], None]) -> None:
        try:
            news = ray.get(self.seen().last.remote(), timeout=1.0)
        except (GetTimeoutError, RayError):
            return
        if news is not None:
            on_epoch(*news)

    def add_gram(self, key: str, matrix: Any, tokens: int) -> None:
        here = not isinstance(matrix, step.RemoteGram)
        self._grams[key] = (self.objects.put(matrix, "gram"),) if here else matrix.strips, tokens

    def drop_grams(self) -> None:
        self._grams.clear()
        self._pass += 1
        self._facts.read_tasks()

    def solve(self, tasks: Sequence[Task], on_event: Callable[[Task, Event], None]) -> Iterator[Solved]:
        for task, parts in self._each(tasks, None, on_event):
            solved = merged(task, [done.result for done in parts])
            # No report has the whole matrix's losses where its row ranges are jobs of their own.
            if self._trace and len(parts) == 1:
                solved.record["trace"] = parts[0].trace
            yield solved

    def sweep(
        self, tasks: Sequence[Task], sparsities: Sequence[float]
    ) -> Iterator[tuple[Task, list[dict[str, float]]]]:
        for task, parts in self._each(tasks, tuple(sparsities), lambda task, event: None):
            yield task, merged_curves([done.result for done in parts])

    def _each(
        self,
        tasks: Sequence[Task],
        sparsities: tuple[float, ...] | None,
        on_event: Callable[[Task, Event], None],
    ) -> Iterator[tuple[Task, list[Any]]]:
        """(task, outcomes of its parts), in their order."""
        pieces = [(task, rows) for task in tasks for rows in parts_of(task, self._split_above)]
        live = frozenset(f"{self._pass} {key}" for key in self._grams)
        jobs = []
        for task, rows in pieces:
            gram, tokens = self._grams[task.gram]
            jobs.append(
                Solve(
                    name=_name(task.matrix, rows),
                    rows=rows,
                    expert=task.matrix.expert,
                    transposed=task.matrix.transposed,
                    options={"labels": {"sparsefw.matrix": task.matrix.name[-60:]}, **task.options},
                    weight=(self._weights[task.matrix.parameter],),
                    gram=gram,
                    gram_key=f"{self._pass} {task.gram}",
                    live=live,
                    tokens=tokens,
                    sparsities=sparsities,
                    trace=self._trace,
                )
            )
        # The longest first, so that workers end at about the same time.
        order = sorted(range(len(jobs)), key=lambda index: -cost(*pieces[index]))
        found: dict[int, Done] = {}
        told = lambda index, report: on_event(pieces[index][0], _event(report))  # noqa: E731
        ended = self._workers.run(jobs, order, told)
        for task in tasks:
            wanted = [index for index, (of_task, _) in enumerate(pieces) if of_task is task]
            while not found.keys() >= set(wanted):
                index, done = next(ended)
                self._facts.job(
                    done.node, jobs[index].gram_key, done.seconds, done.gram_bytes, done.gram_seconds
                )
                self._progress.place(str(self._facts))
                if done.error is not None:
                    raise self._named(pieces[index][0], done)
                found[index] = done
            yield task, [found.pop(index) for index in wanted]

    def _named(self, task: Task, done: Done) -> Error:
        error = done.error
        assert error is not None
        text = f"{task.matrix.name}: {error.message}"
        if not isinstance(error, InvalidArgument):  # else it is not the node's fault
            last = " | ".join(done.log.splitlines()[-3:])
            text += f" (node {self._facts.name(done.node)}; its server's log ends: {last})"
        return error.with_message(text)


def _name(matrix: Matrix, rows: Rows) -> str:
    whole = rows == (0, matrix.rows)
    return matrix.name if whole else f"{matrix.name} rows {rows[0]}-{rows[1]}"


def _event(report: Report) -> Event:
    return Event("PROGRESS", "RUNNING", 0, report, 0, job_pb2.JobEvent())
