"""The asyncio client: the same promises."""

import asyncio
import contextlib
import threading

import grpc
import grpc.aio
import numpy as np
import pytest
from google.protobuf import empty_pb2

import sparsefw
import sparsefw.aio
from layers import ENDLESS, Layer, Retries
from sparsefw._rpc.aio import AioTransport
from sparsefw._rpc.credentials import Credentials
from sparsefw._rpc.wire import GET_JOB, WATCH_JOB
from support import reference
from support.processes import BIN_DIR, HANG, wait_until


@pytest.fixture(scope="module")
def layer():
    return Layer()


@pytest.fixture(scope="module")
def big():
    return Layer(256, 256, seed=11)


def test_a_layer(shared_server, layer):
    async def main():
        async with await sparsefw.aio.connect(shared_server.address) as client:
            weight = await client.upload(layer.weight)
            assert (await weight.read() == layer.weight).all()

            async def batches():
                for batch in np.split(layer.activations, 4):
                    await asyncio.sleep(0)
                    yield batch

            gram = await client.gram(batches())
            assert gram.tokens == 200
            result = await client.prune(weight, gram, sparsity=0.6, iterations=50)
            reference.check_counts(result.mask, "per-row", 0.6)
            table = await client.sweep(weight, gram, sparsity=0.6, alpha=[0, 0.9], iterations=20)
            assert len(table) == 2
            assert (await client.get(result.job)).state == "SUCCEEDED"
            assert result.job in [job.name for job in await client.jobs()]
            assert gram.name in [tensor.name for tensor in await client.list()]
            assert (await client.info()).version
            async with weight, gram:
                pass
            with pytest.raises(sparsefw.NotFound):
                await client.tensor(gram.name)
            await client.delete(result.job)

    asyncio.run(main())


def test_the_synchronous_client_inside_an_event_loop(shared_server, layer):
    """As in a notebook."""
    async def main():
        with sparsefw.connect(shared_server.address) as client:
            assert client.prune(layer.weight, layer.gram, sparsity=0.5, iterations=5).mask.any()
            job = client.submit(layer.weight, layer.gram, sparsity=0.5, iterations=5)
            next(job.events())  # left early, and never closed
            job.wait()

    asyncio.run(main())


def test_many_layers_at_once(shared_server):
    async def main():
        async with await sparsefw.aio.connect(shared_server.address) as client:
            layers = [Layer(seed=seed) for seed in range(8)]
            results = await asyncio.gather(*(
                client.prune(one.weight, one.gram, sparsity=0.5, iterations=50) for one in layers))
            for one, result in zip(layers, results, strict=True):
                assert result.losses.final == pytest.approx(one.loss(result.mask), rel=1e-6)

    asyncio.run(main())


@pytest.mark.parametrize("seed", [1, 2])
def test_broken_connections(shared_server, proxy, seed):
    array = np.random.default_rng(seed).standard_normal((256, 256)).astype(np.float32)
    cuts = [50_000 * seed, 150_000, 250_000]
    between = proxy(shared_server.address, cuts)
    retries = Retries(chunk_bytes=10_000, gram_window_bytes=60_000)

    async def main():
        async with await sparsefw.aio.connect(between.address, options=retries.options) as client:
            tensor = await client.upload(array)
            assert (await tensor.read() == array).all()
            between.cuts = [between.received + 100_000]
            gram = await client.gram(np.split(array, 16))
            truth = array.astype(np.float64).T @ array
            assert np.abs(await gram.read() - truth).max() < 1e-6 * np.diagonal(truth).max()
            await tensor.delete()
            await gram.delete()

    asyncio.run(main())
    assert len(between.done) == 4
    assert len(retries.errors) >= 4


def test_events_and_cancel(shared_server, big):
    async def main():
        async with await sparsefw.aio.connect(shared_server.address) as client:
            job = await client.submit(big.weight, big.gram, sparsity=0.6, **ENDLESS)
            kinds = []
            async for event in job.events():
                kinds.append(event.kind)
                if event.progress and event.progress.iteration:
                    await job.cancel()
            assert kinds[0] == "SNAPSHOT"
            assert job.state == "CANCELLED"
            result = await job.result()
            assert result.stop_reason == "CANCELLED"
            reference.check_counts(result.mask, "per-row", 0.6)

    asyncio.run(main())


