"""What an error, Ctrl-C, kill -9 and a lost server leave behind, and how soon."""

import contextlib
import os
import signal
import threading
import time

import grpc
import pytest
import sparsefw
import tiny
import torch
from sparsefw import _core
from sparsefw.hf import prune_model
from sparsefw.hf.progress import Progress
from support.processes import BIN_DIR, HANG, wait_until
from test_resume import finished, start, weights

# Some tenths of a second a job.
LONG = {"sparsity": 0.5, "iterations": 50_000, "swaps": True, "progress": False}
NO_NUMBER = "model.layers.0.self_attn.q_proj.weight"


def broken(name=NO_NUMBER):
    model = tiny.make("llama")
    with torch.no_grad():
        model.get_parameter(name)[3, 4] = float("nan")
    return model


def layer_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("sparsefw-layer")]


def inputs_on(client):
    """Names of weights and Gram matrices; masks come from jobs that go on."""
    return [tensor.name for tensor in client.list() if tensor.kind in ("weight", "gram")]


def is_running(client):
    return bool(client.jobs(["RUNNING"], limit=1))


@pytest.mark.parametrize(("lasting", "gram"), [(False, "auto"), (True, "auto"), (True, "server")])
def test_an_error_in_one_matrix_ends_the_others(start_server, folder, monkeypatch, lasting, gram):
    """They are sent slowly: their jobs would be created after the error. Nobody comes back for what is
    there, unless there is a state_dir and a name: Gram matrices that the server sums have none.
    """
    upload = _core.Core.upload

    async def slow(self, value, kind, *rest, **named):
        if kind == "weight" and not bool(torch.as_tensor(value).isnan().any()):
            time.sleep(0.5)
        return await upload(self, value, kind, *rest, **named)

    monkeypatch.setattr(_core.Core, "upload", slow)
    options = {"gram": gram, **({"state_dir": folder / "state"} if lasting else {})}
    with sparsefw.connect(start_server("--workers", "2").address) as client:
        with pytest.raises(sparsefw.InvalidArgument, match=NO_NUMBER) as raised:
            prune_model(broken(), data=tiny.tokens(), server=client, **LONG, **options)
        assert raised.value.reason == "NON_FINITE"
        assert layer_threads() == []
        before = [job.name for job in client.jobs()], inputs_on(client)
        assert (lasting and gram == "auto") or client.list() == []
        assert (lasting and gram == "auto") or before == ([], [])
        time.sleep(1)
        assert before == ([job.name for job in client.jobs()], inputs_on(client))
        client.info()  # the caller's client is still open


def test_an_error_is_not_kept_for_the_jobs_before_it(start_server):
    """Those of three matrices before it would run for hours. The value is found when its job runs: every one of
    the four has a worker.
    """
    name = "model.layers.0.self_attn.o_proj.weight"
    with sparsefw.connect(start_server("--workers", "4").address) as client:
        with pytest.raises(sparsefw.InvalidArgument, match=name):
            prune_model(broken(name), data=tiny.tokens(), server=client, **{**LONG, "iterations": 10**11})
        assert client.jobs() == []
        assert client.list() == []


