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
from ray.exceptions import GetTimeoutError, RayError

from sparsefw import errors
from sparsefw.errors import Error, Unavailable
from sparsefw.hf.cluster.facts import Facts
from sparsefw.hf.cluster.session import actor_size, environment, slots
from sparsefw.hf.cluster.settings import Ray
from sparsefw.hf.cluster.worker import Done, Solve, Worker
from sparsefw.results import Progress

# Seconds between two looks at the cluster's nodes and at running jobs.
_LOOK: Final = 1.0
# Seconds without a single worker after which the run gives up.
_PATIENCE: Final = 300.0
# Seconds for the errors of other jobs, once one has failed.
_MOMENT: Final = 2.0


@dataclasses.dataclass(eq=False)
class _Slot:
    """An actor. `running`: the object that it is to give; `seen`: its last report, on its way."""

    actor: Any
    running: Any
    job: int | None = None
    node: str = ""
    seen: Any = None


class Workers:
    """A context manager. At its end the actors end, and their servers with them.

    Attributes:
        slots: the actors. One has a node once its server listens.
    """

    def __init__(self, settings: Ray, cpus: int, facts: Facts, kind: type[Any] = Worker) -> None:
        self._settings, self._cpus, self._facts = settings, cpus, facts
        size = actor_size(cpus, settings.gpus)
        self._class = ray.remote(max_restarts=0, concurrency_groups={"seen": 1}, **size)(kind)
        self._flags = ["--job-threads", str(cpus)]
        if not settings.gpus:
            self._flags += ["--device", "cpu"]
        self.slots: list[_Slot] = []
        self._looked = 0.0
        self._lonely = time.monotonic()
        self.version = ""

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for slot in self.slots:
            with contextlib.suppress(RayError):
                ray.kill(slot.actor)
        self.slots.clear()

    def start(self) -> None:
        """Returns once one of them is there."""
        for _ in self._turns(lambda: not any(slot.node for slot in self.slots)):
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
        for slot, done in self._turns(lambda: bool(left)):
            if slot is not None and slot.job is not None:
                job, slot.job = slot.job, None
                if done is None or isinstance(done.error, Unavailable):
                    lost[job] += 1
                    self._facts.retries += 1
                    self._check_attempts(jobs[job], lost[job], slot, done)
                    waiting.appendleft(job)
                    if done is not None:  # its server is gone
                        self._drop(slot)
                else:
                    left.discard(job)
                    if done.error is None:
                        yield job, done
                    else:
                        failed[job] = done
                        latest = min(latest, time.monotonic() + _MOMENT)
            if failed:
                first = min(failed)
                waiting = collections.deque(sorted(index for index in waiting if index < first))
                if time.monotonic() > latest or all(index > first for index in left):
                    yield first, failed[first]
                    return
            self._hand_out(jobs, waiting)
            self._poll(on_progress)

    def _hand_out(self, jobs: Sequence[Solve], waiting: collections.deque[int]) -> None:
        for idle in self.slots:
            if idle.running is None and waiting:
                idle.job = waiting.popleft()
                job = jobs[idle.job]
                idle.running = idle.actor.solve.options(name=f"solve {job.name}").remote(job)

    def _check_attempts(self, job: Solve, lost: int, slot: _Slot, done: Done | None) -> None:
        if lost < self._settings.max_attempts:
            return
        last = f"the last one on node {self._facts.name(slot.node)}"
        if done is not None and done.error is not None:
            last += f": {done.error.message} {done.log[-500:]}"
        raise errors.refuse(
            grpc.StatusCode.ABORTED,
            "WORKER_LOST",
            f"{job.name}: {lost} workers ended while they solved it (max_attempts), {last}",
        )

    def _turns(self, wanted: Callable[[], bool]) -> Iterator[tuple[_Slot | None, Done | None]]:
        """As long as something is wanted: slots that have ended what they were at, with the outcome (None:
        the worker is lost), and (None, None) from time to time.
        """
        while wanted():
            self._adjust()
            pending = {slot.running: slot for slot in self.slots if slot.running is not None}
            if not pending:
                if not self.slots:
                    time.sleep(_LOOK / 4)
                yield None, None
                continue
            started = time.monotonic()
            ready, _ = ray.wait(list(pending), num_returns=1, timeout=_LOOK)
            if any(slot.job is not None for slot in self.slots):
                self._facts.waited["jobs"] += time.monotonic() - started
            else:
                self._facts.waited["workers"] += time.monotonic() - started
            if not ready:
                yield None, None
            for ref in ready:
                yield from self._ended(pending[ref], ref)

    def _ended(self, slot: _Slot, ref: Any) -> Iterator[tuple[_Slot, Done | None]]:
        slot.running = None
        try:
            found = ray.get(ref)
        except RayError:
            self._facts.lost_workers += 1
            self._drop(slot)
            yield slot, None
            return
        if isinstance(found, tuple):  # it has started
            slot.node, self.version = found
            self._facts.worker(slot.node)
        elif slot.job is None:  # it has not
            assert found.error is not None
            error: Error = found.error
            raise error.with_message(f"node {self._facts.name(found.node)}: {error.message}")
        yield slot, found if isinstance(found, Done) else None

    def _drop(self, slot: _Slot) -> None:
        with contextlib.suppress(RayError):
            ray.kill(slot.actor)
        if slot in self.slots:
            self.slots.remove(slot)
        self._looked = 0.0

    def _adjust(self) -> None:
        """As many actors as there is room for; what does not fit waits for a node that joins."""
        now = time.monotonic()
        if any(slot.node for slot in self.slots):
            self._lonely = now
        if now - self._lonely > _PATIENCE:
            gpus = f" and {self._settings.gpus} GPU" if self._settings.gpus else ""
            raise errors.refuse(
                grpc.StatusCode.UNAVAILABLE,
                "UNREACHABLE",
                f"no node of the Ray cluster has had room for a worker of {self._cpus} CPUs{gpus} for "
                f"{_PATIENCE:.0f} s",
            )
        if now - self._looked < _LOOK:
            return
        self._looked = now
        wanted = self._settings.workers or slots(self._cpus, self._settings.gpus)
        for _ in range(wanted - len(self.slots)):
            actor = self._class.options(scheduling_strategy="SPREAD").remote(environment(), self._flags)
            self.slots.append(_Slot(actor, actor.start.remote()))

    def _poll(self, on_progress: Callable[[int, Progress], None]) -> None:
        for slot in self.slots:
            if slot.seen is not None:
                try:
                    found = ray.get(slot.seen, timeout=0)
                except GetTimeoutError:
                    continue
                except RayError:
                    found = None
                if found is not None and slot.job is not None:
                    on_progress(slot.job, found)
            slot.seen = slot.actor.seen.remote() if slot.job is not None else None
