"""Packed folders of SmolLM2-135M at 60 % beside dense bfloat16 and `zstd -19`: bytes, seconds, memory.

    script/build release --programs && client/python/make-environment --hf build/venv
    build/venv/bin/python client/python/benchmarks/pack.py --folder build/reproduce --out FILE.json

The model is that of script/reproduce. It is pruned with 4 sequences of 512 tokens, by a method that keeps the
values of the weights (wanda) and one that changes them (sparsegpt).
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "client/python/src"), str(Path(__file__).parent / "reproduce")]
sys.path[:0] = [str(ROOT / "core/benchmarks")]

MODELS = {
    "wanda-60": {"method": "wanda", "sparsity": 0.6},
    "sparsegpt-60": {"method": "sparsegpt", "sparsity": 0.6},
    "wanda-2of4": {"method": "wanda", "pattern": "2:4"},
}
PIECE = 8 << 20

# One step in a process of its own: what it takes beyond what Python and its packages take.
STEP = """
import gc, json, re, sys, threading, time
import torch, transformers
from transformers.models.llama import modeling_llama
from sparsefw.hf import packing
transformers.utils.logging.disable_progress_bar()
what, source, out = sys.argv[1:4]
def memory(name):
    return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10
def load():
    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    with torch.no_grad():
        # Weights of a dense folder are mapped: the first pass over them reads them.
        for value in model.state_dict().values():
            value.view(torch.uint8).max()
    return model
ids = torch.arange(256)[None] * 7
if what == "logits":
    model = load()
    with torch.no_grad():
        logits = model(ids).logits
    torch.save([model.state_dict(), logits], out)
    sys.exit()
gc.collect()
open("/proc/self/clear_refs", "w").write("5")
before = memory("VmRSS"), memory("RssAnon")
peak, ended = before[1], threading.Event()
def watch():
    global peak
    while not ended.wait(0.002):
        peak = max(peak, memory("RssAnon"))
thread = threading.Thread(target=watch)
thread.start()
began = time.perf_counter()
more = {}
if what == "pack":
    more["report"] = packing.pack(source, out, progress=False).to_dict()
elif what == "unpack":
    packing.unpack(source, out, progress=False)
else:
    model = load()
seconds = time.perf_counter() - began
ended.set()
thread.join()
peaks = {"peak": memory("VmHWM") - before[0], "peak_anonymous": peak - before[1]}
print(json.dumps({"seconds": seconds, **peaks, **more}))
"""


def step(what, source, out="-"):
    """Seconds, and bytes at the peak: all, and without pages of files, which the system may drop."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "client/python/src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", STEP, what, str(source), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout else None


def entropy(values):
    """Bits a symbol."""
    counts = np.bincount(values).astype(float)
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log2(shares)).sum())


def zstd19(pieces):
    """Bytes of one frame."""
    import zstandard

    compressor = zstandard.ZstdCompressor(level=19).compressobj()
    return sum(len(compressor.compress(piece)) for piece in pieces) + len(compressor.flush())


def tensors(folder, pruned):
    """The bytes of the pruned matrices, or of all other tensors, one after the other."""
    import torch
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "pt") as file:
        for name in file.keys():  # noqa: SIM118
            if name.endswith("_proj.weight") == pruned:
                yield file.get_tensor(name).view(torch.uint8).numpy().tobytes()


def bounds(folder):
    """Means over the pruned matrices, weighted by their size: what independent symbols would need."""
    total, bits = 0, {"mask": 0.0, "exponents": 0.0, "signs_and_mantissas": 0.0}
    for data in tensors(folder, True):
        words = np.frombuffer(data, "<u2")
        values = words[words != 0]
        kept = len(values) / len(words)
        total += len(words)
        bits["mask"] += -len(words) * sum(p * math.log2(p) for p in (kept, 1 - kept))
        bits["exponents"] += len(values) * entropy((values >> 7) & 255)
        bits["signs_and_mantissas"] += len(values) * entropy((values & 127) | ((values >> 15) << 7))
    a_weight = {name: value / total for name, value in bits.items()}
    return {"bits_a_weight": a_weight, "share_of_bfloat16": sum(a_weight.values()) / 16}


