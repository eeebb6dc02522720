"""Gram matrices that several runs over the same model and text have in common."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from sparsefw.hf.state import write_tensors


class SharedGrams:
    """A folder of Gram matrices, float32 [d_in, d_in], each with its tokens. One process at a time."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def _path(self, block: int, key: str) -> Path:
        name = hashlib.blake2b(f"{block} {key}".encode(), digest_size=16).hexdigest()
        return self._folder / f"{name}.safetensors"

    def has(self, block: int, key: str) -> bool:
        """Whether it is there."""
        return self._path(block, key).exists()

    def load(self, block: int, key: str) -> tuple[Any, int]:
        """(the matrix, its tokens)"""
        tensors = load_file(self._path(block, key))
        return tensors["gram"], int(tensors["tokens"])

    def save(self, block: int, key: str, gram: Any, tokens: int) -> None:
        """Keeps one: a matrix, or where it is on a cluster."""
        matrix = gram if isinstance(gram, torch.Tensor) else gram.fetch()
        tensors = {"gram": matrix.contiguous(), "tokens": torch.tensor(tokens)}
        write_tensors(self._path(block, key), tensors)
