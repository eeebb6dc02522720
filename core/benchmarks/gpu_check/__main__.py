"""Checks a machine with a GPU, or bundles what such a machine needs.

Usage: script/gpu-check                       a GPU here: build and run; none: bundle, and check it
       script/gpu-check bundle [FILE.tar.gz]  build and pack what runs on a bare machine
       script/gpu-check run [--out DIR] [--quick] [--no-sanitizer] [--no-peer]

Exit status: 0 everything passed, 1 something failed, 2 usage, 3 no GPU was there, nothing was
measured. docs/gpu-check.md says what each step is.
"""
import argparse
import json
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(SCRIPT), str(SCRIPT.parent / "core/benchmarks")]

from gpu_check import bundle, check, hidden, layout, machine, report  # noqa: E402
from gpu_check.layout import Problem  # noqa: E402

FAILED, NO_GPU = 1, 3


def say(message):
    print(f"gpu-check: {message}", flush=True)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="script/gpu-check", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("bundle", help="pack what runs on a bare machine")
    packing.add_argument("file", nargs="?", type=Path, default=bundle.DEFAULT)
    auto = commands.add_parser("auto", help="run where there is a GPU, else bundle")
    for command in (packing, auto):
        command.add_argument("--without-cuda", action="store_true", help=argparse.SUPPRESS)
    running = commands.add_parser("run", help="check this machine")
    for command in (running, auto):
        command.add_argument("--out", type=Path, default=layout.ROOT / "build/gpu-check-results",
                             help="folder for gpu-check.json and what else is written")
        command.add_argument("--quick", action="store_true", help="less of everything: 5 minutes")
        command.add_argument("--no-sanitizer", action="store_true",
                             help="leave out compute-sanitizer")
        command.add_argument("--no-peer", action="store_true", help="leave out PyTorch")
        # To test this script where there is no GPU: the same steps on another backend.
        command.add_argument("--device", default="cuda", help=argparse.SUPPRESS)
        command.add_argument("--plan", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def run(options, found):
    options.out = options.out.resolve()
    known = layout.manifest()
    too_old = machine.glibc_too_old(known["glibc"]) if known else None
    if too_old:
        raise Problem(too_old)
    if not (layout.bin_folder() / "sparsefw-server").exists():
        raise Problem(f"{layout.bin_folder()} has no programs; run script/build, or unpack a "
                      "bundle")
    checking = check.Check(options, found, say)
    for line in report.machine_lines(checking.machine):
        say(line)
    options.out.mkdir(parents=True, exist_ok=True)
    result = checking.run()
    path = options.out / "gpu-check.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(report.text(result), flush=True)
    say(f"wrote {path}")
    return 0 if result["passed"] else FAILED


def make_bundle(options):
    target = getattr(options, "file", bundle.DEFAULT).resolve()
    bundle.make(target, options.without_cuda, say)
    return target


def main(arguments=None):
    options = parse(arguments)
    if options.command == "bundle":
        make_bundle(options)
        return 0
    found = machine.probe() if options.device.startswith("cuda") else {}
    if "error" not in found:
        return run(options, found)
    if options.command == "auto":
        hidden.check(make_bundle(options), say)
    print(f"gpu-check: no GPU here, nothing was measured: {found['error']}", file=sys.stderr)
    return NO_GPU


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Problem as problem:
        sys.exit(f"gpu-check: {problem}")
