"""Pruned models made smaller without loss, and masks alone.

    from sparsefw.hf import packing

    print(packing.pack("pruned/", "packed/"))
    model = transformers.AutoModelForCausalLM.from_pretrained("packed/")  # after `import sparsefw.hf.packing`
    packing.unpack("packed/", "pruned-again/")

Needs zstandard: pip install 'sparsefw[pack]'.
"""

from sparsefw.hf.packing import loader as _loader  # registers it
from sparsefw.hf.packing.folders import pack, unpack
from sparsefw.hf.packing.report import Packed

__all__ = ["Packed", "pack", "unpack"]
