"""Checks a machine with a GPU, or bundles what a checkout on such a machine lacks.

Usage: script/gpu-check                       a GPU here: build and run; none: bundle, and check it
       script/gpu-check bundle [FILE.tar.xz]  build and pack what runs on a bare machine
       script/gpu-check run [--only PART,...] [--out DIR] [--quick] [--no-sanitizer] [--no-peer]
       script/gpu-check run --list            the parts, and what each of them does

Exit status: 0 everything passed, 1 something failed, 2 usage, 3 no GPU was there, nothing was
measured. docs/gpu-check.md says what each part is.
"""
import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpu_check import bundle, hidden, layout, parts, runner  # noqa: E402
from gpu_check.layout import Problem  # noqa: E402
from harness import machine, places  # noqa: E402
from harness.process import ProgramError, run  # noqa: E402

FAILED, NO_GPU = 1, 3
PROBE_SECONDS = 30


def say(message):
    print(f"gpu-check: {message}", flush=True)


def _names(text):
    names = [name for name in text.split(",") if name]
    unknown = [name for name in names if name not in parts.BY_NAME]
    if unknown or not names:
        raise argparse.ArgumentTypeError(f"must be of {', '.join(parts.BY_NAME)}; got \"{text}\"")
    return [name for name in parts.BY_NAME if name in names]


def _add_run_options(command):
    command.add_argument("--only", type=_names, default=list(parts.BY_NAME), metavar="PART,...",
                         help=f"of {', '.join(parts.BY_NAME)}")
    command.add_argument("--list", action="store_true", help="print the parts and end")
    command.add_argument("--quick", action="store_true", help="less of everything: 6 minutes")
    command.add_argument("--no-sanitizer", action="store_true", help="leave out compute-sanitizer")
    # To test the check itself: other limits; everything but smoke also on another backend.
    command.add_argument("--scale", type=float, default=1.0, help=argparse.SUPPRESS)
    command.add_argument("--total", type=float, default=runner.TOTAL_SECONDS,
                         help=argparse.SUPPRESS)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="script/gpu-check", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("bundle", help="pack what runs on a bare machine")
    packing.add_argument("file", nargs="?", type=Path, default=layout.ARCHIVE)
    auto = commands.add_parser("auto", help="run where there is a GPU, else bundle")
    for command in (packing, auto):
        command.add_argument("--without-cuda", action="store_true", help=argparse.SUPPRESS)
    running = commands.add_parser("run", help="check this machine")
    part = commands.add_parser("part")  # of a run, in its process
    part.add_argument("name", choices=parts.BY_NAME)
    part.add_argument("--seconds", type=float, required=True)
    for command in (running, auto):
        _add_run_options(command)
    for command in (running, auto, part):
        command.add_argument("--out", type=Path, default=layout.ROOT / "build/gpu-check-results",
                             help="folder for gpu-check.json and what else is written")
        command.add_argument("--no-peer", action="store_true", help="leave out PyTorch")
        command.add_argument("--device", default="cuda", help=argparse.SUPPRESS)
        command.add_argument("--plan", help=argparse.SUPPRESS)
        command.add_argument("--bin", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def no_gpu(options):
    """None where there is one: the driver says so, or a program finds it; else why not."""
    if not options.device.startswith("cuda") or machine.line_of(["nvidia-smi", "-L"]):
        return None
    reason = "no program can be started"
    for command in (["sparsefw-bench-smoke", "--part", "device"],
                    ["sparsefw-bench-device", "--device", options.device]):
        try:
            run([options.bin / command[0], *command[1:]], PROBE_SECONDS,
                places.programs_environment())
            return None
        except ProgramError as error:
            reason = str(error)
    return reason


def run_checks(options):
    options.out, options.bin = options.out.resolve(), options.bin.resolve()
    options.plan = options.plan or ("quick" if options.quick else "check")
    known = layout.manifest()
    too_old = machine.glibc_too_old(known["glibc"]) if known else None
    if too_old:
        raise Problem(too_old)
    if not options.bin.is_dir():
        raise Problem(f"{options.bin} has no programs; run script/build, or put a bundle at "
                      f"{layout.ARCHIVE}")
    options.out.mkdir(parents=True, exist_ok=True)
    return 0 if runner.Runner(options, say).run() else FAILED


def make_bundle(options):
    target = getattr(options, "file", layout.ARCHIVE).resolve()
    bundle.make(target, options.without_cuda, say)
    return target


def main(arguments=None):
    options = parse(arguments)
    if options.command == "bundle":
        make_bundle(options)
        return 0
    if options.command != "part" and not options.list:
        layout.unpack_where_nothing_was_built()
    options.bin = options.bin or layout.home() / "bin"
    if options.command == "part":
        parts.run_part(options.name, parts.Context(
            bin=options.bin, device=options.device, out=options.out, plan=options.plan,
            peer=not options.no_peer, seconds=options.seconds))
        return 0
    if options.list:
        for part in parts.PARTS:
            print(f"{part.name:<11} {part.seconds:>3} s  {part.what}")
        return 0
    reason = no_gpu(options)
    if reason is None:
        return run_checks(options)
    if options.command == "auto":
        hidden.check(make_bundle(options), say)
    print(f"gpu-check: no GPU here, nothing was measured: {' '.join(reason.split())}",
          file=sys.stderr)
    return NO_GPU


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Problem, ProgramError) as problem:
        sys.exit(f"gpu-check: {problem}")
