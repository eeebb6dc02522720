"""What breaks in the middle: connections, servers, disks, clients."""
import contextlib
import os
import random
import signal
import subprocess
import threading

import grpc
import numpy as np
import pytest

from support import safetensors
from support.layers import ENDLESS, Layer
from support.processes import HANG, Cli, finish, wait_until
from support.rpc import Client, chunks, crc32c, error_info, tensor_pb2, tensor_service_pb2

SEEDS = [1, 2, 3, 4, 5]


def committed(client, upload):
    request = tensor_service_pb2.GetUploadRequest(name=upload)
    return client.tensors.GetUpload(request, timeout=HANG)


@pytest.mark.parametrize("seed", SEEDS)
def test_broken_upload_is_resumed_at_a_random_byte(shared_server, cutting_proxy, seed):
    print("seed", seed)
    data = np.random.default_rng(seed).standard_normal((96, 512)).astype("<f4")
    raw = data.tobytes()
    cut = random.Random(seed).randrange(2000, len(raw))
    proxy = cutting_proxy(shared_server.address, [cut])
    through, direct = Client(proxy.address), Client(shared_server.address)
    upload = through.create_upload(data, "weight")
    with pytest.raises(grpc.RpcError) as broken:
        through.write(upload.name, raw, chunk=7000)
    assert broken.value.code() == grpc.StatusCode.UNAVAILABLE
    assert proxy.done == [cut]

    def settled():  # the server reads what is still on its side of the wire
        state = committed(direct, upload.name)
        return state if state.committed_size == committed(direct, upload.name).committed_size \
            else None

    state = wait_until(settled, "the broken call has ended")
    assert state.committed_size <= cut and state.committed_size % 7000 == 0
    assert state.committed_crc32c == crc32c(raw[:state.committed_size])
    # Beginning somewhat too early is allowed: what is there is checked and skipped.
    begin = max(0, state.committed_size - random.Random(seed).randrange(5000))
    tensor = direct.write(upload.name, raw, begin=begin, chunk=5000).tensor
    assert tensor.byte_size == len(raw) and tensor.crc32c == crc32c(raw)
    assert direct.read(tensor.name) == raw
    through.close()
    direct.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_broken_accumulation_counts_no_token_twice(shared_server, cutting_proxy, seed):
    print("seed", seed)
    inputs = np.random.default_rng(seed).standard_normal((700, 48)).astype("<f4")
    raw, row = inputs.tobytes(), 48 * 4
    proxy = cutting_proxy(shared_server.address, [random.Random(seed).randrange(2000, len(raw))])
    through, direct = Client(proxy.address), Client(shared_server.address)
    spec = tensor_pb2.GramSpec(d_in=48, activation_dtype=tensor_pb2.DATA_TYPE_F32, gram_dtype=tensor_pb2.DATA_TYPE_F64)
    upload = through.tensors.CreateUpload(
        tensor_service_pb2.CreateUploadRequest(gram=spec)).upload.name

    def requests(begin, count):
        for first in range(begin, 700, count):
            data = raw[first * row:(first + count) * row]
            yield tensor_service_pb2.AccumulateGramRequest(
                upload=upload if first == begin else None, token_offset=first, crc32c=crc32c(data),
                data=data, finish=first + count >= 700)

    with pytest.raises(grpc.RpcError):
        through.tensors.AccumulateGram(requests(0, 37), timeout=HANG)
    tokens = committed(direct, upload).committed_tokens
    begin = max(0, tokens - 20)  # overlaps on purpose
    gram = direct.tensors.AccumulateGram(requests(begin, 41), timeout=HANG).gram
    assert gram.spec.token_count == 700
    got = np.frombuffer(direct.read(gram.name), "<f8").reshape(48, 48)
    expected = inputs.astype(np.float64).T @ inputs.astype(np.float64)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    through.close()
    direct.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_cli_goes_on_after_broken_connections(shared_server, cutting_proxy, folder, seed):
    print("seed", seed)
    layer = Layer(folder, d_out=512, d_in=256, seed=seed)
    total = layer.weight.nbytes + layer.gram.nbytes
    cuts = sorted(random.Random(seed).sample(range(3000, total), 3))
    proxy = cutting_proxy(shared_server.address, cuts)
    direct = Cli(shared_server.address).run(*layer.submit("--method", "wanda", "--json")).expect(0)
    mask = layer.mask()
    layer.mask_file.unlink()
    broken = Cli(proxy.address).run(*layer.submit("--method", "wanda", "--json")).expect(0)
    assert proxy.done == cuts, "all connections were cut"
    np.testing.assert_array_equal(layer.mask(), mask)
    assert broken.json()["losses"] == direct.json()["losses"]


