"""What is cleaned up after an error does not keep the error waiting."""

import asyncio
import time

import numpy as np
import pytest

import sparsefw
import sparsefw.aio
from layers import Layer
from sparsefw._rpc.session import Session


class Oops(Exception):
    pass


def test_leaving_a_tensor_with_an_error(restartable):
    server = restartable()
    with sparsefw.connect(server.address) as client:
        with pytest.raises(Oops):
            with client.upload(Layer().weight):
                raise Oops
        assert client.list() == []
        with pytest.raises(Oops):
            with client.upload(Layer().weight):
                server.kill()
                began = time.monotonic()
                raise Oops
    assert time.monotonic() - began < 5


def test_leaving_a_tensor_with_an_error_asynchronously(restartable):
    server = restartable()

    async def leave(kill):
        async with await sparsefw.aio.connect(server.address) as client:
            try:
                async with await client.upload(Layer().weight):
                    if kill:
                        server.kill()
                    began = time.monotonic()
                    raise Oops
            except Oops:
                if not kill:
                    assert await client.list() == []
                return time.monotonic() - began

    assert asyncio.run(leave(False)) < 5
    assert asyncio.run(leave(True)) < 5


def test_arrays_of_a_job_that_was_not_queued(restartable, monkeypatch):
    server, layer = restartable(), Layer()
    kill = False
    began = 0.0

    async def fail(self, spec, request_id):
        nonlocal began
        if kill:
            server.kill()
        began = time.monotonic()
        raise Oops

    monkeypatch.setattr(Session, "create_job", fail)
    with sparsefw.connect(server.address) as client:
        gram = np.eye(layer.weight.shape[1], dtype=np.float32)
        for kill in (False, True):
            with pytest.raises(Oops):
                client.submit(layer.weight, gram, sparsity=0.5)
            assert time.monotonic() - began < 5
            assert kill or client.list() == []
