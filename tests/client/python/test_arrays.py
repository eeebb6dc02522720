"""Arrays to bytes and back, without a server."""

import subprocess
import sys

import numpy as np
import pytest

import sparsefw
from sparsefw import arrays
from sparsefw._rpc import wire
from sparsefw._rpc.checksum import Prefix, crc32c
from sparsefw.v1 import tensor_pb2, tensor_service_pb2


def test_checksum_is_castagnoli():
    # RFC 3720, B.4
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(bytes([0xFF] * 32)) == 0x62A8AB43
    assert crc32c(memoryview(bytes(range(32)))) == 0x46DD794E


def test_checksum_of_a_prefix_goes_forth_and_back():
    data = memoryview(bytes(range(256)) * 9)
    prefix = Prefix(data)
    for end in (0, 5, 700, 2304, 100, 100, 2000):
        assert prefix.to(end) == crc32c(data[:end])


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 31])
def test_masks_are_packed_as_the_contract_says(columns):
    mask = np.random.default_rng(columns).random((5, columns)) < 0.5
    buffer = arrays.as_buffer(mask, "mask", ("bool",))
    assert (buffer.dtype, buffer.shape) == ("bool", (5, columns))
    packed = np.frombuffer(buffer.data, np.uint8).reshape(5, -1)
    for row in range(5):
        for column in range(columns):
            assert (packed[row, column // 8] >> (column % 8)) & 1 == mask[row, column]
        assert not columns % 8 or packed[row, -1] >> (columns % 8) == 0
    assert (arrays.unpack_mask(buffer.data, mask.shape) == mask).all()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_contiguous_array_is_not_copied(dtype):
    array = np.arange(12, dtype=dtype).reshape(3, 4)
    buffer = arrays.as_buffer(array, "weight", ("float32", "float16"))
    array[1, 2] = 77
    assert np.frombuffer(buffer.data, dtype)[6] == 77


@pytest.mark.parametrize(
    "make",
    [lambda a: a.T, lambda a: a[:, ::2], lambda a: a.astype(">f4"), lambda a: np.asfortranarray(a)],
    ids=["transposed", "strided", "big-endian", "columns first"],
)
def test_other_layouts_are_converted(make):
    array = make(np.arange(12, dtype=np.float32).reshape(3, 4))
    buffer = arrays.as_buffer(array, "weight", ("float32",))
    assert (np.frombuffer(buffer.data, "<f4").reshape(buffer.shape) == array).all()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.zeros((2, 2), bool), "float32, float16 or bfloat16; got bool"),
        (np.zeros((2, 2), np.int32), "got int32"),
        (np.zeros(4, np.float32), "2 dimensions"),
        (np.zeros((0, 4), np.float32), "shape [0, 4]"),
        ([[1, 2]], "got int64"),
    ],
)
def test_what_is_no_weight_is_refused(value, words):
    with pytest.raises(sparsefw.InvalidArgument) as refused:
        arrays.as_buffer(value, "weight", ("float32", "float16", "bfloat16"))
    assert words in str(refused.value)
    assert refused.value.reason == "CLIENT_ARGUMENT"
    assert isinstance(refused.value, ValueError)


class FakeTensor:
    """What the package sees of a torch.Tensor of bfloat16, without torch."""

    def __init__(self, bits, dtype="bfloat16"):
        self.bits, self.dtype = bits, dtype

    def detach(self):
        return FakeTensor(self.bits, self.dtype)

    def contiguous(self):
        return FakeTensor(np.ascontiguousarray(self.bits), self.dtype)

    def view(self, dtype):
        assert dtype == "int16"
        return FakeTensor(self.bits.view(np.int16), dtype)

    def cpu(self):
        return self

    def numpy(self):
        assert self.dtype != "bfloat16", "NumPy has no bfloat16"
        return self.bits


def test_bfloat16_of_torch_travels_as_its_bits(monkeypatch):
    torch = type(sys)("torch")
    torch.Tensor, torch.bfloat16, torch.int16 = FakeTensor, "bfloat16", "int16"
    monkeypatch.setitem(sys.modules, "torch", torch)
    bits = (np.array([[1.5, -2.0, 3.25]], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    buffer = arrays.as_buffer(FakeTensor(bits), "weight", ("bfloat16",))
    assert (buffer.dtype, buffer.shape) == ("bfloat16", (1, 3))
    values = arrays.from_bytes(bytearray(buffer.data), "bfloat16", (1, 3))
    assert values.dtype == np.float32 or values.dtype.name == "bfloat16"
    assert values.astype(np.float32).tolist() == [[1.5, -2.0, 3.25]]


@pytest.mark.parametrize(("dtype", "bits"), [("float32", "<f4"), ("bfloat16", "<u2"), ("float64", "<f8")])
def test_bytes_of_an_object_are_an_array_and_its_parts_are_bytes_again(dtype, bits):
    values = np.arange(24, dtype=bits).reshape(4, 6)
    found = arrays.from_storage(values.reshape(-1).view(np.uint8), dtype, (4, 6))
    assert np.shares_memory(found, values)
    part = arrays.buffer_of(found.T[1:3], dtype)
    assert (part.dtype, part.shape) == (dtype, (2, 4))
    assert bytes(part.data) == values.T[1:3].tobytes()


def test_an_object_of_another_dtype_is_refused():
    with pytest.raises(sparsefw.InvalidArgument, match="float16, bfloat16 or float64; got float8_e4m3fn"):
        arrays.from_storage(np.zeros(4, np.uint8), "float8_e4m3fn", (4,))


def test_a_torch_that_is_there():
    torch = pytest.importorskip("torch", reason="torch is not installed (script/python --hf)")
    weight = torch.nn.Linear(8, 4).weight
    buffer = arrays.as_buffer(weight, "weight", ("float32",))
    assert np.frombuffer(buffer.data, "<f4").ctypes.data == weight.data_ptr()
    half = weight.detach().to(torch.bfloat16)
    buffer = arrays.as_buffer(half, "weight", ("bfloat16",))
    assert torch.equal(arrays.torch_from_bytes(bytearray(buffer.data), "bfloat16", (4, 8)), half)


def test_importing_the_package_imports_neither_torch_nor_pandas():
    program = "import sys, sparsefw, sparsefw.aio; print([m for m in ('torch', 'pandas', 'ml_dtypes') " \
        "if m in sys.modules])"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True,
                          env={"PYTHONPATH": str(arrays.__file__).rsplit("/", 2)[0]}, check=False)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("size", [0, 1, 127, 128, 20000, 1 << 20])
def test_messages_put_together_by_hand_are_protobufs(size):
    data = bytes(index % 251 for index in range(size))
    message = tensor_service_pb2.WriteTensorRequest.FromString(
        wire.write_chunk(memoryview(data), 12345, {"upload": "uploads/u", "finish": True})
    )
    expected = tensor_service_pb2.WriteTensorRequest(
        upload="uploads/u",
        finish=True,
        chunk=tensor_pb2.Chunk(offset=12345, crc32c=crc32c(data), data=data),
    )
    assert message == expected
    head = wire.gram_fields(upload="uploads/g")
    gram = tensor_service_pb2.AccumulateGramRequest.FromString(head + wire.gram_chunk(data, 7))
    assert (gram.upload, gram.token_offset, gram.data) == ("uploads/g", 7, data)
    assert gram.crc32c == crc32c(data)
    assert len(wire.write_chunk(memoryview(bytes(sparsefw.options.MAX_CHUNK_BYTES)), 2**60,
                                 {"upload": "uploads/" + "u" * 64, "finish": True})) <= 2 << 20
