"""Temporary folders of runs without a state_dir, after the end of their process."""

import fcntl
import os
import signal
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
        wait_until(lambda: leftovers(folder) or process.poll() is not None, "the folder of the run")
        (temporary,) = leftovers(folder)
        assert temporary.parent == (folder / "out" if inside else folder)
        wait_until(lambda: (temporary / "manifest.json").exists(), "its manifest")
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
    for name in ("held", "abandoned", "other"):
        (folder / f".sparsefw-{name}").mkdir()
    locks = [os.open(folder / f".sparsefw-{name}/.lock", os.O_RDWR | os.O_CREAT) for name in ("held", "abandoned")]
    fcntl.flock(locks[0], fcntl.LOCK_EX)
    (folder / ".sparsefw-abandoned/hidden").write_text("much")
    prune_model(tiny.make("llama"), data=tiny.tokens(), sparsity=0.5, method="wanda", server=client, progress=False)
    assert {path.name for path in folder.iterdir()} == {".sparsefw-held", ".sparsefw-other"}
    for lock in locks:
        os.close(lock)
