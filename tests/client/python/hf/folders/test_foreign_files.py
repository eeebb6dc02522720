"""What somebody else has put into the folder of a pruned model stays."""

import json
import os
from pathlib import Path

import pytest
import sparsefw
import tiny
from sparsefw.hf import prune_model


def prune(folder, client, **options):
    options = {"method": "wanda", "state_dir": folder / "state", **options}
    return prune_model(tiny.make("llama"), out=folder / "out", data=tiny.tokens(), sparsity=0.5, server=client,
                       progress=False, **options)


def put(folder, name):
    path = folder / "out" / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("mine")
    return path


@pytest.mark.parametrize("name", ["results.json", "results/hellaswag.json"])
def test_a_repeated_call_removes_nothing_of_others(client, folder, name):
    prune(folder, client)
    facts = folder / "out/sparsefw.json"
    there = json.loads(facts.read_text())
    assert set(there["files"]) == {path.name for path in facts.parent.iterdir()}
    results = put(folder, name)
    before = facts.stat().st_ino
    with pytest.raises(sparsefw.InvalidArgument, match=f"it holds {name}, which is not of the pruned model"):
        prune(folder, client)
    assert results.read_text() == "mine" and facts.stat().st_ino == before
    assert {path.name for path in folder.iterdir()} == {"state", "out"}
    results.unlink()
    prune(folder, client)
    put(folder, name)
    prune(folder, client, overwrite=True)
    assert not results.exists()


def test_a_folder_of_an_earlier_version_is_replaced_when_asked_for(client, folder):
    """It has no list of its files."""
    prune(folder, client)
    facts = folder / "out/sparsefw.json"
    there = json.loads(facts.read_text())
    del there["files"]
    facts.write_text(json.dumps(there))
    with pytest.raises(sparsefw.InvalidArgument, match="by an earlier version, which kept no list of its files"):
        prune(folder, client)
    assert {path.name for path in folder.iterdir()} == {"state", "out"}
    prune(folder, client, overwrite=True)
    assert "files" in json.loads(facts.read_text())


def test_files_of_others_are_seen_before_anything_is_computed(folder, client):
    prune(folder, client)
    (folder / "out/elsewhere").symlink_to(folder)
    with pytest.raises(sparsefw.InvalidArgument, match="it holds elsewhere, which"):
        prune(folder, "127.0.0.1:9", state_dir=folder / "another")


def stop_at(monkeypatch, name):
    replace = Path.replace

    def killed(self, target):
        if self.name == name and self.parent.name == ".sparsefw.partial":
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", killed)


@pytest.mark.parametrize("where", ["while it is written", "while it is moved"])
def test_a_folder_that_was_filled_in_part_keeps_files_of_others(client, folder, monkeypatch, where):
    (folder / "out").mkdir()
    if where == "while it is written":
        monkeypatch.setattr("sparsefw.hf.folder.sync_tree", lambda _: os.kill(os.getpid(), 2))
        moved = []
    else:
        stop_at(monkeypatch, "model.safetensors")
        moved = ["README.md", "config.json", "generation_config.json"]
    with pytest.raises(KeyboardInterrupt):
        prune(folder, client)
    monkeypatch.undo()
    names = {path.name for path in (folder / "out").iterdir()}
    assert names == ({".sparsefw.partial", *moved} if moved else set()), "nothing stays of half a model"
    mine = put(folder, "model.safetensors" if moved else "README.md")  # a name of the model
    with pytest.raises(sparsefw.InvalidArgument, match="it is not overwritten"):
        prune(folder, client)
    assert mine.read_text() == "mine"
    mine.unlink()
    for _ in range(2):  # a second end leaves it as the first one
        with monkeypatch.context() as again:
            stop_at(again, "model.safetensors")
            with pytest.raises(KeyboardInterrupt):
                prune(folder, client)
    prune(folder, client)
    facts = json.loads((folder / "out/sparsefw.json").read_text())
    assert {path.name for path in (folder / "out").iterdir()} == set(facts["files"])
