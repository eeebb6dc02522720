"""Activations, summed on the server."""

import threading

import numpy as np
import pytest

import sparsefw
from layers import Layer, Retries
from support.processes import HANG, wait_until


def exact(activations):
    inputs = activations.astype(np.float64)
    return inputs.T @ inputs


def close(gram, activations):
    """Within the rounding of products of float32."""
    truth = exact(activations)
    scale = np.sqrt(np.outer(np.diagonal(truth), np.diagonal(truth)))
    return np.max(np.abs(gram - truth) / scale) < 1e-6


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_array(client, dtype):
    layer = Layer()
    with client.gram(layer.activations, dtype=dtype) as gram:
        assert (gram.kind, gram.dtype, gram.shape, gram.tokens) == ("gram", dtype, (32, 32), 200)
        assert close(gram.read(), layer.activations)


def test_batches_of_any_size_and_more_dimensions(client):
    activations = Layer(tokens=600).activations
    pieces = np.split(activations, [1, 2, 100, 101, 300])
    pieces[-1] = pieces[-1].reshape(3, 100, 32)
    options = sparsefw.Options(chunk_bytes=5000)
    with sparsefw.connect(client.address, options=options) as other:
        with other.gram(iter(pieces)) as gram:
            assert gram.tokens == 600
            assert close(gram.read(), activations)


def test_workers_sum_their_parts(client):
    activations = Layer(tokens=900).activations
    shards = np.split(activations, [100, 400])
    parts = [client.gram(shard, request_id=f"step 3 worker {rank}") for rank, shard in enumerate(shards)]
    with client.sum_grams(parts, dtype="float64", request_id="step 3") as gram:
        assert (gram.kind, gram.dtype, gram.shape, gram.tokens) == ("gram", "float64", (32, 32), 900)
        read = gram.read()
        assert close(read, activations)
        again = [part.read().astype(np.float64) for part in parts]
        assert (read == (again[0] + again[1]) + again[2]).all()
        # A worker and the sum may come again.
        assert client.gram(shards[1], request_id="step 3 worker 1").name == parts[1].name
        assert client.sum_grams(parts, dtype="float64", request_id="step 3").name == gram.name
    for part in parts:
        client.delete(part)


def test_parts_that_do_not_fit(client):
    layer, other = Layer(), Layer(d_in=16)
    with client.gram(layer.activations) as part, client.gram(other.activations) as narrow, \
            client.upload(layer.weight) as weight:
        for parts, reason in (([part, narrow], "SHAPE_MISMATCH"), ([part, part], "SPEC_INVALID"),
                              ([part, weight], "WRONG_TENSOR_KIND"), ([], "SPEC_INVALID")):
            with pytest.raises(sparsefw.InvalidArgument) as refused:
                client.sum_grams(parts)
            assert refused.value.reason == reason
        with pytest.raises(sparsefw.NotFound):
            client.sum_grams([part, "tensors/none"])
        with pytest.raises(ValueError):
            client.sum_grams([part], dtype="float16")


def test_half_precision(client):
    activations = Layer().activations.astype(np.float16)
    with client.gram([activations[:50], activations[50:]]) as gram:
        assert close(gram.read(), activations)


def test_the_same_memory_may_be_filled_again(client):
    """As a hook does that copies into one buffer."""
    activations = Layer(tokens=64 * 7).activations
    buffer = np.empty((64, 32), np.float32)

    def batches():
        for begin in range(0, len(activations), 64):
            buffer[:] = activations[begin:begin + 64]
            yield buffer
        buffer[:] = 1e9

    for chunk_bytes in (1000, 64 * 32 * 4, 50_000):
        with sparsefw.connect(client.address,
                              options=sparsefw.Options(chunk_bytes=chunk_bytes)) as other:
            with other.gram(batches()) as gram:
                assert close(gram.read(), activations), chunk_bytes


