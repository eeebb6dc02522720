"""Masks alone: made, applied, refused."""

import hashlib
import shutil

import pytest
import safetensors.torch
import tiny
import torch
from pruned_folders import QUIET, identical, load, rewrite
from sparsefw import _cli
from sparsefw.hf import packing, prune_model

NAME = "model.layers.0.mlp.up_proj.weight"


@pytest.fixture
def pair(client, folder):
    """A dense model and one that was pruned from it, whose weights keep their values."""
    tiny.make("llama", hidden_size=64).save_pretrained(folder / "dense")
    prune_model(folder / "dense", data=tiny.tokens(), sparsity=0.5, method="wanda", server=client,
                out=folder / "pruned", progress=False)
    return folder / "dense", folder / "pruned"


def test_masks_make_the_pruned_model_of_a_dense_one(pair, folder, capsys):
    dense, pruned = pair
    file = f"{folder}/masks.safetensors"
    assert _cli.main(["pack", f"{pruned}", file, "--masks-only", "--dense", f"{dense}", "-q"]) == 0
    assert "masks of 14 tensors, 50.000% of" in (text := capsys.readouterr().out)
    assert "they make the pruned model, every tensor bit for bit" in text
    assert _cli.main(["unpack", file, f"{folder}/out", "--dense", f"{dense}", "-q"]) == 0
    digests = [hashlib.sha256((place / "model.safetensors").read_bytes()).digest() for place in (pruned, folder / "out")]
    assert digests[0] == digests[1]
    identical(load(folder / "out"), load(pruned))
    masks = safetensors.torch.load_file(file)
    weights = load(pruned).state_dict()
    assert len(masks) == 14
    for name, mask in masks.items():
        bits = (mask[:, None] >> torch.arange(8)) & 1  # the lowest bit first
        assert torch.equal(bits.reshape(-1).bool(), weights[name].reshape(-1) != 0), name


def test_masks_of_a_model_whose_weights_were_changed(pair, folder, capsys):
    dense, pruned = pair
    path = pruned / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    tensors[NAME] = tensors[NAME] * 1.5
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    report = packing.pack_masks(pruned, dense, folder / "masks.safetensors", **QUIET)
    assert report.changed == [NAME]
    assert "not the pruned model" in str(report)
    packing.apply_masks(folder / "masks.safetensors", dense, folder / "out", **QUIET)
    made, whole = (safetensors.torch.load_file(place / "model.safetensors") for place in (folder / "out", dense))
    assert torch.equal(made[NAME], torch.where(tensors[NAME] != 0, whole[NAME], 0))


def other_embedding(tensors):
    tensors["model.embed_tokens.weight"][3, 3] += 1


def other_kept(tensors):
    tensors[NAME].view(-1)[tensors[NAME].abs().argmax()] *= 1.001


def other_removed(tensors):
    tensors[NAME].view(-1)[tensors[NAME].abs().argmin()] = 1e-9  # the mask removes it


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_embedding, "model.embed_tokens.weight: has other weights"),
        (other_kept, f"{NAME}: has other weights"),
        (lambda tensors: tensors.update({name: value.half() for name, value in tensors.items()}), "is F16"),
        (lambda tensors: tensors.pop(NAME), "is in one of them only"),
        (lambda tensors: tensors.update({NAME: tensors[NAME].T.contiguous()}), "not F32"),
        (other_removed, None),
    ],
    ids=["embedding", "kept weight", "dtype", "missing", "transposed", "removed weight"],
)
def test_masks_are_for_one_model(change, message, pair, folder, capsys):
    dense, pruned = pair
    packing.pack_masks(pruned, dense, folder / "masks.safetensors", **QUIET)
    shutil.copytree(dense, folder / "copy")
    path = folder / "copy/model.safetensors"
    tensors = safetensors.torch.load_file(path)
    change(tensors)
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    words = ["unpack", f"{folder}/masks.safetensors", f"{folder}/out", "--dense", f"{folder}/copy", "-q"]
    if message is None:  # what the mask removes does not matter
        assert _cli.main(words) == 0
        identical(load(folder / "out"), load(pruned))
        return
    assert _cli.main(words) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "out").exists()


def test_files_that_are_no_masks(pair, folder, capsys):
    dense, pruned = pair
    file = folder / "masks.safetensors"
    packing.pack_masks(pruned, dense, file, **QUIET)
    sound = file.read_bytes()
    words = ["unpack", f"{file}", f"{folder}/out", "--dense", f"{dense}", "-q"]

    def metadata(key, value):
        return lambda header: header["__metadata__"].update({key: value})

    def shorter(header):
        header[NAME]["shape"], (begin, end) = [1, header[NAME]["shape"][0]], header[NAME]["data_offsets"]

    for change, message in (
        (lambda header: header.pop("__metadata__"), "is no file of masks"),
        (metadata("sparsefw.masks", "2"), "has format 2"),
        (metadata("sparsefw.tensors", "[1]"), "is damaged"),
        (metadata("sparsefw.tensors", "{}"), "is in one of them only"),
        (lambda header: header.update(x=header.pop(NAME)), "x: is no tensor of the model"),
        (shorter, "must be U8"),
    ):
        file.write_bytes(sound)
        rewrite(file, change)
        assert _cli.main(words) == 2
        assert message in capsys.readouterr().err
    file.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    assert _cli.main(words) == 2
    assert "has other weights" in capsys.readouterr().err
    file.write_bytes(sound)
    assert _cli.main(words[:3] + ["-q"]) == 2
    assert "is a file of masks: --dense DIR" in capsys.readouterr().err
    assert _cli.main(["pack", f"{dense}", f"{folder}/m", "--masks-only", "--dense", f"{dense}", "-q"]) == 2
    assert "nothing was removed" in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir() if "out" in path.name or path.name.endswith("partial")) == []