def test_cancelling_the_task_cancels_the_job_of_prune(shared_server, big):
    async def main():
        async with await sparsefw.aio.connect(shared_server.address) as client:
            running = asyncio.Event()

            def observe(event):
                if event.progress and event.progress.iteration:
                    running.set()

            task = asyncio.create_task(client.prune(
                big.weight, big.gram, sparsity=0.6, labels={"test": "aio"}, progress=observe, **ENDLESS))
            await asyncio.wait_for(running.wait(), 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            (job,) = await client.jobs(labels={"test": "aio"})
            await asyncio.wait_for(job.wait(), 10)
            assert job.state == "CANCELLED"

    asyncio.run(main())


def test_a_job_outlives_kill_9(restartable, big):
    server = restartable("--checkpoint-period", "100ms")
    retries = Retries()

    async def main():
        async with await sparsefw.aio.connect(server.address, options=retries.options) as client:
            killed = threading.Event()
            job = await client.submit(big.weight, big.gram, sparsity=0.6, iterations=3000,
                                      report_every=100)
            async with contextlib.aclosing(job.events()) as events:
                async for event in events:
                    if event.progress and event.progress.iteration and not killed.is_set():
                        killed.set()
                        await asyncio.to_thread(server.kill)
                        await asyncio.to_thread(server.again)
            assert killed.is_set()
            assert retries.errors
            assert job.message.attempts == 2
            reference.check_counts((await job.result()).mask, "per-row", 0.6)

    asyncio.run(main())


def test_errors_are_the_same(shared_server, layer):
    async def main():
        async with await sparsefw.aio.connect(shared_server.address) as client:
            with pytest.raises(sparsefw.InvalidArgument) as refused:
                await client.submit(layer.weight, layer.gram, sparsity=3)
            assert refused.value.reason == "PATTERN_INVALID"
            with pytest.raises(sparsefw.NotFound):
                await client.job("jobs/none")

            async def failing():
                yield layer.activations
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await client.gram(failing())
        with pytest.raises(sparsefw.Unavailable) as nobody:
            await sparsefw.aio.connect("127.0.0.1:1", options=sparsefw.Options(connect_timeout=0.3))
        assert nobody.value.reason == "UNREACHABLE"
        with pytest.raises(sparsefw.Cancelled) as closed:
            await client.info()
        assert closed.value.reason == "CLOSED"

    asyncio.run(main())


def test_closing_the_client_is_no_cancellation_of_tasks():
    """The server never answers. A task that was cancelled is cancelled, whatever else happens."""
    async def main():
        waiting = asyncio.Queue()

        class Silent(grpc.GenericRpcHandler):
            def service(self, details):
                async def unary(*_):
                    waiting.put_nowait(1)
                    await asyncio.sleep(HANG)

                async def stream(*_):
                    await unary()
                    yield b""

                if details.method == GET_JOB.path:
                    return grpc.unary_unary_rpc_method_handler(unary)
                return grpc.unary_stream_rpc_method_handler(stream)

        server = grpc.aio.server()
        server.add_generic_rpc_handlers([Silent()])
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()

        async def read(transport):
            async for _ in transport.read(WATCH_JOB, empty_pb2.Empty(), data=False, silence=HANG):
                pass

        for cancelled in (False, True):
            transport = AioTransport(address, Credentials(None, ()), HANG)
            tasks = [asyncio.create_task(transport.unary(GET_JOB, empty_pb2.Empty(), HANG)), asyncio.create_task(read(transport))]
            for _ in tasks:
                await waiting.get()
            for task in tasks if cancelled else ():
                task.cancel()
            await transport.close()
            for error in await asyncio.gather(*tasks, return_exceptions=True):
                if cancelled:
                    assert isinstance(error, asyncio.CancelledError)
                else:
                    assert isinstance(error, sparsefw.Cancelled) and error.reason == "CLOSED"
        await server.stop(None)

    asyncio.run(main())


def test_auto(monkeypatch, layer):
    monkeypatch.setenv("SPARSEFW_SERVER_PROGRAM", str(BIN_DIR / "sparsefw-server"))

    async def main():
        async with await sparsefw.aio.connect("auto") as client:
            result = await client.prune(layer.weight, layer.gram, sparsity=0.5, method="wanda")
            assert result.kept == result.mask.sum()
            return client.server

    server = asyncio.run(main())
    wait_until(lambda: server._guard.poll() is not None, "the server has ended")


def test_both_clients_have_the_same_methods():
    for one in ("Client", "Job", "Tensor"):
        ours, theirs = getattr(sparsefw.aio, one), getattr(sparsefw, one)
        assert {name for name in dir(ours) if not name.startswith("_")} == \
            {name for name in dir(theirs) if not name.startswith("_")}
