"""What --overwrite replaces, and what it must not."""

import os
from pathlib import Path

import pytest
import sparsefw
import tiny
from pruned_folders import QUIET, contents, save, zeroed
from sparsefw import _cli
from sparsefw.hf import packing
from sparsefw.hf.packing import folders


@pytest.fixture
def made(folder):
    """(words of every command that writes `folder`/out, by name): its output is there."""
    model = tiny.make("llama", hidden_size=64)
    model.save_pretrained(folder / "dense")
    zeroed(model)
    save(folder / "pruned")
    model.save_pretrained(folder / "zeroed")
    packing.pack(folder / "pruned", folder / "packed", **QUIET)
    packing.pack_masks(folder / "zeroed", folder / "dense", folder / "masks", **QUIET)
    return {
        "pack": ["pack", f"{folder}/pruned", f"{folder}/out", "-q"],
        "unpack": ["unpack", f"{folder}/packed", f"{folder}/out", "-q"],
        "masks": ["unpack", f"{folder}/masks", f"{folder}/out", "--dense", f"{folder}/dense", "-q"],
    }


@pytest.mark.parametrize("command", ["pack", "unpack", "masks"])
def test_a_folder_is_replaced_where_nothing_is_lost(command, made, folder, capsys):
    words = made[command]
    assert _cli.main(words) == 0
    before = contents(folder / "out")
    assert _cli.main(words) == 2
    assert "exists and is not overwritten; overwrite=True (--overwrite)" in capsys.readouterr().err
    (folder / "out/config.json").write_text("{}")
    assert _cli.main([*words, "--overwrite"]) == 0
    assert contents(folder / "out") == before
    for lost in ("notes/mine.txt", "a link"):
        path = folder / "out" / lost
        if lost == "a link":
            path.symlink_to(folder)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text("mine")
        assert _cli.main([*words, "--overwrite"]) == 2
        assert f"out: holds {lost}, which would be lost" in capsys.readouterr().err
        assert path.exists()
        path.unlink()
    assert contents(folder / "out") == before
    assert not list(folder.glob(".*"))


def test_masks_behind_a_link_are_replaced_not_the_link(made, folder):
    before = (folder / "masks").read_bytes()
    (folder / "elsewhere").mkdir()
    target = folder / "elsewhere/masks"
    (folder / "masks").rename(target)
    (folder / "masks").symlink_to(target)
    words = ["pack", f"{folder}/zeroed", f"{folder}/masks", "--masks-only", "--dense", f"{folder}/dense", "-q"]
    old = target.stat().st_ino
    assert _cli.main([*words, "--overwrite"]) == 0
    assert (folder / "masks").is_symlink()
    assert target.read_bytes() == before
    assert target.stat().st_ino != old
    assert not list(folder.glob("**/.*"))


def test_a_file_that_came_meanwhile_is_not_lost(folder):
    (folder / "out").mkdir()
    (folder / "out/config.json").write_text("before")
    replaces = folders.Replaceable("config.json", ["config.json"])
    with (
        pytest.raises(sparsefw.InvalidArgument, match="holds mine"),
        folders.new_folder(folder / "out", folder / "source", 0, replaces) as partial,
    ):
        (partial / "config.json").write_text("after")
        (folder / "out/mine").write_text("")
    assert contents(folder / "out") == {"config.json": b"before", "mine": b""}
    assert [path.name for path in folder.iterdir()] == ["out"]


def test_what_cannot_be_read_is_not_taken_for_empty(folder, monkeypatch):
    (folder / "out/locked").mkdir(parents=True)
    scandir = os.scandir

    def denied(path):
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(PermissionError, match="locked"):
        folders.list_files(folder / "out")


def test_a_mount_point_is_refused_before_the_work(made, folder, capsys, monkeypatch):
    (folder / "out").mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path).name == "out")
    for words in made.values():
        for flags in ([], ["--overwrite"]):
            assert _cli.main([*words, *flags]) == 2
            assert "out: is a mount point and cannot be replaced" in capsys.readouterr().err


def test_an_interrupt_between_two_names_restores_the_first(folder, monkeypatch):
    (folder / "out").mkdir()
    (folder / "out/config.json").write_text("before")
    rename = Path.rename

    def interrupted(self, target):
        if self.name == ".out.partial":
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    replaces = folders.Replaceable("config.json", ["config.json"])
    with (
        pytest.raises(KeyboardInterrupt),
        folders.new_folder(folder / "out", folder / "source", 0, replaces) as partial,
    ):
        (partial / "config.json").write_text("after")
    assert contents(folder) == {"out/config.json": b"before"}


def test_only_a_file_of_masks_gives_way_to_one(made, folder, capsys):
    shard = folder / "zeroed/model.safetensors"
    before = shard.read_bytes()
    (folder / "text").write_text("mine")
    (folder / "other.safetensors").write_bytes(before)
    (folder / "link").symlink_to(shard)
    (folder / "empty").write_text("")

    def masks(out):
        words = ["pack", f"{folder}/zeroed", f"{folder}/{out}", "--masks-only", "--dense", f"{folder}/dense", "-q"]
        return _cli.main([*words, "--overwrite"]), capsys.readouterr().err

    for out in ("zeroed/model.safetensors", "dense/model.safetensors", "zeroed/masks", "link"):
        code, error = masks(out)
        assert code == 2
        assert f"{out}: must not be in the folder that is read" in error
    for out in ("text", "other.safetensors"):
        code, error = masks(out)
        assert code == 2
        assert f"{out}: exists and is no file of masks; it is not overwritten" in error
    assert shard.read_bytes() == (folder / "other.safetensors").read_bytes() == before
    assert (folder / "text").read_text() == "mine"
    expected = (folder / "masks").read_bytes()
    for out in ("masks", "empty"):
        assert masks(out)[0] == 0
        assert (folder / out).read_bytes() == expected
