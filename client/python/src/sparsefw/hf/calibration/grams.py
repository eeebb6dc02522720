"""Gram matrices of a block's inputs: which matrices share one, and how they are summed."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from sparsefw.hf.calibration.capture import Call
from sparsefw.hf.calibration.hidden import HiddenStates, Samples
from sparsefw.hf.layout import Block, Matrix
from sparsefw.torch import GramSum

# The most shards, and the fewest samples of each but the last: the sum of a shard has as many bytes for one
# sample as for many.
_SHARDS: Final = 16
_SAMPLES: Final = 4
# Tokens whose squares are in memory at a time.
_ROWS: Final = 256


@dataclasses.dataclass(frozen=True)
class Group:
    """Matrices that multiply the same tokens, and so have one Gram matrix.

    Attributes:
        key:    name of the first of them.
        module: whose inputs these are.
        certain: the first sample reaches them, so that there is at least one batch of inputs; of experts
                 nobody knows before the tokens are routed.
    """

    key: str
    module: str
    columns: int
    matrices: tuple[Matrix, ...]
    certain: bool

    @property
    def gram_bytes(self) -> int:
        """Bytes of its sum in float64, and of the part that is added to it."""
        return 2 * 8 * self.columns * self.columns


def find_groups(block: Any, layout: Block, hidden: Any, call: Call) -> list[Group]:
    """Runs one sample to see which layers get the very same tensor: q, k and v; gate and up.

    Every fused expert has a group of its own for either side.
    """
    plain = {matrix.module: matrix for matrix in layout.matrices if matrix.expert is None}
    seen: dict[str, tuple[Any, ...]] = {}
    alive: list[Any] = []  # so that no other tensor gets the same address

    def watch(path: str) -> Callable[..., None]:
        def hook(_: Any, args: tuple[Any, ...]) -> None:
            tensor = args[0]
            if tensor.numel() == 0:  # an expert without tokens: all such tensors are at address 0
                return
            alive.append(tensor)
            where = (tensor.data_ptr(), tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
            # Those of inference_mode have no version; a change in place changes the sum.
            version = float(tensor.double().sum()) if tensor.is_inference() else tensor._version
            seen.setdefault(path, (*where, tensor.dtype, version))

        return hook

    with contextlib.ExitStack() as stack, torch.no_grad():
        for path in plain:
            handle = block.get_submodule(path).register_forward_pre_hook(watch(path))
            stack.callback(handle.remove)
        call.run(block, hidden)
    members: dict[tuple[Any, ...], list[Matrix]] = {}
    for matrix in layout.matrices:
        # One that this sample did not reach (a ModuleList of experts) has its inputs to itself.
        key = (matrix.name,) if matrix.expert is not None else seen.get(matrix.module, (matrix.name,))
        members.setdefault(key, []).append(matrix)
    return [
        Group(first.name, first.module, first.columns, tuple(matrices), first.module in seen)
        for matrices in members.values()
        for first in matrices[:1]
    ]


def split_passes(groups: Sequence[Group], limit: int) -> list[list[Group]]:
    """Groups whose sums fit into `limit` bytes together, in their order; each at least one."""
    passes: list[list[Group]] = []
    used = 0
    for group in groups:
        if not passes or used + group.gram_bytes > limit:
            passes.append([])
            used = 0
        passes[-1].append(group)
        used += group.gram_bytes
    return passes


def _routed(module: Any, hidden: Any, chosen: Any) -> Iterator[tuple[int, Any]]:
    """(expert, its tokens) of those that got any."""
    hidden = hidden.reshape(-1, hidden.shape[-1])
    chosen = chosen.reshape(len(hidden), -1)
    for expert in chosen.unique().tolist():
        if 0 <= expert < module.num_experts:
            yield expert, hidden[(chosen == expert).any(dim=-1)]


def _activated(module: Any, expert: int, tokens: Any) -> Any:
    """What the second matrix of an expert multiplies."""
    name = "gate_up_proj" if module.has_gate else "up_proj"
    weight = getattr(module, name)[expert]
    out = tokens @ (weight if module.is_transposed else weight.T)
    if module.has_bias:
        out = out + getattr(module, f"{name}_bias")[expert]
    return module._apply_gate(out) if module.has_gate else module.act_fn(out)


@contextlib.contextmanager
def _watched(block: Any, groups: Sequence[Group], take: Callable[[Group, Any], None]) -> Iterator[None]:
    """`take` gets the inputs of every group while the block runs."""
    experts: dict[str, dict[tuple[str, int], Group]] = {}

    def plain(group: Group) -> Callable[..., None]:
        return lambda _, args: take(group, args[0])

    def fused(wanted: Mapping[tuple[str, int], Group]) -> Callable[..., None]:
        def hook(module: Any, args: tuple[Any, ...], arguments: dict[str, Any]) -> None:
            values = [*args, *arguments.values()]
            for expert, tokens in _routed(module, values[0], values[1]):
                if group := wanted.get(("in", expert)):
                    take(group, tokens)
                if group := wanted.get(("out", expert)):
                    take(group, _activated(module, expert, tokens))

        return hook

    with contextlib.ExitStack() as stack:
        for group in groups:
            first = group.matrices[0]
            if first.expert is not None:
                experts.setdefault(group.module, {})[first.side, first.expert] = group
                continue
            handle = block.get_submodule(group.module).register_forward_pre_hook(plain(group))
            stack.callback(handle.remove)
        for path, wanted in experts.items():
            module = block.get_submodule(path)
            handle = module.register_forward_pre_hook(fused(wanted), with_kwargs=True)
            stack.callback(handle.remove)
        yield


def run_block(block: Any, hidden: HiddenStates, calls: Sequence[Call]) -> None:
    """Runs the block on every sample; its outputs replace the hidden states."""
    with torch.no_grad():
        for index, call in enumerate(calls):
            hidden[index] = call.run(block, hidden[index])


def shards_of(count: int) -> list[range]:
    """Ranges of samples whose sums are made apart and then added in their order. They depend on nothing
    else, so that the sum has the same bits wherever its parts are made.
    """
    size = max(_SAMPLES, -(-count // _SHARDS))
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def sum_grams(
    block: Any, groups: Sequence[Group], hidden: Samples, calls: Sequence[Call]
) -> dict[str, GramSum]:
    """The Gram matrices of the groups by key, in one pass over the samples."""
    sums: dict[str, GramSum] = {}
    for shard in shards_of(len(calls)):
        parts = sum_shard(block, groups, hidden, calls, shard)
        for key in list(parts):
            part = parts.pop(key)
            if key in sums:
                sums[key].merge(part)
            else:
                sums[key] = part
    return sums


def sum_shard(
    block: Any, groups: Sequence[Group], hidden: Samples, calls: Sequence[Call], shard: Iterable[int]
) -> dict[str, GramSum]:
    """As `sum_grams`, of some of the samples; symmetric to the bit."""
    sums: dict[str, GramSum] = {}

    def take(group: Group, tokens: Any) -> None:
        sums[group.key].add(tokens)

    with torch.no_grad(), _watched(block, groups, take):
        for index in shard:
            inputs = hidden[index]
            if not sums:
                sums.update({group.key: GramSum(group.columns, inputs.device) for group in groups})
            calls[index].run(block, inputs)
    for part in sums.values():
        part.round_to_float32()
    return sums


def sum_squares(
    block: Any,
    groups: Sequence[Group],
    hidden: Samples,
    calls: Sequence[Call],
    shard: Iterable[int],
    out: Callable[[int, Any], None],
) -> dict[str, Any]:
    """By the key of a group: the sum of the squares of each of its inputs, float64 [d_in], of some of the
    samples. Groups that no token reached are missing.

    Args:
        out: gets what the block makes of each sample.
    """
    sums: dict[str, Any] = {}

    def take(group: Group, tokens: Any) -> None:
        if not tokens.numel():
            return
        for rows in tokens.reshape(-1, group.columns).split(_ROWS):
            wide = rows.double()
            _plus(sums, group.key, (wide * wide).sum(0))

    with torch.no_grad(), _watched(block, groups, take):
        for index in shard:
            out(index, calls[index].run(block, hidden[index]))
    return sums


def add_squares(of_shards: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Adds what `sum_squares` found, in the order of the shards."""
    sums: dict[str, Any] = {}
    for parts in of_shards:
        for key, part in parts.items():
            _plus(sums, key, part)
    return sums


def _plus(sums: dict[str, Any], key: str, part: Any) -> None:
    sums[key] = sums[key] + part if key in sums else part


def stream_inputs(
    block: Any, group: Group, hidden: Samples, calls: Sequence[Call]
) -> Generator[Any, None, None]:
    """The inputs of one group, sample by sample, for a server that sums them."""
    taken: list[Any] = []
    for index, call in enumerate(calls):
        # Not around `yield`: a generator that nobody finishes would leave both on, in the caller's thread and
        # on the caller's model.
        with torch.no_grad(), _watched(block, [group], lambda _, tokens: taken.append(tokens)):
            call.run(block, hidden[index])
        for tokens in taken:
            if tokens.numel():
                yield tokens.reshape(-1, tokens.shape[-1])
        taken.clear()
