"""A server that lies: about sizes, and by what never ends. Clients say so, with one reason, and go on living."""
import pytest

from support.hostile import ESCAPES, Hostile

PROTOCOL = ("INTERNAL", "PROTOCOL")
# Patience with a download that makes no progress. The other tests have that of every client: a slow
# machine is no lie.
IMPATIENT = {"give_up_after": 0.5}


@pytest.fixture
def hostile():
    server = Hostile()
    yield server
    server.close()


@pytest.fixture
def client(driver, hostile):
    client = driver.connect(hostile.address)
    yield client
    client.close()


@pytest.fixture
def impatient(driver, hostile):
    clients = []

    def connect(**more):
        clients.append(driver.connect(hostile.address, **IMPATIENT, **more))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def test_the_server_of_these_tests_can_be_honest(client, hostile, folder):
    # Python's clients read a mask as an array of bools.
    client.read("tensors/mask", folder / "read")
    assert (folder / "read").read_bytes() == hostile.bytes


@pytest.mark.parametrize("change", [
    lambda tensor: setattr(tensor, "byte_size", 2**62),
    lambda tensor: setattr(tensor, "byte_size", -5),
    lambda tensor: setattr(tensor, "byte_size", 200 << 30),
    lambda tensor: setattr(tensor, "byte_size", 0),
    lambda tensor: tensor.spec.ClearField("dims"),
    lambda tensor: tensor.spec.dims.append(1),
    lambda tensor: tensor.spec.dims.__setitem__(0, 2**62),
    lambda tensor: tensor.spec.dims.__setitem__(0, -24),
    lambda tensor: tensor.spec.ClearField("dtype"),
], ids=["2^62", "-5", "200 GiB", "0", "no dims", "3 dims", "rows 2^62", "rows -24", "no dtype"])
def test_sizes_must_fit_what_they_are_the_sizes_of(client, hostile, folder, change):
    hostile.describe = change
    error = client.refuses("read", name="tensors/mask", file=str(folder / "read"))
    assert error.kind == PROTOCOL and "tensors/mask" in error.message and "byte_size" in error.message
    assert not (folder / "read").exists() and client.retries == []


def test_memory_is_taken_for_bytes_that_come(impatient, hostile, folder):
    def describe(tensor):
        tensor.spec.dims[:] = (2**30, 2**30)
        tensor.byte_size = 2**57
    hostile.describe = describe
    error = impatient().refuses("read", name="tensors/mask", file=str(folder / "read"))
    assert error.kind == ("UNAVAILABLE", "PROTOCOL") and "byte 96 of 144115188075855872" in error.message


def test_a_chunk_of_no_bytes_is_no_progress(client, hostile, folder):
    def chunks(request):
        while True:
            yield b"", request.offset
    hostile.chunks = chunks
    error = client.refuses("read", name="tensors/mask", file=str(folder / "read"))
    assert error.kind == PROTOCOL and "got 0 bytes" in error.message


def test_a_download_on_which_nothing_comes_ends(impatient, hostile, folder):
    hostile.chunks = hostile.silence
    error = impatient(watch_silence=0.5).refuses("read", name="tensors/mask", file=str(folder / "read"))
    assert error.kind == ("UNAVAILABLE", "UNREACHABLE") and "nothing came" in error.message


def test_a_list_may_have_short_and_empty_pages(client, hostile):
    hostile.page = lambda number: (number % 50 == 49, str(number) if number < 199 else "")
    assert client.call("list_tensors")["names"] == ["tensors/mask"] * 4


@pytest.mark.parametrize("page, why, pages", [
    (lambda number: (1, "again"), "the token of the page before", 2),
    (lambda number: (0, str(number)), "1000 pages in a row are empty", 1000),
])
def test_a_list_has_an_end(client, hostile, page, why, pages):
    hostile.page = page
    error = client.refuses("list_tensors")
    assert error.kind == PROTOCOL and why in error.message
    assert hostile.pages == pages


def test_messages_cannot_steer_a_terminal(client, hostile):
    hostile.refusal = ESCAPES
    error = client.refuses("get_tensor", name="tensors/mask")
    assert error.message == r"\x1b]0;owned\x07\x1b[2J\nsparsefw-cli: all is well\u202e\x7f\u009b31m"
