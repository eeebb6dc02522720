"""Files of safetensors, read and written piece by piece."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

from safetensors import SafetensorError, safe_open

from sparsefw.errors import invalid
from sparsefw.hf.checkpoint import DTYPES

# Bytes of a file that are copied at a time.
_PIECE: Final = 8 << 20
_LENGTH: Final = struct.Struct("<Q")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A tensor in a file; the offsets are those of the file."""

    name: str
    dtype: str
    shape: list[int]
    begin: int
    end: int

    @property
    def elements(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.begin


@dataclasses.dataclass(frozen=True)
class Shard:
    """A file of safetensors: its header word for word, and its tensors in the order of their bytes."""

    path: Path
    header: str
    metadata: dict[str, str]
    entries: list[Entry]

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.entries[-1].end if self.entries else len(length_and(self.header))

    def by_name(self) -> dict[str, Entry]:
        """The tensors."""
        return {entry.name: entry for entry in self.entries}


def read_shard(path: Path) -> Shard:
    """Reads the header. That offsets, shapes and the length of the file fit together the library checks.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): no such file, or no file of safetensors.
    """
    try:
        with safe_open(path, "np"):
            pass
        with open(path, "rb") as file:
            (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
            text = file.read(length).decode()
        parsed: dict[str, Any] = json.loads(text)
    except (OSError, SafetensorError, ValueError) as error:
        raise invalid(f"{path}: is no safetensors file: {error}") from None
    return _shard(path, text, parsed)


def first_dtype(path: Path) -> str | None:
    """PyTorch's name of the dtype that transformers gives to a model whose configuration has none: that of
    the first floating-point tensor by name. None: there is no such tensor.
    """
    entries = read_shard(path).by_name()
    kinds = (entries[name].dtype for name in sorted(entries) if entries[name].dtype in DTYPES)
    return next((str(DTYPES[kind]).removeprefix("torch.") for kind in kinds), None)


def _shard(path: Path, text: str, parsed: dict[str, Any]) -> Shard:
    metadata = parsed.pop("__metadata__", None) or {}
    start = _LENGTH.size + len(text.encode())
    entries = [
        Entry(name, e["dtype"], e["shape"], start + e["data_offsets"][0], start + e["data_offsets"][1])
        for name, e in parsed.items()
    ]
    return Shard(path, text, metadata, sorted(entries, key=lambda entry: (entry.begin, entry.end)))


def shard_of_header(path: Path, text: str) -> Shard:
    """The file that a header is of, which is not there.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): no header, or its offsets do not follow one another.
    """
    try:
        shard = _shard(path, text, json.loads(text))
        sound = all(
            isinstance(entry.dtype, str)
            and all(type(length) is int and length >= 0 for length in entry.shape)
            and type(entry.begin) is int
            and type(entry.end) is int
            for entry in shard.entries
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        sound = False
    if not sound:
        raise invalid(f"{path}: the header of the unpacked file is damaged")
    at = _LENGTH.size + len(text.encode())
    for entry in shard.entries:
        if entry.begin != at or entry.end < at:
            raise invalid(f"{path}: {entry.name}: its bytes are not those after the tensor before")
        at = entry.end
    return shard


class Hashed:
    """A file that is written, with the digest of its bytes."""

    def __init__(self, path: Path | None) -> None:
        """`path`: None: only the digest is wanted."""
        self._file: IO[bytes] | None = open(path, "xb") if path else None  # noqa: SIM115
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes | memoryview) -> None:
        """Appends."""
        if self._file:
            self._file.write(data)
        self._digest.update(data)
        self.size += len(data)

    def close(self) -> str:
        """On the disk from now on. Returns the digest, SHA-256."""
        if self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        return self._digest.hexdigest()

    def __enter__(self) -> Hashed:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()


class ShardWriter:
    """Writes tensors whose sizes are not known before: the header gets its place first, its text last."""

    def __init__(self, path: Path, room: int) -> None:
        """`room`: as `room_for` says, for all that will be added."""
        self._file: IO[bytes] = open(path, "xb")  # noqa: SIM115
        self._room = room
        self._file.write(bytes(_LENGTH.size + room))
        self._entries: dict[str, Any] = {}
        self._at = self._size = 0

    @staticmethod
    def room_for(entries: Iterable[tuple[str, list[int]]], metadata: Mapping[str, str]) -> int:
        """Bytes of a header with these names and shapes; packed tensors have a shape of one number."""
        most = 1 << 62
        text = {
            name: {"dtype": "F8_E4M3FNUZ", "shape": [*shape, most], "data_offsets": [most, most]}
            for name, shape in entries
        }
        length = len(json.dumps({"__metadata__": metadata, **text}).encode())
        return length + -length % 8

    def write(self, data: bytes | memoryview) -> None:
        """Bytes of the tensor that `add` names next."""
        self._file.write(data)
        self._size += len(data)

    @property
    def size(self) -> int:
        """Bytes since the last `add`."""
        return self._size

    def add(self, name: str, dtype: str, shape: list[int]) -> None:
        """What was written since the last call is this tensor."""
        end = self._at + self._size
        self._entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [self._at, end]}
        self._at, self._size = end, 0

    def close(self, metadata: Mapping[str, str]) -> None:
        """The file is whole, and on the disk."""
        text = json.dumps({"__metadata__": metadata, **self._entries}).encode()
        assert len(text) <= self._room
        self._file.seek(0)
        self._file.write(_LENGTH.pack(self._room) + text.ljust(self._room))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class Part:
    """The bytes of a tensor in an open file, as a codec.Reader."""

    def __init__(self, file: IO[bytes], entry: Entry) -> None:
        file.seek(entry.begin)
        self._file = file
        self._left = entry.size

    def read(self, count: int) -> bytes:
        """At most what is left of the tensor."""
        data = self._file.read(min(count, self._left))
        self._left -= len(data)
        return data

    def pieces(self, size: int = _PIECE) -> Iterator[bytes]:
        """All that is left."""
        while self._left:
            data = self.read(size)
            if not data:
                raise invalid(f"{self._file.name}: ends early")
            yield data


def length_and(header: str) -> bytes:
    """What a file begins with."""
    text = header.encode()
    return _LENGTH.pack(len(text)) + text


def copy_file(source: Path, out: Path) -> tuple[int, str]:
    """(bytes, digest)"""
    with open(source, "rb") as file, Hashed(out) as copy:
        while piece := file.read(_PIECE):
            copy.write(piece)
        return copy.size, copy.close()


def digest_of(data: bytes) -> tuple[int, str]:
    """(bytes, digest)"""
    return len(data), hashlib.sha256(data).hexdigest()
