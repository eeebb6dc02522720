"""Gradient steps on the kept weights of a module: what refinement and distillation have in common."""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import torch

from sparsefw.errors import invalid
from sparsefw.hf.calibration.capture import Call
from sparsefw.hf.layout import Block, find_blocks
from sparsefw.hf.values import is_number, plain, shown
from sparsefw.torch import hold_zeros

# Steps until the learning rate has its full size.
_WARM_UP: Final = 5
_BETAS: Final = (0.9, 0.95)
# A trained weight's float32 copy, gradient, two moments and mask.
BYTES_A_WEIGHT: Final = 17
# Where products are bfloat16, backward keeps such a copy of every matrix, trained or not.
BFLOAT16_BYTES: Final = 2


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Adam on the kept weights in float32, one sequence a step, with a cosine schedule.

    Attributes:
        epochs:        passes over the sequences, at least 1.
        learning_rate: largest step of a weight, > 0.
        held_back:     share of the sequences that no step sees, (0, 0.5], at least one sequence.
    """

    epochs: int
    learning_rate: float
    held_back: float = 0.0625

    def __post_init__(self) -> None:
        what = type(self).__name__
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, plain(getattr(self, field.name)))
        if not isinstance(self.epochs, int) or isinstance(self.epochs, bool) or self.epochs < 1:
            raise invalid(f"epochs of a {what} must be an integer of at least 1; got {shown(self.epochs)}")
        # A larger integer is less than infinity, and yet no float.
        if not is_number(self.learning_rate) or not 0 < self.learning_rate <= sys.float_info.max:
            raise invalid(
                f"learning_rate of a {what} must be finite and above 0; got {shown(self.learning_rate)}"
            )
        if not is_number(self.held_back) or not 0 < self.held_back <= 0.5:
            raise invalid(f"held_back of a {what} must be in (0, 0.5]; got {shown(self.held_back)}")


AnySchedule = TypeVar("AnySchedule", bound=Schedule)


def resolve(name: str, value: Any, of_preset: AnySchedule | None, usual: AnySchedule) -> AnySchedule | None:
    """What an argument of prune_model stands for; None: no steps.

    Args:
        name:  of the argument.
        value: settings; a dictionary of those that differ from the preset's; True: the preset's; False: none;
            None: as the preset has it.
        of_preset: what a preset has; None: nothing, or no preset.
        usual: the defaults without a preset.
    """
    kind = type(usual)
    if value is None:
        return of_preset
    if isinstance(value, kind):
        return value
    if isinstance(value, bool):
        return (of_preset or usual) if value else None
    if not isinstance(value, Mapping):
        raise invalid(
            f"{name} must be True, False, None, a {kind.__name__} or a dictionary of what it has; got {value}"
        )
    wrong = value.keys() - {field.name for field in dataclasses.fields(kind)}
    if wrong:
        raise invalid(f"{name}: a {kind.__name__} has no {min(map(str, wrong))}")
    return dataclasses.replace(of_preset or usual, **value)


def check_trainable(model: Any, sequences: int, samples: int, what: str) -> None:
    """Raises InvalidArgument (CLIENT_ARGUMENT) where no steps can be taken.

    Args:
        samples: the most sequences that the call allows.
        what:    asks for the steps.
    """
    if sequences < 2:
        more = "samples must be at least 2" if samples < 2 else "give more text, or a smaller sequence_length"
        raise invalid(f"{what} needs at least two sequences, one of them held back; got {sequences}: {more}")
    if torch.is_inference_mode_enabled():
        raise invalid(f"{what} needs gradients, which torch.inference_mode() has not: call outside of it")
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


class Training:
    """Float32 copies of some of a module's weights, and Adam's state. The module itself is written to at
    `write` and `restore`: whatever precision and flags its parameters have stay theirs. Zeros stay zero in
    the blocks that `hold` was called for.
    """

    def __init__(self, module: Any, names: Sequence[str], schedule: Schedule, steps: int) -> None:
        """`names`: of the parameters that are trained. `steps`: in all."""
        self._module, self._schedule = module, schedule
        self._steps, self._step = steps, 0
        self._kept: dict[str, Any] = {}
        self._weights = {
            name: module.get_parameter(name).detach().to(torch.float32, copy=True).requires_grad_()
            for name in names
        }
        others = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        self._tensors = self._weights | {
            name: as_float(value.detach()) for name, value in others.items() if name not in self._weights
        }
        self._adam = torch.optim.Adam(
            self._weights.values(), lr=schedule.learning_rate, betas=_BETAS, fused=True
        )

    def hold(self, block: Any, layout: Block, prefix: str = "") -> None:
        """The zeros of the block's pruned matrices stay zero. `prefix`: of its names in the module."""
        for name in dict.fromkeys(matrix.local for matrix in layout.matrices):
            hold_zeros(self._weights[prefix + name], _removed(block, layout, name))

    def run(self, *args: Any, **arguments: Any) -> Any:
        """The module with the weights that are trained."""
        kind = next(iter(self._weights.values())).device.type
        # A cache of converted weights would be that of the step before, which a caller's autocast keeps.
        half = torch.autocast(kind, torch.bfloat16, enabled=multiplies_bfloat16(kind), cache_enabled=False)
        with half:
            return torch.func.functional_call(self._module, self._tensors, args, arguments)

    def step(self, backward: Callable[[], None]) -> None:
        """One step of Adam; `backward` makes the gradients."""
        self._step += 1
        rate = min(1.0, self._step / _WARM_UP) * (1 + math.cos(math.pi * (self._step - 1) / self._steps)) / 2
        for group in self._adam.param_groups:
            group["lr"] = rate * self._schedule.learning_rate
        with torch.enable_grad():
            backward()
        self._adam.step()
        self._adam.zero_grad()

    def write(self) -> None:
        """Writes the weights into the module, in its own precision. A weight that is too small for it becomes
        the smallest number there: as zero it would count as removed.
        """
        with torch.no_grad():
            for name, weight in self._weights.items():
                value = self._module.get_parameter(name)
                value.copy_(weight)
                if value.dtype != weight.dtype and (lost := (value == 0) & (weight != 0)).any():
                    about = torch.finfo(value.dtype)
                    least = torch.tensor(about.tiny * about.eps, dtype=value.dtype, device=value.device)
                    value[lost] = torch.copysign(least, weight[lost].to(value.dtype))

    def keep(self) -> None:
        """Keeps a copy of the module's weights, as they are in it, instead of the one before."""
        for name in self._weights:
            value = self._module.get_parameter(name).detach()
            if name in self._kept:
                self._kept[name].copy_(value)
            else:
                self._kept[name] = value.clone()

    def restore(self) -> None:
        """Writes the copy back."""
        with torch.no_grad():
            for name, value in self._kept.items():
                self._module.get_parameter(name).copy_(value)


