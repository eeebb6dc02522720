"""Where the blocks of a model come from: a model in memory, or a folder that is read block by block."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final, Protocol

import torch

from sparsefw import arrays
from sparsefw.errors import invalid
from sparsefw.hf.checkpoint import KEPT, NEW, PRUNED, Checkpoint, meta_model, unload
from sparsefw.hf.layout import Block, Matrix, find_blocks

MASK: Final = "|mask"
WEIGHT: Final = "|weight"
VECTOR: Final = "|vector"
# Keys of a configuration; saving a model sets some of them. The weights have their dtype.
_ORIGIN: Final = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")


def pack(matrix: Matrix, mask: Any, weight: Any) -> tuple[str, Any]:
    """(name, tensor) of an outcome, as it is kept: a bit a weight, or the new weights."""
    if weight is not None:
        return matrix.name + WEIGHT, weight.contiguous()
    packed = arrays.pack_mask(mask.numpy())
    data = torch.frombuffer(bytearray(packed.data), dtype=torch.uint8)
    return matrix.name + MASK, data.reshape(matrix.rows, arrays.row_bytes(matrix.columns))


def pack_vectors(block: Any, layout: Block) -> dict[str, Any]:
    """The block's vectors as they are, by the names under which they are kept."""
    return {
        f"{layout.name}.{name}{VECTOR}": block.get_parameter(name).detach().cpu().clone()
        for name in layout.vectors
    }


def device_to_load(source: Source) -> Any:
    """Where all of the model goes for distillation; None: it is in memory."""
    return None if isinstance(source, InMemory) else source.device


def packed(block: Any, layout: Block) -> dict[str, Any]:
    """All of a trained block that a run may have changed."""
    tensors = dict(
        pack(matrix, None, matrix.view(block).detach().cpu().clone()) for matrix in layout.matrices
    )
    return tensors | pack_vectors(block, layout)


