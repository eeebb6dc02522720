"""The hidden states between two blocks, in memory or, where they are many, in a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, Protocol

import torch

from sparsefw.errors import invalid

# Bytes of all samples together, in all streams; above it they go to a file.
MEMORY_BYTES: Final = 256 << 20
_WIDEST: Final = 8


class Samples(Protocol):
    """One tensor a sample, in whatever place."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class HiddenStates:
    """One tensor a sample. They come, are read and are written by sample, so that a file needs no memory.

    A file is read and written in turn, not mapped: its pages are not memory of this process.
    """

    def __init__(self, folder: Path, streams: int = 1) -> None:
        """`folder`: where a file may be. `streams`: how many of these share the memory."""
        self._folder, self._limit = folder, MEMORY_BYTES // streams
        self._shapes: list[tuple[int, ...]] = []
        self._dtypes: list[Any] = []
        self._offsets = [0]
        self._file: int | None = None
        self._memory: list[Any] = []
        self._bytes = 0

    def append(self, sample: Any) -> None:
        """One more sample. Once they are too many for memory, they all go to the file."""
        self._shapes.append(tuple(sample.shape))
        self._dtypes.append(sample.dtype)
        # Blocks may return another dtype than they get.
        self._offsets.append(self._offsets[-1] + sample.numel() * _WIDEST)
        self._bytes += sample.numel() * sample.element_size()
        if self._file is None:
            self._memory.append(sample)
            if self._bytes > self._limit and sample.device.type == "cpu":
                self._to_file()
        else:
            self[len(self) - 1] = sample

    def _to_file(self) -> None:
        path = self._folder / f"hidden-states-{os.getpid()}"
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        path.unlink()  # it ends with the process
        for index in range(len(self)):
            self[index] = self._memory[index]
        self._memory = []

    def __len__(self) -> int:
        return len(self._shapes)

    def __getitem__(self, index: int) -> Any:
        if self._file is None:
            return self._memory[index]
        shape, dtype = self._shapes[index], self._dtypes[index]
        value = torch.empty(shape, dtype=dtype)
        data = memoryview(value.reshape(-1).view(torch.uint8).numpy())
        done = 0
        while done < len(data):
            done += os.preadv(self._file, [data[done:]], self._offsets[index] + done)
        return value

    def __setitem__(self, index: int, value: Any) -> None:
        if self._file is None:
            self._memory[index] = value
            return
        room = self._offsets[index + 1] - self._offsets[index]
        if value.numel() * value.element_size() > room:
            raise invalid(
                f"the hidden states of sample {index} must fit into {room} bytes after every block, twice "
                f"what the first one gets in float32; got {list(value.shape)}, {value.dtype}"
            )
        # The shape may be another than before: what is read must be what was written.
        self._shapes[index], self._dtypes[index] = tuple(value.shape), value.dtype
        # A scalar has no other view.
        data = memoryview(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        done = 0
        while done < len(data):
            try:
                done += os.pwrite(self._file, data[done:], self._offsets[index] + done)
            except OSError as error:
                error.filename = error.filename or str(self._folder)
                raise

    def close(self) -> None:
        """Lets the memory or the file go."""
        self._memory = []
        if self._file is not None:
            os.close(self._file)
            self._file = None
