"""Pruned models made smaller without loss, and masks alone.

    from sparsefw.hf import packing

    print(packing.pack("pruned/", "packed/"))
    model = transformers.AutoModelForCausalLM.from_pretrained("packed/")
    packing.unpack("packed/", "pruned-again/")

Importing sparsefw.hf is enough for from_pretrained. Needs zstandard: pip install 'sparsefw[pack]'.
"""

import sparsefw.hf.packing.loader  # noqa: F401  # registers itself with transformers
from sparsefw.hf.packing.folders import pack, unpack
from sparsefw.hf.packing.masks import Masks, apply_masks, pack_masks
from sparsefw.hf.packing.report import Packed

__all__ = ["Masks", "Packed", "apply_masks", "pack", "pack_masks", "unpack"]
