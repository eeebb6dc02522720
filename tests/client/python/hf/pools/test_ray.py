"""A run on raylets that are killed: the same bits, and nothing stays."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import sparsefw
import test_programs
import tiny

pytest.importorskip("ray", reason="ray is not installed: client/python/make-environment --hf build/venv")

import clusters  # noqa: E402
from sparsefw.hf import Ray, prune_model  # noqa: E402
from support.processes import HANG, wait_until  # noqa: E402

OPTIONS = {
    "data": tiny.tokens(20), "sparsity": 0.5, "iterations": 60, "split_above": 512, "gram": "client",
    "refine_blocks": {"epochs": 2}, "progress": False,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Where servers of workers have their folders."""
    folder = tmp_path_factory.mktemp("workers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        yield folder


@pytest.fixture(scope="module")
def nodes(place):
    with clusters.cluster(2) as found:
        yield found


def bits(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.suffix == ".safetensors"}


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny.make("llama", num_hidden_layers=4).save_pretrained(folder / "dense")
    prune_model(folder / "dense", out=folder / "expected", **OPTIONS)
    return folder


def servers(place):
    return [process for process in psutil.process_iter(["cmdline"])
            if any(word.startswith(f"{place}/sparsefw-") for word in process.info["cmdline"] or ())]


def test_killed_nodes_change_no_bit(nodes, dense, folder):
    """Each W and each Gram matrix is sent once; a node that joins gets work."""
    before = nodes.kills
    with clusters.killing(nodes, seed=7, pause=(6, 9), most=2):
        report = prune_model(dense / "dense", server=Ray(cpus=1), out=folder / "out", **OPTIONS)
    assert nodes.kills > before
    assert bits(folder / "out") == bits(dense / "expected")
    found = report.cluster
    weights = sum(row["shape"][0] * row["shape"][1] * 4 for row in report.layers)
    norms = 4 * 2 * 32 * 4
    assert found["sent"]["weight"] <= 1.05 * (weights + norms)
    assert "gram" not in found["sent"], "no Gram matrix is sent by the driver"
    assert sum(node["jobs"] for node in found["nodes"].values()) == sum(row["parts"] for row in report.layers)
    assert "nodes: " in str(report)


def solving(place):
    """Servers of workers that have a job of a second or more."""
    for process in servers(place):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "sparsefw-server" in process.name() and process.cpu_times().user > 1:
                yield process


def test_a_job_that_loses_every_worker_fails_by_name(nodes, dense, place):
    def kill():
        for server in solving(place):
            with contextlib.suppress(psutil.NoSuchProcess, AttributeError):
                server.parent().parent().kill()  # the guard's parent is the worker

    killing = clusters.meanwhile(lambda ended: wait_until(lambda: kill() or ended.is_set(), "the end of the run"))
    with killing, pytest.raises(sparsefw.Aborted, match=r"_proj\.weight.*: 2 workers ended while they") as raised:
        prune_model(dense / "dense", server=Ray(cpus=1, max_attempts=2), **{**OPTIONS, "iterations": 10**9})
    assert raised.value.reason == "WORKER_LOST"


def test_a_server_that_ends_counts_as_a_lost_worker(nodes, dense, folder, place):
    """Its job runs again elsewhere."""
    wait_until(lambda: not servers(place), "the end of earlier servers")
    killed = []

    def kill(ended):
        def one():
            for server in itertools.islice(solving(place), 1):
                server.kill()
                killed.append(server)
            return killed or ended.is_set()

        wait_until(one, "a running job")

    options = {**OPTIONS, "iterations": 400_000, "ignore": ["self_attn", "gate", "up_proj"], "refine_blocks": False}
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


def test_nothing_of_a_killed_driver_stays_and_the_same_call_goes_on(nodes, dense, folder, place):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", DRIVER, str(Path(__file__).parents[1]), str(dense), nodes.address, str(folder)]
    with open(folder / "log", "w") as log:
        driver = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
        wait_until(lambda: (folder / "state/block-0000.json").exists() or driver.poll() is not None, "a block")
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    assert not (folder / "out").exists(), (folder / "log").read_text()[-2000:]
    wait_until(lambda: not servers(place) and not list(place.glob("sparsefw-*")), "the end of all servers")
    finished = {path.name: path.stat().st_mtime_ns for path in (folder / "state").glob("block-*.json")}
    report = prune_model(
        dense / "dense", server=Ray(cpus=1), state_dir=folder / "state", out=folder / "out", **OPTIONS)
    assert bits(folder / "out") == bits(dense / "expected")
    for name, modified in finished.items():
        assert (folder / "state" / name).stat().st_mtime_ns == modified, "a finished block is not solved again"
    assert json.loads((folder / "out/sparsefw.json").read_text())["layers"] == report.layers


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


def test_no_cluster_at_an_address_is_an_error(dense, folder):
    (folder / "text.txt").write_text("text " * 100)
    test_programs.tokenizer().save_pretrained(dense / "dense")
    words = [sys.executable, "-m", "sparsefw", "prune-model", str(dense / "dense"), "--data", str(folder / "text.txt")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [*words, "--out", str(folder / "out"), "--sparsity", "0.5", "--no-refine-blocks", "--server", "ray:127.0.0.1:1"],
        env=environment, capture_output=True, text=True, timeout=HANG, check=False)
    assert ended.returncode == 3, ended.stderr[-2000:]
    assert "no Ray cluster at 127.0.0.1:1" in ended.stderr
