"""Uploads go on where they were, whatever breaks."""
import hashlib
import re
import urllib.request

import grpc
import numpy as np
import pytest

from breaking_proxy import MARKER
from conftest import Tensor
from driver import Driver, timed
from faulty_proxy import FaultyProxy
from support.identity import TOKENS, write_tokens
from sparsefw.v1 import tensor_pb2, tensor_service_pb2, tensor_service_pb2_grpc
from support.processes import HANG, wait_until

SMALL_CHUNKS = {"chunk_bytes": 64 << 10}


def metrics(server):
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=HANG) as answer:
        return answer.read().decode()


def received(server):
    """Bytes of tensors."""
    values = re.findall(r"^sparsefw_rpc_received_bytes_total\S* (\S+)$", metrics(server), re.M)
    return sum(map(float, values))


def writing(server):
    """Whether a stream of a tensor is open."""
    return 'sparsefw_rpc_in_flight{method="TensorService/WriteTensor"} 0' not in metrics(server)


def send(client, what, big, **arguments):
    """Starts an upload: (the call, the tensor that is sent)."""
    if what == "activations":
        return client.start("gram", **big.activations.gram, **arguments), big.activations
    tensor = getattr(big, what)
    return client.start("upload", **tensor.upload, **arguments), tensor


def check(client, what, big, name, folder):
    data = client.read(name, folder / "read")
    if what != "activations":
        assert data == getattr(big, what).bytes
        return
    inputs = big.activations.array.astype(np.float64)
    expected = inputs.T @ inputs
    got = np.frombuffer(data, "<f4").reshape(expected.shape)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max(),
                               err_msg="a token counts twice or not at all")