@functools.cache
def multiplies_bfloat16(kind: str) -> bool:
    """Whether products of bfloat16, summed in float32, are much faster there than those of float32."""
    if kind == "cuda":
        # Older GPUs emulate them.
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if kind != "cpu":
        return False
    # On CPUs without these instructions they are slower. Older versions of PyTorch do not say.
    if not hasattr(torch.cpu, "get_capabilities"):
        return False
    there = torch.cpu.get_capabilities()
    return any(there.get(name) for name in ("amx_bf16", "avx512_bf16"))


def _removed(block: Any, layout: Block, name: str) -> Any:
    """A mask of the parameter, True where it stays zero."""
    parameter = block.get_parameter(name).detach()
    removed = torch.zeros(parameter.shape, dtype=torch.bool, device=parameter.device)
    for matrix in layout.matrices:
        if matrix.local == name:
            matrix.within(removed).copy_(matrix.within(parameter) == 0)
    return removed


def as_float(value: Any) -> Any:
    """With floating-point tensors in float32, also within a call's arguments."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, tuple | list):
        return type(value)(as_float(item) for item in value)
    if isinstance(value, dict):
        return {key: as_float(item) for key, item in value.items()}
    if isinstance(value, Call):
        return dataclasses.replace(
            value, rest=as_float(value.rest), arguments=as_float(dict(value.arguments))
        )
    return value


def mean_error(errors: Sequence[float]) -> float:
    """The mean; infinity where it is no number, which would be less than none and win for ever."""
    mean = sum(errors) / len(errors)
    return math.inf if math.isnan(mean) else mean
