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
from sparsefw import _core, errors
from sparsefw._rpc.aio import AioTransport
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


def interrupt(event):
    if event.state == "RUNNING":
        raise KeyboardInterrupt


def hold_inputs(monkeypatch, transport):
    """The job that was cancelled takes a moment to end."""
    unary, until = transport.unary, []

    async def holding(self, method, request, timeout):
        if method.name == "CancelJob":
            until.append(time.monotonic() + 0.3)
        if method.name == "DeleteTensor" and time.monotonic() < until[0]:
            raise errors.refuse(grpc.StatusCode.FAILED_PRECONDITION, "TENSOR_IN_USE", "in use")
        return await unary(self, method, request, timeout)

    monkeypatch.setattr(transport, "unary", holding)


def test_an_interrupt_removes_a_tensor_that_the_cancelled_job_held(client, monkeypatch):
    layer = Layer()
    hold_inputs(monkeypatch, SyncTransport)
    with pytest.raises(KeyboardInterrupt):
        with client.upload(layer.weight) as weight, client.gram([layer.activations]) as gram:
            client.prune(weight, gram, sparsity=0.5, progress=interrupt, **ENDLESS)
    assert client.list(kinds=INPUTS) == []
    for job in client.jobs():
        job.wait().delete()


def test_an_interrupt_removes_a_tensor_that_the_cancelled_job_held_asynchronously(shared_server, monkeypatch):
    layer = Layer()
    hold_inputs(monkeypatch, AioTransport)

    async def main():
        async with await sparsefw.aio.connect(shared_server.address) as client:
            with pytest.raises(Oops):
                async with await client.gram([layer.activations]) as gram:
                    try:
                        await client.prune(layer.weight, gram, sparsity=0.5, progress=interrupt, **ENDLESS)
                    except KeyboardInterrupt:  # which would end the loop
                        raise Oops from None
            assert await client.list(kinds=INPUTS) == []
            for job in await client.jobs():
                await (await job.wait()).delete()

    asyncio.run(main())


@pytest.mark.parametrize("request_id", [None, "of the caller"])
def test_an_interrupt_while_a_job_is_created(client, monkeypatch, request_id):
    """Nobody knows its name, unless the same call may come again."""
    unary, interrupted = SyncTransport.unary, []

    async def interrupting(self, method, request, timeout):
        answer = await unary(self, method, request, timeout)
        if method.name == "CreateJob" and not interrupted:
            interrupted.append(answer.name)
            raise KeyboardInterrupt
        return answer

    monkeypatch.setattr(SyncTransport, "unary", interrupting)
    layer = Layer()
    with pytest.raises(KeyboardInterrupt):
        client.prune(layer.weight, layer.gram, sparsity=0.5, request_id=request_id, **ENDLESS)
    assert [job.name for job in client.jobs()] == (interrupted if request_id else [])
    assert len(client.list(kinds=INPUTS)) == (2 if request_id else 0)
    for job in client.jobs():
        assert job.state in ("QUEUED", "RUNNING")
        job.cancel().wait().delete()
    for tensor in client.list():
        tensor.delete()


def test_a_task_that_is_cancelled_while_a_job_is_created(shared_server, monkeypatch):
    unary = AioTransport.unary

    async def main():
        created = asyncio.Event()

        async def slow(self, method, request, timeout):
            answer = await unary(self, method, request, timeout)
            if method.name == "CreateJob" and not created.is_set():
                created.set()
                await asyncio.sleep(HANG)
            return answer

        monkeypatch.setattr(AioTransport, "unary", slow)
        layer = Layer()
        async with await sparsefw.aio.connect(shared_server.address) as client:
            task = asyncio.create_task(client.prune(layer.weight, layer.gram, sparsity=0.5, **ENDLESS))
            await created.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await client.list(), await client.jobs()) == ([], [])

    asyncio.run(main())


def test_a_job_that_is_refused_is_not_asked_for_again(client, monkeypatch):
    unary, asked = SyncTransport.unary, []

    async def counting(self, method, request, timeout):
        asked.append(method.name)
        return await unary(self, method, request, timeout)

    monkeypatch.setattr(SyncTransport, "unary", counting)
    layer = Layer()
    with client.upload(layer.weight) as weight, pytest.raises(sparsefw.FailedPrecondition):
        client.submit(weight, "tensors/none", sparsity=0.5)
    assert asked.count("CreateJob") == 1


def test_an_error_of_a_lost_connection_names_the_job(client, monkeypatch):
    layer = Layer()

    async def lost(self, job, on_event):
        raise sparsefw.Unavailable("lost", code=grpc.StatusCode.UNAVAILABLE)

    monkeypatch.setattr(_core.Core, "wait", lost)
    with pytest.raises(sparsefw.Unavailable) as raised:
        client.prune(layer.weight, layer.gram, sparsity=0.5, method="wanda")
    monkeypatch.undo()
    job = client.job(raised.value.job)
    job.result()
    # Its handle does not know what was uploaded for it.
    spec = job.message.spec
    assert {tensor.name for tensor in client.list(kinds=INPUTS)} == {spec.weight, spec.gram}
    for name in (job, spec.weight, spec.gram):
        client.delete(name)


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
