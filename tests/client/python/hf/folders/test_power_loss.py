"""A pruned folder is on the disk before it takes the place of another one."""

import errno
import os
import shutil
from pathlib import Path

import pytest
import tiny
from sparsefw import InvalidArgument, _files
from sparsefw.hf import prune_model


@pytest.mark.parametrize("there", ["nothing", "an empty folder", "another model"])
def test_all_of_it_is_synced_before_it_is_moved_and_the_old_model_removed(there, client, folder, monkeypatch):
    events = []
    fsync, removed = os.fsync, shutil.rmtree
    place = folder.resolve() / "out"
    partial = place / ".sparsefw.partial" if there == "an empty folder" else folder.resolve() / ".out.partial"

    def synced(handle):
        events.append(("sync", Path(os.readlink(f"/proc/self/fd/{handle}"))))
        return fsync(handle)

    def moved(before):
        def move(self, there):
            if {self, self.parent} & {place, partial}:  # not those of the run's state
                events.append(("move", self))
            return before(self, there)
        return move

    def prune(method):
        return prune_model(
            tiny.make("llama"), data=tiny.tokens(), sparsity=0.5, method=method, server=client, progress=False,
            out=place, overwrite=True)

    if there == "another model":
        prune("magnitude")
    elif there == "an empty folder":
        place.mkdir()
    monkeypatch.setattr(os, "fsync", synced)
    for name in ("rename", "replace"):
        monkeypatch.setattr(Path, name, moved(getattr(Path, name)))
    monkeypatch.setattr(
        shutil, "rmtree", lambda path, **more: (events.append(("remove", Path(path).name)), removed(path, **more)))
    prune("wanda")
    first = next(index for index, event in enumerate(events) if event[0] == "move")
    on_disk = {path for what, path in events[:first] if what == "sync"}
    names = {path.name for path in place.iterdir()}
    assert names >= {"model.safetensors", "config.json", "sparsefw.json", "README.md"}
    assert {partial, *(partial / name for name in names)} <= on_disk
    last = max(index for index, event in enumerate(events) if event[0] == "move")
    assert events[last + 1] == ("sync", place if there == "an empty folder" else place.parent)
    if there == "another model":
        assert ("remove", ".out.old") in events[last + 2 :]


@pytest.mark.parametrize("said, whole", [(errno.EINVAL, True), (errno.EROFS, True), (errno.EIO, False)])
def test_folders_that_cannot_be_synced(said, whole, tmp_path, monkeypatch):
    (tmp_path / "file").touch()

    def refuse(_):
        raise OSError(said, os.strerror(said))

    monkeypatch.setattr(os, "fsync", refuse)
    if whole:
        _files.sync_folder(tmp_path)
    else:
        with pytest.raises(OSError, match=os.strerror(said)):
            _files.sync_folder(tmp_path)


def test_a_folder_that_may_not_be_read_is_not_synced(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, "not for you")

    monkeypatch.setattr(os, "open", refuse)
    _files.sync_folder(tmp_path)


def test_a_model_whose_place_cannot_be_synced_is_in_its_place(client, folder, monkeypatch):
    place = folder.resolve() / "out"
    sync = _files.sync_folder

    def fail(path):
        if path == place.parent:
            raise OSError(errno.EIO, "a disk")
        sync(path)

    monkeypatch.setattr("sparsefw.hf.folder.sync_folder", fail)
    with pytest.raises(InvalidArgument, match=f"a disk; the pruned model is {place} "):
        prune_model(tiny.make("llama"), data=tiny.tokens(), sparsity=0.5, method="magnitude", server=client,
                    progress=False, out=place)
    assert (place / "sparsefw.json").exists()
    assert [path.name for path in place.parent.iterdir() if "partial" in path.name] == []
