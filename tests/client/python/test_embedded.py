"""server="auto": a server that ends with whoever started it."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import sparsefw
from layers import Layer
from sparsefw import aio, embedded
from support.processes import BIN_DIR, HANG, wait_until

SOURCE = str(Path(sparsefw.__file__).parents[1])


@pytest.fixture(autouse=True)
def program(monkeypatch):
    monkeypatch.setenv("SPARSEFW_SERVER_PROGRAM", str(BIN_DIR / "sparsefw-server"))
    monkeypatch.setenv("SPARSEFW_CUDA_MODULE", "none")


def is_alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False


def server_of(guard):
    (child,) = Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
    return int(child)


def test_a_layer_is_pruned_without_a_server_of_ones_own():
    layer = Layer()
    with sparsefw.connect("auto") as client:
        guard = client.server._guard.pid
        server = server_of(guard)
        assert client.address.startswith("127.0.0.1:")
        assert client.server.device == "cpu"
        result = client.prune(layer.weight, activations=layer.activations, sparsity=0.5, iterations=20)
        assert result.mask.sum() == result.kept
        folder = client.server.log.parent
        assert folder.stat().st_mode & 0o077 == 0
    assert not is_alive(guard)
    assert not is_alive(server)
    assert not folder.exists()


def test_two_servers_do_not_meet():
    with sparsefw.serve() as one, sparsefw.serve("--workers", "2") as two:
        assert one.address != two.address
        with sparsefw.connect(two.address) as client:
            assert client.info().workers == 2


def test_state_may_stay_where_one_wants_it(folder):
    with sparsefw.serve("--state-dir", str(folder / "state")) as server:
        with sparsefw.connect(server.address) as client:
            name = client.upload(Layer().weight).name
    with sparsefw.serve("--state-dir", str(folder / "state")) as server:
        with sparsefw.connect(server.address) as client:
            assert client.tensor(name).shape == (24, 32)


@pytest.mark.parametrize("when", ["starting", "arriving"])
def test_a_start_that_is_cancelled_leaves_no_server(monkeypatch, when):
    """A thread cannot be interrupted: the server ends when it has started."""
    made, begun, start = [], threading.Event(), embedded.EmbeddedServer.__init__

    def seen(self, *flags):
        begun.set()
        start(self, *flags)
        made.append(self)

    monkeypatch.setattr(embedded.EmbeddedServer, "__init__", seen)

    async def main():
        task = asyncio.create_task(aio.connect("auto"))
        if when == "starting":
            await asyncio.to_thread(begun.wait)
        else:  # its thread has ended, and the loop has not looked since
            await asyncio.sleep(0)
            wait_until(lambda: made, "the server")
            time.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(wait_until, lambda: made and not is_alive(made[0]._guard.pid), "its end")

    asyncio.run(main())
    assert not made[0].log.parent.exists()


@pytest.mark.parametrize("flags", [("--no-such-flag",), ("--workers", "none")])
def test_a_server_that_does_not_start_says_why(flags):
    with pytest.raises(sparsefw.Unavailable) as failed:
        sparsefw.serve(*flags)
    assert failed.value.reason == "SERVER_FAILED"
    assert flags[0].lstrip("-") in failed.value.message


def test_a_program_that_is_missing(monkeypatch):
    monkeypatch.setenv("SPARSEFW_SERVER_PROGRAM", "/no/such/program")
    with pytest.raises(sparsefw.FailedPrecondition, match="/no/such/program") as missing:
        sparsefw.connect("auto")
    assert missing.value.reason == "SERVER_MISSING"
    monkeypatch.delenv("SPARSEFW_SERVER_PROGRAM")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "sparsefw_server", None)
    with pytest.raises(sparsefw.FailedPrecondition, match="pip install sparsefw-server"):
        embedded.find_program()


def test_credentials_make_no_sense():
    with pytest.raises(sparsefw.InvalidArgument, match="no credentials"):
        sparsefw.connect("auto", token="t")


PARENT = """
import os, sys, threading, time
import sparsefw
if {thread}:
    # The thread that starts the server ends long before the process.
    started = []
    thread = threading.Thread(target=lambda: started.append(sparsefw.connect("auto")))
    thread.start(); thread.join()
    client = started[0]
else:
    client = sparsefw.connect("auto")
child = os.fork() if {fork} else 1
if child == 0:
    # Holds the pipe's other end open; only the parent's number tells.
    time.sleep({hang})
    os._exit(0)
print(client.server._guard.pid, client.address, client.server.log.parent, child, flush=True)
{then}
"""


def start_parent(thread=False, fork=False, then=f"time.sleep({HANG})"):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(thread=thread, fork=fork, then=then, hang=HANG)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": SOURCE})
    guard, address, folder, child = parent.stdout.readline().split()
    return parent, int(guard), address, Path(folder), int(child)


def ended(*pids):
    return not any(is_alive(pid) for pid in pids)


@pytest.mark.parametrize("fork", [False, True], ids=["", "with a fork"])
def test_the_server_ends_when_its_parent_is_killed(fork):
    parent, guard, _, folder, child = start_parent(fork=fork)
    server = server_of(guard)
    try:
        parent.kill()
        parent.wait()
        wait_until(lambda: ended(guard, server), "guard and server have ended")
        assert not folder.exists()
    finally:
        parent.stdout.close()
        if fork:
            assert is_alive(child), "the fork must have outlived the server"
            os.kill(child, signal.SIGKILL)


def test_closing_does_not_wait_for_a_fork():
    then = "began = time.monotonic(); client.close(); print(time.monotonic() - began)"
    parent, guard, _, folder, child = start_parent(fork=True, then=then)
    try:
        assert float(parent.stdout.readline()) < 15
        assert ended(guard) and not folder.exists()
        assert is_alive(child), "the fork must have outlived the server"
    finally:
        os.kill(child, signal.SIGKILL)
        parent.wait()
        parent.stdout.close()


def test_the_server_outlives_the_thread_that_started_it():
    parent, guard, address, folder, _ = start_parent(thread=True)
    server = server_of(guard)
    try:
        with sparsefw.connect(address) as client:
            assert client.info().version
        assert is_alive(server)
    finally:
        parent.send_signal(signal.SIGTERM)
        parent.wait()
        parent.stdout.close()
    wait_until(lambda: ended(guard, server), "guard and server have ended")
    assert not folder.exists()


@pytest.mark.parametrize("then", ["", "raise SystemExit(3)", "1 / 0", "os._exit(4)"],
                         ids=["end", "exit", "exception", "_exit"])
def test_the_server_ends_with_its_parent(then):
    parent, guard, _, folder, _ = start_parent(then=then + " # exit")
    parent.wait(HANG)
    parent.stdout.close()
    wait_until(lambda: ended(guard), "the guard has ended")
    assert not folder.exists()


def test_the_server_ends_when_its_guard_is_killed():
    with sparsefw.serve() as server:
        pid = server_of(server._guard.pid)
        os.kill(server._guard.pid, signal.SIGKILL)
        wait_until(lambda: ended(pid), "the server has ended")


def test_ctrl_c_does_not_reach_the_server():
    """A terminal sends SIGINT to the whole group of processes."""
    with sparsefw.serve() as server:
        assert os.getpgid(server._guard.pid) != os.getpgid(0)
        assert os.getpgid(server_of(server._guard.pid)) != os.getpgid(0)


def test_no_thread_is_left(folder):
    before = threading.active_count()
    with sparsefw.serve():
        pass
    wait_until(lambda: threading.active_count() <= before, "the reader has ended")
