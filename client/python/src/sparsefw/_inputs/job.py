"""The tensors of one job."""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from typing import Any, Final

import grpc
import numpy as np

from sparsefw import arrays
from sparsefw.arrays import Buffer, as_buffer
from sparsefw.errors import Error, invalid, refuse

DTYPES: Final[dict[str, tuple[str, ...]]] = {
    "weight": ("float32", "float16", "bfloat16"),
    "gram": ("float32", "float64"),
    "saliency": ("float32",),
    "mask": ("bool",),
}
_STORED: Final = {"float32": "<f4", "float64": "<f8"}
_ONLY_ZEROS: Final = (
    "so every mask loses nothing and none is better than another; look at where the activations are taken "
    "from"
)


class Inputs:
    """The tensors of one job: names on the server, or arrays that are uploaded for it."""

    def __init__(self, weight: Any, gram: Any, activations: Any, warm_start: Any) -> None:
        if gram is None and activations is None:
            raise invalid(
                "gram or activations must be given: a layer is pruned by the inputs that it sees "
                "(a Gram matrix [d_in, d_in], or activations [tokens, d_in])"
            )
        if gram is not None and activations is not None:
            raise invalid("gram and activations must not both be given")
        self.weight = _named_or_array(weight, "weight")
        self.gram = None if gram is None else _named_or_array(gram, "gram")
        self.activations = activations
        self.shape = tuple(self.weight.shape) if isinstance(self.weight, Buffer) else _shape_of(weight)
        # How many tokens the Gram matrix is a sum over; 0: unknown.
        self.tokens = 0 if isinstance(self.gram, Buffer) else int(getattr(gram, "tokens", 0))
        if self.shape and self.gram is not None:
            check_gram(self.gram.shape if isinstance(self.gram, Buffer) else _shape_of(gram), self.shape)
        if self.shape and arrays.is_array(activations):
            check_activations(tuple(activations.shape), self.shape)
        self.warm_start: str | Buffer | None = None
        self.warm_kind = ""
        if warm_start is not None and not isinstance(warm_start, str):
            self._take_warm_start(warm_start)
        elif isinstance(warm_start, str) and warm_start.startswith("tensors/"):
            raise invalid("a warm start that is on the server must be given as its Tensor")

    def _take_warm_start(self, value: Any) -> None:
        if hasattr(value, "kind") and hasattr(value, "name"):
            self.warm_kind, self.warm_start = value.kind, value.name
        else:
            self.warm_start = as_buffer(value, "warm_start", ("bool", "float32"))
            self.warm_kind = "mask" if self.warm_start.dtype == "bool" else "saliency"
        if self.warm_kind not in ("mask", "saliency"):
            raise invalid(f"warm_start must be a mask or a saliency; got a {self.warm_kind}")


def _named_or_array(value: Any, kind: str) -> str | Buffer:
    if isinstance(value, str):
        return value
    name = getattr(value, "name", None)
    if isinstance(name, str) and name.startswith("tensors/"):
        return name
    return as_buffer(value, kind, DTYPES[kind])


def _shape_of(handle: Any) -> tuple[int, ...]:
    """The shape of a tensor on the server; () where only its name is known."""
    return tuple(getattr(handle, "shape", ()))


def check_activations(shape: tuple[int, ...], weight: tuple[int, ...]) -> None:
    """Raises SHAPE_MISMATCH where activations of this shape are not the inputs of the weight."""
    inputs = weight[1]
    if len(shape) < 2 or shape[-1] == inputs:
        return
    turned = ", which looks transposed: pass x.T" if shape[-2] == inputs else ""
    raise _mismatch(
        f"activations must be [tokens, {inputs}] to fit the weight {list(weight)}; got {list(shape)}{turned}"
    )


def check_gram(shape: tuple[int, ...], weight: tuple[int, ...]) -> None:
    """Raises SHAPE_MISMATCH where a matrix of this shape is not the weight's Gram matrix."""
    inputs = weight[1]
    if len(shape) != 2 or shape == (inputs, inputs):
        return
    hint = ""
    if shape[0] == shape[1]:
        hint = "; of activations x [tokens, d_in] it is x.T @ x, not x @ x.T"
    elif shape[1] == inputs:
        hint = "; these may be activations: activations="
    elif shape[0] == inputs:
        hint = "; these may be activations, transposed: activations=x.T"
    raise _mismatch(
        f"gram must be [{inputs}, {inputs}] to fit the weight {list(weight)}; got {list(shape)}{hint}"
    )


def _mismatch(message: str) -> Error:
    """As the server refuses it, with what the shape may be instead."""
    return refuse(grpc.StatusCode.INVALID_ARGUMENT, "SHAPE_MISMATCH", message)


def warn_of_zeros(gram: Buffer) -> None:
    """Warns of a Gram matrix of activations that are all zero: nothing tells one mask from another."""
    if not np.any(np.diagonal(np.frombuffer(gram.data, _STORED[gram.dtype]).reshape(gram.shape))):
        warnings.warn(f"the diagonal of gram is zero, {_ONLY_ZEROS}", stacklevel=2)


def warn_of_zero_activations() -> None:
    """Warns of activations that are all zero, as of their Gram matrix."""
    warnings.warn(f"activations are only zeros, {_ONLY_ZEROS}", stacklevel=2)


def warn_of_tokens(tokens: int, inputs: int) -> None:
    """Warns of fewer tokens than inputs; 0 tokens: their number is unknown."""
    if 0 < tokens < inputs:
        warnings.warn(
            f"{tokens} tokens are fewer than the {inputs} inputs, so the mask fits these tokens better than "
            'others; take more tokens (shrinkage=0.1 makes up for some of it, and the presets "balanced" and '
            '"best" have one)',
            stacklevel=2,
        )


def warn_of_square(shape: tuple[int, ...]) -> None:
    """Warns of activations whose shape does not say which side is which."""
    if len(shape) == 2 and shape[0] == shape[1]:
        warnings.warn(
            f"activations {list(shape)} are square: rows are taken for tokens and columns for inputs, "
            "whatever is meant",
            stacklevel=2,
        )


def warn_of_rank(gram: Buffer, tokens: int) -> None:
    """Warns of a Gram matrix that is no sum over so many tokens; 0: their number is unknown."""
    if not 0 < tokens < gram.shape[0]:
        return
    matrix = np.frombuffer(gram.data, _STORED[gram.dtype]).reshape(gram.shape)
    trace, squares = float(np.trace(matrix, dtype=np.float64)), float(np.vdot(matrix, matrix))
    # At most the rank, which is at most `tokens`; rounding to float32 may add a little.
    rank = trace * trace / squares if squares > 0 else 0.0
    if rank > 1.01 * tokens:
        warnings.warn(
            f"the rank of gram is at least {rank:.0f}, that of a sum over {tokens} tokens at most {tokens}; "
            "of activations x [tokens, d_in] the Gram matrix is x.T @ x, not x @ x.T",
            stacklevel=2,
        )


async def each_batch(batches: Any) -> AsyncGenerator[Any, None]:
    """The batches of one array, of an iterable or of an asynchronous iterable of them."""
    if arrays.is_array(batches):
        yield batches
    elif isinstance(batches, AsyncIterable):
        async for batch in batches:
            yield batch
    elif isinstance(batches, Iterable):
        for batch in batches:
            yield batch
    else:
        yield np.asarray(batches)  # as_buffer says what is wrong with it
