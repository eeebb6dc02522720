"""Temporary folders of runs without a state_dir, after the end of their process."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import sparsefw
import tiny
from sparsefw.hf import prune_model
from support.processes import BIN_DIR, HANG, clean_environment, wait_until
from test_programs import TEXT, tokenizer

SOURCE = Path(sparsefw.__file__).parents[1]


def leftovers(folder):
    return list(folder.rglob(".sparsefw-*"))


def start(folder):
    """A command whose jobs take hours."""
    if not (folder / "dense").exists():
        tiny.make("llama").save_pretrained(folder / "dense")
        tokenizer().save_pretrained(folder / "dense")
        (folder / "data.txt").write_text(TEXT)
    words = ["prune-model", folder / "dense", "--data", folder / "data.txt", "--sparsity", 0.5, "--method", "sparsefw",
             "--iterations", 10**11, "--sequence-length", 32, "--out", folder / "out", "-q"]
    return subprocess.Popen(
        [sys.executable, "-m", "sparsefw", *map(str, words)], stderr=subprocess.PIPE, text=True,
        env={**clean_environment(), "PYTHONPATH": str(SOURCE), "HF_HUB_OFFLINE": "1", "TMPDIR": str(folder / "tmp"),
             "SPARSEFW_SERVER_PROGRAM": str(BIN_DIR / "sparsefw-server")})


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_a_run_that_is_ended_leaves(client, folder, number, inside):
    (folder / "tmp").mkdir()
    if inside:
        (folder / "out").mkdir()
    process = start(folder)
    try:
        place = folder / "out" if inside else folder
        wait_until(lambda: list(place.glob(".sparsefw-*/.temporary")) or process.poll() is not None, "its folder")
        (temporary,) = leftovers(folder)
        process.send_signal(number)
        _, errors = process.communicate(timeout=HANG)
    finally:
        process.kill()
        process.wait()
    if number == signal.SIGTERM:
        assert process.returncode == 143, errors
        assert "Traceback" not in errors
        assert leftovers(folder) == []
        assert list((folder / "tmp").iterdir()) == []  # of the server
    else:
        assert leftovers(folder) == [temporary]
        wait_until(lambda: list((folder / "tmp").iterdir()) == [], "the end of its server")
        prune_model(tiny.make("llama"), data=tiny.tokens(), sparsity=0.5, method="wanda", server=client, progress=False,
                    out=folder / "out")
        assert leftovers(folder) == []


def test_only_what_nobody_holds_is_removed(client, folder, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    hosts = {"held": socket.gethostname(), "abandoned": socket.gethostname(), "elsewhere": "another-machine",
             "state": None}
    locks = {}
    for name, host in hosts.items():
        (folder / f".sparsefw-{name}").mkdir()
        locks[name] = os.open(folder / f".sparsefw-{name}/.lock", os.O_RDWR | os.O_CREAT)
        if host is not None:
            (folder / f".sparsefw-{name}/.temporary").write_text(host)
    (folder / ".sparsefw-other").mkdir()
    fcntl.flock(locks["held"], fcntl.LOCK_EX)
    (folder / ".sparsefw-abandoned/hidden").write_text("much")
    prune_model(tiny.make("llama"), data=tiny.tokens(), sparsity=0.5, method="wanda", server=client, progress=False)
    assert {path.name.removeprefix(".sparsefw-") for path in folder.iterdir()} == {
        "held", "elsewhere", "state", "other"}
    for lock in locks.values():
        os.close(lock)


def test_a_state_dir_with_such_a_name_stays(client, folder):
    state = folder / ".sparsefw-run"
    made = [prune_model(tiny.make("llama"), data=tiny.tokens(), sparsity=0.5, method="wanda", server=client,
                        progress=False, out=folder / "out", state_dir=state).to_dict()]
    before = {path.name: path.stat().st_mtime_ns for path in state.glob("block-*")}
    made.append(prune_model(tiny.make("llama"), data=tiny.tokens(), sparsity=0.5, method="wanda", server=client,
                            progress=False, out=folder / "out", state_dir=state).to_dict())
    assert before and before == {path.name: path.stat().st_mtime_ns for path in state.glob("block-*")}
    assert made[0]["layers"] == made[1]["layers"]
