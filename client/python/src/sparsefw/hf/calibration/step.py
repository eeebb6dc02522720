"""One block on the samples' way through a model."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch

from sparsefw.hf.calibration.capture import Call, tuple_length
from sparsefw.hf.calibration.grams import (
    Group,
    add_squares,
    find_groups,
    run_block,
    shards_of,
    stream_inputs,
    sum_grams,
    sum_squares,
)
from sparsefw.hf.calibration.hidden import HiddenStates
from sparsefw.hf.layout import Block
from sparsefw.hf.source import apply, packed
from sparsefw.hf.training.refine import BlockRefinement, refine_block

# (what refinement found, the block's tensors after it; None: they are as before)
Refined = tuple[dict[str, Any], dict[str, Any] | None]


class Step(Protocol):
    """A block and the inputs of all samples, in one stream or two: stream 0 goes through the pruned blocks,
    stream 1 through the dense ones.

    Attributes:
        layout: of the block.
        block:  loaded, with the weights that it has so far.
    """

    layout: Block
    block: Any

    def groups(self) -> list[Group]:
        """Which of its matrices share a Gram matrix."""
        ...

    def grams(self, groups: Sequence[Group]) -> Iterator[tuple[Group, Any, int]]:
        """(group, Gram matrix for the pool, tokens in it), of stream 0; the identity and 0 where no token
        reached it.
        """
        ...

    def squares(self, groups: Sequence[Group]) -> dict[str, Any]:
        """Advances stream 0. By the key of a group: the sum of the squares of each of its inputs over the
        tokens, float64 [d_in]. Groups that no token reached are missing.
        """
        ...

    def apply(self, tensors: Mapping[str, Any]) -> None:
        """The block gets the outcome of its jobs."""
        ...

    def refine(self, settings: BlockRefinement, on_epoch: Callable[[int, float], None]) -> Refined:
        """Trains the block towards stream 1, which has gone through the dense block already."""
        ...

    def advance(self, stream: int = 0) -> None:
        """The block's outputs, with the weights that it has, replace the inputs of the stream."""
        ...

    def end(self, stream: int) -> None:
        """Lets the stream go: nothing reads it any more."""
        ...

    def hidden(self, stream: int = 0) -> Iterator[Any]:
        """The stream, sample by sample."""
        ...

    def tuple_length(self) -> int:
        """The length of what the block returns; 0: a tensor."""
        ...


class LocalStep(Step):
    """In this process."""

    def __init__(
        self, layout: Block, block: Any, streams: Sequence[HiddenStates], calls: Sequence[Call]
    ) -> None:
        self.layout, self.block, self.streams, self.calls = layout, block, streams, calls

    def item_bytes(self) -> int:
        """Bytes of a number of the hidden states."""
        return int(self.streams[0][0].element_size())

    def groups(self) -> list[Group]:
        with torch.no_grad():
            return find_groups(self.block, self.layout, self.streams[0][0], self.calls[0])

    def grams(self, groups: Sequence[Group]) -> Iterator[tuple[Group, Any, int]]:
        sums = sum_grams(self.block, groups, self.streams[0], self.calls)
        for group in groups:
            gram = sums.pop(group.key)
            tokens = 0 if gram.is_zero else gram.tokens
            matrix = torch.eye(group.columns, dtype=torch.float32) if gram.is_zero else gram.matrix()
            del gram
            yield group, matrix, tokens

    def squares(self, groups: Sequence[Group]) -> dict[str, Any]:
        hidden = self.streams[0]
        of_shards = (
            sum_squares(self.block, groups, hidden, self.calls, shard, hidden.__setitem__)
            for shard in shards_of(len(self.calls))
        )
        return add_squares(of_shards)

    def inputs(self, group: Group) -> Generator[Any, None, None]:
        """The group's inputs [tokens, d_in], sample by sample, of stream 0."""
        return stream_inputs(self.block, group, self.streams[0], self.calls)

    def apply(self, tensors: Mapping[str, Any]) -> None:
        apply(self.block, self.layout, tensors)

    def refine(self, settings: BlockRefinement, on_epoch: Callable[[int, float], None]) -> Refined:
        hidden, targets = self.streams
        record = refine_block(self.block, self.layout, hidden, targets, self.calls, settings, on_epoch)
        if record["epoch"] == 0:  # the block is as it was
            return record, None
        return record, packed(self.block, self.layout)

    def advance(self, stream: int = 0) -> None:
        run_block(self.block, self.streams[stream], self.calls)

    def end(self, stream: int) -> None:
        self.streams[stream].close()

    def hidden(self, stream: int = 0) -> Iterator[Any]:
        for index in range(len(self.calls)):
            yield self.streams[stream][index]

    def tuple_length(self) -> int:
        return tuple_length(self.block, self.streams[0][0], self.calls[0])
