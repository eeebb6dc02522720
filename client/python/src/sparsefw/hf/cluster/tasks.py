"""What nodes compute of the samples' way through a block. Every task is a function of its arguments alone, so
that Ray can run it again on another node, to the same bits. Each gives a tuple, and what it cost (Spent).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch

from sparsefw._cluster.stored import Stored
from sparsefw.hf.calibration.capture import Call
from sparsefw.hf.calibration.grams import Group, find_groups, sum_shard, sum_squares
from sparsefw.hf.cluster.metered import fetch, metered
from sparsefw.hf.cluster.objects import arrays_of, attach, own_copy, stored, tensor_of
from sparsefw.hf.layout import Block
from sparsefw.hf.source import apply, packed
from sparsefw.hf.training.refine import BlockRefinement, refine_block

Outcome = Mapping[str, Stored] | None
Rows = tuple[int, int]
# Strips of a Gram matrix, at most, and bytes of one in float32, at least.
_STRIPS: Final = 16
_STRIP_BYTES: Final = 32 << 20


@dataclasses.dataclass(frozen=True)
class BlockArguments:
    """What every task on a block gets.

    Attributes:
        block:   the skeleton of the module; its tensors follow as arguments.
        tensors: how many these are. Tensors of calls come after them.
        calls:   the skeleton of the calls of a shard, or of every shard.
        threads: of PyTorch.
        device:  "cpu" or "cuda".
    """

    block: bytes
    layout: Block
    tensors: int
    calls: tuple[bytes, ...]
    threads: int
    device: str


def _at_work(function: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """With as many threads as the plan says, without gradients, and metered."""

    @metered
    @functools.wraps(function)
    def run(work: BlockArguments, *args: Any) -> tuple[Any, ...]:
        torch.set_num_threads(work.threads)
        with torch.no_grad():
            return function(work, *args)

    return run


def _block(work: BlockArguments, outcome: Outcome, arrays: Sequence[Stored], trained: bool = False) -> Any:
    """The module, with the outcome of its jobs.

    Args:
        trained: it will be written to.
    """
    own = trained or outcome is not None
    tensors = [(own_copy if own else tensor_of)(array).to(work.device) for array in arrays[: work.tensors]]
    block = attach(work.block, tensors)
    if outcome is not None:
        apply(block, work.layout, {name: tensor_of(value) for name, value in outcome.items()})
    return block


def _calls(work: BlockArguments, skeleton: bytes, arrays: Sequence[Stored]) -> list[Call]:
    found: list[Call] = attach(skeleton, [own_copy(array).to(work.device) for array in arrays])
    return found


class _Samples:
    """Tensors of a list of arrays, one at a time."""

    def __init__(self, values: Sequence[Stored], device: str) -> None:
        self._values, self._device = values, device

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int) -> Any:
        # A block may write to its inputs, and others read the same object.
        return own_copy(self._values[index]).to(self._device)


@_at_work
def groups(work: BlockArguments, shard: Sequence[Stored], *arrays: Stored) -> tuple[list[Group]]:
    """Which matrices share a Gram matrix, by the first sample."""
    block = _block(work, None, arrays)
    calls = _calls(work, work.calls[0], arrays[work.tensors :])
    return (find_groups(block, work.layout, _Samples(shard, work.device)[0], calls[0]),)


def strips_of(columns: int) -> list[Rows]:
    """Rows of a Gram matrix that are added together; several nodes add large matrices."""
    count = min(_STRIPS, max(1, columns * columns * 4 // _STRIP_BYTES))
    bounds = [columns * index // count for index in range(count + 1)]
    return list(itertools.pairwise(bounds))


@_at_work
def gram(
    work: BlockArguments,
    of: Sequence[Group],
    strips: Sequence[tuple[str, Rows]],
    shard: Sequence[Stored],
    *arrays: Stored,
) -> tuple[Any, ...]:
    """The sums of a shard: (rows of the sum in float32, tokens) for every strip, which has the key of its
    group.
    """
    block = _block(work, None, arrays)
    calls = _calls(work, work.calls[0], arrays[work.tensors :])
    sums = sum_shard(block, of, _Samples(shard, work.device), calls, range(len(shard)))
    found: list[Any] = []
    for key, of_group in itertools.groupby(strips, key=lambda strip: strip[0]):
        total = sums.pop(key)  # in float64, which goes before the strips of the next are made
        found += [(total.rows(*rows).cpu().numpy(), total.tokens) for _, rows in of_group]
    return tuple(found)


@_at_work
def squares(
    work: BlockArguments, of: Sequence[Group], shard: Sequence[Stored], *arrays: Stored
) -> tuple[dict[str, Any], list[Stored]]:
    """(the sums of the squares of a shard, by key of the group; what the block makes of the shard)"""
    block = _block(work, None, arrays)
    calls = _calls(work, work.calls[0], arrays[work.tensors :])
    made: list[Stored] = []
    samples = _Samples(shard, work.device)
    sums = sum_squares(block, of, samples, calls, range(len(shard)), lambda _, out: made.append(stored(out)))
    return {key: part.cpu() for key, part in sums.items()}, made


@metered
def add(first: int, parts: Sequence[Any]) -> tuple[Stored, int]:
    """(a strip of the Gram matrix, its tokens; 0 where its part of the diagonal is 0). Parts are added in
    float64 in their order, one in memory at a time.

    Args:
        first: row of the strip.
    """
    total, tokens = None, 0
    for part in parts:
        values, count = fetch(part)
        if total is None:
            total = values.astype(np.float64)
        else:
            total += values
        tokens += count
    assert total is not None
    return stored(torch.from_numpy(total).float()), tokens if np.diagonal(total, first).any() else 0


@metered
def collect(*samples: Stored) -> tuple[list[Stored]]:
    """A shard of samples that the driver has put one by one."""
    return (list(samples),)


@_at_work
def forward(
    work: BlockArguments, outcome: Outcome, shard: Sequence[Stored], *arrays: Stored
) -> tuple[list[Stored]]:
    """What the block makes of a shard."""
    block = _block(work, outcome, arrays)
    calls = _calls(work, work.calls[0], arrays[work.tensors :])
    samples = _Samples(shard, work.device)
    return ([stored(call.run(block, samples[index])) for index, call in enumerate(calls)],)


class _Stream:
    """Hidden states of all shards; those of one are here at a time."""

    def __init__(self, shards: Sequence[Any], sizes: Sequence[int], device: str) -> None:
        self._shards, self._device = shards, device
        self._where = [(shard, place) for shard, size in enumerate(sizes) for place in range(size)]
        self._number, self._values = -1, list[Stored]()

    def __len__(self) -> int:
        return len(self._where)

    def __getitem__(self, index: int) -> Any:
        shard, place = self._where[index]
        if shard != self._number:
            self._values = fetch(self._shards[shard])
            self._number = shard
        return own_copy(self._values[place]).to(self._device)


@_at_work
def refine(
    work: BlockArguments,
    settings: BlockRefinement,
    outcome: Outcome,
    streams: Sequence[Sequence[Any]],
    call_tensors: Sequence[Sequence[Any]],
    seen: Any,
    *arrays: Stored,
) -> tuple[dict[str, Any], dict[str, Stored] | None]:
    """(record, the block's tensors; None: they are as before) after refinement.

    Args:
        streams: objects of the shards of the block's inputs, and of its targets.
        call_tensors: objects of the tensors in the calls of every shard.
        seen: an actor that is told of every epoch.
    """
    block = _block(work, outcome, arrays, trained=True)
    calls = [
        _calls(work, skeleton, [fetch(tensor) for tensor in tensors])
        for skeleton, tensors in zip(work.calls, call_tensors, strict=True)
    ]
    sizes = [len(of_shard) for of_shard in calls]
    hidden, targets = (_Stream(shards, sizes, work.device) for shards in streams)
    record = refine_block(
        block,
        work.layout,
        hidden,
        targets,
        [call for of_shard in calls for call in of_shard],
        settings,
        lambda epoch, error: seen.tell.remote((epoch, error)),
    )
    if record["epoch"] == 0:
        return record, None
    return record, arrays_of(packed(block, work.layout))
