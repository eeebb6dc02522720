"""Single tensors, packed and unpacked; bytes that nobody packed."""

import io
import json
import struct
import tracemalloc

import numpy as np
import pytest
import sparsefw

pytest.importorskip("zstandard", reason="zstandard is not installed: client/python/make-environment --hf build/venv")

import zstandard  # noqa: E402
from sparsefw.hf.packing import codec  # noqa: E402

KINDS = {dtype: codec.words_type(dtype) for dtype in codec.SIZES}
# bits of infinity, of 1, of the least number above zero, and of the sign
PATTERNS = {"F64": 0x7FF0 << 48, "F32": 0x7F80 << 16, "F16": 0x7C00, "BF16": 0x7F80}


def pack(words, dtype="BF16", shape=None):
    encoder = codec.Encoder()
    parts = [encoder.begin(dtype, [len(words)] if shape is None else shape)]
    parts += [encoder.chunk(words[i : i + codec.CHUNK]) for i in range(0, len(words), codec.CHUNK)]
    parts.append(encoder.end(sum(map(len, parts))))
    return b"".join(parts)


def unpack(data):
    return np.concatenate([np.zeros(0), *codec.Decoder(io.BytesIO(data)).chunks()])


def bfloat16(values):
    return (values.astype("<f4").view("<u4") >> 16).astype("<u2")


def cases(dtype):
    kind, rng = KINDS[dtype], np.random.default_rng(7)
    bits = 8 * kind.itemsize
    gaussian = rng.standard_normal(3001)
    floats = {"F64": gaussian.view("<u8"), "F32": gaussian.astype("<f4").view("<u4"),
              "F16": gaussian.astype("<f2").view("<u2"), "BF16": bfloat16(gaussian)}[dtype]
    random = rng.integers(0, 2**bits, 3001, dtype=kind)
    sign, infinity = kind.type(1 << (bits - 1)), kind.type(PATTERNS[dtype])
    special = np.array([0, sign, infinity, infinity | sign, infinity | kind.type(1), infinity | kind.type(5), 1,
                        sign | kind.type(1), 2**bits - 1], kind)
    yield "weights", floats
    yield "all bits", random
    yield "special values", np.tile(special, 100)
    yield "all zero", np.zeros(3001, kind)
    yield "negative zeros", np.full(100, sign)
    yield "none", np.zeros(0, kind)
    yield "one", floats[:1]
    for share in (0.05, 0.5, 0.6, 0.999):
        yield f"{share} zero", np.where(rng.random(3001) < share, kind.type(0), floats)
    yield "far exponents", np.where(rng.random(3001) < 0.005, special[6], floats)


