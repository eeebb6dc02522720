"""Tables for people."""
from gpu import goals, model_figures
from harness import tables
from harness.tables import table


def _layer(case):
    return " ".join([f"{case['rows']}x{case['cols']}", *filter(None, [case.get("layer")])])


def preset_table(results):
    """Whole solves by layer presets, on the device and on the host's CPU."""
    rows = [[_layer(case), case["pattern"], case["preset"], case["on"], f"{case['seconds']:.3g}",
             f"{case['load_seconds']:.3g}",
             f"{(case['reconstructed_loss'] or case['final_loss']) / case['full_loss']:.4%}"]
            for case in goals.select(results, measure="preset")]
    return table(["layer", "pattern", "preset", "on", "seconds", "until the first mask", "loss"],
                 rows)


def iteration_table(results):
    rows = []
    for case in goals.select(results, measure="iterations"):
        seconds, count = goals.per_iteration(case)
        if seconds is None:
            continue
        toggled = case["runs"][0][-1]["toggled_per_iteration"] / (case["rows"] * case["cols"])
        peers = [goals.against_peer(case, which) for which in ("fp32", "tf32")]
        rows.append([_layer(case), case["pattern"], f"{case['alpha']:g}",
                     case["rule"], case["precision"], f"{seconds * 1e3:.3g}", count,
                     f"{toggled:.2%}", f"{case['load_seconds'] * 1e3:.3g}",
                     *(f"{peer[0]:.1f}x" if peer else "" for peer in peers)])
    return table(["layer", "pattern", "alpha", "rule", "precision", "ms/iteration", "over",
                  "changed", "load ms", "PyTorch fp32 /", "tf32 /"], rows)


def form_table(results):
    """Where the ways to update U cross: ms an iteration beside the share that changes."""
    rows = []
    for case in goals.select(results, measure="forms"):
        seconds, count = goals.per_iteration(case)
        if seconds is None:
            continue
        toggled = case["runs"][0][-1]["toggled_per_iteration"] / (case["rows"] * case["cols"])
        rows.append([f"{case['rows']}x{case['cols']}", case["pattern"], f"{case['alpha']:g}",
                     f"{toggled:.2%}", case["form"], case["precision"], f"{seconds * 1e3:.3g}",
                     count])
    return table(["layer", "pattern", "alpha", "changed", "update", "precision", "ms/iteration",
                  "over"], rows)


def stage_table(results):
    rows = [[f"{case['rows']}x{case['cols']}", case["pattern"],
             *(f"{case[key + '_seconds'] * 1e3:.3g}"
               for key in ("round", "loss", "refine", "reconstruct")), case["swaps"],
             "yes" if case["refine_converged"] else "no"]
            for case in goals.select(results, measure="stages")]
    return table(["layer", "pattern", "round ms", "loss ms", "refine ms", "reconstruct ms",
                  "swaps", "converged"], rows)


def _spread(values, scale=1.0):
    return "  ".join(f"{value * scale:.3g}" for value in values)


def _gib(count):
    return f"{count / 2**30:.2f} GiB"


def _memory_line(memory):
    words = []
    for device, used in memory.get("reserved_bytes", {}).items():
        words.append(f"{device} {_gib(used)} reserved by jobs of "
                     f"{_gib(memory['budget_bytes'][device])}")
    words += [f"{device} {_gib(used)} used in all (NVML)"
              for device, used in memory.get("used_bytes", {}).items()]
    if "resident_bytes" in memory:
        words.append(f"server {_gib(memory['resident_bytes'])} resident, of it "
                     f"{_gib(memory.get('anonymous_bytes', 0))} not of files")
    return "  peak memory: " + (", ".join(words) or "not known")


def model_part(case):
    """One schedule of the model through a server."""
    wall, rate = model_figures.wall_seconds(case), model_figures.jobs_per_minute(case)
    blocks = f"{case['blocks']} block{'s' if case['blocks'] > 1 else ''}"
    head = (f"Model through a server, {goals.SCHEDULE_NAMES[case['schedule']]}: "
            f"{len(case['jobs'])} of {case['layers']} jobs ({blocks}), {case['slots']} at once")
    if wall:
        head += f": {wall:.3g} s from the first start to the last end, {rate:.3g} jobs a minute"
    lines = [head]
    if case["unfinished"]:
        lines.append(f"  NO TIME was left for {case['unfinished']} jobs.")
    lines.append(f"  inputs made and uploaded in {case['prepare_seconds']:.1f} s, jobs submitted "
                 f"in {case['submit_seconds']:.1f} s, neither in the time above")
    lines.append(_memory_line(case["memory"]))
    rows = [[layer, f"{one['rows']}x{one['cols']}", one["jobs"], _spread(one["run"]),
             _spread(one["solve"]), _spread(one["queue"]), _spread(one["iterations"])]
            for layer, one in model_figures.by_layer(case).items()]
    return "\n".join(lines) + "\n" + table(
        ["layer", "shape", "jobs", "seconds: median least most", "of them solving", "queued",
         "iterations"], rows, "  ")


def ceiling_lines(ceilings):
    gemm = ", ".join(f"{name} {rate / 1e12:.3g}"
                     for name, rate in ceilings["gemm_flops_per_second"].items())
    uploads = ", ".join(f"{name} {rate / 1e9:.3g}"
                        for name, rate in ceilings["upload_bytes_per_second"].items())
    return [f"Ceilings by PyTorch {ceilings['torch']} on {ceilings.get('name', 'the CPU')}:",
            f"  copy on the device {ceilings['copy_bytes_per_second'] / 1e12:.3g} TB/s "
            f"(read and written), upload {uploads} GB/s",
            f"  product of [{ceilings['size']}, {ceilings['size']}]: {gemm} TFLOP/s"]


def text(results):
    parts = []
    if not results["gpu_result"]:
        parts.append(f"NOT A GPU RESULT: measured on the backend \"{results['device']}\".")
    engine = results.get("engine") or {}
    parts.append(f"Engine: {engine.get('name', '-')}, {engine.get('description', '-')}")
    if results.get("ceilings"):
        parts.append("\n".join(ceiling_lines(results["ceilings"])))
    parts.append("PyTorch: " + (results.get("peer_skipped") or str(results.get("peer"))))
    parts += ["", tables.goal_table(results["goals"])]
    if not results.get("only_model"):
        parts += ["", iteration_table(results), "", form_table(results), "", stage_table(results), "",
                  preset_table(results)]
    for case in goals.select(results, measure="model"):
        parts += ["", model_part(case)]
    if results["left_out"]:
        parts += ["", f"Left out for lack of time: {len(results['left_out'])} cases, from "
                  f"\"{results['left_out'][0]}\" on."]
    if results["failures"]:
        parts += ["", "FAILED:", *(f"  {failure}" for failure in results["failures"])]
    return "\n".join(parts)
