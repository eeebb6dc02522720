"""Tensors to the server and back: whole, over broken connections, over a killed server."""

import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import sparsefw
from layers import Retries
from sparsefw._rpc import upload, wire
from sparsefw._rpc.checksum import crc32c
from sparsefw._rpc.upload import tensor_spec
from sparsefw.arrays import as_buffer
from sparsefw.v1 import tensor_service_pb2
from support.processes import HANG, wait_until


def values(rows=64, columns=48, dtype=np.float32, seed=1):
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_weight_comes_back_as_it_went(client, dtype):
    array = values(dtype=dtype)
    tensor = client.upload(array)
    assert (tensor.kind, tensor.dtype, tensor.shape) == ("weight", np.dtype(dtype).name, (64, 48))
    assert tensor.byte_size == array.nbytes
    assert (tensor.read() == array).all()
    assert client.get(tensor.name).shape == tensor.shape
    tensor.delete()
    with pytest.raises(sparsefw.NotFound) as gone:
        client.get(tensor.name)
    assert gone.value.reason == "TENSOR_NOT_FOUND"


def test_other_kinds(client):
    gram = values(8, 32)
    gram = gram.T @ gram
    for array, kind in ((gram, "gram"), (gram.astype(np.float64), "gram"), (values(), "saliency"),
                        (values() > 0, "mask")):
        with client.upload(array, kind, tokens=8 if kind == "gram" else 0) as tensor:
            assert tensor.kind == kind
            assert tensor.tokens == (8 if kind == "gram" else 0)
            read = tensor.read()
            assert read.dtype == array.dtype
            assert (read == array).all()
        with pytest.raises(sparsefw.NotFound):
            client.tensor(tensor.name)


def test_tensors_are_listed_newest_first(client):
    names = [client.upload(values(4, 4)).name for _ in range(3)]
    assert [tensor.name for tensor in client.list(limit=3)] == names[::-1]
    assert {tensor.name for tensor in client.list()} >= set(names)


def test_progress_reaches_the_end(client):
    seen = []
    array = values(300, 256)
    with sparsefw.connect(client.address, options=sparsefw.Options(chunk_bytes=50_000)) as other:
        other.upload(array, progress=lambda *numbers: seen.append(numbers)).delete()
    assert seen == [(min(done, array.nbytes), array.nbytes)
                    for done in range(50_000, array.nbytes + 50_000, 50_000)]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_broken_upload_goes_on_where_the_server_stands(shared_server, proxy, seed):
    array = values(256, 256, seed=seed)
    chooser = random.Random(seed)
    cuts = sorted(chooser.randrange(2000, array.nbytes) for _ in range(3))
    between = proxy(shared_server.address, cuts)
    retries = Retries(chunk_bytes=10_000)
    with sparsefw.connect(between.address, options=retries.options) as client:
        tensor = client.upload(array)
        assert between.done == cuts
        assert retries.errors
        assert all(isinstance(error, sparsefw.Unavailable) for error in retries.errors)
        # What was committed was not sent again: a whole second time would be twice the bytes.
        assert between.received < array.nbytes + len(cuts) * 100_000 + 50_000
        assert tensor.message.crc32c == crc32c(array.tobytes())
        assert (tensor.read() == array).all()
        tensor.delete()


def test_a_broken_download_goes_on(shared_server, client, monkeypatch):
    array = values(1500, 1024)
    tensor = client.upload(array)
    retries = Retries()
    real, spoiled = wire.READ_TENSOR.parse, []

    def parse(self, data):
        response = real(data)
        if len(spoiled) < 2:
            spoiled.append(response.chunk.offset)
            response.chunk.crc32c ^= 1
        return response

    with sparsefw.connect(shared_server.address, options=retries.options) as other:
        monkeypatch.setattr(wire.Method, "parse", lambda self, data: (
            parse(self, data) if self is wire.READ_TENSOR else self.response.FromString(data)))
        assert (other.read(tensor) == array).all()
    assert [error.reason for error in retries.errors] == ["CHECKSUM_MISMATCH"] * 2
    tensor.delete()


def test_a_chunk_whose_checksum_is_wrong_is_sent_again(shared_server, monkeypatch):
    real, wrong = wire.crc32c, []

    def once_wrong(data, start=0):
        if len(wrong) < 2 and len(data) == 7000:
            wrong.append(len(data))
            return real(data, start) ^ 1
        return real(data, start)

    monkeypatch.setattr(wire, "crc32c", once_wrong)
    retries = Retries(chunk_bytes=7000)
    array = values()
    with sparsefw.connect(shared_server.address, options=retries.options) as client:
        tensor = client.upload(array)
        assert [error.reason for error in retries.errors] == ["CHECKSUM_MISMATCH"] * 2
        assert "committed_size" in retries.errors[0].metadata
        assert (tensor.read() == array).all()
        tensor.delete()