@pytest.mark.parametrize("chunk", [1000, 1 << 22])
@pytest.mark.parametrize("dtype", KINDS)
def test_every_bit_comes_back(dtype, chunk, monkeypatch):
    monkeypatch.setattr(codec, "CHUNK", chunk)
    for name, words in cases(dtype):
        data = pack(words, dtype)
        assert len(data) % 8 == 0, name
        decoder = codec.Decoder(io.BytesIO(data))
        assert (decoder.dtype, decoder.shape) == (dtype, [len(words)])
        assert np.array_equal(np.concatenate([words[:0], *decoder.chunks()]), words), name
        chunks = -(-len(words) // chunk)
        assert len(data) <= words.nbytes + 80 + 50 * chunks, f"{name}: never much larger"


def entropy(values):
    shares = np.bincount(values) / len(values)
    shares = shares[shares > 0]
    return -(shares * np.log2(shares)).sum()


def test_weights_take_what_their_entropy_says():
    rng = np.random.default_rng(3)
    words = bfloat16(rng.standard_normal(1 << 20) * 0.05)
    words[np.argsort(np.abs(rng.standard_normal(1 << 20)))[: int(0.6 * (1 << 20))]] = 0
    exponents = (words[words != 0] >> 7) & 255
    bound = 0.97095 + 0.4 * (8 + entropy(exponents))
    bits = 8 * len(pack(words)) / len(words)
    print(f"{bits:.4f} bits a weight; independent symbols need {bound:.4f}")
    assert bits < 1.02 * bound
    assert bits < 0.35 * 16


def test_masks_of_n_in_m_take_less_than_a_bit():
    rng = np.random.default_rng(3)
    groups = bfloat16(rng.standard_normal((1 << 18, 4)))
    order = np.argsort(rng.random(groups.shape), axis=1)
    groups[order < 2] = 0
    values = pack(bfloat16(rng.standard_normal(1 << 19)))
    mask = 8 * (len(pack(groups.reshape(-1))) - len(values)) / groups.size
    print(f"{mask:.3f} bits a weight; log2(6) / 4 = {np.log2(6) / 4:.3f}")
    assert mask < 0.68


def refused(data, message=None):
    with pytest.raises(sparsefw.InvalidArgument, match=message):
        unpack(data)


def test_bytes_that_end_early_or_late():
    words = next(words for name, words in cases("BF16") if name == "0.6 zero")
    data = pack(words)
    assert len(unpack(data)) == len(words)
    for length in range(len(data) - 8):
        refused(data[:length])
    refused(data + bytes(8), "more bytes follow")
    refused(b"others" + data, "begins with other bytes")


def test_any_changed_byte_is_refused_or_another_value():
    """No other error, and never more memory than the header says."""
    words = next(words for name, words in cases("BF16") if name == "far exponents")
    words = np.where(np.random.default_rng(5).random(len(words)) < 0.6, np.uint16(0), words)
    data = bytearray(pack(words))
    rng, seen = np.random.default_rng(11), set()
    tracemalloc.start()
    for at in rng.permutation(len(data))[:1500]:
        old = data[at]
        data[at] ^= 1 << rng.integers(8)
        try:
            seen.add(len(unpack(bytes(data))))
        except sparsefw.InvalidArgument:
            seen.add("refused")
        data[at] = old
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()
    assert "refused" in seen
    assert np.array_equal(unpack(bytes(data)), words)


def blob(header, *parts):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    data = b"sparsefw" + struct.pack("<I", len(text)) + text + b"".join(parts)
    return data + bytes(-len(data) % 8)


def chunk(count, flags, *streams, base=0):
    return struct.pack("<IBB", count, flags, base) + b"".join(struct.pack("<I", len(s)) + s for s in streams)


BF16 = {"dtype": "BF16", "shape": [16]}
BOMB = zstandard.ZstdCompressor().compress(bytes(1 << 26))
NO_SIZE = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(16))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (blob({"dtype": "BF16", "shape": [1 << 40]}), "ends early"),
        (blob({"dtype": "BF16", "shape": [1 << 47] * 9}), "values without a mask"),
        (blob({"dtype": "BF16", "shape": [1 << 60]}), "no dtype and shape"),
        (blob({"dtype": "BF16", "shape": [-1]}), "no dtype and shape"),
        (blob({"dtype": "BF16", "shape": [True]}), "no dtype and shape"),
        (blob({"dtype": "BF16", "shape": 3}), "no dtype and shape"),
        (blob({"dtype": "I8", "shape": [3]}), "no dtype and shape"),
        (blob({"dtype": ["BF16"], "shape": [3]}), "no dtype and shape"),
        (blob([1]), "no dtype and shape"),
        (blob(b"[" * 3000), "no dtype and shape"),
        (b"sparsefw" + struct.pack("<I", 1 << 31), "header would have"),
        (blob(BF16, chunk(17, 1, bytes(2))), "17 of 16 values"),
        (blob(BF16, chunk(3, 0, bytes(3), bytes(3))), "without a mask"),
        (blob(BF16, chunk(16, 8)), "flags 8"),
        (blob(BF16, chunk(3, 1, b"\x03\x00", bytes(3), bytes(3))), "the mask does not keep the 3 values"),
        (blob({**BF16, "shape": [15]}, chunk(3, 1, b"\x03\x80", bytes(3), bytes(3))), "the mask does not keep"),
        (blob(BF16, chunk(0, 1, bytes(3))), "2 bytes would be stored in 3"),
        (blob(BF16, chunk(16, 0, BOMB, bytes(16))), "would be stored in"),
        (blob({**BF16, "shape": [1 << 20]}, chunk(1 << 20, 0, BOMB)), "has not the 1048576 bytes"),
        (blob(BF16, chunk(16, 0, NO_SIZE[:15], bytes(16))), "has not the 16 bytes|cannot be decompressed"),
        (blob(BF16, chunk(16, 0, b"no frame", bytes(16))), "cannot be decompressed"),
        (blob(BF16, chunk(15, 3, b"\xff\x7f", bytes(15), bytes(7) + b"\xf0")), "a nibble is left over"),
        (blob(BF16, chunk(0, 1, bytes(2)), bytes(8)), "more bytes follow"),
    ],
)  # fmt: skip
def test_lies_are_refused_before_memory_is_taken(data, message):
    tracemalloc.start()
    refused(data, message)
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_without_zstandard_it_says_so(monkeypatch):
    def missing(name):
        raise ImportError("gone", name=name)

    monkeypatch.setattr(codec.importlib, "import_module", missing)
    with pytest.raises(sparsefw.InvalidArgument, match=r"zstandard is not installed: pip install 'sparsefw\[pack\]'"):
        codec.Encoder()