def test_cli_watching_goes_on_after_a_broken_connection(shared_server, cutting_proxy, big_layer):
    proxy = cutting_proxy(shared_server.address, [])
    process = Cli(proxy.address).start(*big_layer.submit(*ENDLESS, "--json"))
    direct = Cli(shared_server.address)
    (job,) = wait_until(lambda: [job["job"] for job in jobs(direct) if job["state"] == "RUNNING"],
                        "job runs")
    with proxy.lock:
        proxy.cuts.append(proxy.received + 1)  # the next byte, a keep-alive or window update
    wait_until(lambda: proxy.done, "the connection is cut")
    direct.run("cancel", job).expect(0)
    assert finish(process).expect(0).json()["stop_reason"] == "CANCELLED"


def jobs(cli):
    return cli.run("list", "--json").expect(0).json()["jobs"]


def test_server_killed_under_the_cli(start_server, big_layer):
    server = start_server()
    process = Cli(server.address).start(*big_layer.submit(*ENDLESS, "--retry-for", "3s"))
    wait_until(lambda: any(job["state"] == "RUNNING" for job in jobs(Cli(server.address))), "job runs")
    server.process.kill()
    done = finish(process)
    done.refused(3, server.address)
    assert not big_layer.mask_file.exists()


def test_server_killed_during_an_upload(start_server, folder):
    layer = Layer(folder, d_out=2048, d_in=2048, seed=3, tokens=64)
    server = start_server()
    process = Cli(server.address).start(*layer.submit(*ENDLESS, "--retry-for", "3s"))
    own = {"lock", "owner"}  # files of the server itself
    wait_until(lambda: any(file.name not in own for file in (server.state_dir / "spool").iterdir()), "upload begins")
    server.process.kill()
    done = finish(process)
    assert done.code == 3 and server.address in done.sentence


def test_interrupt_ends_the_cli_cleanly(start_server, big_layer):
    server = start_server()
    cli = Cli(server.address)
    process = cli.start(*big_layer.submit(*ENDLESS, "--json"))
    wait_until(lambda: any(job["state"] == "RUNNING" for job in jobs(cli)), "job runs")
    process.send_signal(signal.SIGINT)
    result = finish(process).expect(0).json()
    assert (result["state"], result["stop_reason"]) == ("CANCELLED", "CANCELLED")
    assert big_layer.mask().shape == (256, 256), "the best mask so far"
    assert server.process.poll() is None


def test_second_interrupt_quits_at_once(start_server, big_layer):
    server = start_server()
    process = Cli(server.address).start(*big_layer.submit(*ENDLESS, "--json"))
    wait_until(lambda: jobs(Cli(server.address)), "job is accepted")
    server.signal(signal.SIGSTOP)  # it cannot answer the cancellation
    process.send_signal(signal.SIGINT)
    try:
        process.wait(0.5)  # not a limit
        raise AssertionError("the first interrupt waits for the server")
    except subprocess.TimeoutExpired:
        pass

    def quits():
        process.send_signal(signal.SIGINT)  # again: two that wait together are one
        return process.poll() is not None

    wait_until(quits, "it quits")
    assert finish(process).code == 5
    server.signal(signal.SIGCONT)


