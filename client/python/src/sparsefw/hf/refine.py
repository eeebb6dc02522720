"""Refinement of a pruned block: gradient steps on its kept weights, norms and biases, towards what the dense
block gives.

Layer by layer, a solver brings W'X to WX. A block is more than its layers: here all of its kept weights
move together until the block, on the inputs that it gets from the pruned blocks before it, gives what the
dense block gives on the dense model's inputs. So it also makes up for what the blocks before it lost.
"""

from __future__ import annotations

import array
import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from sparsefw.errors import invalid
from sparsefw.hf.capture import Call
from sparsefw.hf.data import hold_back
from sparsefw.hf.hidden import HiddenStates
from sparsefw.hf.layout import Block, find_blocks
from sparsefw.hf.values import is_number, plain
from sparsefw.torch import hold_zeros

# Steps until the learning rate has its full size.
_WARM_UP: Final = 5
_BETAS: Final = (0.9, 0.95)
# A token's weight is at most so many times the median: one that the block hardly changes counts no more.
_LARGEST_WEIGHT: Final = 4.0


@dataclasses.dataclass(frozen=True)
class BlockRefinement:
    """How blocks are refined.

    Adam on the kept weights in float32, one sequence a step, with a cosine schedule. The error of a token
    is |y - t|^2 / |t - x|^2 with the block's output y, its target t, and its input x: the few tokens whose
    hidden states are a hundred times larger than the others' do not rule.

    Attributes:
        epochs:        passes over the sequences, at least 1.
        learning_rate: largest step of a weight, > 0.
        held_back:     share of the sequences that no step sees, (0, 0.5], at least one sequence. The state
                       with the least error on them is kept: the start, or that after one of the epochs.
    """

    epochs: int = 8
    learning_rate: float = 2e-3
    held_back: float = 0.0625

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, plain(getattr(self, field.name)))
        if not isinstance(self.epochs, int) or isinstance(self.epochs, bool) or self.epochs < 1:
            raise invalid(f"epochs of a refinement must be an integer of at least 1; got {self.epochs}")
        if not is_number(self.learning_rate) or not 0 < self.learning_rate < math.inf:
            raise invalid(f"learning_rate must be a number above 0; got {self.learning_rate}")
        if not is_number(self.held_back) or not 0 < self.held_back <= 0.5:
            raise invalid(f"held_back must be in (0, 0.5]; got {self.held_back}")


def resolve(value: Any, of_preset: BlockRefinement | None) -> BlockRefinement | None:
    """What prune_model's argument stands for; None: no refinement.

    Args:
        value: settings; a dictionary of those that differ from the preset's; True: the preset's; False: none;
            None: as the preset has it.
        of_preset: what a preset has; None: nothing, or no preset.
    """
    if value is None:
        return of_preset
    if isinstance(value, BlockRefinement):
        return value
    if isinstance(value, bool):
        return (of_preset or BlockRefinement()) if value else None
    if not isinstance(value, Mapping):
        raise invalid(
            "refine_blocks must be True, False, None, a BlockRefinement or a dictionary of what it has; "
            f"got {value}"
        )
    wrong = value.keys() - {field.name for field in dataclasses.fields(BlockRefinement)}
    if wrong:
        raise invalid(f"a BlockRefinement has no {min(wrong)}")
    return dataclasses.replace(of_preset or BlockRefinement(), **value)


def check_refinement(model: Any, sequences: int, what: str) -> None:
    """Raises InvalidArgument (CLIENT_ARGUMENT) where blocks cannot be refined.

    Args:
        what: asks for it.
    """
    if sequences < 2:
        raise invalid(f"{what} needs at least two sequences, one of them held back; got {sequences}")
    check_blocks_apart(model, what)


def check_blocks_apart(model: Any, what: str) -> None:
    """Raises InvalidArgument (CLIENT_ARGUMENT) where two blocks have a parameter in common.

    Args:
        what: needs that they have none.
    """
    owners: dict[int, int] = {}
    path = find_blocks(model)
    for index, block in enumerate(model.get_submodule(path)):
        for name, parameter in block.named_parameters():
            if owners.setdefault(id(parameter), index) != index:
                raise invalid(
                    f"{what} needs blocks with weights of their own; {path}.{index}.{name} belongs to "
                    f"block {owners[id(parameter)]} too"
                )


