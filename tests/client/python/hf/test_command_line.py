"""A checkpoint that sparsefw-cli has pruned, without Python, is one of Transformers."""

import tiny
import torch
import transformers
from safetensors.torch import save_file
from support import reference
from support.processes import Cli


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")


def test_transformers_loads_what_sparsefw_cli_has_pruned(shared_server, folder):
    model = tiny.make("llama", dtype=torch.bfloat16)
    model.save_pretrained(folder / "dense", max_shard_size="20KB")
    assert (folder / "dense/model.safetensors.index.json").exists()
    names = [name for name, value in model.named_parameters() if ".layers." in name and value.dim() == 2]
    assert len(names) == 2 * tiny.MATRICES["llama"]
    grams = {name: gram.float() for name, gram in tiny.reference_grams(model, names, tiny.tokens()).items()}
    (folder / "grams").mkdir()
    save_file(grams, folder / "grams/grams.safetensors")
    done = Cli(shared_server.address).run(
        "prune-model", folder / "dense", "--grams", folder / "grams", "--out", folder / "pruned",
        "--pattern", "per-row", "--sparsity", "0.5", "--iterations", "50", "--reconstruct", "--json").expect(0)
    pruned = load(folder / "pruned")
    assert type(pruned) is type(model) and pruned.dtype == torch.bfloat16
    for layer in done.json()["layers"]:
        weight = pruned.get_parameter(layer["name"]).detach()
        reference.check_counts((weight != 0).numpy(), "per-row", 0.5)
        loss = tiny.loss(model.get_parameter(layer["name"]).detach(), weight, grams[layer["name"]].double())
        assert abs(loss - layer["losses"]["reconstructed"]) <= 1e-3 * loss
    for name, value in model.named_parameters():
        if name not in names:
            assert torch.equal(value, pruned.get_parameter(name)), name
    with torch.no_grad():
        assert pruned(input_ids=tiny.tokens()).logits.isfinite().all()