def codings(folder):
    """Bits a kept weight for its exponent, and seconds, of every seventh pruned matrix."""
    import zstandard

    from sparsefw.hf.packing import codec

    def frame(level):
        return zstandard.ZstdCompressor(level=level).compress

    def huffman(data):
        deflate = zlib.compressobj(9, zlib.DEFLATED, 15, 9, zlib.Z_HUFFMAN_ONLY)
        return deflate.compress(data) + deflate.flush()

    chosen = codec.Encoder()._compressor.compress
    ways = {
        "zstd 3": (1, frame(3)),
        "zstd 19": (1, frame(19)),
        "two in a byte, zstd 3": (2, frame(3)),
        "two in a byte, zstd 19": (2, frame(19)),
        "two in a byte, zstd, smallest table": (2, chosen),
        "two in a byte, zlib, Huffman codes only": (2, huffman),
    }
    found = {name: {"bits": 0.0, "seconds": 0.0} for name in ways}
    count, needed = 0, 0.0
    for data in list(tensors(folder, True))[::7]:
        words = np.frombuffer(data, "<u2")
        exponents = ((words[words != 0] >> 7) & 255).astype(np.uint8)
        below = np.minimum(exponents.max() - exponents, 15)
        inputs = {1: exponents.tobytes(), 2: codec._nibbles(below).tobytes()}
        count += len(exponents)
        needed += len(exponents) * entropy(exponents)
        for name, (kind, compress) in ways.items():
            began = time.process_time()
            found[name]["bits"] += 8 * len(compress(inputs[kind]))
            found[name]["seconds"] += time.process_time() - began
    for row in found.values():
        row["bits"] /= count
    return {"entropy": needed / count, **found}


def sizes(folder):
    """Bytes as they are and by zstd -19: a frame of the pruned matrices, one of the other tensors, and one of
    every other file.
    """
    others = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".safetensors"]
    parts = {
        "pruned": [tensors(folder, True)],
        "dense": [tensors(folder, False)],
        "rest": [[path.read_bytes()] for path in others],
    }
    began = time.process_time()
    compressed = {name: sum(map(zstd19, frames)) for name, frames in parts.items()}
    seconds = time.process_time() - began
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {
        "folder": sum(path.stat().st_size for path in files),
        "pruned": sum(map(len, tensors(folder, True))),
        "zstd19": {**compressed, "folder": sum(compressed.values())},
        "zstd19_processor_seconds": seconds,
    }


def identical(one, other):
    """(every tensor, the logits), bit for bit."""
    import torch

    (ours, logits), (theirs, others) = torch.load(one), torch.load(other)

    def same(a, b):
        return torch.equal(a.view(torch.uint8), b.view(torch.uint8))

    return ours.keys() == theirs.keys() and all(same(ours[k], theirs[k]) for k in ours), same(logits, others)


def prune(folder, name):
    """The pruned folder, made once."""
    import inputs

    from sparsefw.hf import prune_model

    out = folder / "pack" / name
    if not out.exists():
        text = ["\n\n".join(article) for article in inputs.wikipedia(folder)[0::2]]
        options = {"samples": 4, "sequence_length": 512, **MODELS[name]}
        prune_model(inputs.model_folder(folder), data=text, out=out, progress=False, **options)
    return out


def measure(folder, name, runs, known):
    """All of one pruned model.

    Args:
        known: of an earlier call: bytes of zstd -19 take long, and are the same again.
    """
    source = prune(folder, name)
    reports = []
    packed, unpacked = source.with_name(f"{name}-packed"), source.with_name(f"{name}-unpacked")
    steps = {key: [] for key in ("pack", "unpack", "load_dense", "load_packed")}
    for _ in range(runs):
        for out in (packed, unpacked):
            shutil.rmtree(out, ignore_errors=True)
        steps["pack"].append(step("pack", source, packed))
        reports.append(steps["pack"][-1].pop("report"))
        del reports[-1]["out"]
        steps["unpack"].append(step("unpack", packed, unpacked))
        steps["load_dense"].append(step("load", source))
        steps["load_packed"].append(step("load", packed))
    same_files = subprocess.run(["diff", "-r", source, unpacked], check=False).returncode == 0
    saved = [source.with_name(f"{name}-{which}.pt") for which in ("dense", "packed")]
    step("logits", source, saved[0])
    step("logits", packed, saved[1])
    same_tensors, same_logits = identical(*saved)
    for path in saved:
        path.unlink()
    return {
        "options": MODELS[name],
        "report": reports[-1],
        "sizes": known.get("sizes") or sizes(source),
        "entropy": known.get("entropy") or bounds(source),
        "codings_of_exponents": known.get("codings_of_exponents") or codings(source),
        "steps": steps,
        "identical": {"files": same_files, "tensors": same_tensors, "logits": same_logits},
    }


def main():
    from harness import machine

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="as script/reproduce: build/reproduce")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json", help="is completed")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", choices=MODELS, action="append")
    arguments = parser.parse_args()
    os.environ.setdefault("SPARSEFW_SERVER_PROGRAM", str(ROOT / "build/bin/sparsefw-server"))
    found = json.loads(arguments.out.read_text()) if arguments.out.exists() else {"schema": 1, "models": {}}
    found |= {"host": machine.host(), "busy_before": machine.busy_share()}
    for name in arguments.only or MODELS:
        known = found["models"].get(name, {})
        found["models"][name] = measure(arguments.folder, name, arguments.runs, known)
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")
        print(name, json.dumps(found["models"][name]), flush=True)


if __name__ == "__main__":
    main()