def test_two_clients_at_once(start_server, folder):
    server = start_server("--workers", "2")
    layers = []
    for index in range(2):
        (folder / str(index)).mkdir()
        layers.append(Layer(folder / str(index), d_out=128, d_in=160, seed=20 + index))
    flags = ("--method", "sparsefw", "--iterations", "300", "--json")
    cli = Cli(server.address)
    alone = [cli.run(*layer.submit(*flags)).expect(0).json() for layer in layers]
    masks = [layer.mask() for layer in layers]
    for _ in range(3):
        both = [cli.start(*layer.submit(*flags)) for layer in layers]
        for process, layer, first, mask in zip(both, layers, alone, masks):
            result = finish(process).expect(0).json()
            assert result["losses"] == first["losses"], "another client changes no result"
            np.testing.assert_array_equal(layer.mask(), mask)


def test_many_uploads_of_one_tensor_at_once(shared_server):
    data = np.random.default_rng(9).standard_normal((64, 1024)).astype("<f4")
    names, errors = [], []

    def upload():
        client = Client(shared_server.address)
        try:
            names.append(client.upload(data, "weight"))
            assert client.read(names[-1]) == data.tobytes()
        except Exception as error:  # shown below
            errors.append(error)
        client.close()

    threads = [threading.Thread(target=upload) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)
    assert not errors and len(set(names)) == 8


@contextlib.contextmanager
def small_disk(path, size):
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs",
                              str(path)], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small disk")
def test_full_spool_disk(start_server, folder):
    with small_disk(folder / "disk", "2m") as disk:
        server = start_server("--spool-dir", disk / "spool")
        cli = Cli(server.address)
        large = Layer(folder, d_out=1024, d_in=1024, seed=5, tokens=32)
        done = cli.run(*large.submit("--method", "wanda"), timeout=HANG)
        done.refused(3, "w.safetensors", "4194304", "No space left")
        assert not large.mask_file.exists()
        client = Client(server.address)
        with pytest.raises(grpc.RpcError) as error:
            client.create_upload(np.zeros((1024, 1024), "<f4"), "weight")
        code, reason, _ = error_info(error.value)
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED and reason == "SPOOL_FULL"
        client.close()
        # Refused uploads took no room, and the server lives on.
        (folder / "small").mkdir()
        small = Layer(folder / "small", d_out=256, d_in=256, seed=5)
        cli.run(*small.submit("--method", "wanda")).expect(0)
        assert server.process.poll() is None
        assert cli.run("info").code == 0
        assert server.stop() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small disk")
def test_a_full_disk_of_the_database(start_server, folder):
    """As docs/operations.md says: the server starts there, and deleting jobs makes room."""
    layer = Layer(folder, d_out=1024, d_in=1024, seed=5, tokens=32)
    with small_disk(folder / "disk", "32m") as disk:
        server = start_server("--state-dir", disk / "state")
        first, second = (Cli(server.address).run(*layer.submit("--method", "wanda", "--json", "--overwrite")).expect(0)
                         .json()["job"] for _ in range(2))
        with contextlib.suppress(OSError), (disk / "rest").open("wb", buffering=0) as rest:
            while True:
                rest.write(bytes(4096))
        done = Cli(server.address).run(*layer.submit("--method", "wanda", "--overwrite"))
        done.refused(3, "No space left")
        Cli(server.address).run("delete", first).expect(0)
        with contextlib.suppress(OSError), (disk / "rest").open("ab", buffering=0) as rest:
            while True:
                rest.write(bytes(4096))
        server.process.kill()
        server = start_server("--state-dir", disk / "state")
        cli = Cli(server.address)
        cli.run("delete", second).expect(0)
        assert cli.run("list", "--json").json()["jobs"] == []
        (disk / "rest").unlink()
        cli.run(*layer.submit("--method", "wanda", "--overwrite")).expect(0)
        assert server.stop() == 0


def test_memory_budget_refuses_before_a_byte_is_sent(start_server, folder):
    server = start_server("--host-memory", "1MiB")
    layer = Layer(folder, d_out=1024, d_in=512, seed=5, tokens=32)
    Cli(server.address).run(*layer.submit("--method", "wanda")).refused(3, "1048576")
    small = Layer(folder, d_out=64, d_in=64, seed=5)
    Cli(server.address).run(*small.submit("--method", "wanda", "--json")).expect(0)
    assert safetensors.read(small.mask_file)[0]["mask"].shape == (64, 64)
    assert next(chunks("x", b"data")).chunk.crc32c == crc32c(b"data")