@pytest.mark.parametrize("kind", ["reset", "close", "half", "stall"])
@pytest.mark.parametrize("what", ["weight", "gram", "activations"])
def test_an_upload_goes_on_after_a_break(driver, shared_server, make_proxy, big, folder, what, kind):
    proxy = make_proxy(shared_server.address)
    client = driver.connect(proxy.address, **SMALL_CHUNKS)
    begin, before = proxy.total(), received(shared_server)
    size = len(getattr(big, what).bytes)
    # The server may be slow to read: what it has not read when the client comes back travels again.
    proxy.before_break = lambda: wait_until(
        lambda: received(shared_server) - before > size * 3 // 4 - (256 << 10), "it arrives")
    proxy.arm(kind, size * 3 // 4)
    call, _ = send(client, what, big)
    answer = call.result()
    assert proxy.done == [kind]
    assert proxy.total() - begin < 1.6 * size, "it began anew"
    assert client.retries and client.retries[0]["code"] == "UNAVAILABLE"
    if what == "activations":
        assert answer["tokens"] == len(big.activations.array)
    check(client, what, big, answer["name"], folder)
    client.close()


@pytest.mark.parametrize("what", ["weight", "activations"])
def test_an_upload_that_takes_longer_than_the_patience_goes_on_after_a_break(
        driver, shared_server, make_proxy, big, folder, what):
    """The time to give up counts waiting, not sending: uploads may take hours."""
    proxy = make_proxy(shared_server.address)
    client = driver.connect(proxy.address, give_up_after=1.0, **SMALL_CHUNKS)
    proxy.arm("stall", len(getattr(big, what).bytes) // 2, seconds=2.0)
    call, _ = send(client, what, big)
    check(client, what, big, call.result()["name"], folder)
    assert proxy.done == ["stall"] and client.retries
    client.close()


@pytest.mark.parametrize("after", [1, 70_000])
def test_breaks_one_after_the_other(driver, shared_server, make_proxy, big, folder, after):
    """Also ones that come before a byte of the tensor has."""
    proxy = make_proxy(shared_server.address)
    client = driver.connect(proxy.address, **SMALL_CHUNKS)
    for _ in range(3):
        proxy.arm("reset", after)
    call, _ = send(client, "weight", big)
    check(client, "weight", big, call.result()["name"], folder)
    assert proxy.done == ["reset"] * 3
    client.close()


@pytest.mark.parametrize("what", ["weight", "activations"])
def test_an_answer_that_is_lost_hides_no_success(driver, start_server, make_proxy, big, what):
    server = start_server()
    proxy = make_proxy(server.address)
    client = driver.connect(proxy.address)
    call, tensor = None, getattr(big, what)
    begin = proxy.total()
    call, _ = send(client, what, big)
    wait_until(lambda: proxy.total() - begin > len(tensor.bytes) or call.done.is_set(), "all is sent")
    proxy.arm("reset", 0, "down")
    name = call.result()["name"]
    assert client.call("list_tensors")["names"] == [name], "it was stored once"
    client.close()


def test_damaged_bytes_are_sent_again(driver, shared_server, make_proxy, big, folder):
    data = bytearray(big.weight.bytes)
    for at in range(len(data) // 2, len(data) // 2 + 4096, 64):  # one of them is whole in one piece
        data[at:at + len(MARKER)] = MARKER
    tensor = Tensor(folder / "marked.f32", np.frombuffer(bytes(data), "<f4").reshape(2048, 512), "weight")
    proxy = make_proxy(shared_server.address)
    client = driver.connect(proxy.address, **SMALL_CHUNKS)
    begin = proxy.total()
    proxy.arm("damage")
    name = client.upload(tensor)
    assert proxy.done == ["damage"]
    assert [(retry["code"], retry["reason"]) for retry in client.retries] == [
        ("DATA_LOSS", "CHECKSUM_MISMATCH")]
    assert int(client.retries[0]["metadata"]["committed_size"]) > 0
    assert proxy.total() - begin < 1.9 * len(data), "it goes on at the last good byte"
    # And on the way back.
    proxy.arm("damage", way="down")
    assert client.read(name, folder / "read") == tensor.bytes
    assert proxy.done == ["damage"] * 2
    assert client.retries[-1]["reason"] == "CHECKSUM_MISMATCH"
    client.close()


@pytest.mark.parametrize("kind", ["reset", "stall"])
def test_a_download_goes_on_after_a_break(driver, shared_server, make_proxy, client, big, folder, kind):
    name = client.upload(big.weight)
    proxy = make_proxy(shared_server.address)
    through = driver.connect(proxy.address)
    begin = proxy.total("down")
    proxy.arm(kind, len(big.weight.bytes) * 3 // 4, "down")
    assert through.read(name, folder / "read") == big.weight.bytes
    assert proxy.done == [kind]
    assert proxy.total("down") - begin < 1.9 * len(big.weight.bytes), "it began anew"
    through.close()


@pytest.mark.parametrize("what, how", [("weight", "kill"), ("activations", "kill"), ("activations", "stop")])
def test_a_server_that_restarts_in_the_middle(driver, restartable, make_proxy, big, folder, what, how):
    server = restartable("--drain-grace", "0s", "--fetch-grace", "0s")
    proxy = make_proxy(server.address)
    client = driver.connect(proxy.address, **SMALL_CHUNKS)
    proxy.arm("hold", len(getattr(big, what).bytes) // 2)
    call, _ = send(client, what, big)
    assert proxy.held.wait(HANG)
    getattr(server, how)()
    proxy.release()
    server.again()
    check(client, what, big, call.result()["name"], folder)
    client.close()


def test_a_server_that_forgets_gets_it_from_the_start(driver, restartable, make_proxy, big, folder):
    server = restartable("--store", "memory")
    proxy = make_proxy(server.address)
    client = driver.connect(proxy.address, **SMALL_CHUNKS)
    proxy.arm("hold", len(big.weight.bytes) // 2)
    call, _ = send(client, "weight", big)
    assert proxy.held.wait(HANG)
    server.kill()
    proxy.release()
    server.again()
    check(client, "weight", big, call.result()["name"], folder)
    client.close()


def test_a_client_that_is_killed_comes_back_by_request_id(shared_server, make_proxy, big, folder):
    proxy = make_proxy(shared_server.address)
    size = len(big.weight.bytes)
    first = Driver()
    proxy.arm("hold", size * 3 // 4)
    send(first.connect(proxy.address, **SMALL_CHUNKS), "weight", big, request_id=f"{folder}/w")
    assert proxy.held.wait(HANG)
    first.close()
    proxy.release()
    wait_until(lambda: not writing(shared_server), "the server has read what is on its way")
    begin = proxy.total()
    second = Driver()
    client = second.connect(proxy.address, **SMALL_CHUNKS)
    name = client.upload(big.weight, request_id=f"{folder}/w")
    assert proxy.total() - begin < 0.6 * size, "it began anew"
    check(client, "weight", big, name, folder)
    assert client.upload(big.weight, request_id=f"{folder}/w") == name
    assert proxy.total() - begin < 0.7 * size, "it is there, and is not sent again"
    second.close()


@pytest.mark.parametrize("named", [False, True])
def test_giving_up_without_progress(driver, start_server, make_proxy, big, folder, named):
    """An upload that nobody can come back to gives its room back; a named one stays."""
    tenants = folder / "tenants"
    tenants.write_text("[alice]\nmax-uploads = 1\n")
    tokens = write_tokens(folder / "tokens", alice=TOKENS["alice"])
    server = start_server("--tokens", tokens, "--tenants", tenants)
    proxy = make_proxy(server.address)
    client = driver.connect(proxy.address, token=TOKENS["alice"], give_up_after=1.0)
    proxy.most_per_connection = 100_000  # fewer bytes than one message
    name = {"request_id": "a name"} if named else {}
    error, seconds = timed(lambda: client.refuses("upload", **big.weight.upload, **name))
    assert error.code == "UNAVAILABLE" and "gave up" in error.message
    assert seconds > 0.9
    proxy.most_per_connection = None
    direct = driver.connect(server.address, token=TOKENS["alice"], give_up_after=0.5)
    if named:
        assert direct.refuses("upload", **big.gram.upload).reason == "QUOTA_UPLOADS"
        check(direct, "weight", big, direct.upload(big.weight, **name), folder)
    direct.upload(big.gram)
    client.close()
    direct.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_everything_through_a_bad_network(driver, shared_server, make_proxy, big, client, seed):
    proxy = make_proxy(shared_server.address, FaultyProxy, seed)
    through = driver.connect(proxy.address, **SMALL_CHUNKS)
    weight = through.upload(big.weight)
    gram = through.call("gram", **big.activations.gram)["name"]
    options = {"method": "wanda", "sparsity": 0.5, "request_id": f"bad network {seed} {proxy.address}"}
    job = through.call("create_job", weight=weight, gram=gram, **options)["name"]
    assert through.call("watch", name=job)["state"] == "SUCCEEDED"
    assert through.call("create_job", weight=weight, gram=gram, **options)["name"] == job
    direct = client.call("create_job", weight=client.upload(big.weight),
                         gram=client.call("gram", **big.activations.gram)["name"], method="wanda",
                         sparsity=0.5)["name"]
    masks = [made.call("watch", name=name)["mask"] for made, name in ((client, job), (client, direct))]
    path = big.weight.path.parent / "mask"
    digests = {hashlib.sha256(client.read(mask, path)).digest() for mask in masks}
    assert len(digests) == 1, "a bad network changes no mask"
    through.close()


def test_lists_by_kind_and_open_uploads(driver, start_server, big, folder):
    server = start_server()
    client = driver.connect(server.address)
    weight, gram = (send(client, what, big)[0].result()["name"] for what in ("weight", "activations"))
    assert client.call("list_tensors", kind="weight")["names"] == [weight]
    assert client.call("list_tensors", kind="gram")["names"] == [gram]
    assert client.call("list_uploads")["names"] == []
    with grpc.insecure_channel(server.address) as channel:
        created = tensor_service_pb2_grpc.TensorServiceStub(channel).CreateUpload(
            tensor_service_pb2.CreateUploadRequest(gram=tensor_pb2.GramSpec(
                d_in=4, activation_dtype=tensor_pb2.DATA_TYPE_F32)), timeout=HANG)
    assert client.call("list_uploads")["names"] == [created.upload.name]
    client.call("delete_upload", name=created.upload.name)
    assert client.call("list_uploads")["names"] == []
    assert client.refuses("delete_upload", name=created.upload.name).kind == ("NOT_FOUND", "UPLOAD_NOT_FOUND")
    client.close()
