"""Packed folders: made, loaded, unpacked, refused; masks alone."""

import hashlib
import json
import re
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import sparsefw
import tiny
import torch
import transformers
from sparsefw import _cli
from sparsefw.hf import packing, prune_model
from sparsefw.hf.packing import folders

pytest.importorskip("zstandard", reason="zstandard is not installed: client/python/make-environment --hf build/venv")

ROOT = Path(sparsefw.__file__).resolve().parents[1]
QUIET = {"progress": False}
IDS = tiny.tokens(2)


def zeroed(model, share=0.6):
    """Every matrix of the blocks without its smallest weights."""
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.dim() >= 2 and "layers" in name:
                value[value.abs() < value.abs().float().quantile(share).to(value.dtype)] = 0
    return model


def save(folder, family="llama", dtype=torch.float32, shards="50GB", **changes):
    """A pruned model with what else is in such a folder."""
    model = zeroed(tiny.make(family, dtype=dtype, hidden_size=64, **changes))
    model.save_pretrained(folder, max_shard_size=shards)
    (folder / "notes").mkdir()
    (folder / "notes/öther.txt").write_bytes(b"\x00\xff text")
    (folder / "README.md").write_text("a card")
    return model


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def identical(one, other):
    """Tensor by tensor and in the logits, bit for bit."""
    ours, theirs = one.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert value.dtype == theirs[name].dtype, name
        assert torch.equal(value.view(torch.uint8), theirs[name].view(torch.uint8)), name
    with torch.no_grad():
        assert torch.equal(one(IDS).logits, other(IDS).logits)


def load(folder, **options):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **options).eval()


@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        *((family, torch.bfloat16) for family in ("llama", "gemma3", "mixtral", "qwen3_moe", "opt")),
        ("llama", torch.float32),
        ("mixtral", torch.float16),
    ],
    ids=str,
)
def test_a_folder_comes_back_byte_for_byte_and_loads(family, dtype, folder):
    save(folder / "pruned", family, dtype, shards="60KB")
    report = packing.pack(folder / "pruned", folder / "packed", **QUIET)
    packing.unpack(folder / "packed", folder / "again", **QUIET)
    assert contents(folder / "again") == contents(folder / "pruned")
    files = contents(folder / "packed")
    assert len([name for name in files if name.endswith(".safetensors")]) > 1
    assert report.before == sum(map(len, contents(folder / "pruned").values()))
    assert report.after == sum(map(len, files.values()))
    assert report.pruned.after < 0.7 * report.pruned.before
    assert report.pruned.zeros / report.pruned.elements == pytest.approx(0.6, abs=0.02)
    config = json.loads(files["config.json"])
    assert config["quantization_config"] == {"quant_method": "sparsefw", "format": 1}
    assert "sparsity_config" not in json.dumps(config)
    for options in ({}, {"dtype": torch.float32}):
        identical(load(folder / "packed", **options), load(folder / "pruned", **options))


def test_what_is_loaded_is_a_dense_model(folder):
    """It trains, and is saved without a trace of packing."""
    save(folder / "pruned")
    packing.pack(folder / "pruned", folder / "packed", **QUIET)
    model = load(folder / "packed")
    assert not getattr(model, "is_quantized", False)
    model(IDS, labels=IDS).loss.backward()
    assert all(value.grad is not None for value in model.parameters())
    model.save_pretrained(folder / "saved")
    assert "quantization_config" not in json.loads((folder / "saved/config.json").read_text())
    identical(load(folder / "saved"), load(folder / "pruned"))


def run(*words, check=True):
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, check=check, env=env)


