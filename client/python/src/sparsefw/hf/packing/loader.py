"""Packed folders for transformers' from_pretrained: a quantizer, registered when this module is imported.

The tensors of a packed folder have the names that they had. What is loaded is the dense model that was
packed: it can be trained and saved, and nothing of it says that it was packed.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.core_model_loading import ConversionOps, WeightConverter
from transformers.quantizers.auto import register_quantization_config, register_quantizer
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from sparsefw.errors import invalid
from sparsefw.hf.checkpoint import DTYPES
from sparsefw.hf.packing.codec import MAGIC, Decoder, words_type, zstandard
from sparsefw.hf.packing.folders import FORMAT, METHOD


@register_quantization_config(METHOD)
class PackedConfig(QuantizationConfigMixin):  # type: ignore[misc]
    """`quantization_config` of a packed folder's config.json."""

    def __init__(self, format: int = FORMAT, **_: Any) -> None:
        self.quant_method = METHOD
        self.format = format

    @property
    def dequantize(self) -> bool:
        """Transformers then forgets after loading that there was a quantizer."""
        return True


class _View:
    """The bytes of a tensor, as a codec.Reader: pieces of a mapped file, which nobody copies."""

    def __init__(self, value: Any) -> None:
        self._left = memoryview(value.numpy())

    def read(self, count: int) -> memoryview:
        """At most what is left."""
        data, self._left = self._left[:count], self._left[count:]
        return data


class Unpack(ConversionOps):  # type: ignore[misc]
    """Tensors as they were. Each parameter of a model has an operation of its own."""

    def __init__(self, most: int) -> None:
        """`most`: weights of the model, which no tensor can have more of."""
        self.most = most
        self.dtype: Any = None  # that the parameter will have

    def convert(self, input_dict: dict[str, Any], **_: Any) -> dict[str, Any]:
        """What follows is transformers' own: several tensors may make one parameter."""
        return {
            pattern: [self._plain(value, self.most) for value in values]
            for pattern, values in input_dict.items()
        }

    def _plain(self, value: Any, most: int) -> Any:
        if value.dtype != torch.uint8 or value.dim() != 1 or bytes(value[: len(MAGIC)].tolist()) != MAGIC:
            return value
        decoder = Decoder(_View(value))
        if decoder.elements > most:
            raise invalid(f"a tensor would have {decoder.elements} weights; there is room for {most}")
        whole = torch.empty(decoder.shape, dtype=DTYPES[decoder.dtype])
        there = whole.view(-1).view(torch.uint8).numpy().view(words_type(decoder.dtype))
        begin = 0
        for words in decoder.chunks():
            there[begin : begin + len(words)] = words
            begin += len(words)
        return whole.to(self.dtype or whole.dtype)


class UnpackOne(Unpack):
    """The same for parameters that are made of one tensor each."""

    def convert(self, input_dict: dict[str, Any], **facts: Any) -> dict[str, Any]:
        """By the name of the parameter."""
        ((value,),) = input_dict.values()
        name = facts["full_layer_name"]
        return {name: self._plain(value, facts["model"].get_parameter_or_buffer(name).numel())}


@register_quantizer(METHOD)
class PackedQuantizer(HfQuantizer):  # type: ignore[misc]
    """Unpacks tensors while transformers loads them, one parameter at a time."""

    def validate_environment(self, *_: Any, **__: Any) -> None:
        """Before anything is read."""
        zstandard()
        if not self.pre_quantized:
            raise invalid("a model is packed by `sparsefw pack`, not while it is loaded")
        number = self.quantization_config.format
        if number != FORMAT:
            raise invalid(f"the folder is packed in format {number}; this version reads {FORMAT}")

    def update_weight_conversions(self, weight_conversions: list[Any], model: Any) -> list[Any]:
        """Unpacking comes before what transformers does to make parameters of tensors."""
        most = sum(value.numel() for value in model.state_dict().values())
        first = [
            entry.copy(
                list(entry._original_source_patterns),
                list(entry._original_target_patterns),
                operations=[Unpack(most), *entry.operations],
                force_cpu=True,
            )
            if isinstance(entry, WeightConverter)
            else entry
            for entry in weight_conversions
        ]
        return [*first, WeightConverter("^(.+)$", r"\1", [UnpackOne(most)], force_cpu=True)]

    def get_new_dtype(self, converter: Any, param: Any, dtype: Any) -> Any:
        """Packed tensors are bytes until they are unpacked."""
        for operation in getattr(converter, "operations", ()):
            if isinstance(operation, Unpack):
                operation.dtype = dtype
        return super().get_new_dtype(converter, param, dtype)

    def _process_model_after_weight_loading(self, model: Any, **_: Any) -> Any:
        model._weight_conversions = None  # saving then takes the model's own
        return model

    def is_serializable(self) -> bool:
        """It is a dense model."""
        return True

    @property
    def is_trainable(self) -> bool:
        """It is a dense model."""
        return True
