"""Two runs with one place, and places that cannot take what is written."""

import errno
import fcntl
import shutil

import pytest
import sparsefw
import tiny
import torch
from sparsefw._files import held
from sparsefw.hf import packing, prune_model, state
from sparsefw.hf.source import InMemory


def prune(folder, server, **options):
    return prune_model(tiny.make("llama"), data=tiny.tokens(), sparsity=0.5, method="wanda", progress=False,
                       server=server, out=folder / "out", **options)


@pytest.mark.parametrize("there", [False, True], ids=["beside", "inside"])
def test_a_second_run_for_the_same_place_is_refused(client, folder, there):
    if there:
        (folder / "out").mkdir()
    with held(folder / "out", there), pytest.raises(sparsefw.FailedPrecondition, match="another process writes") as no:
        prune(folder, client)
    assert no.value.reason == "STATE_IN_USE"
    prune(folder, client)
    assert [path.name for path in folder.iterdir()] == ["out"]
    assert not list((folder / "out").glob(".*"))
    with held(folder / "packed"), pytest.raises(sparsefw.FailedPrecondition, match="another process writes"):
        packing.pack(folder / "out", folder / "packed", progress=False)


def test_a_lock_that_was_left_is_taken(client, folder):
    """After kill -9, of a run into a folder that was there."""
    (folder / "out").mkdir()
    (folder / "out/.sparsefw.lock").touch()
    (folder / ".out.lock").touch()
    prune(folder, client)
    assert not list((folder / "out").glob(".*"))


def test_a_full_disk_at_the_end_loses_no_block(client, folder, monkeypatch):
    def full(self, out, *_):
        out.mkdir()
        raise OSError(errno.ENOSPC, "No space left on device", str(out / "model.safetensors"))

    with monkeypatch.context() as patch, pytest.raises(OSError, match="repeat the call with state_dir=") as failed:
        patch.setattr(InMemory, "write", full)
        prune(folder, client)
    kept, = (path for path in folder.iterdir() if path.name.startswith(".sparsefw-kept-"))
    assert failed.value.errno == errno.ENOSPC and str(kept) in str(failed.value)
    assert [path for path in folder.iterdir() if path != kept] == [], "half a model does not stay"
    with monkeypatch.context() as patch:
        patch.setattr("sparsefw.hf.run.Run._solve", None)  # nothing is solved again
        prune(folder, client, state_dir=kept)
    assert (folder / "out/sparsefw.json").exists()


def test_a_disk_that_is_too_small_is_named_at_the_start(folder, monkeypatch):
    usage = shutil.disk_usage(folder)
    monkeypatch.setattr("sparsefw.hf.folder.shutil.disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(sparsefw.InvalidArgument, match=r"out: needs \d+ bytes for the pruned model; its file system has 1000"):
        prune(folder, "127.0.0.1:9")


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK])
def test_a_file_system_without_locks_is_named(folder, monkeypatch, number):
    def flock(*_):
        raise OSError(number, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(sparsefw.InvalidArgument, match=r"state: must be on a file system with locks \(flock\): no locks"):
        state.State(folder / "state", {})


def test_what_cannot_be_written_back_is_refused_at_the_start(folder):
    model = tiny.make("llama", dtype=torch.bfloat16)
    model.save_pretrained(folder / "dense")
    path = folder / "dense/model.safetensors"
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    name = "model.layers.1.mlp.down_proj.weight"
    save_file({**tensors, name: tensors[name].to(torch.float8_e4m3fn)}, path, {"format": "pt"})
    with pytest.raises(sparsefw.InvalidArgument, match=rf"{name}: is F8_E4M3 on disk; can be pruned: F64"):
        prune_model(folder / "dense", data=tiny.tokens(), sparsity=0.5, method="wanda", progress=False,
                    server="127.0.0.1:9", out=folder / "out")