def test_a_wrong_total_starts_over(shared_server, monkeypatch):
    array = values()

    class OnceWrong(upload.Prefix):
        wrong = 0

        def to(self, end):
            if end == array.nbytes and not OnceWrong.wrong:
                OnceWrong.wrong += 1
                return super().to(end) ^ 1
            return super().to(end)

    monkeypatch.setattr(upload, "Prefix", OnceWrong)
    retries = Retries(chunk_bytes=5000)
    with sparsefw.connect(shared_server.address, options=retries.options) as client:
        tensor = client.upload(array)
        assert [error.reason for error in retries.errors] == ["CHECKSUM_MISMATCH"]
        assert retries.errors[0].metadata["committed_size"] == "0"
        assert (tensor.read() == array).all()
        tensor.delete()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill -9", "drain"])
def test_an_upload_outlives_its_server(restartable, number):
    """The server ends when the upload is half done, and is started again on its address."""
    server = restartable()
    array = values(2048, 1024)
    reached, go_on = threading.Event(), threading.Event()

    def progress(done, total):
        if done >= total // 2 and not reached.is_set():
            reached.set()
            go_on.wait(HANG)

    retries = Retries(chunk_bytes=1 << 16)
    found = []
    with sparsefw.connect(server.address, options=retries.options) as client:
        thread = threading.Thread(
            target=lambda: found.append(client.upload(array, progress=progress)))
        thread.start()
        assert reached.wait(HANG)
        server.server.signal(number)
        server.server.wait()
        go_on.set()
        wait_until(lambda: retries.errors, "the client notices")
        server.again()
        thread.join(HANG)
        assert found
        assert (found[0].read() == array).all()


def test_a_request_id_goes_on_with_the_upload_of_another_process(client):
    array = values(200, 100)
    buffer = as_buffer(array, "weight", ("float32",))
    request = tensor_service_pb2.CreateUploadRequest(
        tensor=tensor_spec("weight", buffer), request_id="of another process")
    from sparsefw._rpc.sync import run
    upload = run(client.core.session.call(wire.CREATE_UPLOAD, request)).upload
    writer = client.core.session.transport.open_writer(wire.WRITE_TENSOR)
    run(writer.write(wire.write_chunk(buffer.data[:30_000], 0, {"upload": upload.name})))
    assert run(writer.finish()).committed_size == 30_000

    steps = []
    tensor = client.upload(array, request_id="of another process",
                           progress=lambda done, total: steps.append(done))
    assert steps == [array.nbytes]
    again = client.upload(array, request_id="of another process")
    assert again.name == tensor.name
    with pytest.raises(sparsefw.InvalidArgument) as reused:
        client.upload(values(3, 3), request_id="of another process")
    assert reused.value.reason == "REQUEST_ID_REUSED"
    tensor.delete()


@pytest.mark.parametrize("wrong", [5, b"once", ("a", 1)])
def test_a_request_id_of_another_type_is_refused_before_anything_is_made(client, wrong):
    weight, gram = values(4, 3), np.eye(3, dtype=np.float32)
    before = client.info().host_memory_used_bytes
    for call in (
        lambda: client.upload(weight, request_id=wrong),
        lambda: client.gram(weight, request_id=wrong),
        lambda: client.sum_grams(["tensors/a", "tensors/b"], request_id=wrong),
        lambda: client.submit(weight, gram, sparsity=0.5, request_id=wrong),
        lambda: client.prune(weight, activations=weight, sparsity=0.5, request_id=wrong),
        lambda: client.sweep(weight, gram, sparsity=[0.5], request_id=wrong),
    ):
        with pytest.raises(sparsefw.InvalidArgument) as refused:
            call()
        assert refused.value.message == f"request_id must be a text; got {wrong!r}"
        assert refused.value.reason == "CLIENT_ARGUMENT"
    assert client.info().host_memory_used_bytes == before and not client.jobs()


def test_a_request_id_has_116_bytes_where_arrays_are_uploaded(client):
    """docs/python.md says so; the longest id that the client makes from it ends with "/activations"."""
    weight = values(4, 3)
    call = {"activations": weight, "warm_start": weight, "sparsity": 0.5, "method": "sparsefw"}
    client.submit(weight, request_id="\u00fc" * 58, **call).result()
    for tensor, name in ((weight, "a" * 129), (weight, "\u00fc" * 65)):
        with pytest.raises(sparsefw.InvalidArgument, match="128") as refused:
            client.upload(tensor, request_id=name)
        assert refused.value.reason == "REQUEST_ID_INVALID"
    with pytest.raises(sparsefw.InvalidArgument, match="128"):
        client.submit(weight, request_id="a" * 117, **call)
    client.upload(weight, request_id="a" * 128).delete()


