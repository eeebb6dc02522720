"""The workers of a run: one actor a slot, as long as the run."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import grpc
import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sparsefw import errors
from sparsefw._cluster.worker import Done, Solve, Started, Worker
from sparsefw.errors import Unavailable
from sparsefw.hf.cluster import session
from sparsefw.hf.cluster.facts import Facts
from sparsefw.hf.cluster.session import actor_size, environment, slots
from sparsefw.hf.cluster.settings import Ray
from sparsefw.results import Progress

# Seconds between two looks at the cluster's nodes and at running jobs.
_LOOK: Final = 1.0
# Seconds for the errors of other jobs, once one has failed.
_MOMENT: Final = 2.0


@dataclasses.dataclass(eq=False)
class _Slot:
    """An actor on a node. `ready`: its server listens. `running`: the object that it is to give; `seen`: its
    last report, on its way.
    """

    actor: Any
    node: str
    running: Any
    ready: bool = False
    job: int | None = None
    seen: Any = None


class Workers:
    """A context manager. At its end the actors end, and their servers with them."""

    def __init__(self, settings: Ray, cpus: int, facts: Facts, kind: type[Any] = Worker) -> None:
        self._settings, self._cpus, self._facts = settings, cpus, facts
        size = actor_size(cpus, settings.gpus)
        self._class = ray.remote(max_restarts=0, concurrency_groups={"seen": 1}, **size)(kind)
        self._flags = ["--job-threads", str(cpus)]
        if not settings.gpus:
            self._flags += ["--device", "cpu"]
        self._slots: list[_Slot] = []
        self._looked = 0.0
        self._lonely = time.monotonic()
        # How often a worker did not start, by node, and why the last one was lost.
        self._failures: collections.Counter[str] = collections.Counter()
        self._why = ""
        self.version = ""

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for slot in self._slots:
            with contextlib.suppress(RayError):
                ray.kill(slot.actor)
        self._slots.clear()

    @property
    def ready(self) -> int:
        """How many can take jobs."""
        return sum(slot.ready for slot in self._slots)

    def start(self, count: int = 1) -> None:
        """Returns once so many of them are there."""
        for _ in self._turns(lambda: self.ready < count):
            pass

    def run(
        self, jobs: Sequence[Solve], order: Sequence[int], on_progress: Callable[[int, Progress], None]
    ) -> Iterator[tuple[int, Done]]:
        """(index, outcome) of every job, as they end. Idle workers take the next of `order`. The job of a
        lost worker is the next one. An error comes last: jobs with a lower index get a moment for theirs,
        since a weight that is no number makes the inputs of matrices after it such.

        Raises:
            Aborted (WORKER_LOST): a job has lost max_attempts workers.
            Unavailable (UNREACHABLE): no node has had room for a worker for five minutes.
        """
        waiting, left = collections.deque(order), set(order)
        lost: collections.Counter[int] = collections.Counter()
        failed: dict[int, Done] = {}
        latest = math.inf
        self._drop_dead()
        for slot, done in self._turns(lambda: bool(left)):
            if slot is not None and slot.job is not None:
                job, slot.job = slot.job, None
                if done is None or isinstance(done.error, Unavailable):
                    if done is not None:  # its server is gone
                        self._drop(slot, f"{done.error} {done.log[-500:]}")
                    lost[job] += 1
                    self._facts.retries += 1
                    self._check_attempts(jobs[job], lost[job], slot)
                    waiting.appendleft(job)
                else:
                    left.discard(job)
                    if done.error is None:
                        yield job, done
                    else:
                        failed[job] = done
                        latest = min(latest, time.monotonic() + _MOMENT)
                        waiting = collections.deque(sorted(index for index in waiting if index < min(failed)))
            if failed and (time.monotonic() > latest or all(index > min(failed) for index in left)):
                yield min(failed), failed[min(failed)]
                return
            self._hand_out(jobs, waiting)
            self._poll(jobs, on_progress)

    def _hand_out(self, jobs: Sequence[Solve], waiting: collections.deque[int]) -> None:
        for idle in self._slots:
            if idle.ready and idle.running is None and waiting:
                idle.job = waiting.popleft()
                job = jobs[idle.job]
                idle.running = idle.actor.solve.options(name=f"solve {job.name}").remote(job)

    def _check_attempts(self, job: Solve, lost: int, slot: _Slot) -> None:
        if lost >= self._settings.max_attempts:
            raise errors.refuse(
                grpc.StatusCode.ABORTED,
                "WORKER_LOST",
                f"{job.name}: {lost} workers ended while they solved it (max_attempts), the last one on node "
                f"{self._facts.name(slot.node)}: {self._why}",
            )

    def _turns(self, wanted: Callable[[], bool]) -> Iterator[tuple[_Slot | None, Done | None]]:
        """As long as something is wanted: slots that have ended what they were at, with the outcome (None:
        the worker is lost), and (None, None) from time to time.
        """
        self._lonely = time.monotonic()  # samples may have passed a block for long; nobody looked meanwhile
        while wanted():
            self._adjust()
            pending = {slot.running: slot for slot in self._slots if slot.running is not None}
            if not pending:
                if not self._slots:
                    time.sleep(_LOOK / 4)
                yield None, None
                continue
            what = "jobs" if any(slot.job is not None for slot in self._slots) else "workers"
            started = time.monotonic()
            ready, _ = ray.wait(list(pending), num_returns=1, timeout=_LOOK)
            self._facts.waited[what] += time.monotonic() - started
            if not ready:
                yield None, None
            for ref in ready:
                yield pending[ref], self._ended(pending[ref], ref)

    def _ended(self, slot: _Slot, ref: Any) -> Done | None:
        """What a worker gave; None: it is lost, or it has just started, or could not."""
        slot.running = None
        try:
            found = ray.get(ref)
        except RayError as error:
            cause: BaseException = error
            while isinstance(cause, RayTaskError):
                cause = cause.cause
            if slot.job is not None and not isinstance(cause, RayError):
                raise  # a fault of the program; another worker would meet it, too
            self._facts.lost_workers += 1
            self._drop(slot, str(cause), starting=not slot.ready)
            return None
        if isinstance(found, Started):
            slot.ready, self.version = True, found.version
            self._facts.worker(slot.node, found.processor)
            return None
        if slot.job is None:  # it has not
            self._drop(slot, str(found.error), starting=True)
            if self.ready == 0 and not self._slots:
                assert found.error is not None
                raise found.error.with_message(f"node {self._facts.name(found.node)}: {found.error.message}")
            return None
        return found if isinstance(found, Done) else None

    def _drop(self, slot: _Slot, why: str, starting: bool = False) -> None:
        with contextlib.suppress(RayError):
            ray.kill(slot.actor)
        if slot in self._slots:
            self._slots.remove(slot)
        self._why = why[-1000:]
        self._failures[slot.node] += starting
        self._looked = 0.0

    def _drop_dead(self) -> None:
        """Workers that were lost while no job ran, without counting it against a job."""
        asked = {
            slot.actor.seen.remote(): slot for slot in self._slots if slot.ready and slot.running is None
        }
        ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=_LOOK) if asked else ([], [])
        for ref in ready:
            try:
                ray.get(ref)
            except RayError as error:
                self._facts.lost_workers += 1
                self._drop(asked[ref], str(error))

    def _adjust(self) -> None:
        """As many actors on each node as there is room for, also on one that joins."""
        now = time.monotonic()
        if self.ready:
            self._lonely = now
        if now - self._lonely > session.WORKER_PATIENCE:
            gpus = f" and {self._settings.gpus} GPU" if self._settings.gpus else ""
            raise errors.refuse(
                grpc.StatusCode.UNAVAILABLE,
                "UNREACHABLE",
                f"no node of the Ray cluster has had room for a worker of {self._cpus} CPUs{gpus} for "
                f"{session.WORKER_PATIENCE:.0f} s; the last one said: {self._why or 'nothing'}",
            )
        if now - self._looked < _LOOK:
            return
        self._looked = now
        room = slots(self._cpus, self._settings.gpus)
        for slot in [slot for slot in self._slots if slot.node not in room and slot.job is None]:
            self._drop(slot, f"node {slot.node[:8]} is gone")
        there = collections.Counter(slot.node for slot in self._slots)
        left = (self._settings.workers or sum(room.values())) - len(self._slots)
        while left > 0:
            open_nodes = [
                node
                for node, fit in room.items()
                if there[node] < fit and self._failures[node] < self._settings.max_attempts
            ]
            if not open_nodes:
                break
            node = min(open_nodes, key=there.__getitem__)
            there[node] += 1
            left -= 1
            on = NodeAffinitySchedulingStrategy(node, soft=False)
            actor = self._class.options(scheduling_strategy=on).remote(environment(), self._flags)
            self._slots.append(_Slot(actor, node, actor.start.remote()))

    def _poll(self, jobs: Sequence[Solve], on_progress: Callable[[int, Progress], None]) -> None:
        for slot in self._slots:
            if slot.seen is not None:
                try:
                    found = ray.get(slot.seen, timeout=0)
                except GetTimeoutError:
                    continue
                except RayError:
                    found = None
                if found is not None and slot.job is not None and found[0] == jobs[slot.job].name:
                    on_progress(slot.job, found[1])
            slot.seen = slot.actor.seen.remote() if slot.job is not None else None
