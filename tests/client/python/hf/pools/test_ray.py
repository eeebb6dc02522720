"""A run on raylets that are killed: the same bits, and nothing stays."""

import collections
import contextlib
import functools
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import types
from pathlib import Path

import psutil
import pytest
import sparsefw
import test_programs
import tiny
import torch
from forms import long

pytest.importorskip("ray", reason="ray is not installed: client/python/make-environment --hf build/venv")

import clusters  # noqa: E402
import ray  # noqa: E402
from sparsefw._cluster.node import processor  # noqa: E402
from sparsefw.hf import Ray, prune_model  # noqa: E402
from sparsefw.hf.cluster import session  # noqa: E402
from sparsefw.hf.cluster.facts import Facts  # noqa: E402
from sparsefw.hf.cluster.pool import RayPool  # noqa: E402
from sparsefw.hf.cluster.workers import Workers  # noqa: E402
from sparsefw.hf.progress import Progress  # noqa: E402
from support.processes import HANG, wait_until  # noqa: E402

# Inputs of down_proj. Its Gram matrix is larger than the 100 kB up to which Ray sends outcomes within messages.
INNER = 512
OPTIONS = {
    "data": tiny.tokens(20), "sparsity": 0.5, "iterations": 60, "split_above": 2048, "gram": "client",
    "refine_blocks": {"epochs": 2}, "progress": False,
}


def bits(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.suffix == ".safetensors"}


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny.make("llama", num_hidden_layers=4, intermediate_size=INNER).save_pretrained(folder / "dense")
    prune_model(folder / "dense", out=folder / "expected", **OPTIONS)
    return folder


def servers(work_folder):
    return [process for process in psutil.process_iter(["cmdline"])
            if any(word.startswith(f"{work_folder}/sparsefw-") for word in process.info["cmdline"] or ())]


def test_killed_nodes_change_no_bit(nodes, dense, folder):
    """Each W and each Gram matrix is sent once; a node that joins gets work."""
    before = nodes.kills
    with clusters.killing(nodes, seed=7, pause=(2, 4), most=2):
        report = prune_model(dense / "dense", server=Ray(cpus=1), out=folder / "out", **OPTIONS)
    assert nodes.kills > before
    assert bits(folder / "out") == bits(dense / "expected")
    found = report.cluster
    weights = sum(row["shape"][0] * row["shape"][1] * 4 for row in report.layers)
    norms = 4 * 2 * 32 * 4
    assert found["sent"]["weight"] <= 1.05 * (weights + norms)
    assert "gram" not in found["sent"], "no Gram matrix is sent by the driver"
    assert sum(node["jobs"] for node in found["nodes"].values()) == sum(row["parts"] for row in report.layers)
    refined = [node["calibration"].get("refine", {"tasks": 0}) for node in found["nodes"].values()]
    assert sum(kind["tasks"] for kind in refined) == 4
    assert all(kind["seconds"] > 0 and kind["read"] > 0 for kind in refined if kind["tasks"])
    assert "nodes: " in str(report)


