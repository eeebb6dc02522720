"""Peak memory of processes of their own: what the pages promise."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import sparsefw
import torch
import transformers
from sparsefw.hf.training.distill import memory_needed
from sparsefw.hf.work import layout_of

ROOT = Path(sparsefw.__file__).resolve().parents[1]

MEASURED = """
import json, re, sys
import torch
from sparsefw.hf import prune_model
from sparsefw.hf.calibration import hidden
torch.set_num_threads(1)
import torch._dynamo, transformers.models.llama.modeling_llama  # what optimizers load
def memory(what):
    return int(re.search(what + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
samples, length = int(sys.argv[4]), int(sys.argv[5])
hidden.MEMORY_BYTES = 1 << 20
before = memory("VmRSS")
prune_model(sys.argv[1], data=torch.arange(samples * length).reshape(samples, length) % 128, pattern="2:4",
            method="magnitude", server=sys.argv[3], out=sys.argv[2], gram="client",
            samples=samples, progress=False, **json.loads(sys.argv[6]))
print(memory("VmHWM") - before)
"""


OUTPUT_ALONE = {"ignore": ["[qkv]_proj", "mlp"]}


def measure(folder, server, samples, length, **options):
    """Bytes at the peak of a run, beyond what Python and its packages take."""
    words = [folder / "dense", folder / "out", server.address, samples, length, json.dumps(options)]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *map(str, words)],
        capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("refine", [None, {"epochs": 1}], ids=["pruned", "refined"])
def test_hidden_states_are_never_in_memory_as_a_whole(shared_server, folder, refine):
    """128 MiB of them, from their first forward pass to the last; twice as many with refinement."""
    width, samples, length = 512, 128, 512
    config = transformers.LlamaConfig(
        vocab_size=128, hidden_size=width, intermediate_size=32, num_hidden_layers=2, head_dim=32,
        num_attention_heads=4, num_key_value_heads=1, max_position_embeddings=length)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder / "dense")
    used = measure(folder, shared_server, samples, length, refine_blocks=refine, **OUTPUT_ALONE)
    print(f"hidden states {samples * length * width * 4 >> 20} MiB, used {used >> 20} MiB")
    assert used < (96 if refine else 64) << 20


@pytest.mark.parametrize("refine", [None, {"epochs": 1}], ids=["pruned", "refined"])
def test_a_folder_is_never_in_memory_as_a_whole(shared_server, folder, refine):
    """24 blocks of 16 MiB: two blocks, Gram matrices, and room for the allocator. With refinement, another two
    copies and 19 bytes a weight of the block."""
    width, inner, count = 512, 1024, 24
    config = transformers.LlamaConfig(
        vocab_size=128, hidden_size=width, intermediate_size=2 * inner, num_hidden_layers=count,
        num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=64)
    model = transformers.AutoModelForCausalLM.from_config(config)
    block = sum(value.numel() * 4 for value in model.model.layers[0].parameters())
    model.save_pretrained(folder / "dense", max_shard_size="1GB")
    del model
    grams = 8 * width**2
    options = {"refine_blocks": refine} if refine else OUTPUT_ALONE
    used = measure(folder, shared_server, 2, 32, **options)
    print(f"block {block >> 20} MiB, all {count * block >> 20} MiB, used {used >> 20} MiB")
    if refine:
        grams = 8 * (2 * inner) ** 2
    refined = 2 * block + 19 * block // 4 if refine else 0
    # A sum in float64, the part that is added to it, and the matrix in float32 with what makes it.
    assert used < 2 * block + 3 * grams + refined + (64 << 20)
    assert used < count * block / 2 or refine


def test_a_distillation_takes_the_memory_that_is_asked_for(shared_server, folder):
    """Eight blocks of 16 MiB: what `memory_needed` counts, and room for the allocator, activations and logits."""
    config = transformers.LlamaConfig(
        vocab_size=128, hidden_size=512, intermediate_size=2048, num_hidden_layers=8,
        num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=64)
    model = transformers.AutoModelForCausalLM.from_config(config)
    needed = memory_needed(model, layout_of(model, ["lm_head", "self_attn"]), "cpu")[torch.device("cpu")]
    model.save_pretrained(folder / "dense", max_shard_size="1GB")
    del model
    used = measure(folder, shared_server, 2, 32, refine_blocks=False, distill={"epochs": 1}, ignore=["self_attn"])
    print(f"counted {needed >> 20} MiB, used {used >> 20} MiB")
    assert needed / 2 < used < needed + (64 << 20)
