"""Runs the benchmarks of core and holds them against the goals.

Usage: script/bench [--quick] [--only NAME [--shape ROWSxCOLS]] [--out FILE] [--no-peer] [--no-install]
                    [--against FILE]
       script/bench --compare OLD NEW

A full run writes docs/benchmarks/DATE-cpu-Ncore.json, docs/benchmarks/cpu.png, the tables of
docs/benchmarks.md and that of docs/goals.md. --only methods writes docs/benchmarks/DATE-methods-Ncore.json,
docs/benchmarks/methods.png, the table of methods of docs/benchmarks.md and that of the presets of
docs/cli.md. --quick (small layers, under two minutes), --only of other measurements and --out
leave docs alone and write build/bench/PLAN.json (or FILE) and a plot beside it. A run of all of it that
ends early leaves unfinished-PLAN.json there. --against compares
the run with an older results file, cell by cell; --compare two files that are there, without a run.
Both end with status 1 when a cell is slower by more than noise.
"""
import argparse
import dataclasses
import datetime
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cpu import compare, goals, joint, late, measure, methods, report, schema  # noqa: E402
from cpu.plans import PLANS  # noqa: E402
from harness import machine, places, store  # noqa: E402
from harness.process import ProgramError, run  # noqa: E402

ROOT = places.ROOT
SECTIONS = ("ceilings", "iteration", "late", "gram", "time-to-loss", "memory", "joint",
            "methods")


def log(message):
    print(f"script/bench: {message}", file=sys.stderr, flush=True)


def shape(text):
    rows, cols = map(int, text.split("x"))
    return rows, cols


