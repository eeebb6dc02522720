"""The relaxed loss of the engine against the reference engine's (dense, float64), by iteration.

Usage: accuracy.py [--bin DIR] [--rows N] [--cols N] [--iterations N] [--patterns A,B] [--out FILE]

Open-loop steps on the layer of the benchmarks, three patterns, alpha 0.9 and 0. Prints one line a
setting and writes JSON. The reference needs one dense float64 product an iteration: at 1024x1024
and 2000 iterations a minute or two a setting, at 2048x2048 eight times that. Where groups lie
within rows, fewer rows (of 2^20 weights and more, below which the engine iterates in float64) show
the same for less.
"""
import argparse
import datetime
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cpu import layers  # noqa: E402
from cpu.plans import ALPHAS, PATTERNS  # noqa: E402
from harness import machine, store  # noqa: E402
from harness.places import ROOT  # noqa: E402
from harness.process import ProgramError, timed_iterations  # noqa: E402

MARKS = (10, 50, 100, 200, 500, 1000)
LIMIT_SECONDS = 86400  # none: every iteration is run


def losses(bin_folder, layer, pattern, alpha, iterations, device):
    (run,) = timed_iterations(bin_folder, layer, os.cpu_count(), {
        "pattern": pattern, "alpha": alpha, "iterations": iterations, "seconds": LIMIT_SECONDS,
        "marks": MARKS}, device)
    return {mark["iterations"]: mark["relaxed_loss"] for mark in run}


def compare(bin_folder, layer, iterations, patterns):
    """One setting after the other, as they are done: they take minutes each."""
    for name in patterns:
        pattern = PATTERNS[name]
        for alpha in ALPHAS:
            expected = losses(bin_folder, layer, pattern, alpha, iterations, "reference")
            actual = losses(bin_folder, layer, pattern, alpha, iterations, "cpu")
            relative = {mark: abs(actual[mark] - loss) / loss for mark, loss in expected.items()}
            print(f"{name:13} alpha {alpha:<4g}" +
                  "".join(f"  {mark}: {value:.1e}" for mark, value in relative.items()), flush=True)
            yield {"pattern": name, "alpha": alpha, "reference": expected, "cpu": actual,
                   "relative_difference": relative}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=ROOT / "build/bin")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--cols", type=int, default=1024)
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--patterns", type=lambda text: text.split(","), default=list(PATTERNS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not set(options.patterns) <= set(PATTERNS):
        parser.error(f"--patterns must be of {', '.join(PATTERNS)}; got "
                     f"{','.join(options.patterns)}")
    result = {"date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
              "commit": machine.commit(ROOT), "rows": options.rows, "cols": options.cols,
              "iterations": options.iterations, "settings": []}
    with tempfile.TemporaryDirectory() as folder:
        layer = Path(folder) / "layer.safetensors"
        layers.write_layer(layer, options.rows, options.cols)
        for setting in compare(options.bin, layer, options.iterations, options.patterns):
            result["settings"].append(setting)
            if options.out:
                store.write(options.out, result)


if __name__ == "__main__":
    try:
        main()
    except ProgramError as error:
        sys.exit(f"accuracy.py: {error}")
