"""The samples' way through a model by tasks of a Ray cluster."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from sparsefw._cluster.stored import Stored, joined
from sparsefw.hf.calibration.capture import Call, tuple_length
from sparsefw.hf.calibration.grams import Group, add_squares, shards_of
from sparsefw.hf.calibration.step import Refined, Step
from sparsefw.hf.calibration.walk import calls_of
from sparsefw.hf.cluster import tasks
from sparsefw.hf.cluster.objects import Detached, arrays_of, own_copy
from sparsefw.hf.layout import Block
from sparsefw.hf.source import Source, apply
from sparsefw.hf.training.refine import BlockRefinement

if TYPE_CHECKING:
    from sparsefw.hf.cluster.pool import RayPool

# Hidden states of so many blocks can be made again from what the driver has put. Then it puts them anew: what
# it keeps for that does not grow with the model.
_LINEAGE: Final = 8
# Times that Ray runs a task again after it has lost its node or its outcome.
_RETRIES: Final = 20


@dataclasses.dataclass(frozen=True)
class RemoteGram:
    """A Gram matrix that is in the object store, in strips of rows."""

    strips: tuple[Any, ...]

    def fetch(self) -> Any:
        """The matrix, float32 [d_in, d_in]."""
        matrix = joined(self.strips)
        return torch.from_numpy(matrix if matrix.flags.writeable else matrix.copy())


def walk(
    pool: RayPool, source: Source, samples: Sequence[Any], folder: Path, layout: Sequence[Block], streams: int
) -> Iterator[Step]:
    """As sparsefw.hf.calibration.walk.walk. Hidden states are objects, one a shard; `folder` is not used."""
    shards = shards_of(len(samples))
    kept: list[Any] = []  # what hidden states can be made from again
    roots: list[Any] = []
    taken: list[Any] = []

    def take(hidden: Any) -> None:
        # One by one: all of a shard may be more than this process should hold.
        taken.append(pool.objects.put(hidden, "hidden"))
        if len(taken) == len(shards[len(roots)]):
            name = f"shard {len(roots)}"
            roots.append(pool.start(tasks.collect, name, *taken, retries=_RETRIES, gpu=False))
            kept.append(list(taken))
            taken.clear()
            _trim()

    calls = calls_of(source, samples, layout[-1].index, take)
    hidden = [list(roots) for _ in range(streams)]
    for number, of_block in enumerate(layout, 1):
        of_this = calls[of_block.index]
        with source.block(of_block.index) as block:
            step = RayStep(pool, of_block, block, hidden, of_this, shards)
            kept.append(step)
            yield step
        step.let_go()
        of_this.clear()
        if number % _LINEAGE == 0 and of_block is not layout[-1]:
            hidden = [[_again(pool, ref) for ref in stream] for stream in hidden]
            kept = [list(stream) for stream in hidden]


def _trim() -> None:
    """Gives freed memory back to the system. Ray's small objects lie between the freed pieces, so glibc would
    keep these, and the next sample would take new memory.
    """
    with contextlib.suppress(AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _again(pool: RayPool, ref: Any) -> Any:
    return pool.objects.put_samples(pool.get(ref, "hidden states"))


class RayStep(Step):
    """A block whose samples are in the object store, shard by shard. It keeps what its tasks were given for
    as long as it lives: with these Ray makes lost objects again.
    """

    def __init__(
        self,
        pool: RayPool,
        layout: Block,
        block: Any,
        streams: list[list[Any]],
        calls: Sequence[Call],
        shards: Sequence[range],
    ) -> None:
        self.layout, self.block = layout, block
        self._pool, self._streams = pool, streams
        self._first = calls[0]
        self._calls = [pool.objects.detach_calls([calls[index] for index in shard]) for shard in shards]
        self._block = pool.put_block(block, layout)
        self._outcome: Any = None

    def _work(self, *calls: Detached) -> tasks.BlockArguments:
        return tasks.BlockArguments(
            self._block.skeleton,
            self.layout,
            len(self._block.tensors),
            tuple(of_shard.skeleton for of_shard in calls),
            self._pool.threads,
            self._pool.device,
        )

    def _on_shard(self, function: Any, shard: int, *args: Any, returns: int = 1) -> Any:
        calls = self._calls[shard]
        name = f"{function.__name__} {self.layout.name} shard {shard}"
        arrays = (*self._block.tensors, *calls.tensors)
        work = self._work(calls)
        return self._pool.start(function, name, work, *args, *arrays, returns=returns, retries=_RETRIES)

    def groups(self) -> list[Group]:
        found: list[Group] = self._pool.get(
            self._on_shard(tasks.groups, 0, self._streams[0][0]), "activations"
        )
        return found

    def grams(self, groups: Sequence[Group]) -> Iterator[tuple[Group, Any, int]]:
        strips = [(group, rows) for group in groups for rows in tasks.strips_of(group.columns)]
        named = [(group.key, rows) for group, rows in strips]
        parts = [
            self._on_shard(
                tasks.gram, shard, list(groups), named, self._streams[0][shard], returns=len(strips)
            )
            for shard in range(len(self._calls))
        ]
        flat = parts if len(strips) == 1 else [ref for of_shard in parts for ref in of_shard]
        # A task that begins before its parts are there would only hold a process.
        self._pool.wait(flat, "activations")
        of_strips = [parts] if len(strips) == 1 else list(zip(*parts, strict=True))
        sums: dict[str, list[Any]] = {group.key: [] for group in groups}
        for (group, rows), of_strip in zip(strips, of_strips, strict=True):
            name = f"add {group.key} rows {rows[0]}-{rows[1]}"
            added = self._pool.start(
                tasks.add, name, rows[0], list(of_strip), returns=2, retries=_RETRIES, gpu=False
            )
            sums[group.key].append(added)
        for group in groups:
            matrix = RemoteGram(tuple(strip for strip, _ in sums[group.key]))
            tokens = max(self._pool.get(count, "activations") for _, count in sums[group.key])
            yield group, matrix if tokens else torch.eye(group.columns, dtype=torch.float32), tokens

    def squares(self, groups: Sequence[Group]) -> dict[str, Any]:
        before = self._streams[0]
        both = [
            self._on_shard(tasks.squares, shard, list(groups), before[shard], returns=2)
            for shard in range(len(before))
        ]
        self._streams[0] = [after for _, after in both]
        return add_squares(self._pool.get(part, "activations") for part, _ in both)

    def apply(self, tensors: Mapping[str, Any]) -> None:
        self._outcome = self._pool.put_outcome(arrays_of(dict(tensors)))
        apply(self.block, self.layout, tensors)

    def refine(self, settings: BlockRefinement, on_epoch: Callable[[int, float], None]) -> Refined:
        found, arrays = self._pool.refine(
            f"refine {self.layout.name}",
            on_epoch,
            self._work(*self._calls),
            settings,
            self._outcome,
            [list(stream) for stream in self._streams],
            [list(calls.tensors) for calls in self._calls],
            self._pool.seen(),
            *self._block.tensors,
        )
        if found["epoch"] == 0:
            return found, None
        tensors = {name: own_copy(value) for name, value in self._pool.get(arrays, "refinement").items()}
        # Put anew: a node that is lost must not cost the refinement again.
        self.apply(tensors)
        return found, tensors

    def advance(self, stream: int = 0) -> None:
        before = self._streams[stream]
        self._streams[stream] = [
            self._on_shard(tasks.forward, shard, self._outcome, before[shard]) for shard in range(len(before))
        ]

    def end(self, stream: int) -> None:
        self._streams[stream] = []

    def hidden(self, stream: int = 0) -> Iterator[Any]:
        for ref in self._streams[stream]:
            yield from map(own_copy, self._pool.get(ref, "hidden states"))

    def tuple_length(self) -> int:
        first: Sequence[Stored] = self._pool.get(self._streams[0][0], "hidden states")
        with torch.no_grad():
            device = next(self.block.parameters()).device
            return tuple_length(self.block, own_copy(first[0]).to(device), self._first)

    def let_go(self) -> None:
        """The block is not loaded any more."""
        self.block = None
