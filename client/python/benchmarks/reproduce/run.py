"""Prunes SmolLM2-135M in many ways and writes down what becomes of it: script/reproduce runs this.

Every run is one JSON file; a run that is there is not done again, and one that was interrupted goes on at
its last finished block.
"""

import argparse
import dataclasses
import json
import os
import re
import shutil
import time
from pathlib import Path

import cloze
import inputs
import settings
import torch
import transformers
from kept_runs import file_of, kept_file, unpack, write

from sparsefw import serve
from sparsefw.hf import evaluate_perplexity, prune_model

HELD_OUT = ("wikipedia", "handbook")


def load(folder):
    """In float32: bfloat16 is slow on most CPUs, and every value is the same."""
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def evaluate(model, tokenizer, texts, scale):
    return {
        name: dataclasses.asdict(
            evaluate_perplexity(
                model, tokenizer, texts[name], sequence_length=scale.sequence_length, samples=scale.windows))
        for name in HELD_OUT
    }


def choose(model, tokenizer, texts, scale):
    """Accuracy of the cloze test; nothing where the scale has none."""
    if not scale.cloze:
        return {}
    return {name: cloze.accuracy(model, tokenizer, texts[name], scale.cloze) for name in HELD_OUT}


def one(model_folder, tokenizer, texts, scale, name, options, server, state):
    """Prunes and evaluates; what is kept."""
    resumed = any(state.glob("block-*"))  # then the seconds are those of the last part
    started = time.monotonic()
    model = load(model_folder)
    report = prune_model(
        model, tokenizer, data=texts["calibration"], server=server.address, state_dir=state, progress=False,
        **{"samples": scale.samples, "sequence_length": scale.sequence_length, **options})
    pruned = time.monotonic()
    perplexity = evaluate(model, tokenizer, texts, scale)
    return {
        "name": name, "options": options, "sparsity": report.sparsity, "perplexity": perplexity,
        "cloze": choose(model, tokenizer, texts, scale),
        "resumed": resumed, "prune_seconds": pruned - started, "evaluate_seconds": time.monotonic() - pruned,
        "threads": torch.get_num_threads(), "load": os.getloadavg()[0], **report.to_dict()}


def dense(folder, model_folder, tokenizer, texts, scale):
    """What the model itself has, where that is not there yet."""
    path = file_of(folder, "dense", scale, {})
    kept = {"name": "dense", "options": {}, "sparsity": 0.0}
    if path.exists():
        kept = json.loads(path.read_text())
    if "perplexity" in kept and kept.get("cloze"):
        return
    model = load(model_folder)
    if "perplexity" not in kept:
        started = time.monotonic()
        kept["perplexity"] = evaluate(model, tokenizer, texts, scale)
        kept["evaluate_seconds"] = time.monotonic() - started
        kept["tokens"] = {
            name: len(tokenizer(text, verbose=False)["input_ids"]) for name, text in texts.items()}
    kept["cloze"] = choose(model, tokenizer, texts, scale)
    write(path, kept)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    scales = parser.add_mutually_exclusive_group()
    for name in ("quick", "small"):
        scales.add_argument(f"--{name}", dest="scale", action="store_const", const=name, default="full")
    parser.add_argument("--only", default="", help="regular expression of run names")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--from", dest="kept", type=kept_file, metavar="FILE",
                        help="runs that this file of tables.py --keep has are not done again")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    transformers.utils.logging.disable_progress_bar()
    folder, scale = arguments.folder, settings.SCALES[arguments.scale]
    model_folder, texts = inputs.model_folder(folder), inputs.texts(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder)
    runs = settings.runs(scale)
    if arguments.kept:
        unpack(arguments.kept, folder, scale, {"dense": {}, **runs})
    dense(folder, model_folder, tokenizer, texts, scale)
    wanted = {name: options for name, options in runs.items() if re.search(arguments.only, name)}
    with serve("--workers", "1") as server:
        for number, (name, options) in enumerate(wanted.items(), 1):
            path = file_of(folder, name, scale, options)
            if not path.exists():
                state = folder / "state" / path.stem
                write(path, one(model_folder, tokenizer, texts, scale, name, options, server, state))
                shutil.rmtree(state)
            found = json.loads(path.read_text())
            values = ", ".join(f"{key} {value['value']:.2f}" for key, value in found["perplexity"].items())
            print(f"{number}/{len(wanted)} {name}: {values}; {found['prune_seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
