"""Runs the benchmarks of core and holds them against the goals.

Usage: script/bench [--quick] [--only NAME] [--out FILE] [--no-peer] [--no-install]

A full run writes docs/benchmarks/DATE-cpu-Ncore.json, docs/benchmarks/cpu.png and the table of
docs/benchmarks.md. --quick (small layers, under two minutes), --only and --out leave docs alone
and write build/bench/PLAN.json (or FILE) and a plot beside it.
"""
import argparse
import datetime
import json
import subprocess
import sys
from pathlib import Path

SUITE = Path(__file__).resolve().parent
sys.path.insert(0, str(SUITE))

import goals  # noqa: E402
import machine  # noqa: E402
import measure  # noqa: E402
import peer_python  # noqa: E402
import programs  # noqa: E402
import report  # noqa: E402
import schema  # noqa: E402
from plans import PLANS  # noqa: E402

ROOT = SUITE.parents[2]
SECTIONS = ("ceilings", "iteration", "gram", "time-to-loss", "memory")


def log(message):
    print(f"script/bench: {message}", file=sys.stderr, flush=True)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="script/bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", dest="plan", action="store_const", const="quick",
                        help="small layers, under two minutes")
    parser.add_argument("--plan", choices=sorted(PLANS), default="full", help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=SECTIONS, help="this measurement alone")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the JSON goes")
    parser.add_argument("--no-peer", action="store_true", help="leave PyTorch out")
    parser.add_argument("--no-install", action="store_true",
                        help="use PyTorch and Matplotlib only where they are installed")
    parser.add_argument("--bin", type=Path, default=ROOT / "build/bin", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def run_sections(options, plan, peer):
    """The measured part of the results. `peer`: (python or None, why there is none)."""
    wanted = {options.only} if options.only else set(SECTIONS)
    if "iteration" in wanted:
        wanted.add("ceilings")  # the floor needs them
    results = {}
    with measure.Layers(log) as layer_files:
        if "ceilings" in wanted:
            results["ceilings"] = measure.ceilings(options.bin, plan, log)
        if "iteration" in wanted:
            python, reason = peer
            if reason:
                log(f"PyTorch SKIPPED: {reason}")
                results["peer_skipped"] = reason
            results["iterations"], results["peer"], results["peer_description"] = (
                measure.iterations(options.bin, plan, layer_files, python, log))
        if "gram" in wanted:
            results["gram"] = measure.gram(options.bin, plan, log)
        if "time-to-loss" in wanted:
            results["time_to_loss"] = measure.time_to_loss(options.bin, plan, layer_files, log)
        if "memory" in wanted:
            results["memory"] = measure.memory(options.bin, plan, layer_files, log)
    return results


def find_peer(options):
    if options.no_peer:
        return None, "--no-peer"
    return peer_python.find(ROOT, "torch", not options.no_install, log)


def draw(results_path, picture, install):
    """The plot, by a Python that can; says so when there is none."""
    python, reason = peer_python.find(ROOT, "matplotlib", install, log)
    if python is None:
        log(f"plot SKIPPED: {reason}")
        return
    done = subprocess.run([str(python), str(SUITE / "plot.py"), str(results_path), str(picture)],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        log(f"plot FAILED: {done.stderr.strip().splitlines()[-1]}")
    else:
        log(f"wrote {picture}")


def main(arguments=None):
    options = parse(arguments)
    plan = PLANS[options.plan or "full"]
    started = datetime.datetime.now(datetime.timezone.utc)
    needs_peer = options.only in (None, "iteration")
    peer = find_peer(options) if needs_peer else (None, "not asked for")
    results = {"schema": schema.VERSION, "date": started.date().isoformat(),
               "commit": machine.commit(ROOT), "plan": plan.name,
               "machine": machine.describe(options.bin.parent)}
    results.update(run_sections(options, plan, peer))
    results["machine"]["busy_at_end"] = round(machine.busy_share(), 3)
    results["seconds"] = round(
        (datetime.datetime.now(datetime.timezone.utc) - started).total_seconds())
    results["goals"] = goals.all_goals(results, plan.goal_shapes)
    schema.check(results)

    kept = plan.name == "full" and options.only is None and options.out is None
    name = f"{results['date']}-cpu-{machine.cores()}core.json"
    out = (ROOT / "docs/benchmarks" / name if kept
           else options.out or ROOT / f"build/bench/{plan.name}.json")
    picture = ROOT / "docs/benchmarks/cpu.png" if kept else out.with_suffix(".png")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(report.text(results), flush=True)
    log(f"wrote {out} after {results['seconds']} s")
    draw(out, picture, install=not options.no_install and not options.no_peer)
    if kept:
        page = ROOT / "docs/benchmarks.md"
        links = f"[{name}](benchmarks/{name})\n\n![engine, PyTorch and floor; the goals](benchmarks/cpu.png)"
        page.write_text(report.paste(page.read_text(encoding="utf-8"), results, links),
                        encoding="utf-8")
        log(f"wrote the table of {page}")


if __name__ == "__main__":
    try:
        main()
    except programs.ProgramError as error:
        sys.exit(f"script/bench: {error}")
