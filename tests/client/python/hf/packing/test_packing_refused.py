"""What cannot be packed, and folders from strangers."""

import json
import os
import re
import shutil
import struct

import pytest
import sparsefw
import tiny
from pruned_folders import QUIET, load, rewrite, save
from sparsefw import _cli
from sparsefw.hf import packing, prune_model
from sparsefw.hf.packing import folders


def change_manifest(folder, change):
    path = folder / folders.MANIFEST
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def dense_header(change):
    """A change of the header that the file had, and of its size in the manifest."""

    def inner(folder):
        def of_file(header):
            before = header["__metadata__"][folders.HEADER]
            dense = json.loads(before)
            change(dense)
            after = header["__metadata__"][folders.HEADER] = json.dumps(dense)
            change_manifest(folder, lambda m: add(m["files"]["model.safetensors"], len(after) - len(before)))

        def add(file, count):
            file["bytes"] += count

        rewrite(folder / "model.safetensors", of_file)

    return inner


def index_elsewhere(folder):
    """A file outside of the folder, named by the index."""
    (folder / "model.safetensors").rename(folder / "x.safetensors")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../x.safetensors"}}')

    def rename(manifest):
        files = manifest["files"]
        files["x.safetensors"] = files["model.safetensors.index.json"] = files.pop("model.safetensors")

    change_manifest(folder, rename)


def flip(folder):
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-2000] ^= 1
    path.write_bytes(data)


NAME = "model.layers.0.mlp.up_proj.weight"
HOSTILE = {
    "no manifest": (lambda f: (f / folders.MANIFEST).unlink(), "is no packed folder"),
    "no JSON": (lambda f: (f / folders.MANIFEST).write_text("{"), "is damaged"),
    "a list": (lambda f: (f / folders.MANIFEST).write_text("[]"), "is damaged"),
    "later format": (lambda f: change_manifest(f, lambda m: m.update(format=2)), "has format 2"),
    "no files": (lambda f: change_manifest(f, lambda m: m.update(files=[])), "must have files"),
    "no configuration": (lambda f: change_manifest(f, lambda m: m.pop("config.json")), "must have files"),
    "file too many": (lambda f: (f / "more").write_text(""), "more: is not in"),
    "file missing": (lambda f: (f / "README.md").unlink(), "README.md: is missing"),
    "elsewhere": (lambda f: change_manifest(f, lambda m: m["files"].update({"../x": m["files"]["README.md"]})),
                  "../x: is missing"),
    "other file": (lambda f: (f / "README.md").write_text("acard "), "README.md: is damaged: its digest"),
    "longer file": (lambda f: (f / "README.md").write_text("another"), "README.md: is damaged: must have 6 bytes"),
    "long manifest": (lambda f: os.truncate(f / folders.MANIFEST, 101 << 20), "at most 104857600 bytes"),
    "pipe": (lambda f: ((f / folders.MANIFEST).unlink(), os.mkfifo(f / folders.MANIFEST)), "must be a file"),
    "device": (lambda f: ((f / "README.md").unlink(), (f / "README.md").symlink_to("/dev/zero")), "no file that can"),
    "other configuration": (lambda f: change_manifest(f, lambda m: m.update({"config.json": "{}"})),
                            "config.json: is damaged"),
    "no Unicode": (lambda f: change_manifest(f, lambda m: m.update({"config.json": "\ud800"})),
                   "config.json: is damaged"),
    "larger than disks": (lambda f: change_manifest(f, lambda m: m["files"]["README.md"].update(bytes=1 << 60)),
                          "its file system has"),
    "cut off": (lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-9]),
                "is no safetensors file"),
    "changed": (flip, "damaged"),
    "no header": (lambda f: rewrite(f / "model.safetensors", lambda h: h.pop("__metadata__")), "is no packed file"),
    "header of text": (lambda f: rewrite(f / "model.safetensors",
                                         lambda h: h["__metadata__"].update({folders.HEADER: "[]"})),
                       "header of the unpacked file is damaged"),
    "tensor too many": (dense_header(lambda h: h.update(x={"dtype": "U8", "shape": [0], "data_offsets": [0, 0]})),
                        "must have the tensors"),
    "other shape": (dense_header(lambda h: h[NAME].update(shape=[1, 48 * 64])), "the header has F32"),
    "a hole": (dense_header(lambda h: h[NAME]["data_offsets"].__setitem__(1, h[NAME]["data_offsets"][0] + 4)),
               "its bytes are not those after"),
    "index elsewhere": (index_elsewhere, "must name files of the same folder"),
    "other size": (lambda f: change_manifest(f, lambda m: m["files"]["model.safetensors"].update(bytes=9)),
                   "the file had 9"),
}  # fmt: skip


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    place = tmp_path_factory.mktemp("packed")
    save(place / "pruned")
    packing.pack(place / "pruned", place / "packed", **QUIET)
    return place / "packed"


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_folder_that_is_no_packed_one_is_refused(kind, packed, folder, capsys):
    change, message = HOSTILE[kind]
    shutil.copytree(packed, folder / "packed")
    change(folder / "packed")
    assert _cli.main(["unpack", f"{folder}/packed", f"{folder}/out", "-q"]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert [path.name for path in folder.iterdir()] == ["packed"]


def test_a_damaged_folder_does_not_load(packed, folder):
    """transformers names the parameter; no other weights are made."""
    shutil.copytree(packed, folder / "packed")
    path = folder / "packed/model.safetensors"
    data = bytearray(path.read_bytes())
    at = data.index(b"sparsefw", data.index(b"{", 8) + struct.unpack("<Q", data[:8])[0])
    data[at + 8] ^= 0x7F
    path.write_bytes(data)
    with pytest.raises(RuntimeError):
        load(folder / "packed")


def test_a_tensor_larger_than_the_model_is_refused_when_loaded(packed, folder):
    """A config that says less than the tensors have."""
    shutil.copytree(packed, folder / "packed")
    config = json.loads((folder / "packed/config.json").read_text())
    (folder / "packed/config.json").write_text(json.dumps({**config, "intermediate_size": 8}))
    with pytest.raises(RuntimeError):
        load(folder / "packed")


def test_what_cannot_be_packed(packed, folder, capsys, client):
    save(folder / "pruned")
    pruned = f"{folder}/pruned"

    def refused(*words):
        assert _cli.main(["pack", *map(str, words), "-q"]) == 2
        return capsys.readouterr().err

    assert "is packed already" in refused(packed, f"{folder}/out")
    assert "no config.json" in refused(f"{folder}/none", f"{folder}/out")
    assert "exists and is not overwritten; overwrite=True (--overwrite)" in refused(pruned, pruned)
    assert "has no sparsefw-packed.json; it is not overwritten" in refused(pruned, pruned, "--overwrite")
    assert "must not be in the folder that is read" in refused(pruned, f"{pruned}/out")
    assert "go together" in refused(pruned, f"{folder}/out", "--masks-only")
    config = json.loads((folder / "pruned/config.json").read_text())
    (folder / "pruned/config.json").write_text(json.dumps({**config, "quantization_config": {"bits": 4}}))
    assert "quantised" in refused(pruned, f"{folder}/out")
    (folder / "pruned/link").symlink_to(folder)
    (folder / "pruned/config.json").write_text(json.dumps(config))
    assert "is a link to a folder" in refused(pruned, f"{folder}/out")
    assert {path.name for path in folder.iterdir()} == {"pruned"}
    with pytest.raises(sparsefw.InvalidArgument, match="is packed; `sparsefw unpack`"):
        prune_model(packed, data=tiny.tokens(), sparsity=0.5, server=client)
