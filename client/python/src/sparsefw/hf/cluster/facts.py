"""What a run did on a cluster, for the report and the progress bar."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import ray
from ray.exceptions import RayError

from sparsefw.hf.cluster.metered import Spent
from sparsefw.hf.cluster.session import nodes


@dataclasses.dataclass
class Tasks:
    """Tasks of one kind on one node: count, seconds, and bytes of what they read, wherever it was."""

    tasks: int = 0
    seconds: float = 0.0
    read: int = 0


@dataclasses.dataclass
class Node:
    """What one node did.

    Attributes:
        address: of the node.
        processor: its type.
        pytorch: PyTorch's path for it, "" where no task ran.
        workers: that started there.
        jobs:    that ended there, in `seconds`.
        gram_bytes: of Gram matrices that its workers read; each node gets a matrix once, its other workers
                 read that copy (gram_copies).
        gram_seconds: until they were there and with the server.
        calibration: by kind of task: "collect", "groups", "gram" (partial sums), "add", "squares"
                 (allocation="owl"), "forward", "refine". A task that Ray ran again counts once.
    """

    address: str
    processor: str = ""
    pytorch: str = ""
    workers: int = 0
    jobs: int = 0
    seconds: float = 0.0
    gram_bytes: int = 0
    gram_copies: int = 0
    gram_seconds: float = 0.0
    calibration: dict[str, Tasks] = dataclasses.field(default_factory=dict)


class Facts:
    """Counters of one run.

    Attributes:
        waited: seconds that the driver waited, by what for.
        retries: jobs that ran again, since their worker was lost.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.waited: dict[str, float] = collections.defaultdict(float)
        self.lost_workers = self.retries = 0
        self._grams: set[tuple[str, str]] = set()
        # What started tasks cost, by the object that will say so; the value is the kind of task.
        self._spent: dict[Any, str] = {}

    def worker(self, node: str, processor: str) -> None:
        """A worker has started there."""
        of = self._node(node)
        of.workers += 1
        of.processor = processor

    def task(self, kind: str, spent: Any) -> None:
        """A task has started. `spent`: the object that will be its Spent."""
        self._spent[spent] = kind

    def read_tasks(self, timeout: float = 0.0) -> None:
        """Counts the tasks that have ended, within so many seconds."""
        if not self._spent:
            return
        ended, _ = ray.wait(
            list(self._spent), num_returns=len(self._spent), timeout=timeout, fetch_local=False
        )
        for ref in ended:
            kind = self._spent.pop(ref)
            try:
                spent: Spent = ray.get(ref)
            except RayError:  # of a task that failed
                continue
            of = self._node(spent.node)
            of.processor, of.pytorch = spent.processor, spent.pytorch
            tasks = of.calibration.setdefault(kind, Tasks())
            tasks.tasks += 1
            tasks.seconds += spent.seconds
            tasks.read += spent.read

    def job(self, node: str, key: str, seconds: float, gram_bytes: int, gram_seconds: float) -> None:
        """A job has ended there. `key`: of its Gram matrix, in this run."""
        of = self._node(node)
        of.jobs += 1
        of.seconds += seconds
        of.gram_seconds += gram_seconds
        if gram_bytes and (node, key) not in self._grams:
            self._grams.add((node, key))
            of.gram_bytes += gram_bytes
        elif gram_bytes:
            of.gram_copies += 1

    def name(self, node: str) -> str:
        """For people."""
        return f"{self._node(node).address} ({node[:8]})" if node else "that is not known"

    def _node(self, node: str) -> Node:
        if node not in self.nodes:
            addresses = {there["NodeID"]: there["NodeManagerAddress"] for there in nodes()}
            self.nodes[node] = Node(str(addresses.get(node, "unknown")))
        return self.nodes[node]

    def to_dict(self, sent: collections.Counter[str]) -> dict[str, Any]:
        """For the report. `sent`: bytes that the driver put into the object store, by kind."""
        return {
            "nodes": {node: dataclasses.asdict(of) for node, of in self.nodes.items()},
            "sent": dict(sent),
            "waited": dict(self.waited),
            "lost_workers": self.lost_workers,
            "retries": self.retries,
        }

    def __str__(self) -> str:
        received = sum(node.gram_bytes for node in self.nodes.values())
        return f"{len(self.nodes)} nodes, {received / 1e9:.1f} GB"
