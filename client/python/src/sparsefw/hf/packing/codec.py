"""A tensor as a string of bytes that is smaller: a bit mask, and the values that are not zero in planes.

docs/packing.md has the format. Every bit of a tensor is kept, negative zeros and payloads of NaN included.
"""

from __future__ import annotations

import importlib
import json
import math
import struct
from collections.abc import Iterator
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from sparsefw.errors import invalid

# The dtypes of safetensors that are packed, with the bytes of an element.
SIZES: Final = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
# Elements that are coded at a time: the memory that packing and unpacking take.
CHUNK: Final = 1 << 22
MAGIC: Final = b"sparsefw"
# What follows a tensor in a file of safetensors must be aligned for its dtype.
_ALIGNMENT: Final = 8
_LONGEST_HEADER: Final = 4096

# A chunk: how many values are not zero, its flags, the exponent that nibbles count from.
_CHUNK_HEADER: Final = struct.Struct("<IBB")
_MASKED: Final = 1
_NIBBLES: Final = 2
_ESCAPE: Final = 15  # the nibble of an exponent that is too far from the largest
_LENGTH: Final = struct.Struct("<I")

Bytes = NDArray[np.uint8]
Words = NDArray[Any]


class Reader(Protocol):
    """Where a packed tensor is read from, in order."""

    def read(self, count: int) -> bytes | memoryview:
        """As many bytes, or fewer at the end."""


def zstandard() -> Any:
    """The package; it is not installed everywhere."""
    try:
        return importlib.import_module("zstandard")
    except ImportError:
        raise invalid("zstandard is not installed: pip install 'sparsefw[pack]'") from None


def words_type(dtype: str) -> np.dtype[Any]:
    """Unsigned integers with the bits of the values."""
    return np.dtype(f"<u{SIZES[dtype]}")


def damaged(what: str) -> Exception:
    """The error of bytes that are no packed tensor."""
    return invalid(f"is damaged, or no packed tensor: {what}")


class Encoder:
    """Codes the chunks of tensors."""

    def __init__(self) -> None:
        package = zstandard()
        # Exponents are as good as independent of one another: repeats that a search finds cost more bits
        # than they save. With the smallest table nearly none are found, and entropy coding remains.
        parameters = package.ZstdCompressionParameters(
            strategy=package.STRATEGY_FAST,
            window_log=17,
            hash_log=6,
            chain_log=6,
            search_log=1,
            min_match=7,
            target_length=0,
            write_content_size=True,
            write_checksum=False,
        )
        self._compressor = package.ZstdCompressor(compression_params=parameters)

    def begin(self, dtype: str, shape: list[int]) -> bytes:
        """What comes before the chunks of a tensor."""
        text = json.dumps({"dtype": dtype, "shape": shape}, separators=(",", ":")).encode()
        return MAGIC + _LENGTH.pack(len(text)) + text

    def chunk(self, words: Words) -> bytes:
        """At most CHUNK values."""
        kept = words != 0
        count = int(np.count_nonzero(kept))
        flags, base, streams = 0, 0, []
        # Below an eighth of zeros the mask costs more than zeros in the planes.
        if count < len(words) - len(words) // 8:
            flags |= _MASKED
            streams.append(np.packbits(kept, bitorder="little"))
            words = words[np.flatnonzero(kept)]  # some six times as fast as the mask itself as an index
        if len(words):
            size = words.dtype.itemsize
            planes = _rotated_left(words).view(np.uint8).reshape(-1, size)
            streams += [np.ascontiguousarray(planes[:, i]) for i in range(size - 1)]
            top = np.ascontiguousarray(planes[:, -1])
            base = int(top.max())
            below = base - top
            far = below >= _ESCAPE
            if np.count_nonzero(far) < len(words) // 64:
                flags |= _NIBBLES
                streams += [_nibbles(np.minimum(below, _ESCAPE)), top[far]]
            else:
                streams.append(top)
        parts = [_CHUNK_HEADER.pack(len(words), flags, base)]
        for stream in streams:
            raw = stream.tobytes()
            packed = self._compressor.compress(raw)
            shorter = packed if len(packed) < len(raw) else raw
            parts += [_LENGTH.pack(len(shorter)), shorter]
        return b"".join(parts)

    @staticmethod
    def end(length: int) -> bytes:
        """What comes after the chunks of a tensor that has so many bytes by then."""
        return bytes(-length % _ALIGNMENT)


