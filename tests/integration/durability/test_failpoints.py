"""kill -9 at every place of the server that has a name, then a restart: clients finish what they
have begun, and nothing that was acknowledged is lost. Exhaustive: the names are read from the
sources, and a name that is never reached fails."""
import os
import re
import signal
import sys
import time
from pathlib import Path

import grpc
import pytest

from support.floods import metric
from support.ports import hold_port
from support.processes import BIN_DIR, HANG, Server, wait_until
from support.rpc import Client, refusal

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "tests/chaos"))
import variants  # noqa: E402
from clients import HistoryWorker  # noqa: E402
from validate import check  # noqa: E402

PROGRAM = BIN_DIR.parent / "tests/sparsefw-server-failpoints"
CALL = re.compile(r'Failpoint\("([a-z_.]+)"\)')
NAMES = sorted({name for path in (ROOT / "server").rglob("*.cc")
                for name in CALL.findall(path.read_text())})


@pytest.fixture(scope="module")
def layers(tmp_path_factory):
    return variants.make_small(tmp_path_factory.mktemp("layers"))


class Victim:
    """A server that is started again and again on the same folder and port."""

    def __init__(self, folder, failpoints):
        self.folder, self.failpoints = folder, failpoints
        self.seen = folder / "seen"
        self.address = f"127.0.0.1:{hold_port()}"
        self.server = None

    def start(self, armed=True, wait=True):
        env = {"SPARSEFW_FAILPOINTS_SEEN": str(self.seen)}
        if armed:
            env["SPARSEFW_FAILPOINTS"] = self.failpoints
        self.server = Server(
            self.folder, "--listen", self.address, "--metrics-listen", "127.0.0.1:0", "--state-dir",
            self.folder / "state", "--device", "cpu", "--workers", "2", "--drain-grace", "100ms",
            "--fetch-grace", "100ms", "--gc-interval", "200ms", "--max-attempts", "1000",
            "--checkpoint-period", "50ms", env=env, defaults=False, program=PROGRAM, wait=wait)

    def ended(self, enough=lambda: False, seconds=HANG):
        """Whether it has ended by itself by then, or before there was enough: only a failpoint
        does that."""
        deadline = time.monotonic() + seconds
        while self.server.process.poll() is None and time.monotonic() < deadline and not enough():
            time.sleep(0.02)
        code = self.server.process.poll()
        assert code in (None, -signal.SIGKILL), f"ended with {code}:\n{self.server.log()[-3000:]}"
        return code is not None

    def drained(self, worker):
        """The same for a drain that interrupts a job of `worker`; the server has ended either way."""
        before = len(worker.records)  # of these the last may be about to end
        if self.ended(lambda: worker.error or worker.records[before:] and worker.records[-1].running):
            return True
        self.server.signal(signal.SIGTERM)
        code = self.server.wait()
        assert code in (0, -signal.SIGKILL), f"ended with {code}:\n{self.server.log()[-3000:]}"
        return code != 0

    def run_into_it(self, workers):
        """Again where a job ended before the drain that was to interrupt it: on a slow machine."""
        deadline = time.monotonic() + HANG
        while time.monotonic() < deadline and not any(worker.error for worker in workers):
            if self.life(workers):
                return True
            self.server.close()
        return False

    def life(self, workers):
        """Through lives of clients, a drain, a recovery, a kill and another recovery."""
        self.start(wait=False)
        enough = [(worker, worker.jobs + 3) for worker in workers[:2]]
        if self.ended(lambda: all(worker.error or worker.jobs >= jobs for worker, jobs in enough)):
            return True
        if not workers[2].ident:
            workers[2].start()
        if self.drained(workers[2]):
            return True
        self.start(wait=False)
        if self.ended(seconds=1):  # a kill at any moment of the recovery
            return True
        self.server.close()
        self.start(wait=False)
        return self.ended(seconds=3)


# The second time, too, where there is time and a process can be there twice.
ONCE = ("drain.", "recovery.", "job.requeued")
CASES = [(name, count) for name in NAMES
         for count in ((1, 2) if os.environ.get("SPARSEFW_LONG_TESTS") else (1,))
         if count == 1 or not name.startswith(ONCE)]


@pytest.mark.parametrize("name, count", CASES)
def test_killed_there(folder, layers, name, count):
    victim = Victim(folder, f"{name}=kill@{count}")
    workers = [HistoryWorker(victim.address, layers[:3], seed, delete=0.7) for seed in (1, 2)]
    # One whose jobs last far longer than the drain's grace. It begins with the drain: most places are reached
    # before, and its job would only be waited for.
    workers.append(HistoryWorker(victim.address, layers[3:], 3))
    try:
        for worker in workers[:2]:
            worker.start()
        reached = victim.run_into_it(workers)
        assert not any(worker.error for worker in workers), [worker.error for worker in workers]
        assert reached, f"{name} was not reached {count} times"
        victim.server.close()
        victim.start(armed=False)
        for worker in workers:
            worker.stopping.set()
        for worker in filter(lambda worker: worker.ident, workers):
            worker.join(HANG)
            assert not worker.is_alive(), "a client hangs"
            assert worker.error is None, worker.error
        client = Client(victim.address)
        assert check(client, workers, folder / "state/spool") > 0
        client.close()
        assert victim.server.stop() == 0, victim.server.log()[-3000:]
    finally:
        for worker in workers:
            worker.stopping.set()
        if victim.server:
            victim.server.close()


def test_there_are_enough_names():
    assert len(NAMES) >= 15, NAMES


def test_memory_that_runs_out_ends_one_call_only(start_server, layer):
    """An exception on a thread of calls would end the process."""
    server = start_server("--upload-idle-ttl", "1s", "--gc-interval", "100ms", program=PROGRAM,
                          env={"SPARSEFW_FAILPOINTS": "upload.file_made=memory@1"})
    client = Client(server.address)
    assert refusal(lambda: client.create_upload(layer.weight, "weight")) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED, "HOST_MEMORY")
    assert client.read(client.upload(layer.weight, "weight")) == layer.weight.tobytes()
    wait_until(lambda: metric(server, "sparsefw_uploads") == 0, "what was begun is dropped")
    client.close()
    assert server.stop() == 0


def test_memory_that_runs_out_ends_one_stream_only(start_server, layer):
    server = start_server(program=PROGRAM, env={"SPARSEFW_FAILPOINTS": "upload.finished=memory@1"})
    client = Client(server.address)
    upload = client.create_upload(layer.weight, "weight").name
    assert refusal(lambda: client.write(upload, layer.weight.tobytes())) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED, "HOST_MEMORY")
    assert client.read(client.write(upload, layer.weight.tobytes()).tensor.name) == layer.weight.tobytes()
    client.close()
    assert server.stop() == 0
