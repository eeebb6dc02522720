"""Gram matrices of layers, summed while llm-compressor runs the samples through them."""

from __future__ import annotations

from typing import Any

from sparsefw.hf.calibration.grams import shards_of
from sparsefw.torch import GramSum


class _Shards:
    """The sum of one layer's inputs, shard by shard as in sparsefw.hf, so that it has the same bits."""

    def __init__(self, size: int) -> None:
        """`size`: samples of a shard."""
        self._size, self._shard = size, -1
        self._part: GramSum | None = None
        self._total: GramSum | None = None

    def add(self, sample: int, inputs: Any) -> None:
        if sample // self._size != self._shard:
            self._close()
            self._shard = sample // self._size
        if self._part is None:
            self._part = GramSum(inputs.shape[-1], inputs.device)
        self._part.add(inputs)

    def _close(self) -> None:
        if self._part is None:
            return
        self._part.round_to_float32()
        if self._total is None:
            self._total = self._part
        else:
            self._total.merge(self._part)
        self._part = None

    def total(self) -> GramSum:
        self._close()
        assert self._total is not None
        return self._total


class Sums:
    """The Gram matrices of layers. Layers that get the very same tensor, such as q, k and v, have one
    together: that of the first of them.
    """

    def __init__(self, samples: int) -> None:
        """`samples`: how many there are."""
        self._size = len(shards_of(samples)[0])
        self._sums: dict[Any, _Shards] = {}
        self._first: dict[Any, Any] = {}
        self._sample = -1
        # (tensor, its version, layer) of those that this sample is the first to reach.
        self._new: list[tuple[Any, int, Any]] = []

    def add(self, layer: Any, sample: int, inputs: Any) -> None:
        """Adds one sample's inputs [..., tokens, d_in] of a layer."""
        if sample != self._sample:
            self._sample = sample
            self._new.clear()
        if layer not in self._first:
            version = 0 if inputs.is_inference() else inputs._version
            same = (one for tensor, at, one in self._new if tensor is inputs and at == version)
            first = self._first[layer] = next(same, layer)
            if first is layer:
                self._new.append((inputs, version, layer))
                self._sums[layer] = _Shards(self._size)
        if self._first[layer] is layer:
            self._sums[layer].add(sample, inputs)

    def first(self, layer: Any) -> Any:
        """The layer whose sum this one shares; None where no sample reached it."""
        return self._first.get(layer)

    def total(self, layer: Any) -> GramSum:
        """The sum of a layer that is the first of its inputs."""
        return self._sums[layer].total()

    def clear(self) -> None:
        """Forgets all layers."""
        self._sums.clear()
        self._first.clear()
        self._new.clear()
