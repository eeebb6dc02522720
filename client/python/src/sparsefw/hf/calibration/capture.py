"""What the blocks of a model are called with: the first block's input, every block's other arguments."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from sparsefw.errors import invalid


class _Stop(Exception):
    """Ends a forward pass whose rest is of no interest."""


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of one block, without its hidden states.

    Attributes:
        rest:    positional arguments after the hidden states.
        keyword: the hidden states' name, or "" where they are the first positional argument.
    """

    rest: tuple[Any, ...]
    arguments: Mapping[str, Any]
    keyword: str = ""

    def run(self, block: Any, hidden: Any) -> Any:
        """The block's hidden states out."""
        if self.keyword:
            out = block(*self.rest, **{**self.arguments, self.keyword: hidden})
        else:
            out = block(hidden, *self.rest, **self.arguments)
        return out[0] if isinstance(out, tuple) else out


# [block][sample]
Calls = list[list[Call]]


class _Shared:
    """One tensor for all that are equal: masks and rotary embeddings are those of every sample and
    of many blocks.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], list[Any]] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            value = value.detach()
            known = self._known.setdefault((tuple(value.shape), value.dtype), [])
            for other in known:
                if other is value or torch.equal(other, value):
                    return other
            if len(known) < 8:  # of what every sample has anew, not all are compared
                known.append(value)
            return value
        if isinstance(value, tuple | list):
            return type(value)(self(item) for item in value)
        if isinstance(value, dict):
            return {key: self(item) for key, item in value.items()}
        return value


@contextlib.contextmanager
def _replaced(block: Any, forward: Callable[..., Any]) -> Iterator[None]:
    """The block runs `forward` instead of its own."""
    before = block.__dict__.get("forward")
    block.forward = forward
    try:
        yield
    finally:
        del block.forward
        if before is not None:
            block.forward = before


def _split(args: tuple[Any, ...], arguments: dict[str, Any]) -> tuple[Any, Call]:
    if args:
        return args[0], Call(args[1:], arguments)
    if isinstance(arguments.get("hidden_states"), torch.Tensor):
        rest = {key: value for key, value in arguments.items() if key != "hidden_states"}
        return arguments["hidden_states"], Call((), rest, "hidden_states")
    raise invalid(f"the blocks get no hidden states: they are called with {', '.join(arguments)}")


def forward(model: Callable[..., Any], tokens: Any) -> Any:
    """The model's output, without a cache where it knows of one."""
    try:
        return model(input_ids=tokens, use_cache=False)
    except TypeError as error:
        if "use_cache" not in str(error):
            raise
        return model(input_ids=tokens)


def _forward(model: Any, tokens: Any) -> Any:
    with contextlib.suppress(_Stop), torch.no_grad():
        return forward(model, tokens)


def first_call(model: Any, block: Any, tokens: Any) -> tuple[Any, Call]:
    """(hidden states, call) of the first block."""
    seen: list[tuple[Any, Call]] = []

    def stop(*args: Any, **arguments: Any) -> Any:
        seen.append(_split(args, arguments))
        raise _Stop

    with _replaced(block, stop):
        _forward(model, tokens)
    if not seen:
        raise invalid(f"the first block of {type(model).__name__} is not used")
    return seen[0]


def capture(
    model: Any,
    blocks: Sequence[Any],
    samples: Sequence[Any],
    tuple_length: int,
    take: Callable[[Any], None] = lambda hidden: None,
    run: Callable[[int, Callable[..., Any]], Callable[..., Any]] | None = None,
) -> Calls:
    """Runs what is before the blocks, and the blocks' own calls with blocks that do nothing.

    Keyword arguments are taken for each block: they differ (Gemma-3's rotary embeddings by attention
    type). Weights of blocks are not needed, nor is what follows the last one.

    Args:
        tuple_length: of what a block returns; 0: a tensor.
        take:         gets the first block's input of every sample, in their order, as it comes: all of them
                      may be more than fits into memory.
        run:          of a block's index and forward function, what runs the block after all.
    """
    calls: Calls = [[] for _ in blocks]
    shared = _Shared()

    position = 0  # in the forward pass of one sample

    def stand_in(block: Any) -> Callable[..., Any]:
        own = block.forward

        def forward(*args: Any, **arguments: Any) -> Any:
            nonlocal position
            index, position = position, position + 1
            if blocks[index] is not block:
                raise invalid(f"{type(model).__name__} does not run its blocks in their order")
            hidden, call = _split(args, arguments)
            if index == 0:
                take(hidden.detach())
            rest, named = shared(call.rest), shared(dict(call.arguments))
            calls[index].append(Call(rest, named, call.keyword))
            if index == len(blocks) - 1:
                raise _Stop
            if run:
                return run(index, own)(*args, **arguments)
            return (hidden, *[None] * (tuple_length - 1)) if tuple_length else hidden

        return forward

    with contextlib.ExitStack() as stack:
        for block in {id(block): block for block in blocks}.values():
            stack.enter_context(_replaced(block, stand_in(block)))
        for tokens in samples:
            position = 0
            _forward(model, tokens)
    if any(len(of_block) != len(samples) for of_block in calls):
        raise invalid(f"{type(model).__name__} does not run each of its blocks once")
    return calls


def tuple_length(block: Any, hidden: Any, call: Call) -> int:
    """The length of what a block returns; 0: a tensor."""
    returned: list[Any] = []
    handle = block.register_forward_hook(lambda _module, _args, out: returned.append(out))
    try:
        with torch.no_grad():
            call.run(block, hidden)
    finally:
        handle.remove()
    return len(returned[0]) if isinstance(returned[0], tuple) else 0


def after_blocks(model: Any, blocks: Sequence[Any], tokens: Any, hidden: Any, tuple_length: int) -> Any:
    """The logits [1, tokens, vocabulary] that the model makes of what its last block gave.

    Args:
        hidden: what the last block made of the sample.
    """
    out = (hidden, *[None] * (tuple_length - 1)) if tuple_length else hidden
    with contextlib.ExitStack() as stack:
        for block in {id(block): block for block in blocks}.values():
            stack.enter_context(_replaced(block, lambda *_args, **_arguments: out))
        return _forward(model, tokens).logits


def check_independent(captured: Calls, true: Calls) -> None:
    """Raises InvalidArgument where a block is called with what blocks before it made, besides the hidden
    states: then its calls cannot be known without running them.

    Args:
        captured, true: of the first sample, without and with blocks that run.
    """
    for index, (ours, theirs) in enumerate(zip(captured, true, strict=True)):
        one, other = ours[0], theirs[0]
        for name in dict.fromkeys([*one.arguments, *other.arguments]):
            if not _equal(one.arguments.get(name), other.arguments.get(name)):
                raise invalid(f'the argument "{name}" of block {index} depends on the blocks before it')
        if not _equal(one.rest, other.rest):
            raise invalid(f"a positional argument of block {index} depends on the blocks before it")


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and bool(torch.equal(one, other))
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(_equal(a, b) for a, b in zip(one, other, strict=True))
    # Also what is no dict, such as the states of keys and values that some blocks fill for others.
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    return isinstance(one, torch.Tensor) == isinstance(other, torch.Tensor) and type(one) is type(other)
