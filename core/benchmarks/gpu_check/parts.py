"""The parts of a check. Each runs as a process of its own (run_part), and says what it finds line
by line on standard output:

    {"begin": ITEM}                                    what it is about to do
    {"item": ITEM, "ok": true, "detail": TEXT, ...}    what came of it; "ok" null: skipped
    {"files": {NAME: FILE}}                            what it has written
"""
import csv
import json
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpu_check import gtests, layout, service
from harness import places
from harness.process import ProgramError, TimedOut, json_lines, run

SMOKE_SHARE = 0.3  # of the time, for one of its parts at most
END_SECONDS = 5  # what a part needs to write down what it has
NCU_TIME = "gpu__time_duration.sum"
NCU_METRICS = (f"{NCU_TIME},dram__throughput.avg.pct_of_peak_sustained_elapsed,"
               "sm__throughput.avg.pct_of_peak_sustained_elapsed,launch__registers_per_thread,"
               "sm__warps_active.avg.pct_of_peak_sustained_active")
NCU_LAUNCHES = 1  # of a kernel that the program times; ncu itself repeats each
# The kernels that the time of an iteration is spent in, by the part of the smoke program that
# launches them.
NCU_KERNELS = {
    "iteration-unstructured:0.6": ("VertexUpdateKernel", "ToggleKernel", "PrunedKernel",
                                   "RowLossKernel", "WindowKernel", "DigitKernel", "MarkKernel"),
    "iteration-2:4": ("GroupKernel",),
}


@dataclass
class Context:
    """What every part is given."""
    bin: Path
    device: str
    out: Path
    plan: str
    peer: bool
    seconds: float

    @property
    def on_cuda(self):
        return self.device.startswith("cuda")


def emit(**line):
    print(json.dumps(line), flush=True)


def item(name, ok, detail="", **facts):
    emit(item=name, ok=ok, detail=detail, **({"facts": facts} if facts else {}))


def _relay(prefix, command, seconds):
    """The lines of a program that speaks as a part does. What ends it is one more item."""
    doing = "start"
    try:
        # Where the part is killed, the check ends what is left of its session: a program that hangs
        # would keep the device.
        for line in json_lines(command, seconds, places.programs_environment(), leads_session=False):
            doing = line.get("begin", doing)
            if "item" in line:
                doing = line["item"]
                emit(**{**line, "item": f"{prefix}: {doing}"})
            elif "begin" in line:
                emit(begin=f"{prefix}: {doing}")
            else:
                emit(**line)
    except ProgramError as error:
        # A status of 1 after an item that failed says nothing new.
        if "status 1: no message" not in str(error):
            item(f"{prefix}: {doing}", False, str(error))


def smoke(context):
    """The time of each kernel of an iteration (unstructured and 2:4), of prune, refine and joint at
    the goal's size, and whether iterations can be captured."""
    program, limit = context.bin / "sparsefw-bench-smoke", SMOKE_SHARE * context.seconds
    try:
        names = run([program, "--list", "1"], limit, places.programs_environment()).out
    except ProgramError as error:
        item("sparsefw-bench-smoke", False, str(error))
        return
    size = ["--rows", 24, "--cols", 96, "--launches", 1] if context.plan == "smoke" else []
    for name in names.split():
        emit(begin=name)
        _relay(name, [program, "--part", name, *size], limit)


def _benchmarks(context, part):
    out = context.out / f"benchmarks-{part}.json"
    out.unlink(missing_ok=True)
    command = [sys.executable, layout.ROOT / "core/benchmarks/gpu", "--plan", context.plan,
               "--part", part, "--device", context.device, "--out", out, "--bin", context.bin,
               "--seconds", max(2, context.seconds - END_SECONDS),
               *([] if context.peer else ["--no-peer"])]
    emit(begin=f"benchmarks, {part}")
    emit(files={part: str(out)})  # it is written case by case
    try:
        done = run(command, context.seconds - 1, check=False)
    except TimedOut as error:
        item(f"benchmarks, {part}", False, str(error))
        return
    if not out.exists():
        item(f"benchmarks, {part}", False, f"no figures: {done.err.strip()[-1000:]}")
        return
    results = json.loads(out.read_text(encoding="utf-8"))
    (context.out / f"benchmarks-{part}.txt").write_text(done.out, encoding="utf-8")
    for failure in results["failures"]:
        item(f"benchmarks, {part}", False, failure)
    if results["peer_skipped"] and context.peer:
        item("PyTorch", False, f"{results['peer_skipped']}; install it, name its Python in "
             "SPARSEFW_BENCH_PYTHON, or leave it out by --no-peer")
    if done.code not in (0, 1):
        item(f"benchmarks, {part}", False, f"status {done.code}: {done.err.strip()[-1000:]}")
    met = [goal["met"] for goal in results["goals"] if goal["met"] is not None]
    left = f", {len(results['left_out'])} left out for time" if results["left_out"] else ""
    item(f"cases, {part}", bool(results["cases"]),
         f"{len(results['cases'])} cases, {sum(met)} of {len(met)} goals met{left}")


