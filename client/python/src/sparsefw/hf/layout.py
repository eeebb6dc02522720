"""Where the weight matrices of a model are: its blocks, and the matrices of one block."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Sequence, Set
from typing import Any, Final

import torch

from sparsefw.arrays import matrix_of
from sparsefw.errors import invalid
from sparsefw.torch import is_conv1d

# Begins a rule in the style of llm-compressor.
_ANCHORED: Final = "re:"
# Parameters with two or more dimensions of these multiply no token as a matrix does.
_NO_MATRICES = (torch.nn.Embedding, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)


@dataclasses.dataclass(frozen=True)
class Matrix:
    """One weight matrix [rows, columns] = [d_out, d_in] inside a parameter of a block.

    Attributes:
        name:       of the parameter in the model; experts end in "[3]".
        module:     of its module, within the block.
        attribute:  of the parameter, within the module.
        rows, columns: d_out, d_in.
        transposed: the parameter holds [d_in, d_out].
        expert:     index in the first dimension of a fused parameter, else None.
        side:       of an expert: "in" sees the block's tokens, "out" what its activation made of them.
    """

    name: str
    module: str
    attribute: str
    rows: int
    columns: int
    transposed: bool = False
    expert: int | None = None
    side: str = ""

    @property
    def local(self) -> str:
        """The parameter's name within the block."""
        return f"{self.module}.{self.attribute}" if self.module else self.attribute

    @property
    def parameter(self) -> str:
        """The parameter's name in the model."""
        return self.name.partition("[")[0]

    def of(self, block: Any) -> Any:
        """The parameter."""
        return block.get_submodule(self.module).get_parameter(self.attribute)

    def view(self, block: Any) -> Any:
        """[rows, columns], over the memory of the parameter."""
        return self.within(self.of(block).detach())

    def within(self, parameter: Any) -> Any:
        """[rows, columns], over the memory of a tensor of the parameter's shape."""
        return matrix_of(parameter, self.expert, self.transposed)


@dataclasses.dataclass(frozen=True)
class Block:
    """One block: its name in the model, its matrices, and those that stay dense on purpose.

    Attributes:
        vectors: weights of norms, and biases of the matrices' modules, by name within the block: what
                 refinement and distillation train beside the matrices; none where there are no matrices.
    """

    index: int
    name: str
    matrices: tuple[Matrix, ...]
    dense: tuple[str, ...]
    vectors: tuple[str, ...]

    @property
    def trained(self) -> list[str]:
        """The parameters that a run may change, by name within the block; the matrices' come first."""
        return [*dict.fromkeys(matrix.local for matrix in self.matrices), *self.vectors]


def find_blocks(model: Any) -> str:
    """The name of the ModuleList that holds the model's blocks: of those that are not inside of
    another, the one with the most weights.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): there is none, or the model is an encoder with a decoder.
    """
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise invalid("models with both an encoder and a decoder are not supported")
    lists = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.ModuleList) and len(module)
    }
    outer = [name for name in lists if not any(name.startswith(f"{other}.") for other in lists)]
    if not outer:
        raise invalid(f"{type(model).__name__} has no ModuleList of blocks")
    sizes = {name: sum(parameter.numel() for parameter in lists[name].parameters()) for name in outer}
    return str(max(outer, key=lambda name: sizes[name]))


def is_experts(module: Any) -> bool:
    """Fused experts as transformers 5 has them: parameters [experts, ., .] and the facts about them."""
    return all(
        hasattr(module, name)
        for name in ("num_experts", "has_gate", "has_bias", "is_transposed", "down_proj")
    ) and hasattr(module, "gate_up_proj" if module.has_gate else "up_proj")


def _experts(prefix: str, path: str, module: Any) -> Iterable[Matrix]:
    for attribute, side in (("gate_up_proj" if module.has_gate else "up_proj", "in"), ("down_proj", "out")):
        count, first, second = module.get_parameter(attribute).shape
        rows, columns = (second, first) if module.is_transposed else (first, second)
        for expert in range(count):
            name = f"{prefix}.{path}.{attribute}[{expert}]"
            yield Matrix(name, path, attribute, rows, columns, module.is_transposed, expert, side)