def test_the_program(folder, capsys):
    save(folder / "pruned", dtype=torch.bfloat16)
    done = run("-m", "sparsefw", "pack", folder / "pruned", folder / "packed", "-q")
    table = {line.split("  ")[0]: line.split() for line in done.stdout.splitlines()}
    assert table["pruned tensors"][2:4] == ["14", table["pruned tensors"][3]]
    share = float(table["pruned tensors"][-1].removesuffix("%"))
    assert 25 < share < 45
    assert "not faster" in done.stdout
    assert _cli.main(["unpack", f"{folder}/packed", f"{folder}/again", "-q", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["out"] == str((folder / "again").resolve())
    assert contents(folder / "again") == contents(folder / "pruned")
    script = (
        "import sys, torch, transformers\n{}\n"
        "model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1])\n"
        "torch.save(model.state_dict(), sys.argv[2])\n"
    )
    run("-c", script.format("import sparsefw.hf"), folder / "packed", folder / "loaded.pt")
    loaded = torch.load(folder / "loaded.pt")
    for name, value in load(folder / "pruned").state_dict().items():
        assert torch.equal(loaded[name], value), name
    # Whoever forgets the import gets an error, and no model of other weights.
    done = run("-c", script.format(""), folder / "packed", folder / "none.pt", check=False)
    assert done.returncode
    assert "Unknown quantization type, got sparsefw" in done.stderr


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Six shards of 16 MiB."""
    place = tmp_path_factory.mktemp("large")
    generator = torch.Generator().manual_seed(1)
    weights = {}
    for i in range(6):
        value = torch.randn(4096, 2048, generator=generator).bfloat16()
        value[value.abs() < 0.84] = 0
        weights[f"model.layers.{i}.mlp.up_proj.weight"] = name = f"part-{i}.safetensors"
        safetensors.torch.save_file({f"model.layers.{i}.mlp.up_proj.weight": value}, place / name)
    (place / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weights}))
    (place / "config.json").write_text("{}")
    return place


MEASURED = """
import json, re, sys
from sparsefw.hf import packing
from sparsefw.hf.packing.codec import zstandard
zstandard()
def memory(what):
    return int(re.search(what + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10
for what, *arguments in json.loads(sys.argv[1]):
    open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
    before = memory("VmRSS")
    getattr(packing, what)(*arguments, progress=False)
    print(memory("VmHWM") - before)
"""


def test_memory_is_that_of_chunks_whatever_the_folder_has(large, folder):
    """96 MiB in six files, whose tensors have two chunks of 8 MiB."""
    masks = folder / "masks.safetensors"
    shutil.copytree(large, folder / "dense")
    value = torch.full((4096, 2048), 0.5, dtype=torch.bfloat16)
    for path in (folder / "dense").glob("*.safetensors"):
        (name,) = safetensors.torch.load_file(path)
        safetensors.torch.save_file({name: value}, path)
    calls = (
        ("pack", large, folder / "packed"),
        ("unpack", folder / "packed", folder / "again"),
        ("pack_masks", large, folder / "dense", masks),
        ("apply_masks", masks, folder / "dense", folder / "masked"),
    )
    done = run("-c", MEASURED, json.dumps([list(map(str, call)) for call in calls]))
    for (what, *_), used in zip(calls, map(int, done.stdout.split()), strict=True):
        print(f"{what}: {used >> 20} MiB")
        assert used < 64 << 20, what
    assert contents(folder / "again") == contents(large)


LOADED = """
import re, sys, threading
import torch, transformers
from transformers.models.llama import modeling_llama
from sparsefw.hf.packing.codec import zstandard
import sparsefw.hf
zstandard()
def memory():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10
before = peak = memory()
ended = threading.Event()
def watch():
    global peak
    while not ended.wait(0.001):
        peak = max(peak, memory())
thread = threading.Thread(target=watch)
thread.start()
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1])
ended.set()
thread.join()
print(max(peak, memory()) - before)
"""


def test_loading_takes_the_model_and_a_tensor(folder):
    """Twelve blocks of 12 MiB. Pages of the packed file are the system's, which may drop them."""
    config = transformers.LlamaConfig(
        vocab_size=128, hidden_size=512, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=8,
        num_key_value_heads=8, max_position_embeddings=64, head_dim=8)
    model = zeroed(transformers.AutoModelForCausalLM.from_config(config))
    size = sum(value.numel() * 4 for value in model.parameters())
    model.save_pretrained(folder / "pruned", max_shard_size="32MB")
    packing.pack(folder / "pruned", folder / "packed", **QUIET)
    used = int(run("-c", LOADED, folder / "packed").stdout)
    print(f"model {size >> 20} MiB, used {used >> 20} MiB")
    assert size * 0.95 < used < size + (48 << 20)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
@pytest.mark.parametrize("what", ["pack", "unpack"])
def test_an_end_in_the_middle_leaves_nothing_that_looks_finished(what, how, large, folder):
    source = large
    if what == "unpack":
        source = folder / "source"
        packing.pack(large, source, **QUIET)
    # Whatever the speed: a process that stops itself when its third file begins.
    script = (
        "import os, signal, sys\nfrom sparsefw import _cli\nfrom sparsefw.hf.packing import folders\n"
        "before, seen = folders.read_shard, []\n"
        "def read(path):\n    seen.append(path)\n    if len(seen) == 3: os.kill(os.getpid(), int(sys.argv[1]))\n"
        "    return before(path)\n"
        "folders.read_shard = read\nsys.exit(_cli.main(sys.argv[2:]))\n"
    )
    done = run("-c", script, int(how), what, source, folder / "out", "-q", check=False)
    assert done.returncode == (130 if how == signal.SIGINT else -9), done.stderr
    assert not (folder / "out").exists()
    left = {path.name for path in folder.iterdir()} - {"source"}
    assert left == ({".out.partial"} if how == signal.SIGKILL else set())
    assert _cli.main([what, f"{source}", f"{folder}/out", "-q"]) == 0
    assert {path.name for path in folder.iterdir()} == {"out", *(["source"] if what == "unpack" else [])}


def rewrite(path, change):
    """A safetensors file with another header."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


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
    "other file": (lambda f: (f / "README.md").write_text("another"), "README.md: is damaged"),
    "other configuration": (lambda f: change_manifest(f, lambda m: m.update({"config.json": "{}"})),
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
    assert "exists and is not an empty folder" in refused(pruned, pruned)
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
