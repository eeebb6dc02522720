"""What a task cost the node that ran it."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import ray
import torch

from sparsefw._cluster.node import here, processor

# Bytes by object that the running task has fetched by itself; a process runs one task at a time.
_fetched: Final[dict[bytes, int]] = {}


@dataclasses.dataclass(frozen=True)
class Spent:
    """Attributes:
    node:      where the task ran.
    processor: of that node, its type.
    pytorch:   PyTorch's path for it. Others may give other bits.
    seconds:   of the task, without the wait for its arguments, but with that for what it fetches by itself:
               parts of a Gram matrix that it adds, inputs and targets of a refinement.
    read:      bytes of the arrays that it was given or has fetched, each once, wherever they were before.
    """

    node: str
    processor: str
    pytorch: str
    seconds: float
    read: int


def metered(function: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """The function of a task, with a Spent as one more outcome."""

    @functools.wraps(function)
    def run(*args: Any) -> tuple[Any, ...]:
        _fetched.clear()
        started = time.monotonic()
        found = function(*args)
        read = _bytes(args) + sum(_fetched.values())
        seconds = time.monotonic() - started
        return *found, Spent(here(), processor(), torch.backends.cpu.get_cpu_capability(), seconds, read)

    return run


def fetch(ref: Any) -> Any:
    """An object that a task reads while it runs."""
    value = ray.get(ref)
    _fetched[ref.binary()] = _bytes(value)
    return value


def _bytes(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if isinstance(value, dict):
        return sum(map(_bytes, value.values()))
    return sum(map(_bytes, value)) if isinstance(value, list | tuple) else 0