def is_router(block: Any, path: str, module: Any) -> bool:
    """Chooses the experts, or is a part of what does: of a module whose last matrix has a row for each of
    them, and maybe one for none. It stands beside "experts", or knows their number itself.
    """
    if not path or _rows(module) is None:
        return False
    owner = block
    for name in path.split("."):
        experts, owner = getattr(owner, "experts", None), owner.get_submodule(name)
        rows = [found for part in owner.modules() if (found := _rows(part)) is not None]
        if not rows or owner is experts:
            continue
        count = getattr(owner, "num_experts", -1) if experts is None else _number_of(experts)
        # Where the hidden size is the number of experts, others end in as many rows.
        if owner is module and experts is not None and rows[-1] == count:
            return True
        if rows[-1] in (count, count + 1) and ("router" in name or "gate" in name):
            return True
    return False


def _number_of(experts: Any) -> int:
    if isinstance(experts, torch.nn.ModuleList):
        return len(experts)
    fused = (int(one.shape[0]) for one in experts.parameters(recurse=False) if one.dim() == 3)
    return int(getattr(experts, "num_experts", next(fused, -1)))


def _rows(module: Any) -> int | None:
    """Those of its weight; None: it has no matrix as weight."""
    weight = getattr(module, "weight", None)
    return int(weight.shape[0]) if isinstance(weight, torch.nn.Parameter) and weight.dim() == 2 else None


def layout_of(model: Any, ignore: Sequence[str] = (), routers: bool = False) -> tuple[Block, ...]:
    """The blocks with their matrices.

    Args:
        ignore:  regular expressions; a parameter that one holds for stays dense (Rule).
        routers: those that choose experts are pruned like other layers; else they stay dense.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): a parameter with two or more dimensions, in a block or outside,
            that this does not cover: it would stay dense and nobody would know.
    """
    rules = [compile_rule(text) for text in ignore]
    path = find_blocks(model)
    outside, uncovered = _outside(model, path, rules)
    # By memory: what is tied to a parameter that stays dense stays dense too.
    fixed = {id(parameter) for parameter in outside.values()}
    fixed |= {
        id(parameter)
        for name, parameter in model.named_parameters(remove_duplicate=False)
        if any(rule.holds(name) for rule in rules)
        or (parameter.dim() == 1 and not name.startswith(f"{path}."))
    }
    blocks = []
    seen: set[tuple[int, int | None]] = set()
    for index, block in enumerate(model.get_submodule(path)):
        found = _block(f"{path}.{index}", index, block, fixed, routers)
        # What several blocks or layers share is pruned once, with the inputs of the first of them.
        own = []
        for matrix in found[0].matrices:
            key = (id(matrix.of(block)), matrix.expert)
            if key not in seen:
                seen.add(key)
                own.append(matrix)
        blocks.append(dataclasses.replace(found[0], matrices=tuple(own)))
        uncovered += found[1]
    if uncovered:
        more = f" and {len(uncovered) - 3} more" if len(uncovered) > 3 else ""
        raise invalid(
            f"{type(model).__name__} has weights that the pipeline does not cover: "
            f"{', '.join(uncovered[:3])}{more}; name them in ignore to leave them dense"
        )
    if not any(block.matrices for block in blocks):
        raise invalid(f"nothing of {type(model).__name__} is left to prune")
    return tuple(blocks)


def dense_outside(model: Any, ignore: Sequence[str] = ()) -> list[str]:
    """Names of the matrices outside of the blocks, all of which stay dense: embeddings, the head, and
    what `ignore` names.
    """
    return list(_outside(model, find_blocks(model), [compile_rule(text) for text in ignore])[0])


def _outside(model: Any, path: str, ignore: Sequence[Rule]) -> tuple[dict[str, Any], list[str]]:
    """(parameters outside of the blocks that stay dense on purpose, others)"""
    in_blocks = {id(parameter) for parameter in model.get_submodule(path).parameters()}
    ends = []
    for end in (model.get_input_embeddings, model.get_output_embeddings):
        with contextlib.suppress(NotImplementedError):  # not every model says which they are
            ends.append(end())
    known = {id(parameter) for end in ends if end is not None for parameter in end.parameters()}
    dense: dict[str, Any] = {}
    uncovered = []
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.dim() < 2 or name.startswith(f"{path}."):
            continue
        owner = model.get_submodule(name.rpartition(".")[0])
        ignored = any(rule.holds(name) for rule in ignore)
        if ignored or id(parameter) in known or isinstance(owner, _NO_MATRICES):
            dense[name] = parameter
        elif id(parameter) not in in_blocks:  # else the block covers it
            uncovered.append(f"{name} {list(parameter.shape)}")
    return dense, uncovered


