"""Folders of tiny pruned models, and what is compared of them."""

import json
import struct

import pytest
import tiny
import torch
import transformers

pytest.importorskip("zstandard", reason="zstandard is not installed: client/python/make-environment --hf build/venv")

QUIET = {"progress": False}
IDS = tiny.tokens(2)


def zeroed(model, share=0.6):
    """Every matrix of the blocks without its smallest weights."""
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.dim() >= 2 and "layers" in name:
                value[value.abs() < value.abs().float().quantile(share).to(value.dtype)] = 0
    return model


def save(folder, family="llama", dtype=torch.float32, shards="50GB", **changes):
    """A pruned model with what else is in such a folder."""
    model = zeroed(tiny.make(family, dtype=dtype, hidden_size=64, **changes))
    model.save_pretrained(folder, max_shard_size=shards)
    (folder / "notes").mkdir()
    (folder / "notes/öther.txt").write_bytes(b"\x00\xff text")
    (folder / "README.md").write_text("a card")
    return model


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def identical(one, other):
    """Tensor by tensor and in the logits, bit for bit."""
    ours, theirs = one.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert value.dtype == theirs[name].dtype, name
        assert torch.equal(value.view(torch.uint8), theirs[name].view(torch.uint8)), name
    with torch.no_grad():
        assert torch.equal(one(IDS).logits, other(IDS).logits)


def load(folder, **options):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **options).eval()


def rewrite(path, change):
    """A safetensors file with another header."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
