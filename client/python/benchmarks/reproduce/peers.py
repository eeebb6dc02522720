"""The same model, text and samples through llm-compressor and through sparsefw: script/reproduce peers.

Every run is a process of its own (peer_process.py), in the environment of its tool, one after the other, with
as many cores as --threads. Calibration ids are made here once for all; the pruned folders are evaluated here,
by the same code. One JSON file a run; a run that is there is not done again.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import inputs
import peers_settings
import run
import safetensors.torch
import settings
import torch
import transformers
from kept_runs import kept_file, write

from sparsefw.hf.data import sequences

HERE = Path(__file__).parent


def removed(folder):
    """Zeros of the pruned matrices: their share, the least and most of a row, whether any four have two."""
    zeros = total = 0
    rows, groups = [1.0, 0.0], True
    for path in Path(folder).glob("*.safetensors"):
        for name, value in safetensors.torch.load_file(path).items():
            if ".layers." not in name or value.ndim != 2:
                continue
            mask = value == 0
            share = mask.float().mean(1)
            rows = [min(rows[0], float(share.min())), max(rows[1], float(share.max()))]
            groups = groups and bool((mask.view(len(mask), -1, 4).sum(2) >= 2).all())
            zeros, total = zeros + int(mask.sum()), total + mask.numel()
    return {"share": zeros / total, "rows": rows, "two_of_four": groups}


def one(folder, python, model_folder, tokenizer, texts, run_settings, threads):
    """Prunes in another process and evaluates; what is kept."""
    pattern, method, tool, options = run_settings
    work = folder / "peers" / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    scale = settings.SMALL
    ids = sequences(tokenizer, texts["calibration"], scale.sequence_length, scale.samples)
    (work / "ids.json").write_text(json.dumps([sample[0].tolist() for sample in ids]))
    (work / "options.json").write_text(json.dumps(options))
    done = subprocess.run(
        [python, HERE / "peer_process.py", tool, model_folder, work / "ids.json", work / "options.json",
         work / "pruned"],
        env={**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{pattern}, {method}, {tool}:\n{done.stderr[-4000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    perplexity = run.evaluate(run.load(work / "pruned"), tokenizer, texts, scale)
    kept = {"pattern": pattern, "method": method, "tool": tool, "options": options, **found,
            "zeros": removed(work / "pruned"), "perplexity": perplexity}
    shutil.rmtree(work)
    return kept


def table(runs):
    """Markdown."""
    texts = run.HELD_OUT
    head = ["pattern, method", "tool", "removed", *(f"perplexity, {text}" for text in texts), "seconds",
            "CPU seconds", "peak memory, MB"]
    lines = [head, ["---"] * len(head)]
    for found in sorted(runs, key=lambda item: (item["pattern"], item["method"], item["tool"])):
        lines.append([
            f"{found['pattern']}, {found['method']}", found["tool"], f"{found['zeros']['share']:.2%}",
            *(f"{found['perplexity'][text]['value']:.2f}" for text in texts), f"{found['seconds']:.0f}",
            f"{found['cpu_seconds']:.0f}", f"{found['peak_bytes'] / 1e6:.0f}"])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def is_current(found):
    """Whether as many windows were evaluated as are now: others do not belong into the same table."""
    return all(of_text["windows"] == settings.SMALL.windows for of_text in found["perplexity"].values())


def kept_by_name(path):
    """The runs of a file of --keep."""
    runs = filter(is_current, json.loads(path.read_text()) if path else [])
    return {f"{found['pattern']}, {found['method']}, {found['tool']}": found for found in runs}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--peer-python", type=Path, required=True, help="of llm-compressor's environment")
    parser.add_argument("--only", default="", help="regular expression of 'pattern, method, tool'")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--from", dest="kept", type=kept_file, metavar="FILE",
                        help="runs that this file of --keep has are not done again")
    parser.add_argument("--keep", type=Path, help="also write every run to this JSON file")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    transformers.utils.logging.disable_progress_bar()
    folder = arguments.folder
    model_folder, texts = inputs.model_folder(folder), inputs.texts(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder)
    pythons = {peers_settings.PEER: arguments.peer_python, peers_settings.SPARSEFW: sys.executable}
    kept = kept_by_name(arguments.kept)
    runs = []
    for run_settings in peers_settings.RUNS:
        pattern, method, tool, _ = run_settings
        name = f"{pattern}, {method}, {tool}"
        path = folder / "peers" / (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".json")
        if path.exists() and not is_current(json.loads(path.read_text())):
            path.unlink()
        if not path.exists() and name in kept:
            write(path, kept[name])
        if not path.exists():
            if not re.search(arguments.only, name):
                continue
            write(path, one(
                folder, pythons[tool], model_folder, tokenizer, texts, run_settings, arguments.threads))
        runs.append(json.loads(path.read_text()))
        print(table(runs[-1:]).splitlines()[-1], flush=True)
    (folder / "peers.md").write_text(table(runs) + "\n")
    if arguments.keep:
        arguments.keep.write_text("[\n" + ",\n".join(json.dumps(found) for found in runs) + "\n]\n")


if __name__ == "__main__":
    main()
