"""What is cleaned up after an error does not keep the error waiting."""

import asyncio
import concurrent.futures
import threading
import time

import grpc
import numpy as np
import pytest

import sparsefw
import sparsefw.aio
from layers import ENDLESS, Layer
from sparsefw import _core
from sparsefw._rpc.session import Session
from sparsefw._rpc.sync import SyncTransport
from sparsefw.client import stoppable
from support.processes import HANG

# Who waits for a server that is gone waits longer than any test may take.
PATIENT = sparsefw.Options(retry=sparsefw.Retry(give_up_after=10 * HANG))


LOST = sparsefw.Unavailable("lost", code=grpc.StatusCode.UNAVAILABLE)
INPUTS = ["weight", "gram"]


class Oops(Exception):
    pass


def test_leaving_a_tensor_with_an_error(restartable):
    server = restartable()
    with sparsefw.connect(server.address, options=PATIENT) as client:
        with pytest.raises(Oops):
            with client.upload(Layer().weight):
                raise Oops
        assert client.list() == []
        with pytest.raises(Oops):
            with client.upload(Layer().weight):
                server.kill()
                raise Oops


def test_leaving_a_tensor_with_an_error_asynchronously(restartable):
    server = restartable()

    async def leave(kill):
        async with await sparsefw.aio.connect(server.address, options=PATIENT) as client:
            try:
                async with await client.upload(Layer().weight):
                    if kill:
                        server.kill()
                    raise Oops
            except Oops:
                if not kill:
                    assert await client.list() == []

    asyncio.run(leave(False))
    asyncio.run(leave(True))


def test_a_deletion_whose_answer_is_lost(client, monkeypatch):
    unary, lost = SyncTransport.unary, []

    async def losing(self, method, request, timeout):
        answer = await unary(self, method, request, timeout)
        if method.name.startswith("Delete") and method.name not in lost:
            lost.append(method.name)
            raise LOST
        return answer

    monkeypatch.setattr(SyncTransport, "unary", losing)
    layer = Layer()
    result = client.prune(layer.weight, layer.gram, sparsity=0.5, method="wanda")
    tensor = client.upload(layer.weight)
    for what in (result.job, tensor):
        client.delete(what)
        with pytest.raises(sparsefw.NotFound):
            client.delete(what)
    assert sorted(lost) == ["DeleteJob", "DeleteTensor"]


def test_arrays_of_a_job_that_was_not_queued(restartable, monkeypatch):
    server, layer = restartable(), Layer()
    kill = False

    async def fail(self, spec, request_id):
        if kill:
            server.kill()
        raise Oops

    monkeypatch.setattr(Session, "create_job", fail)
    with sparsefw.connect(server.address, options=PATIENT) as client:
        gram = np.eye(layer.weight.shape[1], dtype=np.float32)
        for kill in (False, True):
            with pytest.raises(Oops):
                client.submit(layer.weight, gram, sparsity=0.5)
            assert kill or client.list() == []


def lose_once(monkeypatch, call, error):
    """The first result of `prune` or `sweep` is lost after its job has ended."""
    name = {"prune": "result", "sweep": "sweep_result"}[call]
    original, errors = getattr(_core.Core, name), [error]

    async def lost(self, job):
        if errors:
            raise errors.pop()
        return await original(self, job)

    monkeypatch.setattr(_core.Core, name, lost)


@pytest.mark.parametrize(("call", "sparsity"), [("prune", 0.5), ("sweep", [0.25, 0.5])])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), LOST], ids=["interrupt", "lost"])
def test_the_same_call_fetches_a_result_that_was_lost(client, monkeypatch, error, call, sparsity):
    layer = Layer()
    lose_once(monkeypatch, call, error)
    options = {"sparsity": sparsity, "method": "wanda", "request_id": f"lost {type(error).__name__} {call}"}
    with pytest.raises(type(error)):
        getattr(client, call)(layer.weight, layer.gram, **options)
    assert len(client.list(kinds=INPUTS)) == 2
    result = getattr(client, call)(layer.weight, layer.gram, **options)
    client.delete(result.job)
    assert client.list() == []