def test_memory_that_runs_out_while_a_tensor_is_read_has_a_reason(client):
    def run_out(done, total):
        raise MemoryError

    with client.upload(values()) as tensor:
        with pytest.raises(sparsefw.ResourceExhausted) as refused:
            tensor.read(progress=run_out)
        assert refused.value.reason == "CLIENT_MEMORY"
        assert refused.value.message == f"{tensor.name}: its 12288 bytes must fit into this machine's memory"
        assert (tensor.read() == values()).all()


def test_what_does_not_fit_is_refused_before_a_byte(start_server):
    server = start_server("--max-tensor-bytes", "1MiB")
    with sparsefw.connect(server.address) as client:
        sent = []
        with pytest.raises(sparsefw.ResourceExhausted) as refused:
            client.upload(values(1024, 512), progress=lambda *numbers: sent.append(numbers))
        assert refused.value.reason == "TENSOR_TOO_LARGE"
        assert not sent


def test_an_interrupted_upload_gives_its_room_back(client):
    before = client.info().host_memory_used_bytes

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.upload(values(3000, 512), progress=interrupt)
    wait_until(lambda: client.info().host_memory_used_bytes == before, "the room is back")


def test_no_server_is_an_error_that_says_so():
    with pytest.raises(sparsefw.Unavailable, match=r"127\.0\.0\.1:1") as nobody:
        sparsefw.connect("127.0.0.1:1", options=sparsefw.Options(connect_timeout=0.3))
    assert nobody.value.reason == "UNREACHABLE"


def test_the_client_gives_up_in_the_end(start_server):
    server = start_server()
    options = sparsefw.Options(retry=sparsefw.Retry(initial_backoff=0.01, give_up_after=0.3))
    with sparsefw.connect(server.address, options=options) as client:
        server.signal(9)
        server.wait()
        with pytest.raises(sparsefw.Unavailable, match=r"gave up after 0\.3 s"):
            client.upload(values())


def test_a_closed_client_says_that_it_is(shared_server):
    client = sparsefw.connect(shared_server.address)
    client.close()
    client.close()
    with pytest.raises(sparsefw.Cancelled, match=r"the client is closed; sparsefw\.connect makes another") as closed:
        client.info()
    assert closed.value.reason == "CLOSED"


MEMORY = """
import resource, sys
import numpy as np
import sparsefw
client = sparsefw.connect(sys.argv[1])
array = np.ones((64, 1 << 20), np.float32)
small = np.ones((64, 64), np.float32)
client.upload(small).delete()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
client.upload(array).delete()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024, array.nbytes)
"""


def test_an_upload_copies_nothing_but_its_chunks(shared_server):
    """256 MiB: the peak grows by some chunks, far less than the tensor."""
    source = sparsefw.__file__.rsplit("/", 2)[0]
    done = subprocess.run([sys.executable, "-c", MEMORY, shared_server.address], text=True,
                          capture_output=True, env={"PYTHONPATH": source}, timeout=HANG, check=False)
    assert done.returncode == 0, done.stderr
    grown, size = map(int, done.stdout.split())
    assert size == 256 << 20
    assert grown < 48 << 20


def test_a_server_that_does_not_read_holds_the_sender_back(start_server):
    """Back-pressure: of 400 MB at most some messages are made while the server stands still."""
    server = start_server()
    with sparsefw.connect(server.address) as client:
        client.upload(values(8, 8)).delete()
        made = []

        def batches():
            batch = np.ones((1024, 1024), np.float32)
            for _ in range(100):
                made.append(time.monotonic())
                yield batch

        server.signal(signal.SIGSTOP)
        try:
            # CreateUpload is answered only after SIGCONT: the stream is opened by hand.
            writer = client.core.session.transport.open_writer(wire.ACCUMULATE_GRAM)
            sent = []

            def send():
                for batch in batches():
                    if not _run(writer.write(wire.gram_chunk(batch.tobytes()[: 1 << 20], 0))):
                        return
                    sent.append(len(batch))

            thread = threading.Thread(target=send)
            thread.start()
            wait_until(lambda: sent, "the first message")
            settled = wait_until(lambda: _stands_still(made), "the sender waits")
            assert settled < 60
        finally:
            _run(writer.cancel())
            server.signal(signal.SIGCONT)
        thread.join(HANG)
        assert not thread.is_alive()


def _run(coroutine):
    from sparsefw._rpc.sync import run

    return run(coroutine)


def _stands_still(made):
    count = len(made)
    time.sleep(0.5)
    return count if len(made) == count else 0
