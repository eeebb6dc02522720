"""Refinement of a pruned block: gradient steps on its kept weights, norms and biases, towards what the dense
block gives.

Layer by layer, a solver brings W'X to WX. A block is more than its layers: here all of its kept weights
move together until the block, on the inputs that it gets from the pruned blocks before it, gives what the
dense block gives on the dense model's inputs. So it also makes up for what the blocks before it lost.
"""

from __future__ import annotations

import array
import dataclasses
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from sparsefw.hf.calibration.capture import Call
from sparsefw.hf.calibration.hidden import Samples
from sparsefw.hf.data import hold_back
from sparsefw.hf.layout import Block
from sparsefw.hf.training.steps import Schedule, Training, as_float, mean_error

# A token's weight is at most so many times the median: one that the block hardly changes counts no more.
_LARGEST_WEIGHT: Final = 4.0


@dataclasses.dataclass(frozen=True)
class BlockRefinement(Schedule):
    """How blocks are refined.

    The error of a token is |y - t|^2 / |t - x|^2 with the block's output y, its target t, and its input x:
    the few tokens whose hidden states are a hundred times larger than the others' do not rule. The start
    or the state after an epoch is kept, whichever has the least error on the held-back sequences.

    Attributes:
        epochs, learning_rate, held_back: as sparsefw.hf.training.steps.Schedule.
    """

    epochs: int = 8
    learning_rate: float = 2e-3


def refine_block(
    block: Any,
    layout: Block,
    hidden: Samples,
    targets: Samples,
    calls: Sequence[Call],
    settings: BlockRefinement,
    on_epoch: Callable[[int, float], None] = lambda epoch, error: None,
) -> dict[str, Any]:
    """Refines a pruned block in place: its pruned matrices, their biases, and its norms.

    Weights that are zero stay zero, and every other parameter stays as it is. Memory beside block
    and hidden states: 17 bytes a weight of the block (float32 weights, gradients, two moments, mask), 2 more
    where products are bfloat16, the kept state, and the activations of one sequence.

    Args:
        hidden, targets: the block's inputs, and what it should make of them, sample by sample.
        on_epoch: gets the number of every epoch, from 0, and the error on held-back sequences of the state
            that is kept so far: that of an epoch may go up, and then its state is not kept.

    Returns:
        Facts for the report: error_before, error_after (on sequences that no step saw; 0: the output of
        the dense block; 1: as far from it as the block's input is), epoch (of the kept state; 0: the
        start), epochs, sequences (that steps saw), held_back, seconds.
    """
    started = time.monotonic()
    trained, held = hold_back(len(calls), max(1, round(len(calls) * settings.held_back)))
    errors = _Errors(hidden, targets, trained)
    run = Training(block, layout.trained, settings, settings.epochs * len(trained))
    run.hold(block, layout)

    def learn(index: int) -> None:
        out = as_float(calls[index]).run(run.run, as_float(hidden[index]))
        errors.of(out, hidden[index], targets[index]).backward()

    def held_error() -> float:
        with torch.no_grad():
            found = [
                float(errors.of(calls[index].run(block, hidden[index]), hidden[index], targets[index]))
                for index in held
            ]
        return mean_error(found)

    best = before = held_error()
    kept = 0
    run.keep()
    on_epoch(0, before)
    order = torch.Generator().manual_seed(layout.index)
    for epoch in range(1, settings.epochs + 1):
        for chosen in torch.randperm(len(trained), generator=order).tolist():
            index = trained[chosen]
            run.step(functools.partial(learn, index))
        run.write()
        found = held_error()
        if found < best:
            best, kept = found, epoch
            run.keep()
        on_epoch(epoch, best)
    run.restore()
    return {
        "error_before": before,
        "error_after": best,
        "epoch": kept,
        "epochs": settings.epochs,
        "sequences": len(trained),
        "held_back": len(held),
        "seconds": time.monotonic() - started,
    }


class _Errors:
    """Errors of a block's output: of each token, relative to how far the dense block moves it."""

    def __init__(self, hidden: Samples, targets: Samples, indices: Sequence[int]) -> None:
        # Not a small tensor of every sequence: each would be in the way of the next large ones in memory.
        changes = array.array("f")
        for index in indices:
            changes.extend(_change(hidden[index], targets[index]).reshape(-1).tolist())
        self._least = statistics.median_low(changes) / _LARGEST_WEIGHT or 1.0

    def of(self, out: Any, hidden: Any, target: Any) -> Any:
        """The mean error of the tokens of one sequence, a scalar."""
        change = _change(hidden, target).clamp_min(self._least)
        return ((out.float() - target.float()).square().mean(-1) / change).mean()


def _change(hidden: Any, target: Any) -> Any:
    # The input may be on the device of the block before.
    return (target.float() - hidden.to(target.device).float()).square().mean(-1)