def test_two_runs_of_the_same_do_not_meet(start_server):
    """Without a state_dir: what one removes is not the other's."""
    server = start_server("--workers", "2")
    models, errors = [tiny.make("llama"), tiny.make("llama")], []

    def prune(model):
        try:
            prune_model(model, data=tiny.tokens(), server=server.address, **LONG)
        except sparsefw.Error as error:
            errors.append(error)

    threads = [threading.Thread(target=prune, args=(model,)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for name, value in models[0].named_parameters():
        assert torch.equal(value, models[1].get_parameter(name)), name


def test_a_server_of_the_run_alone_is_not_cleared(monkeypatch):
    monkeypatch.setenv("SPARSEFW_SERVER_PROGRAM", str(BIN_DIR / "sparsefw-server"))
    monkeypatch.setattr(_core.Core, "clear", lambda *_: pytest.fail("its state ends with it"))
    with pytest.raises(sparsefw.InvalidArgument, match=NO_NUMBER):
        prune_model(broken(), data=tiny.tokens(), server="auto", **LONG)


@pytest.mark.parametrize("lasting", [False, True])
def test_a_lost_server_is_an_error_at_once(restartable, folder, lasting):
    """One patience for the job that is waited for, none for what else is there: a Gram matrix an expert."""
    patience = 2.0
    server = restartable("--workers", "2")
    retry = sparsefw.Retry(give_up_after=patience)
    lost = []
    begun = time.monotonic()
    with sparsefw.connect(server.address, options=sparsefw.Options(retry=retry)) as client:

        def kill():
            wait_until(lambda: is_running(client), "a running job")
            server.kill()
            lost.append(time.monotonic())

        killer = threading.Thread(target=kill)
        killer.start()
        options = {"state_dir": folder / "state"} if lasting else {}
        with pytest.raises(sparsefw.Unavailable):
            prune_model(tiny.make("mixtral"), data=tiny.tokens(), server=client, **LONG, **options)
        # Once for each of the dozens of matrices would take a minute, however quick the machine is.
        assert time.monotonic() - lost[0] < 2 * patience + (lost[0] - begun)
        assert layer_threads() == []
        killer.join()


@pytest.fixture
def expected(client, folder):
    """What a run without an interruption writes."""
    model = tiny.make("llama", num_hidden_layers=2)
    model.save_pretrained(folder / "dense")
    prune_model(folder / "dense", data=tiny.tokens(), server=client, out=folder / "expected", **LONG)
    return weights(folder / "expected")


def test_an_interrupt_while_jobs_run(expected, folder, client):
    """In the second block; the same call follows at once, in the same process with the same client."""

    def call():
        prune_model(
            folder / "dense", data=tiny.tokens(), server=client, state_dir=folder / "state",
            out=folder / "out", **LONG)

    def interrupt():
        wait_until(lambda: finished(folder) == 1 and is_running(client), "jobs of the second block")
        os.kill(os.getpid(), signal.SIGINT)

    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        call()
    helper.join()
    assert layer_threads() == []
    assert finished(folder) == 1
    assert not (folder / "out").exists()
    call()
    assert weights(folder / "out") == expected
    assert client.jobs() == []
    assert client.list() == []


@pytest.mark.parametrize("taken_by", ["any thread", "another thread than the main one"])
def test_an_interrupt_that_nobody_comes_back_from(client, taken_by):
    """Without a state_dir nothing is left on the server."""

    def interrupt():
        wait_until(lambda: is_running(client), "a running job")
        if taken_by == "any thread":
            os.kill(os.getpid(), signal.SIGINT)
        else:
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        prune_model(tiny.make("llama"), data=tiny.tokens(), server=client, **{**LONG, "iterations": 10**11})
    helper.join()
    assert layer_threads() == []
    assert client.jobs() == []
    assert client.list() == []


def test_a_kill_while_jobs_run(expected, folder, client, shared_server):
    process = start(folder, shared_server.address, iterations=LONG["iterations"])
    try:
        wait_until(
            lambda: (finished(folder) == 1 and is_running(client)) or process.poll() is not None, "jobs of the second block")
        assert process.poll() is None, process.stderr.read()
    finally:
        process.kill()
        process.communicate()
    assert finished(folder) == 1
    process = start(folder, shared_server.address, iterations=LONG["iterations"])
    _, errors = process.communicate(timeout=HANG)
    assert process.returncode == 0, errors
    assert weights(folder / "out") == expected


@pytest.mark.parametrize("order", [1, -1])
def test_several_servers_go_on_with_their_own_jobs(start_server, folder, monkeypatch, order):
    """The second block's jobs are lost once all are there. With the servers in another order they may run anew;
    at the end nothing of either call is on the servers.
    """
    servers = [start_server().address for _ in range(2)]
    all_there = threading.Barrier(tiny.MATRICES["llama"])
    wait, waited = _core.Core.wait, set()
    lost = True

    async def watched(self, job, on_event):
        if "layers.1." in job.spec.labels["sparsefw.matrix"]:
            if lost:
                all_there.wait(HANG)
                raise sparsefw.Unavailable("lost", code=grpc.StatusCode.UNAVAILABLE)
            waited.add((self.session.address, job.name))
        return await wait(self, job, on_event)

    monkeypatch.setattr(_core.Core, "wait", watched)
    options = {"data": tiny.tokens(), "state_dir": folder / "state", **LONG, "iterations": 20}
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(sparsefw.connect(server)) for server in servers]
        with pytest.raises(sparsefw.Unavailable, match="lost"):
            prune_model(tiny.make("llama"), server=servers, **options)
        left = {(client.address, job.name) for client in clients for job in client.jobs()}
        assert len(left) == tiny.MATRICES["llama"]
        lost = False
        prune_model(tiny.make("llama"), server=servers[::order], **options)
        assert order == -1 or waited == left
        assert [client.jobs() for client in clients] == [[], []]
        assert [client.list() for client in clients] == [[], []]


def test_layers_of_a_block_run_at_the_same_time(client, monkeypatch):
    """Two workers: at some time two jobs of a block run, by the server's clock; never jobs of two blocks."""
    ended = {}

    def note(self, name, event):
        if event.ended:
            job = event.message.job
            ended[name] = job.start_time.ToNanoseconds(), job.end_time.ToNanoseconds()

    monkeypatch.setattr(Progress, "event", note)
    prune_model(tiny.make("llama"), data=tiny.tokens(), server=client, **LONG)
    assert len(ended) == 2 * tiny.MATRICES["llama"]
    blocks = [[times for name, times in ended.items() if f"layers.{block}." in name] for block in range(2)]
    for times in blocks:
        overlaps = [
            min(one[1], other[1]) - max(one[0], other[0])
            for index, one in enumerate(times) for other in times[index + 1 :]]
        assert max(overlaps) > 0
    assert max(end for _, end in blocks[0]) <= min(start for start, _ in blocks[1])