@pytest.mark.parametrize(("call", "sparsity"), [("prune", 0.5), ("sweep", [0.25, 0.5])])
def test_the_same_call_fetches_a_lost_result_asynchronously(shared_server, monkeypatch, call, sparsity):
    layer = Layer()
    lose_once(monkeypatch, call, LOST)
    options = {"sparsity": sparsity, "method": "wanda", "request_id": f"lost asynchronously {call}"}

    async def main():
        async with await sparsefw.aio.connect(shared_server.address) as client:
            with pytest.raises(sparsefw.Unavailable):
                await getattr(client, call)(layer.weight, layer.gram, **options)
            assert len(await client.list(kinds=INPUTS)) == 2
            result = await getattr(client, call)(layer.weight, layer.gram, **options)
            await client.delete(result.job)
            assert await client.list() == []

    asyncio.run(main())


@pytest.mark.parametrize("call", ["prune", "sweep"])
def test_arrays_that_nobody_can_come_back_for(client, shared_server, monkeypatch, call):
    """A result that is lost without a request id, and a job that ends without one."""
    layer = Layer()
    options = {"sparsity": 0.5 if call == "prune" else [0.25, 0.5], "method": "wanda"}

    async def main():
        async with await sparsefw.aio.connect(shared_server.address) as other:
            with pytest.raises(sparsefw.Unavailable):
                await getattr(other, call)(layer.weight, layer.gram, **options)

    lose_once(monkeypatch, call, LOST)
    with pytest.raises(sparsefw.Unavailable):
        getattr(client, call)(layer.weight, layer.gram, **options)
    assert client.list(kinds=INPUTS) == []
    lose_once(monkeypatch, call, LOST)
    asyncio.run(main())
    assert client.list(kinds=INPUTS) == []
    with pytest.raises(sparsefw.DeadlineExceeded):
        getattr(client, call)(layer.weight, layer.gram, request_id=f"fails {call}", deadline=1e-9, **options)
    assert client.list(kinds=INPUTS) == []
    for job in client.jobs():
        job.delete()


def test_arrays_of_a_job_whose_result_is_gone(client):
    """Somebody else has deleted its mask."""
    layer = Layer()
    job = client.submit(layer.weight, layer.gram, sparsity=0.5, method="wanda")
    ended = client.job(job.name).wait()
    client.delete(ended.message.result.mask)
    with pytest.raises(sparsefw.NotFound):
        job.result()
    assert client.list() == []
    job.delete()


@pytest.fixture
def thread():
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        yield executor


def check_stopped(future):
    with pytest.raises(sparsefw.Cancelled) as raised:
        future.result(timeout=HANG)
    assert raised.value.reason == "CLOSED"


def test_a_watch_is_stopped_from_another_thread(client, thread):
    """Neither the job ends nor the connections of the client."""
    layer, running = Layer(), threading.Event()
    worker = stoppable(client)
    job = client.submit(layer.weight, layer.gram, sparsity=0.5, **ENDLESS)
    waits = thread.submit(lambda: worker.job(job.name).result(lambda event: running.set()))
    assert running.wait(HANG)
    worker.close()
    check_stopped(waits)
    check_stopped(thread.submit(worker.info))
    assert not client.job(job.name).ended
    job.abandon()
    job.wait().delete()


def test_an_upload_is_stopped_from_another_thread(client, thread):
    """In the middle; the server gets its room back."""
    begun = threading.Event()
    worker = stoppable(client)
    before = client.info().host_memory_used_bytes

    def slowly(sent, total):
        begun.set()
        time.sleep(0.05)

    upload = thread.submit(worker.upload, np.ones((4096, 4096), np.float32), progress=slowly)  # 64 messages
    assert begun.wait(HANG)
    worker.close()
    with pytest.raises(sparsefw.Error):
        upload.result(timeout=HANG)
    assert client.list() == []
    assert client.info().host_memory_used_bytes == before


def test_a_wait_for_a_lost_server_is_stopped_from_another_thread(restartable, thread):
    server = restartable()
    with sparsefw.connect(server.address) as client:
        worker = stoppable(client)
        server.kill()
        asks = thread.submit(worker.info)
        time.sleep(0.5)
        assert not asks.done()  # for a minute
        worker.close()
        check_stopped(asks)
