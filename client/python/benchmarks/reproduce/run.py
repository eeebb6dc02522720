"""Prunes a language model in many ways and writes down what becomes of it: script/reproduce runs this.

Every run is one JSON file; a run that is there is not done again, and one that was interrupted goes on at
its last finished block.
"""

import argparse
import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import byte_model
import inputs
import processor
import search
import settings
import torch
import transformers
from kept_runs import file_of, kept_file, unpack, write

from sparsefw import serve
from sparsefw.hf import data, evaluate_perplexity, prune_model
from sparsefw.hf.training.steps import multiplies_bfloat16
from sparsefw.torch import hold_masks

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import fine_tune

HELD_OUT = ("wikipedia", "handbook")


def load(folder):
    """In float32: bfloat16 is slow on most CPUs, and every value is the same."""
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def evaluate(model, tokenizer, texts, scale):
    """Perplexities on the held-out texts, with a digest of the windows: only the same ones compare."""
    found = {}
    for name in HELD_OUT:
        windows = data.sequences(tokenizer, texts[name], scale.sequence_length, scale.windows)
        value = evaluate_perplexity(model, data=[one[0].tolist() for one in windows],
                                    sequence_length=scale.sequence_length)
        found[name] = {**dataclasses.asdict(value), "windows_digest": data.digest(windows)}
    return found


def commit():
    """This project's commit, with "+" and a digest of the difference where programs or package differ."""
    where = Path(__file__).parent

    def git(*words):
        done = subprocess.run(["git", "-C", where, *words], capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else ""

    parts = [f":/{name}" for name in ("client", "core", "proto", "server")]
    changed = git("diff", "HEAD", "--", *parts) + git("status", "--porcelain", "--", *parts)
    short = git("rev-parse", "--short=10", "HEAD").strip() or "unknown"
    return short + (f"+{hashlib.sha256(changed.encode()).hexdigest()[:6]}" if changed else "")


def commits_of(state, made_by):
    """The commits that have worked at a run, this one included; they are kept beside its state."""
    path = state.with_suffix(".commits")
    commits = path.read_text().split() if path.exists() else []
    if made_by not in commits:
        commits.append(made_by)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(commits) + "\n")
    return commits


def forget(state):
    shutil.rmtree(state, ignore_errors=True)
    for suffix in (".commits", ".seconds", ".search"):
        state.with_suffix(suffix).unlink(missing_ok=True)


def searched(state, *of_search):
    """What search.find returns, kept beside the state for an interrupted run."""
    path = state.with_suffix(".search")
    if not path.exists():
        write(path, search.find(*of_search))
    return json.loads(path.read_text())


def tune_further(model, model_folder, tokenizer, text, scale, how):
    """The example's steps, on the samples of calibration."""
    sequences = data.sequences(tokenizer, text, scale.sequence_length, scale.samples)
    with hold_masks(model):
        fine_tune.fine_tune(
            model, sequences, how["epochs"] * len(sequences), rate=how["rate"], dense=load(model_folder),
            bfloat16=multiplies_bfloat16("cpu"))


def one(model_folder, tokenizer, folder, scale, name, options, server, state, made_by):
    """Prunes and evaluates; what is kept."""
    resumed = any(state.glob("block-*"))  # then prune_seconds are those of the last part
    options = dict(options)
    further = options.pop("fine_tune", None)
    texts = inputs.texts(folder, options.pop("draw", 0))
    commits = commits_of(state, made_by)
    started = time.monotonic()
    model, of_search = load(model_folder), {}
    # Not in the folder of the state: that must be new or a run's own.
    with processor.Counter(server, state.with_suffix(".seconds")) as counter:
        if options.get("allocation") == "search":
            of_search = searched(state, model, tokenizer, texts["calibration"], server, scale, options)
            del options["search"]
            options["allocation"] = of_search["allocation"]
        report = prune_model(
            model, tokenizer, data=texts["calibration"], server=server.address, state_dir=state,
            progress=False, **{"samples": scale.samples, "sequence_length": scale.sequence_length, **options})
        if further:
            tune_further(model, model_folder, tokenizer, texts["calibration"], scale, further)
    pruned = time.monotonic()
    return {
        "name": name, "commit": ", ".join(commits), "sparsity": report.sparsity,
        "perplexity": evaluate(model, tokenizer, texts, scale),
        "resumed": resumed, "prune_seconds": pruned - started, "processor_seconds": counter.seconds,
        "evaluate_seconds": time.monotonic() - pruned, "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0], **({"search": of_search} if of_search else {}), **report.to_dict()}


def dense(model_folder, tokenizer, folder, scale, made_by):
    """What the model itself has."""
    texts = inputs.texts(folder)
    counts = {name: len(tokenizer(text, verbose=False)["input_ids"]) for name, text in texts.items()}
    perplexity = evaluate(load(model_folder), tokenizer, texts, scale)
    return {
        "name": "dense", "commit": made_by, "sparsity": 0.0, "tokens": counts, "perplexity": perplexity}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--scale", choices=settings.SCALES, required=True)
    parser.add_argument("--only", default="", help="regular expression of run names")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--from", dest="kept", type=kept_file, metavar="FILE",
                        help="runs that this file of tables.py --keep has are not done again")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    transformers.utils.logging.disable_progress_bar()
    folder, scale = arguments.folder, settings.SCALES[arguments.scale]
    if scale.model == "bytes":
        model_folder, tokenizer = byte_model.model_folder(folder), byte_model.tokenizer
    else:
        model_folder = inputs.model_folder(folder, scale.model)
        tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder)
    runs = {"dense": {}, **settings.runs(scale)}
    if arguments.kept:
        count = unpack(arguments.kept, folder, scale, runs)
        print(f"{count} runs of {arguments.kept} count as done", flush=True)
    wanted = {
        name: options for name, options in runs.items()
        if name == "dense" or re.search(arguments.only, name)}
    made_by = commit()
    with serve("--workers", "1") as server:
        for number, (name, options) in enumerate(wanted.items(), 1):
            path = file_of(folder, name, scale, options)
            state = folder / "state" / path.stem
            if not path.exists():
                found = (
                    one(model_folder, tokenizer, folder, scale, name, options, server, state, made_by)
                    if options else dense(model_folder, tokenizer, folder, scale, made_by))
                write(path, {**found, "scale": scale.name, "options": options})
            forget(state)
            found = json.loads(path.read_text())
            values = ", ".join(f"{key} {value['value']:.2f}" for key, value in found["perplexity"].items())
            print(f"{number}/{len(wanted)} {name}: {values}; {found.get('prune_seconds', 0):.0f} s, "
                  f"{found.get('processor_seconds', 0):.0f} s of processor time", flush=True)


if __name__ == "__main__":
    main()