def test_a_node_gets_a_gram_matrix_once(nodes, dense, folder, monkeypatch):
    """Counted by the raylets while jobs run. The parts of down_proj run first, on both nodes, and its Gram matrix was
    made on one of them. It has more pieces than the weights of a block together.
    """
    pieces = 4 * INNER * INNER // clusters.PIECE
    assert pieces > 4 + 3 * (1 + 4 * 32 * INNER // clusters.PIECE)
    solve, moved = RayPool.solve, []

    def counted(self, tasks, on_event):
        before = nodes.received()
        solved = list(solve(self, tasks, on_event))
        moved.append([(now - earlier) // pieces for now, earlier in zip(nodes.received(), before, strict=True)])
        return iter(solved)

    monkeypatch.setattr(RayPool, "solve", counted)
    monkeypatch.setattr(Workers, "start", functools.partialmethod(Workers.start, 2))
    options = {**OPTIONS, "data": tiny.tokens(1), "refine_blocks": False, "iterations": 2000}
    report = prune_model(dense / "dense", server=Ray(cpus=1), **options)
    print(f"times that each node got the Gram matrix of down_proj, by block: {moved}")
    assert [sorted(of_block) for of_block in moved] == 4 * [[0, 1]]
    there = report.cluster["nodes"].values()
    assert all(node["gram_bytes"] >= 4 * INNER * INNER * 4 for node in there)
    tasks = collections.Counter()
    for node in there:
        tasks.update({kind: one["tasks"] for kind, one in node["calibration"].items()})
        assert node["processor"] == processor()
    assert (tasks["forward"], tasks["gram"]) == (3, 4), "one shard; nothing follows the last block"
    assert "mixed processors" not in str(report)
    next(iter(there))["processor"] = "another one"
    assert f"mixed processors, so the bits depend on which node did what: {processor()}; another one" in str(report)
    next(iter(there)).update(processor=processor(), pytorch="another path")
    both = f"PyTorch with {torch.backends.cpu.get_cpu_capability()}; PyTorch with another path"
    assert f"mixed processors, so the bits depend on which node did what: {both}" in str(report)


def test_a_failed_run_cancels_nothing_but_its_refinement(nodes, dense, monkeypatch):
    """Ray 2.60 ends the process where a task is cancelled just as its arguments have come."""
    cancelled, cancel = [], ray.cancel
    monkeypatch.setattr(ray, "cancel", lambda ref, **how: cancelled.append(ref) or cancel(ref, **how))

    def stops(*_):
        raise KeyboardInterrupt

    endless = {**OPTIONS, "refine_blocks": {"epochs": 1000}}
    for part, count in (("solve", 0), ("_tell", 1)):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(RayPool, part, stops)
            prune_model(dense / "dense", server=Ray(cpus=1), **endless)
        assert len(cancelled) == count
    with pytest.raises((ray.exceptions.TaskCancelledError, ray.exceptions.WorkerCrashedError)):
        ray.get(cancelled[0], timeout=HANG)
    wait_until(lambda: ray.available_resources().get("CPU") == 2, "the cores of the refinement")


def test_time_without_jobs_is_no_time_without_workers(nodes, monkeypatch):
    """Samples may pass a block for longer than workers are waited for, and all workers be lost meanwhile."""
    with Workers(Ray(cpus=1), 1, Facts()) as workers:
        now = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: now() + 2 * session.WORKER_PATIENCE)
        workers.start()
        assert workers.ready


def solving(work_folder):
    """Servers of workers that have a job of a second or more."""
    for process in servers(work_folder):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "sparsefw-server" in process.name() and process.cpu_times().user > 1:
                yield process


@long
def test_a_job_that_loses_every_worker_fails_by_name(nodes, dense, work_folder):
    def kill():
        for server in solving(work_folder):
            with contextlib.suppress(psutil.NoSuchProcess, AttributeError):
                server.parent().parent().kill()  # the guard's parent is the worker

    killing = clusters.meanwhile(lambda ended: wait_until(lambda: kill() or ended.is_set(), "the end of the run"))
    with killing, pytest.raises(sparsefw.Aborted, match=r"_proj\.weight.*: 2 workers ended while they") as raised:
        prune_model(dense / "dense", server=Ray(cpus=1, max_attempts=2), **{**OPTIONS, "iterations": 10**9})
    assert raised.value.reason == "WORKER_LOST"


@long
def test_a_server_that_ends_counts_as_a_lost_worker(nodes, dense, folder, work_folder):
    """Its job runs again elsewhere."""
    wait_until(lambda: not servers(work_folder), "the end of earlier servers")
    killed = []

    def kill(ended):
        def one():
            for server in itertools.islice(solving(work_folder), 1):
                server.kill()
                killed.append(server)
            return killed or ended.is_set()

        wait_until(one, "a running job")

    ignore = ["[qkv]_proj", "mlp", r"layers\.[23]\."]
    options = {**OPTIONS, "iterations": 200_000, "ignore": ignore, "refine_blocks": False}
    with clusters.meanwhile(kill):
        report = prune_model(dense / "dense", server=Ray(cpus=1), out=folder / "out", **options)
    assert killed and report.cluster["retries"] == 1
    prune_model(dense / "dense", out=folder / "expected", **options)
    assert bits(folder / "out") == bits(folder / "expected")


DRIVER = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/pools"]
import torch
torch.set_num_threads(1)
import test_ray
from sparsefw.hf import Ray, prune_model
folder, address = sys.argv[2:4]
prune_model(folder + "/dense", server=Ray(address=address, cpus=1), state_dir=sys.argv[4] + "/state",
            out=sys.argv[4] + "/out", **test_ray.OPTIONS)
"""


def start_of_a_process():
    """Seconds."""
    started = time.monotonic()
    subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)
    return time.monotonic() - started


def test_nothing_of_a_killed_driver_stays_and_the_same_call_goes_on(nodes, dense, folder, work_folder):
    """Ten seconds later where a process starts in 20 ms; on a busy machine, in the time of 500 starts."""
    nodes.forget()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", DRIVER, str(Path(__file__).parents[1]), str(dense), nodes.address, str(folder)]
    with open(folder / "log", "w") as log:
        driver = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
        wait_until(lambda: (folder / "state/block-0000.json").exists() or driver.poll() is not None, "a block")
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    killed = time.monotonic()
    assert not (folder / "out").exists(), (folder / "log").read_text()[-2000:]
    starts = []

    def nothing_stays():
        starts.append(start_of_a_process())
        left = servers(work_folder) or list(work_folder.glob("sparsefw-*"))
        return not left and nodes.owned_bytes() == 0

    wait_until(nothing_stays, "the end of all servers, their folders, and objects in shared memory")
    seconds, limit = time.monotonic() - killed, max(10, 500 * statistics.mean(starts))
    print(f"nothing was left {seconds:.1f} s after SIGKILL; the limit is {limit:.1f} s")
    assert seconds <= limit
    finished = {path.name: path.stat().st_mtime_ns for path in (folder / "state").glob("block-*.json")}
    report = prune_model(
        dense / "dense", server=Ray(cpus=1), state_dir=folder / "state", out=folder / "out", **OPTIONS)
    assert bits(folder / "out") == bits(dense / "expected")
    for name, modified in finished.items():
        assert (folder / "state" / name).stat().st_mtime_ns == modified, "a finished block is not solved again"
    assert json.loads((folder / "out/sparsefw.json").read_text())["layers"] == report.layers


@long
def test_hidden_states_that_are_lost_for_good_are_made_from_the_first_block(nodes, dense, folder, monkeypatch):
    """All nodes are killed, and Ray may run no task again."""
    from sparsefw.hf.cluster import step

    lost = []
    again = step.RayStep.groups

    def loses(self):
        if self.layout.index == 2 and not lost:
            lost.append(1)
            for index in range(len(nodes.nodes)):
                nodes.kill(index)
        return again(self)

    monkeypatch.setattr(step, "_RETRIES", 0)
    monkeypatch.setattr(step.RayStep, "groups", loses)
    prune_model(dense / "dense", server=Ray(cpus=1), out=folder / "out", **OPTIONS)
    assert lost and bits(folder / "out") == bits(dense / "expected")


@contextlib.contextmanager
def program(dense, folder, address):
    """`sparsefw prune-model` at work; its standard error is in folder/log."""
    (folder / "text.txt").write_text("text " * 100)
    test_programs.tokenizer().save_pretrained(dense / "dense")
    words = [sys.executable, "-m", "sparsefw", "prune-model", str(dense / "dense"), "--data", str(folder / "text.txt")]
    words += ["--out", str(folder / "out"), "--sparsity", "0.5", "--no-refine-blocks", "--server", f"ray:{address}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with open(folder / "log", "w") as log, subprocess.Popen(
        [*words, "--method", "wanda"], env=environment, stdout=log, stderr=log) as running:
        try:
            yield running
        finally:
            running.kill()


def test_no_cluster_at_an_address_is_an_error(dense, folder):
    with program(dense, folder, "127.0.0.1:1") as running:
        assert running.wait(HANG) == 3, (folder / "log").read_text()[-2000:]
    assert "no Ray cluster at 127.0.0.1:1" in (folder / "log").read_text()


@long
def test_a_head_that_only_coordinates_waits_for_a_node(nodes, dense, folder):
    """The node joins while the call waits, which says so."""
    with clusters.cluster(0, connect=False) as head, program(dense, folder, head.address) as running:
        said = "waiting for a node of the Ray cluster with 1 CPU, at most"
        wait_until(lambda: said in (folder / "log").read_text() or running.poll() is not None, "what it waits for")
        head.add()
        assert running.wait(HANG) == 0, (folder / "log").read_text()[-2000:]
    assert (folder / "out/sparsefw.json").exists()


def test_a_cluster_without_room_is_an_error_that_names_what_was_wanted(nodes, dense, monkeypatch):
    monkeypatch.setattr(session, "WORKER_PATIENCE", 1.5)
    with pytest.raises(sparsefw.FailedPrecondition, match=r"has had 64 CPUs for a worker in 2 s: its nodes are 3, "
                       r"with 2 CPUs and 0 GPUs in all") as raised:
        prune_model(dense / "dense", server=Ray(cpus=64), **OPTIONS)
    assert raised.value.reason == "DEVICE_UNAVAILABLE"


def test_a_cluster_that_does_not_start_leaves_nothing(monkeypatch):
    """No head, and no variable: tests that follow would find them."""
    monkeypatch.delenv("SPARSEFW_SERVER_PROGRAM", raising=False)
    ended = []

    class Head:
        def __init__(self, **_):
            pass

        def shutdown(self):
            ended.append(self)

    def fails(self):
        raise AssertionError("no node")

    monkeypatch.setattr(clusters, "Cluster", Head)
    monkeypatch.setattr(clusters.Nodes, "add", fails)
    with pytest.raises(AssertionError, match="no node"), clusters.cluster(1):
        pass
    assert len(ended) == 1
    assert "SPARSEFW_SERVER_PROGRAM" not in os.environ


class OneMachine:
    """What session.py calls of Ray, with a cluster of eight cores on this machine."""

    exceptions = ray.exceptions
    get = cancel = staticmethod(lambda *_, **__: None)

    def __init__(self, running):
        self.running, self.address, self.more = running, "", []

    def is_initialized(self):
        return bool(self.address)

    def init(self, address, **_):
        if address == "auto" and not self.running:
            raise ConnectionError
        self.address = "127.0.0.1:6379" if address == "auto" else "127.0.0.1:4242"

    def get_runtime_context(self):
        return types.SimpleNamespace(gcs_address=self.address)

    def nodes(self):
        sizes = [8.0, *self.more]
        return [{"NodeID": str(size), "Alive": True, "Resources": {"CPU": size}} for size in sizes]

    def remote(self, **_):
        return lambda function: types.SimpleNamespace(remote=function)


@pytest.mark.parametrize("address", ["local", None])
def test_a_cluster_of_the_call_itself_is_not_waited_for(monkeypatch, address):
    machine, said = OneMachine(running=False), []
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(session, "_alone", set())
    monkeypatch.setattr(session, "load_ray", lambda: machine)
    monkeypatch.setattr(session.time, "sleep", lambda _: pytest.fail("the call waits"))
    for _ in range(2):  # the second call finds the cluster of the first
        session.connect_cluster(Ray(address=address))
        assert session.wait_for_cores(Ray(address=address, cpus=8), said.append) == 8
        with pytest.raises(sparsefw.FailedPrecondition, match="has had 9 CPUs for a worker: its nodes are 1, with 8 "):
            session.wait_for_cores(Ray(address=address, cpus=9), said.append)
    assert said == []


def test_a_wait_that_is_over_is_not_said_any_more(monkeypatch):
    machine, shown = OneMachine(running=True), Progress(1, 1, shown=True)
    texts = []

    def wait(what):
        shown.wait(what)
        texts.append(shown._bar.desc)

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(session, "_alone", set())
    monkeypatch.setattr(session, "load_ray", lambda: machine)
    monkeypatch.setattr(session.time, "sleep", lambda _: machine.more.append(64.0))
    with contextlib.closing(shown):
        session.connect_cluster(Ray())
        assert session.wait_for_cores(Ray(cpus=64), wait) == 64
    assert texts[0].startswith("waiting for a node of the Ray cluster with 64 CPUs, at most ")
    assert texts[1:] == ["pruning"]