def test_windows_are_let_go_once_they_are_saved(client):
    """Many windows: the sum is that of one stream."""
    activations = Layer(tokens=2000).activations
    options = sparsefw.Options(chunk_bytes=4000, gram_window_bytes=20_000)
    with sparsefw.connect(client.address, options=options) as other:
        with other.gram(np.split(activations, 40)) as gram:
            assert gram.tokens == 2000
            assert close(gram.read(), activations)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("window", [None, 30_000])
def test_no_token_counts_twice_over_broken_connections(shared_server, proxy, seed, window):
    activations = Layer(tokens=3000, seed=seed).activations
    cuts = sorted(np.random.default_rng(seed).integers(3000, activations.nbytes, 3).tolist())
    between = proxy(shared_server.address, cuts)
    retries = Retries(chunk_bytes=3000, gram_window_bytes=window)
    with sparsefw.connect(between.address, options=retries.options) as client:
        gram = client.gram(batch for batch in np.array_split(activations, 13))
        assert between.done == cuts
        assert retries.errors
        assert gram.tokens == 3000
        assert close(gram.read(), activations)
        gram.delete()


def test_a_sum_outlives_kill_9(restartable):
    server = restartable()
    activations = Layer(tokens=4000).activations
    reached, go_on = threading.Event(), threading.Event()

    def batches():
        for index, batch in enumerate(np.split(activations, 40)):
            if index == 25:
                reached.set()
                go_on.wait(HANG)
            yield batch

    retries = Retries(chunk_bytes=4000, gram_window_bytes=64_000)
    found = []
    with sparsefw.connect(server.address, options=retries.options) as client:
        thread = threading.Thread(target=lambda: found.append(client.gram(batches())))
        thread.start()
        assert reached.wait(HANG)
        server.kill()
        go_on.set()
        wait_until(lambda: retries.errors, "the client notices")
        server.again()
        thread.join(HANG)
        assert found
        assert found[0].tokens == 4000
        assert close(found[0].read(), activations)


def test_a_request_id_counts_no_token_of_the_run_before(client):
    activations = Layer(tokens=900).activations

    def interrupted():
        yield activations[:300]
        yield activations[300:600]
        raise RuntimeError("of the model")

    options = sparsefw.Options(chunk_bytes=4000, gram_window_bytes=10_000)
    with sparsefw.connect(client.address, options=options) as other:
        with pytest.raises(RuntimeError, match="of the model"):
            other.gram(interrupted(), request_id="calibration")
        with other.gram(np.split(activations, 9), request_id="calibration") as gram:
            assert gram.tokens == 900
            assert close(gram.read(), activations)


def test_batches_come_from_the_callers_thread(client):
    threads = set()

    def batches():
        for batch in np.split(Layer().activations, 4):
            threads.add(threading.get_ident())
            yield batch

    client.gram(batches()).delete()
    assert threads == {threading.get_ident()}


def test_an_error_of_the_batches_is_the_callers_own(client):
    before = client.info().host_memory_used_bytes

    def batches():
        yield Layer().activations
        raise ZeroDivisionError("of the model")

    with pytest.raises(ZeroDivisionError, match="of the model"):
        client.gram(batches())
    wait_until(lambda: client.info().host_memory_used_bytes == before, "the room is back")


def test_what_does_not_fit_together_is_refused(client):
    one = np.ones((4, 8), np.float32)
    for batches, words in (([one, np.ones((4, 9), np.float32)], "same d_in, 8; got 9"),
                           ([one, np.ones((4, 8), np.float16)], "float32; got float16"),
                           ([], "at least one batch"),
                           (3, "got int64")):
        with pytest.raises(sparsefw.InvalidArgument) as refused:
            client.gram(batches)
        assert words in str(refused.value)
    with pytest.raises(sparsefw.InvalidArgument, match="d_in must be at most"):
        client.gram(np.ones((1, 1 << 20), np.float32))


def test_the_server_names_what_is_not_finite(client):
    activations = Layer().activations.copy()
    activations[17, 5] = np.nan
    with pytest.raises(sparsefw.InvalidArgument) as refused:
        client.gram(activations)
    assert refused.value.reason == "NON_FINITE"
    assert "17" in refused.value.message
