"""Matrices to prune, the ranges of rows that are jobs of their own, and what becomes of their results."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import torch

from sparsefw.hf.calibration.step import Step
from sparsefw.hf.layout import Block, Matrix
from sparsefw.hf.settings import method_name
from sparsefw.hf.source import Source
from sparsefw.results import Event, Result
from sparsefw.sweep_results import SweepResult

UNSEEN: Final = "no token of the calibration reached it; pruned by magnitude"
# [first, last + 1)
Rows = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Task:
    """One matrix to prune.

    Attributes:
        gram:    key of its Gram matrix in the pool.
        options: of the job (sparsefw.JobOptions).
        note:    why these are not the ones that were asked for, or "".
    """

    matrix: Matrix
    weight: Any
    gram: str
    options: Mapping[str, Any]
    note: str = ""

    @property
    def pattern(self) -> str:
        """That of its job."""
        return str(self.options.get("pattern") or "per-row")


@dataclasses.dataclass(frozen=True)
class Solved:
    """The outcome of a task.

    Attributes:
        mask:   bool [rows, columns], True = keep.
        weight: new weights in the dtype of the old ones, or None.
        record: facts for the report.
    """

    matrix: Matrix
    mask: Any
    weight: Any
    record: dict[str, Any]


class Pool(Protocol):
    """Where the samples' way through the blocks is computed, Gram matrices are held and jobs run. A context
    manager.
    """

    def walk(
        self, source: Source, samples: Sequence[Any], folder: Path, layout: Sequence[Block], streams: int = 1
    ) -> Iterator[Step]:
        """As sparsefw.hf.calibration.walk.walk."""
        ...

    def facts(self) -> dict[str, Any] | None:
        """For the report: what the machines did; None where it is not known."""
        ...

    def __enter__(self) -> Pool: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None: ...

    @property
    def version(self) -> str:
        """The versions of the servers, each once."""
        ...

    def add_gram(self, key: str, matrix: Any, tokens: int) -> None:
        """Takes a Gram matrix, float32 [d_in, d_in], or what a Step of this pool gives in its place."""
        ...

    def drop_grams(self) -> None:
        """Removes those that were added."""
        ...

    def solve(self, tasks: Sequence[Task], on_event: Callable[[Task, Event], None]) -> Iterator[Solved]:
        """Runs the tasks in parallel; yields them in their order."""
        ...

    def sweep(
        self, tasks: Sequence[Task], sparsities: Sequence[float]
    ) -> Iterator[tuple[Task, list[dict[str, float]]]]:
        """For every task, in their order: (sparsity, loss) of one sweep on its Gram matrix."""
        ...


def task_of(matrix: Matrix, weight: Any, gram: str, options: Mapping[str, Any], tokens: int) -> Task:
    """The task of a matrix.

    Args:
        tokens: those that the Gram matrix is the sum of; 0 where it is the identity.
    """
    if tokens > 0:
        return Task(matrix, weight, gram, options)
    # An expert that nothing was routed to: with the identity for a Gram matrix, the best mask is that of the
    # largest weights, and no new weights are better.
    keep = {key: options[key] for key in ("pattern", "sparsity", "device") if key in options}
    return Task(matrix, weight, gram, {**keep, "method": "magnitude"}, UNSEEN)


def parts_of(task: Task, split_above: int) -> list[Rows]:
    """Ranges of rows that are jobs of their own: as many as it takes for none to have more than about
    `split_above` weights. Rows are independent but with "unstructured".

    The shape alone decides, never the number of servers: a part has steps of its own, and so other bits
    than the whole.
    """
    rows, columns = task.matrix.rows, task.matrix.columns
    if task.pattern == "unstructured":
        return [(0, rows)]
    count = min(rows, max(1, -(-rows * columns // max(1, split_above))))
    bounds = [rows * index // count for index in range(count + 1)]
    return list(itertools.pairwise(bounds))


def cost(task: Task, rows: Rows) -> int:
    """What a step costs: rows times the square of the columns."""
    return (rows[1] - rows[0]) * task.matrix.columns**2


def merged_curves(tables: Sequence[SweepResult]) -> list[dict[str, float]]:
    """The curve of a matrix from those of its parts."""
    points = []
    for parts in zip(*tables, strict=True):
        for point in parts:
            if point.error is not None:
                raise point.error
        results = [point.result for point in parts if point.result is not None]
        full = sum(result.losses.full for result in results) or 1.0
        loss = sum(result.losses.result for result in results)
        points.append({"sparsity": float(parts[0].setting["sparsity"]), "loss": loss / full})
    return points


def merged(task: Task, parts: Sequence[Result]) -> Solved:
    """Rows are independent: losses and bounds of parts add up."""
    names = ("full", "warm_start", "relaxed", "rounded", "final", "lower_bound")
    losses: dict[str, Any] = {name: sum(getattr(part.losses, name) for part in parts) for name in names}
    new = [part.losses.reconstructed for part in parts]
    losses["reconstructed"] = sum(value for value in new if value is not None) if None not in new else None
    unshrunk = [part.losses.unshrunk for part in parts if part.losses.unshrunk is not None]
    if unshrunk:
        losses["unshrunk"] = {
            name: sum(getattr(part, name) for part in unshrunk) for name in ("full", "warm_start", "result")
        }
    weight = torch.cat([part.torch_weight() for part in parts]) if parts[0].has_weight else None
    kept = sum(part.kept for part in parts)
    shape = (task.matrix.rows, task.matrix.columns)
    record = {
        "name": task.matrix.name,
        "shape": list(shape),
        "method": method_name(task.options),
        "pattern": task.pattern,
        "kept": kept,
        "sparsity": 1 - kept / (shape[0] * shape[1]),
        "losses": losses,
        "iterations": max(part.iterations for part in parts),
        "swaps": sum(part.swaps for part in parts),
        "stop_reason": parts[0].stop_reason,
        "device": parts[0].device,
        "seconds": sum(part.timings.solve for part in parts),
        "parts": len(parts),
        "note": task.note,
    }
    return Solved(task.matrix, torch.cat([part.torch_mask() for part in parts]), weight, record)
