"""No room for the state of a run: an error with its number and the name of the file."""

import errno

import pytest
import torch
from safetensors import SafetensorError
from sparsefw.hf import state
from sparsefw.hf.calibration import hidden


def test_tensors_that_do_not_fit(folder, monkeypatch):
    def full(tensors, path):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(state, "save_file", full)
    with pytest.raises(OSError, match=r"block-0000\.safetensors") as caught:
        state.write_tensors(folder / "block-0000.safetensors", {})
    assert caught.value.errno == errno.ENOSPC


def test_hidden_states_that_do_not_fit(folder, monkeypatch):
    monkeypatch.setattr(hidden, "MEMORY_BYTES", 0)
    states = hidden.HiddenStates(folder)
    states.append(torch.ones(1, 4, 8))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(hidden.os, "pwrite", full)
    with pytest.raises(OSError, match="No space left") as caught:
        states[0] = torch.ones(1, 4, 8)
    assert caught.value.filename == str(folder)
    states.close()


def test_leftovers_of_a_killed_write_are_removed(folder):
    """safetensors writes a file of its own first, with a name of its own."""
    state.State(folder / "state", {}).close()
    (folder / "state" / ".tmpAbC123").write_bytes(b"half of a block")
    state.State(folder / "state", {}).close()
    assert sorted(path.name for path in (folder / "state").iterdir()) == [".lock", "manifest.json"]
