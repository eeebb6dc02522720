"""One run of peers.py, a process of its own: prunes the model with one tool and says what it took.

    python peer_process.py sparsefw|llm-compressor MODEL-FOLDER IDS.json OPTIONS.json OUT

Runs in the environment of that tool. What it prints last is one JSON object: seconds and CPU seconds from
the loaded model to the pruned one in memory, and the peak of memory above that of the imports, bytes, with
reading the model. The embedded server of sparsefw counts: its CPU seconds, and all of its memory.
"""

import contextlib
import importlib.metadata
import json
import os
import re
import resource
import sys
import time
from pathlib import Path

THREADS = int(os.environ["OMP_NUM_THREADS"])
# Whatever asks how many cores there are finds that many, the server too.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-THREADS:])

import torch  # noqa: E402
import transformers  # noqa: E402


def memory(what, process="self"):
    """VmRSS or VmHWM, bytes."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(rf"{what}:\s+(\d+) kB", status)[1]) << 10


def cpu_seconds():
    """The seconds of this process and of its children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in used)


def with_sparsefw(model, ids, options):
    """The peak memory of the server, bytes."""
    from sparsefw import serve
    from sparsefw.hf import prune_model

    with serve("--workers", "1") as server:
        prune_model(model, data=ids, samples=len(ids), server=server.address, progress=False, **options)
        guard = server._guard.pid
        (child,) = Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
        return memory("VmHWM", child)


def with_llm_compressor(model, ids, options):
    import datasets
    from llmcompressor import oneshot
    from llmcompressor.modifiers import pruning

    options = dict(options)
    modifier = getattr(pruning, options.pop("modifier"))
    masks = [[1] * len(one) for one in ids]
    samples = datasets.Dataset.from_dict({"input_ids": ids, "attention_mask": masks})
    oneshot(
        model=model, tokenizer=model.config.name_or_path, dataset=samples, num_calibration_samples=len(ids),
        max_seq_length=len(ids[0]), shuffle_calibration_samples=False,
        recipe=[modifier(ignore=["re:.*lm_head"], **options)])
    return 0


# (what prunes, modules that are imported before memory is counted, packages whose versions are kept)
TOOLS = {
    "sparsefw": (with_sparsefw, ("sparsefw.hf",), ("sparsefw",)),
    "llm-compressor": (
        with_llm_compressor, ("datasets", "llmcompressor.modifiers.pruning"),
        ("llmcompressor", "compressed-tensors")),
}


def main():
    tool, folder, ids, options, out = sys.argv[1:]
    torch.set_num_threads(THREADS)
    prune, modules, packages = TOOLS[tool]
    for name in (*modules, "transformers.models.llama.modeling_llama"):
        importlib.import_module(name)
    ids, options = (json.loads(Path(path).read_text()) for path in (ids, options))
    before = memory("VmRSS")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    loaded = memory("VmRSS")
    started, cpu_started = time.monotonic(), cpu_seconds()
    with contextlib.redirect_stdout(sys.stderr):
        server_peak = prune(model, ids, options)
    found = {
        "seconds": time.monotonic() - started, "cpu_seconds": cpu_seconds() - cpu_started,
        "model_bytes": loaded - before, "peak_bytes": memory("VmHWM") - before + server_peak,
        "server_peak_bytes": server_peak, "import_bytes": before, "threads": THREADS,
        "load": os.getloadavg()[0],
        "versions": {
            name: importlib.metadata.version(name) for name in (*packages, "torch", "transformers")},
    }
    # llm-compressor gives the model a save_pretrained of its own; the class has the plain one.
    type(model).save_pretrained(model, out)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