def profiled(said, kernels):
    """{kernel: (launches, their mean time in words)} of what ncu --csv prints, which has lines of
    the program in it, a row of names, a row of units, then a row for every launch."""
    rows = list(csv.reader(line for line in said.splitlines() if line.startswith('"')))
    while rows and "Kernel Name" not in rows[0]:
        rows.pop(0)
    header, *launches = rows or [[]]
    launches = [dict(zip(header, row)) for row in launches if len(row) == len(header)]
    unit = next((row.get(NCU_TIME, "") for row in launches if not row["Kernel Name"]), "")
    found = {}
    for kernel in kernels:
        mine = [row for row in launches if re.search(rf"\b{kernel}\b", row["Kernel Name"])]
        times = [float(row[NCU_TIME].replace(",", "")) for row in mine if row.get(NCU_TIME)]
        mean = f", {sum(times) / len(times):.4g} {unit} each" if times else ""
        found[kernel] = len(mine), mean
    return found


def profile(context):
    """Nsight Compute on the kernels that matter, clocks as they are."""
    if not context.on_cuda:
        item("ncu", None, "no GPU is used")
        return
    ncu = places.find_tool("ncu")
    if ncu is None:
        item("ncu", False, "ncu is neither on the PATH nor in /usr/local/cuda; leave this out by "
             "--only, or install it")
        return
    size = 4096 if context.plan != "smoke" else 96
    end = time.monotonic() + context.seconds - 1
    for number, (part, kernels) in enumerate(NCU_KERNELS.items()):
        report = context.out / f"ncu-{part.replace(':', '-')}.csv"
        command = [ncu, "--clock-control", "none", "--csv", "--page", "raw", "--metrics",
                   NCU_METRICS, "--kernel-name", "regex:" + "|".join(kernels),
                   "--target-processes", "all", context.bin / "sparsefw-bench-smoke", "--part",
                   part, "--launches", NCU_LAUNCHES, "--rows", size, "--cols", size]
        emit(begin=f"ncu {part}")
        limit = (end - time.monotonic()) / (len(NCU_KERNELS) - number)
        said, failure = "", None
        try:
            said = run(command, limit, places.programs_environment()).out
        except ProgramError as error:
            said = getattr(error, "said", "") or str(error)
            failure = f"{str(error)[:300]} {said[-500:]}"
        report.write_text(said, encoding="utf-8")
        emit(files={report.stem: str(report)})
        if failure:
            item(f"ncu {part}", False, failure)
        # A run that was cut off counts, too: what is there is worth having.
        for kernel, (launches, mean) in profiled(said, kernels).items():
            item(kernel, launches > 0, f"{launches} launches profiled{mean}")


def tests(context):
    environment = places.programs_environment(
        **({"SPARSEFW_REQUIRE_GPU": "1"} if context.on_cuda else {}))
    found = gtests.Tests(layout.home(), layout.gpu_tests(), context.device.split(":")[0],
                         environment)
    found.run_all(context.seconds - END_SECONDS, gtests.workers(), item)


def sanitizer(tool):
    def part(context):
        if not context.on_cuda:
            item(tool, None, "no GPU is used")
            return
        program = places.find_tool("compute-sanitizer")
        if program is None:
            item(tool, False, "compute-sanitizer is neither on the PATH nor in /usr/local/cuda; "
                 "install it, or leave this out by --no-sanitizer")
            return
        found = gtests.Tests(layout.home(), layout.gpu_tests(), "cuda",
                             places.programs_environment())
        found.sanitize(program, tool, context.seconds - END_SECONDS, item)
    return part


def served(context):
    service.run(context.bin, layout.ROOT / layout.FIXTURE, context.device,
                context.seconds - END_SECONDS, item)


@dataclass(frozen=True)
class Part:
    name: str
    seconds: int  # at most
    quick_seconds: int
    work: Callable
    what: str


PARTS = (
    Part("smoke", 60, 60, smoke, "the times of kernels: an iteration (unstructured, 2:4), its "
         "capture, prune, refine, joint"),
    Part("goal", 80, 60, lambda context: _benchmarks(context, "goal"),
         "the goal's shape and the ways to update U in three precisions, beside PyTorch"),
    Part("ncu", 40, 30, profile, "Nsight Compute on the kernels that iterations are spent in"),
    Part("tests", 90, 60, tests, "the tests of the label gpu; what failed again, alone"),
    Part("memcheck", 40, 20, sanitizer("memcheck"), "compute-sanitizer on small cases"),
    Part("racecheck", 40, 20, sanitizer("racecheck"), "the same for races in shared memory"),
    Part("synccheck", 25, 15, sanitizer("synccheck"), "the same for barriers"),
    Part("service", 40, 40, served, "layers through a server and the command line"),
    Part("benchmarks", 125, 45, lambda context: _benchmarks(context, "rest"),
         "the other benchmarks, as many as there is time for"),
)
BY_NAME = {part.name: part for part in PARTS}


def run_part(name, context):
    """In the process of the part. Nothing that goes wrong here goes unnamed."""
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    try:
        BY_NAME[name].work(context)
    except Exception as error:  # a bug of the check must be an item like any other
        item(name, False, f"{type(error).__name__}: {error}")
    emit(end=name)
