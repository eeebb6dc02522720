"""Packed folders: made, loaded, unpacked, interrupted; their memory."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import sparsefw
import torch
import transformers
from pruned_folders import IDS, QUIET, contents, identical, load, save, zeroed
from sparsefw import _cli
from sparsefw.hf import packing

ROOT = Path(sparsefw.__file__).resolve().parents[1]


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_configuration_without_a_dtype(dtype, folder):
    """Every tensor is packed in float32. One is too small in bfloat16, and has another dtype than those before it."""
    config = transformers.GPT2Config(
        vocab_size=128, n_embd=256, n_layer=1, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config).to(dtype)
    if dtype == torch.bfloat16:
        output = model.transformer.h[0].attn.c_proj
        output.bias = torch.nn.Parameter(output.bias.to(torch.float16))
    model.save_pretrained(folder / "pruned")
    path = folder / "pruned/config.json"
    facts = json.loads(path.read_text())
    del facts["dtype"]
    path.write_text(json.dumps(facts))
    packing.pack(folder / "pruned", folder / "packed", **QUIET)
    for options in ({}, {"dtype": "auto"}):
        identical(load(folder / "packed", **options), load(folder / "pruned", **options))
    assert load(folder / "packed", dtype="auto").dtype == dtype
    packing.unpack(folder / "packed", folder / "again", **QUIET)
    assert contents(folder / "again") == contents(folder / "pruned")


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
    assert left == ({".out.partial", ".out.lock"} if how == signal.SIGKILL else set())
    assert _cli.main([what, f"{source}", f"{folder}/out", "-q"]) == 0
    assert {path.name for path in folder.iterdir()} == {"out", *(["source"] if what == "unpack" else [])}