def _vectors(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Those of outcomes, by parameter."""
    return {name.removesuffix(VECTOR): value for name, value in tensors.items() if name.endswith(VECTOR)}


def apply(block: Any, layout: Block, tensors: Mapping[str, Any]) -> None:
    """Writes outcomes into the block's parameters, in place."""
    with torch.no_grad():
        for name, value in _vectors(tensors).items():
            block.get_parameter(name.removeprefix(f"{layout.name}.")).copy_(value)
        for matrix in layout.matrices:
            view = matrix.view(block)
            mask = _mask(matrix, tensors)
            if mask is None:
                view.copy_(tensors[matrix.name + WEIGHT])
            else:
                view.masked_fill_(~mask.to(view.device), 0)


def _mask(matrix: Matrix, tensors: Mapping[str, Any]) -> Any:
    """None where the outcome is new weights."""
    if matrix.name + WEIGHT in tensors:
        return None
    packed = tensors[matrix.name + MASK].numpy()
    return torch.from_numpy(arrays.unpack_mask(packed.tobytes(), (matrix.rows, matrix.columns)))


def _computing(config: Any) -> Any:
    """What is left of a configuration without what says where the model comes from."""
    if isinstance(config, dict):
        return {str(key): _computing(value) for key, value in config.items() if key not in _ORIGIN}
    return [_computing(value) for value in config] if isinstance(config, list | tuple) else config


def _kind(value: Any) -> str:
    """The kind of a value that JSON does not know; its text may have an address in it, which is
    another in every process.
    """
    return str(value) if isinstance(value, torch.dtype) else type(value).__qualname__


class Source(Protocol):
    """A model whose blocks are used one after the other."""

    model: Any

    @property
    def device(self) -> Any:
        """Where token ids go in."""
        ...

    def digest(self) -> Any:
        """The digest of all that the model computes with."""
        ...

    def prologue(self) -> contextlib.AbstractContextManager[None]:
        """Within it, what is before the blocks can run."""
        ...

    def surroundings(self) -> contextlib.AbstractContextManager[None]:
        """Within it, all that is outside of the blocks can run."""
        ...

    def block(self, index: int) -> contextlib.AbstractContextManager[Any]:
        """The block, which can run within it."""
        ...

    def whole(self, layout: Sequence[Block], outcomes: Any) -> contextlib.AbstractContextManager[None]:
        """Within it, all of the pruned model can run and be changed; `outcomes(index)` are the tensors of a
        block.
        """
        ...

    def stored_bytes(self) -> int:
        """What the weights of the folder take that `write` makes."""
        ...

    def write(self, out: Path, layout: Sequence[Block], outcomes: Any) -> None:
        """The pruned model as a folder; `outcomes(index)` are the tensors of a block."""
        ...


class InMemory:
    """A model that is there. It is pruned in place."""

    def __init__(self, model: Any) -> None:
        if not isinstance(model, torch.nn.Module):
            got = type(model).__name__
            raise invalid(f"model must be a folder, a name on the hub or a torch.nn.Module; got {got}")
        if any(parameter.device.type == "meta" for parameter in model.parameters()):
            raise invalid("the model has parameters on the device meta; give its folder instead")
        self.model = model
        self._blocks = model.get_submodule(find_blocks(model))

    @property
    def device(self) -> Any:
        try:
            embedding = self.model.get_input_embeddings()
        except (AttributeError, NotImplementedError):  # not every model says which it is
            embedding = None
        parts = [embedding] if isinstance(embedding, torch.nn.Module) else []
        parameters = (parameter for part in [*parts, self.model] for parameter in part.parameters())
        return next(parameters).device

    def digest(self) -> dict[str, str]:
        state = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            state.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
            data = tensor.detach().contiguous().cpu().reshape(-1)
            if data.numel():
                state.update(data.view(torch.uint8).numpy().data)
        # Activations, masks of attention, scales: the same weights can compute something else.
        config = self.model.config
        config = _computing(config.to_dict() if hasattr(config, "to_dict") else vars(config))
        text = json.dumps([type(self.model).__name__, config], sort_keys=True, default=_kind)
        return {"config": hashlib.sha256(text.encode()).hexdigest(), "weights": state.hexdigest()}

    @contextlib.contextmanager
    def prologue(self) -> Iterator[None]:
        yield

    @contextlib.contextmanager
    def surroundings(self) -> Iterator[None]:
        yield

    @contextlib.contextmanager
    def block(self, index: int) -> Iterator[Any]:
        yield self._blocks[index]

    @contextlib.contextmanager
    def whole(self, layout: Sequence[Block], outcomes: Any) -> Iterator[None]:
        yield  # it is there, and pruned

    def stored_bytes(self) -> int:
        return sum(value.numel() * value.element_size() for value in self.model.parameters())

    def write(self, out: Path, layout: Sequence[Block], outcomes: Any) -> None:
        self.model.save_pretrained(out)


def _device_of(name: Any) -> Any:
    """Raises InvalidArgument where PyTorch has no such device here: before work rather than in it."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        why = str(error).partition("\n")[0]
        raise invalid(f'device must be one that PyTorch has here; got "{name}": {why}') from None
    return device


class Streamed:
    """A folder of transformers. One block is in memory at a time, the rest on the device "meta"."""

    def __init__(self, folder: Path, device: Any = "cpu") -> None:
        self._device = _device_of(device)
        self.model = meta_model(folder, device)
        self._checkpoint = Checkpoint(folder, self.model)
        self._path = find_blocks(self.model)
        self._blocks = self.model.get_submodule(self._path)
        self._check_shared()
        self._check_outside()

    def _check_shared(self) -> None:
        owners: dict[int, int] = {}
        for index, block in enumerate(self._blocks):
            for name, parameter in block.named_parameters():
                if owners.setdefault(id(parameter), index) != index:
                    raise invalid(
                        f"{self._path}.{index}.{name} belongs to block {owners[id(parameter)]} too; load the "
                        "model and pass it instead of its folder"
                    )

    def _check_outside(self) -> None:
        """Embeddings and all else that calibration runs must be there; the head it does not run."""
        unused = self._head_alone()
        names: dict[int, list[str]] = {}
        for name, value in self.model.named_parameters(remove_duplicate=False):
            if not name.startswith(f"{self._path}."):
                names.setdefault(id(value), []).append(name)
        for place, of_it in names.items():
            if place not in unused and len(self._checkpoint.missing(of_it)) == len(of_it):
                raise invalid(f"{self._checkpoint.folder}: has no tensor for {of_it[0]}")

    def check_writable(self, layout: Sequence[Block]) -> None:
        """Raises InvalidArgument where `write` could not write what is pruned."""
        self._checkpoint.check_writable(matrix.parameter for block in layout for matrix in block.matrices)

    @property
    def device(self) -> Any:
        # The parameters do not say: they are on the device "meta" until they are read.
        return self._device

    def digest(self) -> Any:
        return self._checkpoint.digest()

    def _names(self, index: int) -> list[str]:
        prefix = f"{self._path}.{index}."
        names = [prefix + name for name in self._blocks[index].state_dict()]
        missing = self._checkpoint.missing(names)
        if missing:
            raise invalid(f"{self._checkpoint.folder}: has no tensor for {missing[0]}")
        return names

    @contextlib.contextmanager
    def prologue(self) -> Iterator[None]:
        # The head is not run, and may be as large as the embeddings.
        with self._outside(self._head_alone()):
            yield

    def _head_alone(self) -> set[int]:
        """Ids of the output head's parameters that are not the embeddings', too."""
        head, embedding = self.model.get_output_embeddings(), self.model.get_input_embeddings()
        of_head = {id(value) for value in head.parameters()} if head is not None else set()
        return of_head - {id(value) for value in embedding.parameters()}

    @contextlib.contextmanager
    def surroundings(self) -> Iterator[None]:
        with self._outside(set()):
            yield

    @contextlib.contextmanager
    def _outside(self, unused: Set[int]) -> Iterator[None]:
        """With all that is not in blocks, but for parameters with these ids."""
        names = [
            name
            for name, value in self.model.state_dict(keep_vars=True).items()
            if not name.startswith(f"{self._path}.") and id(value) not in unused
        ]
        names = [name for name in names if not self._checkpoint.missing([name])]
        self._checkpoint.load(names, self._device)
        self.model.tie_weights()  # loading makes new parameters
        try:
            yield
        finally:
            unload(self.model, names)
            self.model.tie_weights()

    @contextlib.contextmanager
    def block(self, index: int) -> Iterator[Any]:
        names = self._names(index)
        self._checkpoint.load(names, self._device)
        try:
            yield self._blocks[index]
        finally:
            unload(self.model, names)

    @contextlib.contextmanager
    def whole(self, layout: Sequence[Block], outcomes: Any) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.surroundings())
            for of_block in layout:
                apply(stack.enter_context(self.block(of_block.index)), of_block, outcomes(of_block.index))
            yield

    def stored_bytes(self) -> int:
        return sum(path.stat().st_size for path in self._checkpoint.files)

    def write(self, out: Path, layout: Sequence[Block], outcomes: Any) -> None:
        copy = self._checkpoint.copy_to(out)
        for of_block in layout:
            if not of_block.matrices:
                continue
            tensors = outcomes(of_block.index)
            # Loaded also where masks would do: how names on disk are found again is known by loading.
            with self.block(of_block.index) as block:
                wanted = dict.fromkeys([matrix.parameter for matrix in of_block.matrices])
                wanted |= dict.fromkeys(_vectors(tensors))
                marks = self._checkpoint.on_disk(_marks(block, of_block, tensors), wanted)
                if not any(name.endswith(WEIGHT) for name in tensors):
                    for key, value in marks.items():
                        copy.patch(key, value)
                    continue
                apply(block, of_block, tensors)
                values = {
                    f"{of_block.name}.{name}": value.detach() for name, value in block.state_dict().items()
                }
                for key, value in self._checkpoint.on_disk(values, wanted).items():
                    copy.patch(key, marks[key], value)


def _marks(block: Any, layout: Block, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """What becomes of every weight of a block as it was loaded, by parameter. On disk the weights may have
    another dtype than in memory, in which those that are kept must not be written back.
    """
    marks = {
        f"{layout.name}.{name}": torch.full(value.shape, KEPT, dtype=torch.uint8)
        for name, value in block.state_dict().items()
    }
    for matrix in layout.matrices:
        view = matrix.within(marks[matrix.parameter])
        mask = _mask(matrix, tensors)
        if mask is None:
            view.fill_(NEW)
        else:
            view.masked_fill_(~mask, PRUNED)
    for name, value in _vectors(tensors).items():
        there = block.get_parameter(name.removeprefix(f"{layout.name}.")).detach().cpu()
        marks[name].masked_fill_(value != there, NEW)
    return marks
