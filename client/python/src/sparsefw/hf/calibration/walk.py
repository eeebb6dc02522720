"""The way of hidden states through the blocks of a model, one block in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sparsefw.hf.calibration.capture import Calls, capture, check_independent, first_call, tuple_length
from sparsefw.hf.calibration.hidden import HiddenStates
from sparsefw.hf.calibration.step import LocalStep
from sparsefw.hf.layout import Block, find_blocks
from sparsefw.hf.source import Source


def blocks_of(source: Source) -> list[Any]:
    """The model's blocks, loaded or not."""
    return list(source.model.get_submodule(find_blocks(source.model)))


def walk(
    source: Source, samples: Sequence[Any], folder: Path, layout: Sequence[Block], streams: int = 1
) -> Iterator[LocalStep]:
    """Every block of the layout in turn, loaded. Whoever iterates advances the streams, all of which begin
    with the first block's inputs.

    Args:
        samples: token ids [1, length] on the source's device.
        folder:  where hidden states are that do not fit into memory.
    """
    states = [HiddenStates(folder, streams) for _ in range(streams)]

    def take(hidden: Any) -> None:
        for stream in states:
            stream.append(hidden)

    try:
        calls = calls_of(source, samples, layout[-1].index, take)
        for of_block in layout:
            of_this = calls[of_block.index]
            with source.block(of_block.index) as block:
                yield LocalStep(of_block, block, states, of_this)
            of_this.clear()
    finally:
        for stream in states:
            stream.close()


def calls_of(source: Source, samples: Sequence[Any], last: int, take: Callable[[Any], None]) -> Calls:
    """The calls of the blocks up to the last one that is wanted; blocks behind it are neither called nor
    loaded.

    Args:
        take: gets the first block's inputs, sample by sample.
    """
    blocks = blocks_of(source)[: last + 1]

    def really(index: int, forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **arguments: Any) -> Any:
            with source.block(index):
                return forward(*args, **arguments)

        return run

    with source.prologue():
        hidden, call = first_call(source.model, blocks[0], samples[0])
        with source.block(0) as block:
            length = tuple_length(block, hidden, call)
        calls = capture(source.model, blocks, samples, length, take)
        true = capture(source.model, blocks, samples[:1], length, run=really)
        check_independent(calls, true)
    return calls
