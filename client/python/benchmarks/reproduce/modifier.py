"""SmolLM2 through llm-compressor's oneshot with SparseFWModifier, and through prune_model.

script/reproduce modifier runs it:

    python modifier.py --folder build/reproduce --out FILE.json

Runs in the environment of llm-compressor. Both get the same 8 sequences of 256 tokens, in the same order,
with the attention that llm-compressor calibrates with. Every weight of both models is compared, every row is
counted, and the folder that oneshot wrote is loaded by transformers.
"""

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import datasets
import inputs
import torch
import transformers
from kept_runs import write
from llmcompressor import oneshot

from sparsefw import serve
from sparsefw.hf import prune_model
from sparsefw.hf.data import sequences
from sparsefw.llmcompressor import SparseFWModifier

COUNT, LENGTH = 8, 256
# (what it is, arguments of the modifier, arguments of prune_model)
RUNS = [
    ("60 % per-row, no option", {"sparsity": 0.6},
     {"sparsity": 0.6, "preset": "balanced", "refine_blocks": False}),
    ("2:4, preset fast", {"sparsity": 0.5, "mask_structure": "2:4", "preset": "fast"},
     {"pattern": "2:4", "preset": "fast", "refine_blocks": False}),
]


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager")


def counts(model, dense, report):
    """Weights that are not zero, by row or by four, beside what the mask keeps there.

    A mask may keep a weight that is zero in the dense model; then fewer are left.
    """
    found = {"groups": 0, "groups_with_more": 0, "groups_with_fewer": 0, "masks_keep_exactly": True,
             "zeros_in_the_dense_matrices": 0}
    for row in report.layers:
        weight = model.get_parameter(row["name"])
        size = weight.shape[1] if row["pattern"] == "per-row" else 4
        left = (weight != 0).reshape(-1, size).sum(1)
        each, rest = divmod(row["kept"], len(left))
        found["groups"] += len(left)
        found["groups_with_more"] += int((left > each).sum())
        found["groups_with_fewer"] += int((left < each).sum())
        found["masks_keep_exactly"] &= rest == 0
        found["zeros_in_the_dense_matrices"] += int((dense.get_parameter(row["name"]) == 0).sum())
    return found


def compare(folder, work, ids, arguments, options, server):
    """What is kept of a run."""
    modifier = SparseFWModifier(ignore=["re:.*lm_head"], server=server, **arguments)
    samples = datasets.Dataset.from_dict({"input_ids": ids})
    model, began = load(folder), time.monotonic()
    oneshot(model=model, tokenizer=str(folder), dataset=samples, num_calibration_samples=len(ids),
            max_seq_length=LENGTH, shuffle_calibration_samples=False, recipe=modifier, output_dir=str(work))
    seconds = time.monotonic() - began
    other, began = load(folder), time.monotonic()
    report = prune_model(other, data=ids, gram="client", server=server, progress=False, **options)
    ours = time.monotonic() - began
    loaded = load(work)
    matrices = {row["name"] for row in report.layers}
    others, saved = dict(other.named_parameters()), dict(loaded.named_parameters())
    pairs = [(name, value, others[name]) for name, value in model.named_parameters()]
    tokens = torch.tensor([ids[0][:64]])
    with torch.no_grad():
        same_logits = torch.equal(loaded(input_ids=tokens).logits, other(input_ids=tokens).logits)
    config = json.loads((work / "config.json").read_text())
    return {
        "matrices": len(matrices),
        "matrices_with_the_same_mask": sum(
            torch.equal(one == 0, two == 0) for name, one, two in pairs if name in matrices),
        "parameters_with_other_bits": sum(not torch.equal(one, two) for _, one, two in pairs),
        "losses_are_the_same": [row["losses"] for row in modifier.report.layers]
        == [row["losses"] for row in report.layers],
        "counts": counts(model, load(folder), modifier.report),
        "sparsity": modifier.report.sparsity,
        "folder_has_the_same_bits": all(torch.equal(saved[name], value) for name, value, _ in pairs),
        "folder_has_the_same_logits": same_logits,
        "config_keys_of_compression": [key for key in config if "compress" in key or "sparsity" in key],
        "seconds": {"oneshot": round(seconds, 1), "prune_model": round(ours, 1)},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    folder = inputs.model_folder(arguments.folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text = "\n\n".join(line for article in inputs.wikipedia(arguments.folder)[0::2] for line in article)
    ids = [one[0].tolist() for one in sequences(tokenizer, text, LENGTH, COUNT)]
    head = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    found = {
        "commit": subprocess.run(head, capture_output=True, text=True, check=False).stdout.strip(),
        "sequences": COUNT, "tokens": LENGTH, "model": "SmolLM2-135M-Instruct, float32",
        "versions": {name: importlib.metadata.version(name) for name in
                     ("sparsefw", "llmcompressor", "compressed-tensors", "torch", "transformers")},
        "runs": {},
    }
    with serve() as server:
        for name, of_modifier, of_call in RUNS:
            work = arguments.folder / "modifier"
            found["runs"][name] = compare(folder, work, ids, of_modifier, of_call, server.address)
            found["load"] = os.getloadavg()[0]
            write(arguments.out, found)
            print(name, json.dumps(found["runs"][name]), flush=True)
    wrong = [name for name, run in found["runs"].items() if run["parameters_with_other_bits"]
             or run["counts"]["groups_with_more"] or not run["counts"]["masks_keep_exactly"]
             or not run["folder_has_the_same_bits"]]
    sys.exit(f"not the same: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