@dataclasses.dataclass(frozen=True)
class Rule:
    """A regular expression of `ignore` or `allocation`."""

    text: str
    expression: re.Pattern[str]

    def holds(self, name: str) -> bool:
        """It is found in a parameter's name; after "re:", it matches the beginning of the module's name."""
        if self.text.startswith(_ANCHORED):
            return self.expression.match(name.rpartition(".")[0]) is not None
        return self.expression.search(name) is not None


def compile_rule(text: str) -> Rule:
    """Raises InvalidArgument (CLIENT_ARGUMENT) where it is no regular expression."""
    try:
        return Rule(text, re.compile(text.removeprefix(_ANCHORED)))
    except re.error as error:
        raise invalid(f'"{text}" is no regular expression: {error}') from None


def _block(name: str, index: int, block: Any, fixed: Set[int], routers: bool) -> tuple[Block, list[str]]:
    """(block, weights that are not covered); `fixed`: ids of parameters that stay dense."""
    matrices: list[Matrix] = []
    dense: list[str] = []
    for path, module in block.named_modules():
        if is_experts(module):
            matrices += _experts(name, path, module)
        elif is_router(block, path, module) and not routers:
            dense.append(f"{name}.{path}.weight")
        elif isinstance(module, torch.nn.Linear) or is_conv1d(module) or is_router(block, path, module):
            rows, columns = module.weight.shape
            flat = is_conv1d(module)
            label = f"{name}.{path}.weight" if path else f"{name}.weight"
            if not isinstance(module.weight, torch.nn.Parameter):
                raise invalid(
                    f"{label} must be a parameter; it is computed: remove its parametrization first"
                )
            shape = (columns, rows) if flat else (rows, columns)
            matrices.append(Matrix(label, path, "weight", *shape, transposed=flat))
    ignored = {m.parameter for m in matrices if id(m.of(block)) in fixed}
    dense += sorted(ignored)
    covered = {m.parameter for m in matrices} | set(dense)
    uncovered = []
    for local, parameter in block.named_parameters():
        full = f"{name}.{local}"
        owner = block.get_submodule(local.rpartition(".")[0])
        if parameter.dim() < 2 or full in covered:
            continue
        if local.endswith("bias"):  # of fused experts, a row each
            continue
        if id(parameter) in fixed or isinstance(owner, _NO_MATRICES):
            dense.append(full)
        else:
            uncovered.append(f"{full} {list(parameter.shape)}")
    for matrix in matrices:
        if matrix.parameter not in ignored:
            dtype = matrix.of(block).dtype
            if not dtype.is_floating_point or dtype.itemsize < 2:
                raise invalid(f"{matrix.parameter} is {dtype}: quantised weights cannot be pruned")
    kept = tuple(matrix for matrix in matrices if matrix.parameter not in ignored)
    # A block without matrices has no outcome, so that steps of training would be lost.
    vectors = tuple(_vectors(block, {matrix.module for matrix in kept}, fixed)) if kept else ()
    return Block(index, name, kept, tuple(dense), vectors), uncovered


def _vectors(block: Any, modules: Set[str], fixed: Set[int]) -> Iterable[str]:
    """Weights and biases of norms, and biases of these modules. Other parameters with one dimension are
    something else: decays of a state space, what chooses experts.
    """
    for name, parameter in block.named_parameters():
        module, _, attribute = name.rpartition(".")
        is_norm = "norm" in type(block.get_submodule(module)).__name__.lower()
        if (
            parameter.dim() == 1
            and parameter.is_floating_point()
            and id(parameter) not in fixed
            and (is_norm or (module in modules and attribute == "bias"))
        ):
            yield name
