"""What is cleaned up after an error does not keep the error waiting."""

import asyncio
import concurrent.futures
import threading
import time

import numpy as np
import pytest

import sparsefw
import sparsefw.aio
from layers import ENDLESS, Layer
from sparsefw._rpc.session import Session
from sparsefw.client import stoppable
from support.processes import HANG

# Who waits for a server that is gone waits longer than any test may take.
PATIENT = sparsefw.Options(retry=sparsefw.Retry(give_up_after=10 * HANG))


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