def refine_block(
    block: Any,
    layout: Block,
    hidden: HiddenStates,
    targets: HiddenStates,
    calls: Sequence[Call],
    settings: BlockRefinement,
    on_epoch: Callable[[int, float], None] = lambda epoch, error: None,
) -> dict[str, Any]:
    """Refines a pruned block in place: its pruned matrices, their biases, and its norms.

    Weights that are zero stay zero, and every other parameter stays as it is. Memory beside block
    and hidden states: 17 bytes a weight of the block (float32 weights, gradients, two moments, mask), the
    kept state, and the activations of one sequence.

    Args:
        hidden, targets: the block's inputs, and what it should make of them, sample by sample.
        on_epoch: gets the number of every epoch, from 0, and the error on held-back sequences.

    Returns:
        Facts for the report: error_before, error_after (on sequences that no step saw; 0: the output of
        the dense block; 1: as far from it as the block's input is), epoch (of the kept state; 0: the
        start), epochs, sequences (that steps saw), held_back, seconds.
    """
    started = time.monotonic()
    trained, held = hold_back(len(calls), max(1, round(len(calls) * settings.held_back)))
    errors = _Errors(hidden, targets, trained)
    run = _Training(block, layout, settings, len(trained))

    def held_error() -> float:
        with torch.no_grad():
            found = [
                float(errors.of(calls[index].run(block, hidden[index]), hidden[index], targets[index]))
                for index in held
            ]
        return sum(found) / len(found)

    best = before = held_error()
    kept = 0
    run.keep()
    on_epoch(0, before)
    order = torch.Generator().manual_seed(layout.index)
    for epoch in range(1, settings.epochs + 1):
        for chosen in torch.randperm(len(trained), generator=order).tolist():
            index = trained[chosen]
            run.step(errors, calls[index], hidden[index], targets[index])
        run.write()
        found = held_error()
        on_epoch(epoch, found)
        if found < best:
            best, kept = found, epoch
            run.keep()
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

    def __init__(self, hidden: HiddenStates, targets: HiddenStates, indices: Sequence[int]) -> None:
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


class _Training:
    """Float32 copies of a block's weights, and Adam's state. The block itself is written to at `write`
    and `restore`: whatever precision and flags its parameters have stay theirs.
    """

    def __init__(self, block: Any, layout: Block, settings: BlockRefinement, sequences: int) -> None:
        self._block, self._settings = block, settings
        self._steps, self._step = settings.epochs * sequences, 0
        self._kept: dict[str, Any] = {}
        self._weights = {
            name: block.get_parameter(name).detach().to(torch.float32, copy=True).requires_grad_()
            for name in layout.trained
        }
        others = {**dict(block.named_parameters()), **dict(block.named_buffers())}
        self._tensors = self._weights | {
            name: _as_float(value.detach()) for name, value in others.items() if name not in self._weights
        }
        for name in dict.fromkeys(matrix.local for matrix in layout.matrices):
            hold_zeros(self._weights[name], _removed(block, layout, name))
        self._adam = torch.optim.Adam(
            self._weights.values(), lr=settings.learning_rate, betas=_BETAS, fused=True
        )

    def step(self, errors: _Errors, call: Call, hidden: Any, target: Any) -> None:
        """One step of Adam on one sequence."""
        self._step += 1
        rate = min(1.0, self._step / _WARM_UP) * (1 + math.cos(math.pi * (self._step - 1) / self._steps)) / 2
        for group in self._adam.param_groups:
            group["lr"] = rate * self._settings.learning_rate
        # Tensor cores take float32 weights as bfloat16; most CPUs are slower with these.
        # A cache of converted weights would be that of the step before, which a caller's autocast keeps.
        kind = target.device.type
        half = torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda", cache_enabled=False)
        with torch.enable_grad():
            with half:
                out = _as_float(call).run(self._run, _as_float(hidden))
            errors.of(out, hidden, target).backward()
        self._adam.step()
        self._adam.zero_grad()

    def _run(self, *args: Any, **arguments: Any) -> Any:
        return torch.func.functional_call(self._block, self._tensors, args, arguments)

    def write(self) -> None:
        """Writes the weights into the block, in its own precision."""
        with torch.no_grad():
            for name, weight in self._weights.items():
                self._block.get_parameter(name).copy_(weight)

    def keep(self) -> None:
        """Keeps a copy of the block's weights, as they are in it, instead of the one before."""
        for name in self._weights:
            value = self._block.get_parameter(name).detach()
            if name in self._kept:
                self._kept[name].copy_(value)
            else:
                self._kept[name] = value.clone()

    def restore(self) -> None:
        """Writes the copy back."""
        with torch.no_grad():
            for name, value in self._kept.items():
                self._block.get_parameter(name).copy_(value)


def _removed(block: Any, layout: Block, name: str) -> Any:
    """A mask of the parameter, True where it stays zero."""
    parameter = block.get_parameter(name).detach()
    removed = torch.zeros(parameter.shape, dtype=torch.bool, device=parameter.device)
    for matrix in layout.matrices:
        if matrix.local == name:
            matrix.within(removed).copy_(matrix.within(parameter) == 0)
    return removed


def _as_float(value: Any) -> Any:
    """With floating-point tensors in float32, also within a call's arguments."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, tuple | list):
        return type(value)(_as_float(item) for item in value)
    if isinstance(value, dict):
        return {key: _as_float(item) for key, item in value.items()}
    if isinstance(value, Call):
        return dataclasses.replace(
            value, rest=_as_float(value.rest), arguments=_as_float(dict(value.arguments))
        )
    return value
