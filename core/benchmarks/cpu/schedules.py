"""Which step rule reaches a loss with the least work: loss against processor time.

Usage: schedules.py [--bin DIR] [--layers A,B] [--alphas A,B] [--iterations N,N] [--out FILE]

Whole solves per-row 60 % (sparsefw-bench-solve, one thread) of synthetic layers (their size, as 1024)
and of layers in safetensors files (their path), for every step rule and number of iterations, the
best mask tried every quarter of them, with and without swaps after. Losses are shares of the warm
start's; seconds are processor time, so that another program on the machine changes little.
"""
import argparse
import datetime
import resource
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cpu import layers  # noqa: E402
from cpu.plans import PATTERNS  # noqa: E402
from harness import machine, store  # noqa: E402
from harness.places import ROOT  # noqa: E402
from harness.process import ProgramError, run_json  # noqa: E402

RULES = ("open-loop", "line-search")
AUTO_ITERATIONS = 2000  # at most: it stops by itself


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def solve(bin_folder, layer, alpha, rule, iterations, swaps):
    before = processor_seconds()
    done = run_json(bin_folder, "sparsefw-bench-solve", {
        "layer": layer, "pattern": PATTERNS["per_row"], "alpha": alpha, "threads": 1, "rule": rule,
        "iterations": iterations, "report-every": max(10, iterations // 4), "swaps": int(swaps)})
    warm = done["warm_start_loss"]
    return {"rule": rule, "iterations": done["iterations"], "swaps": swaps,
            "processor_seconds": processor_seconds() - before,
            "relaxed": done["relaxed_loss"] / warm, "best": done["final_loss"] / warm}


def copy_of(path, folder):
    """The layer of a file under the names and in the dtype that the program reads."""
    arrays = layers.read_safetensors(path)
    gram = arrays.pop("gram")
    (weight,) = arrays.values()
    out = Path(folder) / Path(path).name
    layers.write_safetensors(out, {"weight": weight.astype(np.float32), "gram": gram})
    return out


def settings(bin_folder, layer, name, options):
    for alpha in options.alphas:
        runs = []
        for swaps in (False, True):
            for rule in RULES:
                runs += [solve(bin_folder, layer, alpha, rule, count, swaps)
                         for count in options.iterations]
            runs.append(solve(bin_folder, layer, alpha, "auto", AUTO_ITERATIONS, swaps))
        for run in runs:
            print(f"{name:14} alpha {alpha:<4g} {run['rule']:12}{run['iterations']:5d} "
                  f"{'swaps' if run['swaps'] else '     '} {run['processor_seconds']:7.2f} s  "
                  f"relaxed {run['relaxed']:.5f}  best {run['best']:.5f}", flush=True)
        yield {"layer": name, "alpha": alpha, "runs": runs}


def numbers(kind):
    return lambda text: [kind(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=ROOT / "build/bin")
    parser.add_argument("--layers", type=numbers(str), default=["1024"])
    parser.add_argument("--alphas", type=numbers(float), default=[0.9, 0.5, 0.0])
    parser.add_argument("--iterations", type=numbers(int), default=[100, 200, 500, 2000])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result = {"date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
              "commit": machine.commit(ROOT), "settings": []}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.layers:
            if name.isdecimal():
                layer = Path(folder) / f"{name}.safetensors"
                layers.write_layer(layer, int(name), int(name))
            else:
                layer = copy_of(name, folder)
            for setting in settings(options.bin, layer, Path(name).stem, options):
                result["settings"].append(setting)
                if options.out:
                    store.write(options.out, result)


if __name__ == "__main__":
    try:
        main()
    except ProgramError as error:
        sys.exit(f"schedules.py: {error}")
