"""Two results files of script/bench, cell by cell: what became slower by more than noise."""
from cpu import goals
from harness.tables import table

NOISE = goals.NOISE
DISTURBED = 0.1  # of all cores in use by others


def _ratio_of_cells(old, new):
    """(old, new seconds of an iteration) over the longest range of iterations that both ran."""
    common = goals.marks_of(old) & goals.marks_of(new)
    if not common:
        return None
    count = max(common)
    return tuple(goals.at_mark(cell, count)["seconds"] / count for cell in (old, new))


def _spread(cell):
    """The largest over the least time of the repetitions to their last mark: noise of its own."""
    last = goals.last_mark(cell)
    found = [mark["seconds"] for run in cell["runs"] for mark in run if mark["iterations"] == last]
    return max(found) / min(found) if len(found) > 1 else 1.0


def _iterations(old, new):
    for cell in new.get("iterations", []):
        keys = {key: cell[key] for key in ("rows", "cols", "pattern", "alpha", "threads")}
        before = goals.find(old.get("iterations"), **keys)
        times = before and _ratio_of_cells(before, cell)
        if times:
            where = (f"{cell['rows']}x{cell['cols']} {cell['pattern']} alpha {cell['alpha']:g} "
                     f"threads {cell['threads']}")
            yield "iteration", where, *times, max(NOISE, _spread(before), _spread(cell))


def _others(old, new):
    for cell in new.get("gram", []):
        keys = {key: cell[key] for key in ("cols", "tokens", "threads")}
        before = goals.find(old.get("gram"), **keys)
        for dtype in ("f32", "bf16", "f16") if before else ():
            yield ("Gram sum", f"{dtype} {cell['tokens']}x{cell['cols']} threads {cell['threads']}",
                   before[f"{dtype}_seconds"], cell[f"{dtype}_seconds"], NOISE)
    for cell in new.get("time_to_loss", []):
        keys = {key: cell[key] for key in ("rows", "cols", "pattern", "threads")}
        before = goals.find(old.get("time_to_loss"), **keys)
        for name in ("paper", "fast", "fast_without_swaps") if before else ():
            if "seconds" in before[name] and "seconds" in cell[name]:
                yield (f"solve, {name}", f"{cell['rows']}x{cell['cols']} {cell['pattern']}",
                       before[name]["seconds"], cell[name]["seconds"], NOISE)
    for cell in new.get("memory", []):
        keys = {key: cell[key] for key in ("rows", "cols", "swaps")}
        before = goals.find(old.get("memory"), **keys)
        if before and "peak_resident_bytes" in before and "peak_resident_bytes" in cell:
            peaks = [one["peak_resident_bytes"] - one["resident_before_bytes"]
                     for one in (before, cell)]
            yield ("peak memory", f"{cell['rows']}x{cell['cols']} swaps {cell['swaps']}",
                   *map(float, peaks), NOISE)


def cells(old, new):
    """[{what, where, old, new, ratio, noise, slower}]: ratio above 1: the new one is slower."""
    return [{"what": what, "where": where, "old": before, "new": after,
             "ratio": after / before, "noise": noise, "slower": after > before * noise}
            for what, where, before, after, noise in (*_iterations(old, new), *_others(old, new))
            if before > 0]


def _value(what, value):
    return f"{value / 2**20:.1f} MiB" if what == "peak memory" else f"{value * 1e3:.4g} ms"


def text(old, new):
    """(what is printed, how many cells are slower)."""
    found = cells(old, new)
    slower = [cell for cell in found if cell["slower"]]
    rows = [[cell["what"], cell["where"], _value(cell["what"], cell["old"]),
             _value(cell["what"], cell["new"]), f"{cell['ratio']:.3f}", f"{cell['noise']:.2f}",
             "SLOWER" if cell["slower"] else "faster" if cell["ratio"] * cell["noise"] < 1 else ""]
            for cell in found]
    lines = [f"{old['date']} {old['commit']} against {new['date']} {new['commit']}", "",
             table(["what", "where", "old", "new", "new/old", "noise", ""], rows), "",
             f"{len(slower)} of {len(found)} cells are slower by more than noise"]
    if old["machine"]["processor"] != new["machine"]["processor"]:
        lines.append("The two were measured on different processors.")
    for name, results in (("old", old), ("new", new)):
        busy = max(results["machine"]["busy_at_start"], results["machine"].get("busy_at_end", 0))
        if busy > DISTURBED:
            lines.append(f"The {name} run was disturbed: other work used {busy:.0%} of the cores.")
    return "\n".join(lines), len(slower)