def plan_of(options):
    plan = PLANS[options.plan or "full"]
    if options.shape is None:
        return plan
    only = (options.shape,)
    return dataclasses.replace(plan, shapes=only, goal_shapes=only, joint_shapes=only,
                               methods_shapes=only, loss_shape=options.shape)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="script/bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", dest="plan", action="store_const", const="quick",
                        help="small layers, under two minutes")
    parser.add_argument("--plan", choices=sorted(PLANS), default="full", help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=SECTIONS, help="this measurement alone")
    parser.add_argument("--shape", type=shape, metavar="ROWSxCOLS",
                        help="this layer alone; with --only")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the JSON goes")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with this older run")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("OLD", "NEW"),
                        help="compare two runs and measure nothing")
    parser.add_argument("--no-peer", action="store_true", help="leave PyTorch out")
    parser.add_argument("--no-install", action="store_true",
                        help="use PyTorch and Matplotlib only where they are installed")
    parser.add_argument("--bin", type=Path, default=ROOT / "build/bin", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.shape is not None and options.only is None:
        parser.error("--shape must come with --only: a full run has all layers")
    return options


def unfinished(options, plan):
    """What has been measured so far, of a run of an hour that may end early."""
    return (options.out.parent if options.out else ROOT / "build/bench") / f"unfinished-{plan.name}.json"


def read_results(path):
    results = store.read(path)
    schema.check(results)
    return results


def run_sections(options, plan, peer):
    """The measured part of the results. `peer`: (python or None, why there is none)."""
    wanted = {options.only} if options.only else set(SECTIONS)
    if "iteration" in wanted:
        wanted.add("ceilings")  # the floor needs them
    python, reason = peer

    def iterations(layers):
        if reason:
            log(f"PyTorch SKIPPED: {reason}")
        keys = ("iterations", "peer", "peer_description")
        found = measure.iterations(options.bin, plan, layers, python, log)
        return {**({"peer_skipped": reason} if reason else {}), **dict(zip(keys, found))}

    parts = {
        "ceilings": lambda _: {"ceilings": measure.ceilings(options.bin, plan, log)},
        "iteration": iterations,
        "late": lambda layers: {"late": late.measure(options.bin, plan, layers, python, log)},
        "gram": lambda _: {"gram": measure.gram(options.bin, plan, log)},
        "time-to-loss": lambda layers: {
            "time_to_loss": measure.time_to_loss(options.bin, plan, layers, log)},
        "memory": lambda layers: {"memory": measure.memory(options.bin, plan, layers, log)},
        "joint": lambda layers: {"joint": joint.measure(options.bin, plan, layers, python, log)},
        "methods": lambda layers: {
            "methods": methods.measure(options.bin, plan, layers, python, log)},
    }
    results = {}
    with measure.Layers(log) as layer_files:
        for section in SECTIONS:
            if section not in wanted:
                continue
            results.update(parts[section](layer_files))
            if not options.only:
                store.write(unfinished(options, plan), results)
    return results


def find_peer(options):
    if options.only not in (None, "iteration", "late", "joint", "methods"):
        return None, "not asked for"
    if options.no_peer:
        return None, "--no-peer"
    return places.find_python("torch", log, install=not options.no_install)


def draw(results_path, picture, install, program="plot.py"):
    """A plot, by a Python that can; says so when there is none."""
    python, reason = places.find_python("matplotlib", log, install)
    if python is None:
        log(f"plot SKIPPED: {reason}")
        return
    try:
        run([python, Path(__file__).resolve().parent / program, results_path, picture], 300)
        log(f"wrote {picture}")
    except ProgramError as error:
        log(f"plot FAILED: {str(error).splitlines()[-1]}")


def measure_all(options, plan):
    started = datetime.datetime.now(datetime.timezone.utc)
    begin = time.monotonic()
    results = {"schema": schema.VERSION, "date": started.date().isoformat(),
               "commit": machine.commit(ROOT), "plan": plan.name,
               "machine": machine.describe(options.bin.parent)}
    results.update(run_sections(options, plan, find_peer(options)))
    results["machine"]["busy_at_end"] = round(machine.busy_share(), 3)
    results["seconds"] = round(time.monotonic() - begin)
    results["goals"] = goals.all_goals(results, plan.goal_shapes)
    schema.check(results)
    return results


def write_page(page, paste, *what):
    path = ROOT / page
    path.write_text(paste(path.read_text(encoding="utf-8"), *what), encoding="utf-8")
    log(f"wrote the table of {path}")


def keep(options, plan, results):
    """Writes the JSON, prints the tables; a full run also goes into the documentation."""
    full = plan.name == "full" and options.out is None
    if full and options.only == "methods":
        return keep_methods(options, results)
    kept = full and options.only is None
    name = f"{results['date']}-cpu-{machine.cores()}core.json"
    out = (ROOT / "docs/benchmarks" / name if kept
           else options.out or ROOT / f"build/bench/{plan.name}.json")
    picture = ROOT / "docs/benchmarks/cpu.png" if kept else out.with_suffix(".png")
    store.write(out, results)
    if not options.only:
        unfinished(options, plan).unlink(missing_ok=True)
    print(report.text(results), flush=True)
    log(f"wrote {out} after {results['seconds']} s")
    draw(out, picture, install=not options.no_install and not options.no_peer)
    if kept:
        link = f"[{name}](benchmarks/{name})"
        picture_too = f"{link}\n\n![one iteration: engine, PyTorch and floor](benchmarks/cpu.png)"
        write_page("docs/benchmarks.md", report.paste, results, picture_too)
        write_page("docs/goals.md", report.paste_goals, results, link)


def keep_methods(options, results):
    name = f"{results['date']}-methods-{machine.cores()}core.json"
    out = ROOT / "docs/benchmarks" / name
    store.write(out, results)
    print(report.text(results), flush=True)
    draw(out, ROOT / "docs/benchmarks/methods.png",
         install=not options.no_install and not options.no_peer, program="methods_plot.py")
    links = (f"[{name}](benchmarks/{name})\n\n"
             "![loss against seconds, every method](benchmarks/methods.png)")
    section = "\n\n".join((links, report.heading(results), report.methods_text(results)))
    write_page("docs/benchmarks.md", report.between, "methods", section)
    write_page("docs/cli.md", report.between, "presets", methods.preset_table(results))


def leave_blas_alone():
    """What the environment tells OpenBLAS holds for the engine alone: the peer has another BLAS."""
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        if value := os.environ.pop(name, None):
            log(f"{name}={value} of the environment is left out: OpenBLAS chooses for itself")


def main(arguments=None):
    options = parse(arguments)
    leave_blas_alone()
    if options.compare:
        words, slower = compare.text(*map(read_results, options.compare))
        print(words)
        return 1 if slower else 0
    older = read_results(options.against) if options.against else None  # before the long run
    plan = plan_of(options)
    results = measure_all(options, plan)
    keep(options, plan, results)
    if older is None:
        return 0
    words, slower = compare.text(older, results)
    print(f"\n{words}")
    return 1 if slower else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ProgramError, store.SchemaError, OSError) as error:
        sys.exit(f"script/bench: {error}")
