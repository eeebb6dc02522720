"""A run that ends in the middle goes on with the same call, and the outcome is the same."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import numpy as np
import pytest
import sparsefw
import tiny
import torch
import transformers
from sparsefw.hf import prune_model
from sparsefw.hf.state import BlockState, State
from support.processes import HANG, wait_until

ROOT = Path(sparsefw.__file__).resolve().parents[1]
OPTIONS = {"sparsity": 0.5, "iterations": 200, "swaps": True, "progress": False}
BLOCKS = 4


def save(folder):
    model = tiny.make("llama", num_hidden_layers=BLOCKS)
    model.save_pretrained(folder)


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


@pytest.fixture
def expected(client, folder):
    """What a run without an interruption writes."""
    save(folder / "dense")
    prune_model(folder / "dense", data=tiny.tokens(), server=client, out=folder / "expected", **OPTIONS)
    return weights(folder / "expected")


RUN = """
import sys, json
sys.path.insert(0, sys.argv[1])
import tiny, torch
from sparsefw.hf import prune_model
torch.set_num_threads(1)
prune_model(sys.argv[2], data=tiny.tokens(), server=sys.argv[3], state_dir=sys.argv[4], out=sys.argv[5],
            **json.loads(sys.argv[6]))
"""


def start(folder, server, **options):
    words = [Path(tiny.__file__).parent, folder / "dense", server, folder / "state", folder / "out",
             json.dumps({**OPTIONS, **options})]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1"}
    if "SPARSEFW_SERVER_PROGRAM" not in environment:
        environment["SPARSEFW_SERVER_PROGRAM"] = str(Path(os.environ["SPARSEFW_BIN_DIR"]) / "sparsefw-server")
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *map(str, words)], env=environment, stderr=subprocess.PIPE, text=True)


def finished(folder):
    return len(list((folder / "state").glob("block-*.json")))


@pytest.mark.parametrize("server", ["auto", "lasting"])
def test_kill_of_the_pipeline(expected, folder, shared_server, server):
    address = "auto" if server == "auto" else shared_server.address
    process = start(folder, address)
    try:
        wait_until(lambda: finished(folder) or process.poll() is not None, "a finished block")
        assert process.poll() is None, process.stderr.read()
    finally:
        process.kill()
        process.communicate()
    done = finished(folder)
    assert 1 <= done < BLOCKS, "killed too late"
    assert not (folder / "out").exists()
    process = start(folder, address)
    _, errors = process.communicate(timeout=HANG)
    assert process.returncode == 0, errors
    assert weights(folder / "out") == expected


def test_kill_of_the_server(expected, folder, restartable):
    server = restartable()
    process = start(folder, server.address)
    try:
        wait_until(lambda: finished(folder) or process.poll() is not None, "a finished block")
        server.kill()
        assert finished(folder) < BLOCKS, "killed too late"
        server.again()
        _, errors = process.communicate(timeout=HANG)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors
    assert weights(folder / "out") == expected


def run(folder, client, **options):
    arguments = {"data": tiny.tokens(), "state_dir": folder / "state", "out": folder / "out", **OPTIONS, **options}
    model = arguments.pop("model", folder / "dense")
    return prune_model(model, server=client, **arguments)


def test_only_what_is_missing_is_done_again(expected, folder, client):
    report = run(folder, client)
    assert weights(folder / "out") == expected
    (folder / "state/block-0002.json").unlink()
    data = folder / "state/block-0003.safetensors"
    data.write_bytes(data.read_bytes()[:-1] + b"\xff")  # damaged: not used
    stamps = {path.name: path.stat().st_mtime_ns for path in (folder / "state").glob("block-*.safetensors")}
    again = run(folder, client)
    assert weights(folder / "out") == expected
    for path in (folder / "state").glob("block-*.safetensors"):
        assert (path.stat().st_mtime_ns == stamps[path.name]) == (path.name[6:10] in ("0000", "0001"))
    assert [row["losses"] for row in again.layers] == [row["losses"] for row in report.layers]
    # Nothing is missing: no server is asked.
    shutil.rmtree(folder / "out")
    last = run(folder, "127.0.0.1:9")
    assert weights(folder / "out") == expected
    # The server's version is that of the run that made the results.
    assert last.versions == report.versions
    assert last.versions["server"] == client.info().version


def test_what_other_versions_made_is_kept_and_said(expected, folder, client):
    first = run(folder, client)
    assert set(first.versions) == {"sparsefw", "torch", "transformers", "server"}
    now = first.versions["server"]
    for index, changes in [(0, {"server": "0.0.9"}), (1, {"server": "0.0.9"}), (2, {"torch": "2.0.0"})]:
        path = folder / f"state/block-{index:04d}.json"
        record = json.loads(path.read_text())
        assert record["versions"] == first.versions
        record["versions"] |= changes
        path.write_text(json.dumps(record))
    (folder / "state/block-0003.json").unlink()
    words = rf"server 0\.0\.9 \(blocks 0-1\), {re.escape(now)} \(blocks 2\), now {re.escape(now)}.* remove the folder"
    with pytest.warns(RuntimeWarning, match=words):
        report = run(folder, client)
    assert report.versions["server"] == f"0.0.9 (blocks 0-1), {now} (blocks 2-3)"
    assert report.versions["torch"] == f"{torch.__version__} (blocks 0-1, 3), 2.0.0 (blocks 2)"
    assert report.versions["sparsefw"] == sparsefw.__version__
    assert "server: 0.0.9 (blocks 0-1)" in str(report)
    assert json.loads((folder / "out/sparsefw.json").read_text())["versions"] == report.versions
    assert "server:" not in str(first)


def test_a_server_that_is_updated_during_a_run(folder):
    seen = iter(["1", "1", "1", "1", None, "2", "2"])  # at the start and at every result; None: it is away just now

    def ask():
        version = next(seen)
        if version is None:
            raise sparsefw.Unavailable("away", code=grpc.StatusCode.UNAVAILABLE)
        return {"server": version}

    state = State(folder / "state", {})
    state.work_with(ask, 4)
    state.save("curve-0000", {"w": []})
    state.save("outliers-0002", {"block": 0.1})
    for index in (0, 1, 3):
        state.save_block(index, BlockState({}, []))
    assert state.versions(4) == {"server": "1 (blocks 0-1; curves 0; outliers 2), 2 (blocks 3)"}
    state.save("distillation", {"kept": "end"})
    assert state.versions(4) == {
        "server": "1 (blocks 0-1; curves 0; outliers 2), 2 (blocks 3)"}, "distillation needs no server"
    assert state.load("curve-0000") == {"w": []}
    assert state.load("curve-0001") is None
    state.close()


def test_numbers_of_numpy_and_pytorch_are_numbers(folder, client):
    rules = {"down_proj": 0.25}
    run(folder, client, model=tiny.make("llama"), out=None, allocation=rules, alpha=0.75)
    report = run(folder, client, model=tiny.make("llama"), out=None, sparsity=np.float32(0.5), swaps=np.True_,
                 iterations=np.int64(200), alpha=torch.tensor(0.75), allocation={"down_proj": np.float32(0.25)})
    assert json.loads(json.dumps(report.to_dict()))["settings"] == report.settings
    assert type(report.settings["options"]["iterations"]) is int
    with pytest.raises(sparsefw.InvalidArgument, match="swaps must be True or False; got <object"):
        run(folder, client, model=tiny.make("llama"), out=None, swaps=object())


def test_finished_blocks_are_read_for_their_tensors_alone(folder, client, monkeypatch):
    """And hashed as often: not for records, which are at hand."""
    save(folder / "dense")
    load, read = State.load_block, []

    def counted(self, index, *what):
        done = load(self, index, *what)
        if done is not None:
            read.append(index)
        return done

    monkeypatch.setattr(State, "load_block", counted)
    run(folder, client)
    assert sorted(read) == list(range(BLOCKS))  # for the folder that is written
    (folder / "state/block-0003.json").unlink()
    read.clear()
    run(folder, client)
    assert [read.count(index) for index in range(BLOCKS)] == [3, 3, 3, 1]  # checked, run, written


def test_a_model_in_memory(folder, client):
    whole = tiny.make("gpt2")
    prune_model(whole, data=tiny.tokens(), server=client, **OPTIONS)
    run(folder, client, model=tiny.make("gpt2"), out=None)
    (folder / "state/block-0001.json").unlink()
    again = tiny.make("gpt2")
    run(folder, client, model=again, out=None)
    complete = tiny.make("gpt2")
    run(folder, client, model=complete, out=None)
    for name, value in whole.named_parameters():
        assert torch.equal(value, again.get_parameter(name)), name
        assert torch.equal(value, complete.get_parameter(name)), name


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sparsity": 0.6}, r"sparsity was 0\.5, is 0\.6"),
        ({"iterations": 201}, "run: iterations was 200, is 201"),
        ({"swaps": None}, "run: swaps was true, is null"),
        ({"data": tiny.tokens(seed=6)}, "the calibration sequences differ"),
        ({"data": tiny.tokens(count=5)}, "samples was 6, is 5"),
        ({"propagate": False}, "propagate was true, is false"),
        ({"ignore": ["lm_head", "q_proj"]}, "ignore was"),
        # The first rule that matches counts.
        ({"allocation": {"proj": 0.5, "down_proj": 0.25}}, "allocation was"),
        # Other activations, the same weights.
        ({"model": lambda: tiny.make("llama", hidden_act="relu")}, r"the model differs \(config\)"),
    ],
)
def test_another_call_is_refused(folder, client, change, words):
    model = tiny.make("llama")
    rules = {"allocation": {"down_proj": 0.25, "proj": 0.5}} if "allocation" in change else {}
    run(folder, client, model=model, out=None, **rules)
    other = change.get("model", lambda: tiny.make("llama"))()
    with pytest.raises(sparsefw.FailedPrecondition, match=words) as raised:
        run(folder, client, out=None, **{**rules, **change, "model": other})
    assert raised.value.reason == "STATE_DIFFERS"
    # And so is the model that was pruned meanwhile.
    with pytest.raises(sparsefw.FailedPrecondition, match=r"the model differs \(weights\)"):
        run(folder, client, model=model, out=None, **rules)


def test_where_a_model_came_from_is_no_difference(folder, client):
    """Loaded again from elsewhere, or saved meanwhile, which sets some of its configuration."""
    model = tiny.make("llama")
    run(folder, client, model=tiny.make("llama"), out=None)
    model.save_pretrained(folder / "dense")
    run(folder, client, model=transformers.AutoModelForCausalLM.from_pretrained(folder / "dense"), out=None)
    run(folder, client, model=model, out=None)


def test_a_folder_that_is_no_state(folder, client):
    (folder / "state").mkdir()
    (folder / "state/notes.txt").write_text("mine")
    with pytest.raises(sparsefw.InvalidArgument, match=r"has no manifest\.json"):
        run(folder, client, model=tiny.make("llama"), out=None)


def test_one_process_at_a_time(folder):
    state = State(folder / "state", {"a": 1})
    with pytest.raises(sparsefw.FailedPrecondition, match="another process") as raised:
        State(folder / "state", {"a": 1})
    assert raised.value.reason == "STATE_IN_USE"
    state.close()
    State(folder / "state", {"a": 1}).close()


def test_an_interrupt_keeps_finished_blocks(folder, client, monkeypatch):
    """Ctrl-C in the third block: two are there."""
    from sparsefw.hf import run as runs

    save(folder / "dense")
    solve = runs.Run._solve

    def interrupted(self, pool, step, *rest):
        if step.layout.index == 2:
            threading.main_thread()
            signal.raise_signal(signal.SIGINT)
        return solve(self, pool, step, *rest)

    monkeypatch.setattr(runs.Run, "_solve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(folder, client)
    assert finished(folder) == 2
    assert not (folder / "out").exists()


def test_every_folder_is_a_run_of_its_own(folder):
    """Two calls with the same work share no requests; a folder opened again is the same run."""
    facts = {"model": "m", "sparsity": 0.5}
    names = []
    for name in ("one", "two", "one"):
        state = State(folder / name, facts)
        names.append(state.run)
        state.close()
    assert names[0] == names[2] != names[1]
    # Begun by an earlier version, which wrote no name.
    (folder / "old").mkdir()
    (folder / "old" / "manifest.json").write_text(json.dumps(facts))
    names = []
    for _ in range(2):
        state = State(folder / "old", facts)
        names.append(state.run)
        state.close()
    assert names[0] == names[1] != ""
    for damaged in ("[]", "{", "3"):
        (folder / "old" / "manifest.json").write_text(damaged)
        with pytest.raises(sparsefw.InvalidArgument, match="is damaged"):
            State(folder / "old", facts)


def test_a_finished_block_behind_a_damaged_one_is_in_the_model(client, folder):
    first, second = tiny.make("llama"), tiny.make("llama")
    options = {"data": tiny.tokens(count=8), "sparsity": 0.5, "method": "wanda", "server": client,
               "state_dir": folder / "state", "progress": False}
    prune_model(first, **options)
    (folder / "state/block-0000.safetensors").write_bytes(b"damaged")
    prune_model(second, **options)
    for name, value in first.named_parameters():
        assert torch.equal(value, second.get_parameter(name)), name


def test_blocks_behind_the_last_pruned_one_are_not_run(client, folder):
    """A run and its resumption: what the last block would get is nobody's concern."""
    options = {"data": tiny.tokens(count=8), "sparsity": 0.5, "method": "wanda", "server": client,
               "ignore": ["lm_head", r"layers\.1\."], "state_dir": folder / "state", "progress": False}
    found = []
    for _ in range(2):
        model, calls = tiny.make("llama"), []
        model.model.layers[1].mlp.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        report = prune_model(model, **options)
        assert [row["name"].split(".")[2] for row in report.layers] == ["0"] * 7
        found.append((calls, model))
    assert [len(calls) for calls, _ in found] == [0, 0]
    for name, value in found[0][1].named_parameters():
        assert torch.equal(value, found[1][1].get_parameter(name)), name
