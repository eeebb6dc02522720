"""PyTorch's tensors and modules as objects of Ray, whose arrays are read where they are."""

from __future__ import annotations

import io
import pickle
import warnings
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import ray
import torch
from ray.cloudpickle import CloudPickler

from sparsefw._cluster.stored import Stored

# Tensors outside of blocks that are put once for all blocks: masks, rotary embeddings.
_SHARED: Final = 64
_ALIGNMENT: Final = 64


class Detached(NamedTuple):
    """A value without its tensors, pickled, and the tensors' objects in the order of their numbers."""

    skeleton: bytes
    tensors: tuple[Any, ...]


def stored(tensor: Any) -> Stored:
    """A tensor for `ray.put`, on the CPU."""
    data = tensor.detach().cpu().contiguous()
    name = str(data.dtype).removeprefix("torch.")
    return Stored(data.reshape(-1).view(torch.uint8).numpy(), name, tuple(data.shape))


def tensor_of(value: Stored) -> Any:
    """Over the memory of the object: it must not be written to."""
    dtype = getattr(torch, value.dtype)
    if not value.data.size:
        return torch.empty(value.shape, dtype=dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        tensor = torch.from_numpy(value.data).view(dtype).reshape(value.shape)
    # Where memory begins may decide the last bits of a product. PyTorch's own begins at such addresses, and
    # so do Ray's large objects.
    return tensor if tensor.data_ptr() % _ALIGNMENT == 0 else tensor.clone()


def own_copy(value: Stored) -> Any:
    """A tensor with memory of its own."""
    return tensor_of(value).clone()


class _Detacher(CloudPickler):  # type: ignore[misc]
    """Pickles a value; tensors become numbers."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.tensors: list[Any] = []
        self._numbers: dict[int, int] = {}

    def persistent_id(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return None
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self.tensors)
            self.tensors.append(value)
        return self._numbers[id(value)], isinstance(value, torch.nn.Parameter), value.requires_grad


def _detached(value: Any) -> tuple[bytes, list[Any]]:
    file = io.BytesIO()
    detacher = _Detacher(file)
    detacher.dump(value)
    return file.getvalue(), detacher.tensors


class _Attacher(pickle.Unpickler):
    def __init__(self, skeleton: bytes, tensors: Sequence[Any]) -> None:
        super().__init__(io.BytesIO(skeleton))
        self._tensors, self._known = tensors, dict[int, Any]()

    def persistent_load(self, saved: Any) -> Any:
        number, parameter, gradient = saved
        if number not in self._known:
            tensor = self._tensors[number]
            gradient = gradient and tensor.is_floating_point()
            self._known[number] = torch.nn.Parameter(tensor, requires_grad=gradient) if parameter else tensor
        return self._known[number]


def attach(skeleton: bytes, tensors: Sequence[Any]) -> Any:
    """The value, with these tensors."""
    return _Attacher(skeleton, tensors).load()


class Objects:
    """What the driver puts into Ray's object store.

    Attributes:
        sent: bytes by kind: "weight", "gram", "call", "hidden", "outcome".
    """

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        # By the tensor's address; the tensor is kept, so that no other gets it.
        self._shared: OrderedDict[int, tuple[Any, Any]] = OrderedDict()

    def put(self, tensor: Any, kind: str) -> Any:
        """The object of a tensor."""
        value = stored(tensor)
        self.sent[kind] += value.data.nbytes
        return ray.put(value)

    def put_samples(self, samples: Sequence[Any]) -> Any:
        """The object of some hidden states, a list of Stored."""
        values = [sample if isinstance(sample, Stored) else stored(sample) for sample in samples]
        self.sent["hidden"] += sum(value.data.nbytes for value in values)
        return ray.put(values)

    def detach_block(self, block: Any) -> tuple[Detached, dict[int, Any]]:
        """A module, and the objects of its tensors by the tensors' ids."""
        skeleton, tensors = _detached(block)
        refs = {id(tensor): self.put(tensor, "weight") for tensor in tensors}
        return Detached(skeleton, tuple(refs[id(tensor)] for tensor in tensors)), refs

    def detach_calls(self, calls: Sequence[Any]) -> Detached:
        """Arguments of a block. Those that many calls have in common are put once."""
        skeleton, tensors = _detached(list(calls))
        return Detached(skeleton, tuple(self._once(tensor) for tensor in tensors))

    def _once(self, tensor: Any) -> Any:
        if id(tensor) not in self._shared:
            self._shared[id(tensor)] = tensor, self.put(tensor, "call")
        self._shared.move_to_end(id(tensor))
        while len(self._shared) > _SHARED:
            self._shared.popitem(last=False)
        return self._shared[id(tensor)][1]


def arrays_of(tensors: dict[str, Any] | None) -> dict[str, Stored] | None:
    """An outcome for Ray."""
    return None if tensors is None else {name: stored(tensor) for name, tensor in tensors.items()}