class Decoder:
    """Reads a packed tensor chunk by chunk, and trusts none of its numbers."""

    def __init__(self, reader: Reader) -> None:
        """Reads what comes before the chunks."""
        self._reader = reader
        self._taken = 0
        package = zstandard()
        self._error: Any = package.ZstdError
        self._decompressor = package.ZstdDecompressor()
        self._frame = package.get_frame_parameters
        if self._read(len(MAGIC)) != MAGIC:
            raise damaged("it begins with other bytes")
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if length > _LONGEST_HEADER:
            raise damaged(f"its header would have {length} bytes")
        self.dtype, self.shape = _header(bytes(self._read(length)))
        self.elements = math.prod(self.shape)

    def _read(self, count: int) -> bytes | memoryview:
        data = self._reader.read(count)
        self._taken += len(data)
        if len(data) != count:
            raise damaged("it ends early")
        return data

    def chunks(self) -> Iterator[Words]:
        """All values in order, at most CHUNK at a time."""
        for begin in range(0, self.elements, CHUNK):
            yield self._chunk(min(CHUNK, self.elements - begin))
        padding = self._reader.read(_ALIGNMENT)
        if padding != Encoder.end(self._taken):
            raise damaged("more bytes follow than its header tells of")

    def _stream(self, count: int) -> Bytes:
        """So many bytes, which may be compressed."""
        (stored,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if stored > count:
            raise damaged(f"{count} bytes would be stored in {stored}")
        data = self._read(stored)
        if stored < count:
            try:
                # The frame says its size. That is compared before memory is taken.
                if self._frame(data).content_size != count:
                    raise damaged(f"a part has not the {count} bytes that it should have")
                data = self._decompressor.decompress(data, count, allow_extra_data=False)
            except self._error as error:
                raise damaged(f"a part cannot be decompressed: {error}") from None
            if len(data) != count:
                raise damaged(f"a part has {len(data)} bytes instead of {count}")
        return np.frombuffer(data, np.uint8)

    def _chunk(self, elements: int) -> Words:
        count, flags, base = _CHUNK_HEADER.unpack(self._read(_CHUNK_HEADER.size))
        if count > elements or flags & ~(_MASKED | _NIBBLES):
            raise damaged(f"{count} of {elements} values, flags {flags}")
        kept = None
        if flags & _MASKED:
            bits = np.unpackbits(self._stream(-(-elements // 8)), bitorder="little")
            if np.count_nonzero(bits) != count or bits[elements:].any():
                raise damaged(f"the mask does not keep the {count} values that follow")
            kept = bits[:elements].view(np.bool_)
        elif count != elements:
            raise damaged(f"{count} of {elements} values without a mask")
        values = self._values(count, flags, base)
        if kept is None:
            return values
        words = np.zeros(elements, values.dtype)
        words[np.flatnonzero(kept)] = values
        return words

    def _values(self, count: int, flags: int, base: int) -> Words:
        size = SIZES[self.dtype]
        planes = np.empty((count, size), np.uint8)
        if count:
            for i in range(size - 1):
                planes[:, i] = self._stream(count)
            planes[:, -1] = self._exponents(count, base) if flags & _NIBBLES else self._stream(count)
        return _rotated_right(planes.view(words_type(self.dtype)).reshape(count))

    def _exponents(self, count: int, base: int) -> Bytes:
        pairs = self._stream(-(-count // 2))
        below = np.empty(2 * len(pairs), np.uint8)
        below[0::2] = pairs & 15
        below[1::2] = pairs >> 4
        if below[count:].any():
            raise damaged("a nibble is left over")
        below = below[:count]
        far = below == _ESCAPE
        top = base - below
        top[far] = self._stream(int(np.count_nonzero(far)))
        return top


def _header(text: bytes) -> tuple[str, list[int]]:
    try:
        header = json.loads(text)
        dtype, shape = header["dtype"], header["shape"]
        sound = dtype in SIZES and all(type(length) is int and 0 <= length < 1 << 48 for length in shape)
    except (ValueError, KeyError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise damaged("its header names no dtype and shape that can be packed")
    return dtype, shape


# The sign goes to the end: then the exponent fills the highest byte, in float32 and bfloat16 exactly.
def _rotated_left(words: Words) -> Words:
    bits = 8 * words.dtype.itemsize
    rotated: Words = (words << 1) | (words >> (bits - 1))
    return rotated


def _rotated_right(words: Words) -> Words:
    bits = 8 * words.dtype.itemsize
    rotated: Words = (words >> 1) | (words << (bits - 1))
    return rotated


def _nibbles(values: Bytes) -> Bytes:
    """Two in a byte: a frequent exponent then takes less than one bit."""
    if len(values) % 2:
        values = np.append(values, np.uint8(0))
    pairs: Bytes = values[0::2] | (values[1::2] << np.uint8(4))
    return pairs
