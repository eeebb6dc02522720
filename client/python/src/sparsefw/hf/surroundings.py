"""What a caller may have set around a call, and what would change its outcome."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def own_surroundings() -> Iterator[None]:
    """New tensors are on the CPU unless the code says otherwise. Autocast keeps no converted weights, which
    would be those from before the weights were pruned.
    """
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    torch.clear_autocast_cache()
    try:
        with torch.device("cpu") if torch.empty(0).device.type != "cpu" else contextlib.nullcontext():
            yield
    finally:
        torch.set_autocast_cache_enabled(before)
