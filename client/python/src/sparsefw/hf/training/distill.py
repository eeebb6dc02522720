"""Distillation of a pruned model: gradient steps on all kept weights together, towards what the dense model
predicts.

Refinement brings the hidden states of one block after the other to the dense model's. What they lack in the
end counts by what it does to the next token: here the whole model takes steps on the divergence of its
predictions from the dense model's.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import psutil
import torch

from sparsefw.errors import invalid
from sparsefw.hf.calibration.capture import after_blocks, forward
from sparsefw.hf.calibration.hidden import HiddenStates
from sparsefw.hf.data import hold_back
from sparsefw.hf.layout import Block
from sparsefw.hf.training import free_memory
from sparsefw.hf.training.steps import (
    BFLOAT16_BYTES,
    BYTES_A_WEIGHT,
    Schedule,
    Training,
    mean_error,
    multiplies_bfloat16,
)

# The start is kept where the end's divergence is this much higher. A little more on the few sequences that
# are held back says nothing: the end was better on other text all the same (docs/adr/0049).
_HARM: Final = 1.1
# Positions whose distributions are held at a time: [positions, vocabulary] of float32.
_POSITIONS: Final = 256


@dataclasses.dataclass(frozen=True)
class Distillation(Schedule):
    """How a pruned model is distilled.

    The loss is the Kullback-Leibler divergence KL(dense || pruned) of the distributions of the next token,
    nats: the mean over the positions of a sequence, and of these the mean over sequences. The end is kept, or
    the start where the end's divergence on the held-back sequences is more than a tenth higher.

    Attributes:
        epochs, learning_rate, held_back: as sparsefw.hf.training.steps.Schedule.
    """

    epochs: int = 8
    learning_rate: float = 2e-4


def check_head(model: Any, what: str) -> None:
    """Raises InvalidArgument (CLIENT_ARGUMENT) where a model predicts no tokens.

    Args:
        what: needs that.
    """
    if model.get_output_embeddings() is None:
        raise invalid(f"{what} needs a model with an output head; {type(model).__name__} has none")


def memory_needed(model: Any, layout: Sequence[Block], device: Any) -> dict[Any, int]:
    """Bytes that the steps take by device, beside activations and logits.

    Args:
        device: where a model from a folder will be, which then counts as well; None: it is in memory.
    """
    needed: dict[Any, int] = {}
    trained = {
        id(model.get_submodule(block.name).get_parameter(name)) for block in layout for name in block.trained
    }
    matrices = _multiplied(model)
    for parameter in model.parameters():
        place = parameter.device if device is None else torch.device(device)
        own = parameter.element_size()
        if id(parameter) in trained:
            size = BYTES_A_WEIGHT + own  # the state that is kept has the parameter's own dtype
        else:
            size = 0 if parameter.dtype == torch.float32 else 4  # it takes part in float32, too
        if id(parameter) in matrices and multiplies_bfloat16(place.type):
            size += BFLOAT16_BYTES
        if device is not None:  # it is not in memory yet
            size += own
        needed[place] = needed.get(place, 0) + size * parameter.numel()
    return needed


def _multiplied(model: Any) -> set[int]:
    """The ids of parameters that products are made with: all matrices but those that are only looked up."""
    head = model.get_output_embeddings()
    looked_up = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    looked_up -= {id(value) for value in head.parameters()} if head is not None else set()
    return {id(value) for value in model.parameters() if value.dim() > 1} - looked_up


def check_memory(model: Any, layout: Sequence[Block], device: Any, what: str) -> None:
    """Raises InvalidArgument (CLIENT_ARGUMENT) where the steps cannot fit into the memory that is free now.

    Args:
        device: as of `memory_needed`.
        what:   asks for them.
    """
    for place, size in memory_needed(model, layout, device).items():
        free = _free(place)
        if free is not None and size > free:
            raise invalid(
                f"{what} needs all of the model in memory: {size / 2**30:.1f} GiB on {place} for weights, "
                f"gradients and moments; {free / 2**30:.1f} GiB are free"
            )


def _free(device: Any) -> int | None:
    """Bytes; None: unknown."""
    if device.type == "cuda":
        # PyTorch gives out again what it keeps of freed memory.
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0] + kept)
    if device.type != "cpu":
        return None
    machine, limit = int(psutil.virtual_memory().available), free_memory.within_limits()
    return machine if limit is None else min(machine, limit)


def distill(
    model: Any,
    layout: Sequence[Block],
    samples: Sequence[Any],
    targets: HiddenStates,
    tuple_length: int,
    settings: Distillation,
    on_epoch: Callable[[int, float], None] = lambda epoch, divergence: None,
) -> dict[str, Any]:
    """Distils a pruned model in place: what refinement trains in its blocks, all at once.

    Weights that are zero stay zero; embeddings, head and all else stay as they are. Memory beside the model:
    17 bytes a trained weight, a copy of these weights, and float32 copies of all others that are not float32.
    Where products are bfloat16, 2 bytes for every weight that multiplies. Also the activations of one
    sequence, three times its logits, and four times those of 256 positions.

    Args:
        samples: token ids [1, length].
        targets: what the dense model's last block makes of each.
        tuple_length: of what a block returns; 0: a tensor.
        on_epoch: gets the number of every epoch, from 0, and the divergence on held-back sequences.

    Returns:
        Facts for the report: divergence_before, divergence_after (on sequences that no step saw, nats a
        token), kept ("end" or "start"), epochs, sequences (that steps saw), held_back, seconds.
    """
    started = time.monotonic()
    trained, held = hold_back(len(samples), max(1, round(len(samples) * settings.held_back)))
    blocks = [model.get_submodule(block.name) for block in layout]
    names = [f"{block.name}.{name}" for block in layout for name in block.trained]
    run = Training(model, names, settings, settings.epochs * len(trained))
    for block, module in zip(layout, blocks, strict=True):
        run.hold(module, block, f"{block.name}.")

    def wanted(index: int) -> Any:
        with torch.no_grad():
            hidden = targets[index].to(next(blocks[-1].parameters()).device)
            return after_blocks(model, blocks, samples[index], hidden, tuple_length)

    def learn(index: int) -> None:
        logits = forward(run.run, samples[index]).logits
        _, gradient = divergence(logits.detach(), wanted(index), gradient=True)
        logits.backward(gradient)

    def held_divergence() -> float:
        with torch.no_grad():
            found = [divergence(forward(model, samples[index]).logits, wanted(index))[0] for index in held]
        return mean_error(found)

    before = held_divergence()
    run.keep()
    on_epoch(0, before)
    order = torch.Generator().manual_seed(0)
    after = before
    for epoch in range(1, settings.epochs + 1):
        for chosen in torch.randperm(len(trained), generator=order).tolist():
            run.step(functools.partial(learn, trained[chosen]))
        run.write()
        after = held_divergence()
        on_epoch(epoch, after)
    harms = not after < _HARM * before
    if harms:
        run.restore()
    return {
        "divergence_before": before,
        "divergence_after": before if harms else after,
        "kept": "start" if harms else "end",
        "epochs": settings.epochs,
        "sequences": len(trained),
        "held_back": len(held),
        "seconds": time.monotonic() - started,
    }


def divergence(logits: Any, wanted: Any, gradient: bool = False) -> tuple[float, Any]:
    """(KL(wanted || logits) of one sequence, mean over positions, nats; its gradient by the logits, or None)

    Args:
        logits, wanted: [1, tokens, vocabulary], of any dtype.
    """
    tokens, total = logits.shape[1], 0.0
    found = torch.empty_like(logits) if gradient else None
    for start in range(0, tokens, _POSITIONS):
        part = slice(start, start + _POSITIONS)
        here = logits[0, part].float().log_softmax(-1)
        there = wanted[0, part].to(here.device).float().log_softmax(-1)
        share = there.exp()
        # A token that both models rule out has -inf less -inf here, which is no number.
        total += float(there.sub_(here).mul_(share).masked_fill_(share == 0, 0).sum())
        if found is not None:
            found[0, part] = here.exp_().sub_(share).div_(tokens)
    return total / tokens, found
