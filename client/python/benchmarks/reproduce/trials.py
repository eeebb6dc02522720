"""What was tried besides in the refinement of blocks, and n:m with channels in another order.

script/reproduce trials runs it. The first 12 blocks of SmolLM2-135M are pruned with Wanda's masks, with 16
sequences of the calibration articles, and refined; the rest of the model is dense. Two texts judge:

unused    windows of the calibration articles that no trial has as a sample: settings are chosen on these. An
          article may have windows of both kinds.
handbook  The Debian Administrator's Handbook: it is reported, and nothing is chosen on it.

Every trial is a run in one JSON file. A run that the file has, with the same settings, is not done again.
They take an hour of one core: four minutes each, of which a minute and a half is the evaluation.
"""

import argparse
import dataclasses
import json
import os
import platform
import re
import sys
import tempfile
import time
from pathlib import Path

import inputs
import processor
import torch
import transformers
import trials_permute
import trials_refine
import trials_settings as settings
import trials_tables
from run import commit, load
from tables import fill

from sparsefw import serve
from sparsefw.hf import data, evaluate_perplexity, prune_model

SCHEMA = 1


def _short(number, digits=6):
    return float(f"{number:.{digits}g}")


class Texts:
    """The samples, and the windows of each text."""

    def __init__(self, tokenizer, folder):
        texts, length = inputs.texts(folder), settings.SEQUENCE_LENGTH
        every = data.sequences(tokenizer, texts["calibration"], length, None)
        taken = [index * len(every) // settings.SAMPLES for index in range(settings.SAMPLES)]
        count = settings.WINDOWS["unused"]
        unused = [(2 * index + 1) * len(every) // (2 * count) for index in range(count)]
        if set(taken) & set(unused):
            raise ValueError("a window is also a sample")
        self.samples = [every[index] for index in taken]
        handbook = data.sequences(tokenizer, texts["handbook"], length, settings.WINDOWS["handbook"])
        self.windows = {"unused": [every[index] for index in unused], "handbook": handbook}


def evaluate(model, texts):
    found = {}
    for name, windows in texts.windows.items():
        perplexity = dataclasses.asdict(evaluate_perplexity(
            model, data=[one[0].tolist() for one in windows], sequence_length=settings.SEQUENCE_LENGTH))
        found[name] = {
            "value": _short(perplexity["value"]), "windows_digest": data.digest(windows),
            "losses": [_short(loss) for loss in perplexity["losses"]]}
    return found


def one(model_folder, texts, trial, server, work):
    """What is kept of a trial, but for its name."""
    model, change, facts = load(model_folder), dict(trial["change"]), {}
    if change.pop("permute", False):
        facts = trials_permute.permute(
            model, settings.BLOCKS, texts.samples, trial["pattern"]["pattern"], texts.windows["unused"][0])
    began = time.monotonic()
    with (processor.Counter(server, work / "seconds") as counter,
          trials_refine.changed(model, **change) as of_change):
        report = prune_model(
            model, data=[one[0].tolist() for one in texts.samples], server=server.address, progress=False,
            **settings.options(trial))
    (work / "seconds").unlink()
    errors = ("error_before", "error_after")
    return {
        "meaning": settings.meaning(trial), "perplexity": evaluate(model, texts),
        "processor_seconds": _short(counter.seconds, 4), "seconds": _short(time.monotonic() - began, 4),
        "load": os.getloadavg()[0], "facts": {**facts, **of_change},
        "refinement": [
            {**{name: _short(block[name], 4) for name in errors}, "epoch": block["epoch"]}
            for block in report.refinements]}


def cpu():
    """The processor, with what decides how fast its products of bfloat16 are."""
    text = Path("/proc/cpuinfo").read_text()
    names = re.findall(r"^model name\s*: (.*)$", text, re.MULTILINE) or [platform.machine()]
    return ", ".join([names[0], *(name for name in ("amx_bf16", "avx512_bf16") if f" {name}" in text)])


def write(path, runs):
    """The file, a line a run."""
    head = {
        "what": "Variants of the refinement of blocks, and n:m with permuted channels: SmolLM2-135M, "
                f"first {settings.BLOCKS} of 30 blocks, {settings.SAMPLES} sequences of "
                f"{settings.SEQUENCE_LENGTH} tokens. unused: calibration text without the samples; errors "
                "are those of the held-back sequences",
        "schema": SCHEMA, "date": time.strftime("%Y-%m-%d"), "commit": ", ".join(
            dict.fromkeys(run["commit"] for run in runs)),
        "command": "script/reproduce trials", "processor": cpu(), "cores": os.cpu_count(),
        "threads": torch.get_num_threads(), "torch": torch.__version__,
        "transformers": transformers.__version__}
    lines = ",\n".join(json.dumps(run) for run in runs)
    partial = path.with_suffix(".partial")
    partial.write_text(f"{json.dumps(head, indent=1)[:-2]},\n \"runs\": [\n{lines}\n]}}\n")
    partial.rename(path)


def measure(arguments, runs):
    """Runs what is wanted and not there; `runs` and the file get it."""
    wanted = [name for name in ("dense", *settings.TRIALS)
              if name not in runs and (name == "dense" or re.search(arguments.only, name))]
    if not wanted:
        return
    folder, made_by = arguments.folder, commit()
    model_folder = inputs.model_folder(folder)
    texts = Texts(transformers.AutoTokenizer.from_pretrained(model_folder), folder)
    with serve("--workers", "1") as server, tempfile.TemporaryDirectory() as work:
        for number, name in enumerate(wanted, 1):
            if name == "dense":
                found = {"meaning": {"windows": settings.WINDOWS},
                         "perplexity": evaluate(load(model_folder), texts)}
            else:
                found = one(model_folder, texts, settings.TRIALS[name], server, Path(work))
            runs[name] = {"name": name, "commit": made_by, **found}
            order = ("dense", *settings.TRIALS)
            write(arguments.out, sorted(runs.values(), key=lambda run: order.index(run["name"])))
            values = ", ".join(f"{text} {of['value']:.2f}" for text, of in found["perplexity"].items())
            print(f"{number}/{len(wanted)} {name}: {values}; {found.get('processor_seconds', 0):.0f} s of "
                  "processor time", flush=True)


def main():
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="the file of all runs; trials.json in the folder")
    parser.add_argument("--only", default="", help="regular expression of trials")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--page", type=Path, action="append", default=[],
                        help="also write the tables between this page's markers, as trials-refinement")
    arguments = parser.parse_args()
    arguments.out = arguments.out or arguments.folder / "trials.json"
    torch.set_num_threads(arguments.threads)
    transformers.utils.logging.disable_progress_bar()
    runs = trials_tables.read(arguments.out)
    measure(arguments, runs)
    found = trials_tables.parts(runs)
    for page in arguments.page:
        fill(page, found)
    print("\n\n".join(f"## {name}\n\n{text}" for name, text in found.items()))


if __name__ == "__main__":
    sys.exit(main())
