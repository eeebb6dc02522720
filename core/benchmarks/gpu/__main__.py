"""Measures the engine of a GPU beside PyTorch on the same card.

Usage: script/bench-gpu [--list] [--plan full|check|quick] [--out FILE] [--no-peer] [--seconds N]
       script/bench-gpu --model [--streams N] [--seconds N] [--out FILE]

--list prints what would be measured; it needs no GPU. --model measures nothing but the 224 layers
of the model, as jobs of a sparsefw-server, several at once, on both schedules; without it a plan
takes a few of them.
Exit status: 0 measured, 1 something failed or is wrong, 2 usage, 3 there is no such device. A goal
that is not met is not a failure: the goals are those of one H200.
"""
import argparse
import datetime
import platform
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpu import cases, goals, report  # noqa: E402
from gpu.measure import Bench, OutOfTime  # noqa: E402
from harness import places, store  # noqa: E402
from harness.process import LineProgram, ProgramError  # noqa: E402

SCHEMA = 1
NO_DEVICE = 3


def log(message):
    print(f"bench-gpu: {message}", file=sys.stderr, flush=True)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="script/bench-gpu", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the cases and end")
    parser.add_argument("--plan", choices=sorted(cases.PLANS), default="full")
    parser.add_argument("--quick", dest="plan", action="store_const", const="quick",
                        help="small layers, about a minute")
    parser.add_argument("--model", action="store_true",
                        help="nothing but the model's 224 layers through a server")
    parser.add_argument("--streams", type=int, default=cases.STREAMS, metavar="N",
                        help="of the model: jobs at once on every device (%(default)s)")
    parser.add_argument("--part", choices=("goal", "rest"),
                        help="the goal's shape and the ways to update U alone, or the others")
    parser.add_argument("--out", type=Path, default=places.ROOT / "build/bench/gpu.json",
                        metavar="FILE", help="where the JSON goes")
    parser.add_argument("--no-peer", action="store_true", help="leave PyTorch out")
    parser.add_argument("--seconds", type=float, default=3600, help="what does not fit is left out")
    parser.add_argument("--device", default="cuda", help="a backend, or a device such as cuda:1")
    parser.add_argument("--bin", type=Path, default=places.programs_folder(),
                        help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not 1 <= options.streams <= 64:
        parser.error("--streams must be from 1 to 64")
    return options


def cases_of(options):
    plan = cases.PLANS[options.plan]
    if options.model:
        return cases.model_cases(plan, True, options.streams)
    return cases.part_of(cases.all_cases(plan, options.streams), options.part)


def describe_device(options):
    """What the backend says that it is. Raises ProgramError where there is none."""
    program = LineProgram([options.bin / "sparsefw-bench-device", "--device", options.device], 60,
                          places.programs_environment())
    program.close()
    return program.description


def find_peer(options):
    if options.no_peer:
        return None, "--no-peer"
    python, reason = places.find_python("torch", log, cuda=options.device.startswith("cuda"))
    if reason:
        log(f"PyTorch SKIPPED: {reason}")
    return python, reason


def measure(options, plan, python, seconds, known):
    """known(results): called whenever a case is done."""
    results = {"cases": [], "left_out": []}
    to_do = cases_of(options)
    with Bench(options.bin, options.device, seconds, log, python) as bench:
        try:
            if python and not options.model:
                results["ceilings"] = bench.ceilings(plan)
        except OutOfTime:
            pass  # then there is none for a case, too
        except ProgramError as error:
            results["cases"].append({"measure": "ceilings", "error": str(error)})
        try:
            while to_do:
                results["cases"].append(bench.case(plan, *to_do[0]))
                to_do.pop(0)
                known(results)
        except OutOfTime:
            log(f"the time is over; {len(to_do)} cases are left out")
        results["part"] = options.part
        results["left_out"] = [cases.describe(*case) for case in to_do]
        results["engine"], results["peer"] = bench.engine, bench.peer
    return results


def main(arguments=None):
    begin = time.monotonic()
    options = parse(arguments)
    plan = cases.PLANS[options.plan]
    if options.list:
        for case in cases_of(options):
            print(cases.describe(*case))
        return 0
    try:
        engine = describe_device(options)
    except (ProgramError, OSError) as error:
        log(error)
        return NO_DEVICE
    python, skipped = (None, "left out by --model") if options.model else find_peer(options)
    on_gpu = engine["backend"] == "cuda" and "emulated" not in engine["description"]
    results = {"schema": SCHEMA, "gpu_result": on_gpu,
               "device": options.device, "plan": plan.name,
               "only_model": options.model,
               "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
               "system": platform.platform(), "peer_skipped": skipped}

    def known(found):
        """Writes what there is so far: a run that is cut short has measured all of it."""
        results.update(found)
        results["engine"] = results.get("engine") or engine
        results["seconds"] = round(time.monotonic() - begin, 1)
        results["goals"] = goals.all_goals(results, plan)
        if not results["gpu_result"]:  # figures, but none that a GPU's goals are about
            results["goals"] = [{**goal, "met": None} for goal in results["goals"]]
        results["failures"] = goals.failures(results)
        store.write(options.out, results)

    known(measure(options, plan, python, options.seconds - (time.monotonic() - begin), known))
    print(report.text(results), flush=True)
    log(f"wrote {options.out} after {results['seconds']} s")
    return 1 if results["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
