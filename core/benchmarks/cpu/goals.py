"""From measurements to goals: pure arithmetic, no clock, no files.

A goal is what harness.tables.goal makes.
"""
from statistics import median

from cpu import joint, late
from harness import tables

GOAL_ALPHA = 0.9
NOISE = 1.05  # "not slower" allows what two runs of the same thing differ by
PEER_SPEEDUP = 30
PEER_LOSS_DIFFERENCE = 1e-4
FLOOR_FACTOR = 2.5
ROW_FLOOR_FACTOR = 1.5
SCALING = 1.8
LOSS_SPEEDUP = 5
GRAM_RATE = 0.85


# --- the quantities -------------------------------------------------------------------------

def floor_seconds(rows, cols, toggled, bytes_per_second, flops_per_second):
    """The least that an iteration can take: reading E, U, W and writing E once, and one row of G
    for every coordinate that enters or leaves the vertex."""
    return max(16 * rows * cols / bytes_per_second, 2 * toggled * cols / flops_per_second)


def memory_bound_bytes(rows, cols):
    """2 (W + G) + 8 bytes a weight, W and G in float32."""
    return 2 * 4 * (rows * cols + cols * cols) + 8 * rows * cols


def at_mark(cell, count):
    """Seconds, toggled and loss of an engine's cell after `count` iterations: medians over its
    runs, or None."""
    marks = [mark for run in cell["runs"] for mark in run if mark["iterations"] == count]
    if not marks:
        return None
    return {key: median(mark[key] for mark in marks)
            for key in ("seconds", "toggled_per_iteration", "relaxed_loss")}


def marks_of(cell):
    return {mark["iterations"] for run in cell["runs"] for mark in run}


def last_mark(cell):
    return max(marks_of(cell))


def seconds_per_iteration(cell, count=None):
    count = count or last_mark(cell)
    mark = at_mark(cell, count)
    return mark and mark["seconds"] / count


def compare_cells(slow, fast):
    """(slow / fast time, iterations): over the longest range of iterations that both ran."""
    common = marks_of(slow) & marks_of(fast)
    if not common:
        return None, 0
    count = max(common)
    return at_mark(slow, count)["seconds"] / at_mark(fast, count)["seconds"], count


def compare_with_peer(peer, engine):
    """(peer / engine time, relative difference of the losses or None, iterations)."""
    count = max((mark for mark in marks_of(engine) if mark <= peer["iterations"]), default=0)
    if count == 0:
        return None, None, 0
    mark = at_mark(engine, count)
    difference = None
    if count == peer["iterations"]:
        difference = abs(mark["relaxed_loss"] / peer["relaxed_loss"] - 1)
    return peer["seconds_after"][count - 1] / mark["seconds"], difference, count


def floor_factor(cell, ceiling, bandwidth_key):
    """An engine's time over its floor, and the floor in seconds."""
    mark = at_mark(cell, last_mark(cell))
    floor = floor_seconds(cell["rows"], cell["cols"], mark["toggled_per_iteration"],
                          ceiling[bandwidth_key], ceiling["sgemm_flops_per_second"])
    return seconds_per_iteration(cell) / floor, floor


# --- the table ------------------------------------------------------------------------------

def goal(what, where, against, wanted, value, met, note=""):
    return tables.goal(what, where, wanted, value, met, note, against)


def missing(what, where, against, wanted, note):
    return goal(what, where, against, wanted, None, None, note)


def find(cells, **keys):
    return next((cell for cell in cells or []
                 if all(cell[key] == value for key, value in keys.items())), None)


def _milliseconds(seconds):
    return f"{seconds * 1e3:.3g} ms"


def peer_goals(results, shape, threads):
    keys = dict(zip(("rows", "cols"), shape), pattern="unstructured", alpha=GOAL_ALPHA,
                threads=threads)
    where = f"{shape[0]}x{shape[1]}, {threads} thread" + "s" * (threads > 1)
    texts = ("one iteration, unstructured", where, "PyTorch", f"≥ {PEER_SPEEDUP}x faster")
    loss_texts = ("relaxed loss", where, "PyTorch", f"equal to {PEER_LOSS_DIFFERENCE:g}")
    peer, engine = find(results.get("peer"), **keys), find(results.get("iterations"), **keys)
    if not peer or not engine:
        note = results.get("peer_skipped") or "not measured"
        return [missing(*texts, note), missing(*loss_texts, note)]
    ratio, difference, count = compare_with_peer(peer, engine)
    note = f"the first {count} iterations"
    rows = [goal(*texts, ratio, ratio is not None and ratio >= PEER_SPEEDUP, note)]
    rows.append(goal(*loss_texts, difference,
                     difference is not None and difference <= PEER_LOSS_DIFFERENCE,
                     note if difference is not None else "no iteration in common"))
    return rows


def floor_goals(results, shape, threads):
    where = f"{shape[0]}x{shape[1]}, {threads} thread" + "s" * (threads > 1)
    kinds = (("unstructured", "the floor", "triad_bytes_per_second", FLOOR_FACTOR),
             ("per_row", "its floor in L2", "l2_triad_bytes_per_second", ROW_FLOOR_FACTOR))
    rows = []
    for pattern, name, bandwidth, limit in kinds:
        texts = (f"one iteration, {pattern}", where, name, f"≤ {limit:g}x")
        cell = find(results.get("iterations"), rows=shape[0], cols=shape[1], pattern=pattern,
                    alpha=GOAL_ALPHA, threads=threads)
        ceiling = find(results.get("ceilings"), threads=threads)
        if not cell or not ceiling:
            rows.append(missing(*texts, "not measured"))
            continue
        factor, floor = floor_factor(cell, ceiling, bandwidth)
        toggled = at_mark(cell, last_mark(cell))["toggled_per_iteration"]
        note = (f"{_milliseconds(seconds_per_iteration(cell))} over {_milliseconds(floor)}; "
                f"{toggled / (shape[0] * shape[1]):.2%} of the weights change")
        rows.append(goal(*texts, factor, factor <= limit, note))
    return rows


def pattern_goals(results, shape, threads):
    where = f"{shape[0]}x{shape[1]}, {threads} thread" + "s" * (threads > 1)
    keys = {"rows": shape[0], "cols": shape[1], "alpha": GOAL_ALPHA, "threads": threads}
    base = find(results.get("iterations"), pattern="unstructured", **keys)
    rows = []
    for pattern in ("per_row", "2:4"):
        texts = (f"one iteration, {pattern}", where, "unstructured", "not slower")
        cell = find(results.get("iterations"), pattern=pattern, **keys)
        ratio, count = compare_cells(cell, base) if cell and base else (None, 0)
        if ratio is None:
            rows.append(missing(*texts, "not measured"))
        else:
            rows.append(goal(*texts, ratio, ratio <= NOISE,
                             f"its time over theirs, the first {count} iterations"))
    return rows


def scaling_goals(results, shape):
    texts = ("1 → 2 threads", f"{shape[0]}x{shape[1]}, unstructured", "itself",
             f"≥ {SCALING:g}x")
    keys = {"rows": shape[0], "cols": shape[1], "pattern": "unstructured", "alpha": GOAL_ALPHA}
    one, two = (find(results.get("iterations"), threads=count, **keys) for count in (1, 2))
    ratio, count = compare_cells(one, two) if one and two else (None, 0)
    if ratio is None:
        note = "one core only" if results["machine"]["cores"] == 1 else "not measured"
        return [missing(*texts, note)]
    return [goal(*texts, ratio, ratio >= SCALING, f"the first {count} iterations")]


def loss_goals(results):
    wanted = f"≥ {LOSS_SPEEDUP}x less time"
    rows = []
    for entry in results.get("time_to_loss") or []:
        where = f"{entry['rows']}x{entry['cols']}, {entry['pattern']}"
        paper = entry["paper"]["seconds"]
        against = f"{entry['paper']['iterations']} open-loop iterations"
        for key, what in (("fast", "line search, gap stop, swaps"),
                          ("fast_without_swaps", "line search, gap stop")):
            fast, is_goal = entry[key], key == "fast"
            names = (what + ": time to the same loss", where, against,
                     wanted if is_goal else "for comparison")
            if fast["seconds_to_target"] is None:
                behind = fast["final_loss"] / entry["paper"]["final_loss"] - 1
                rows.append(goal(*names, 0.0, False if is_goal else None,
                                 f"never reached: {behind:.2%} above after "
                                 f"{fast['iterations']} iterations, {fast['seconds']:.3g} s "
                                 f"against {paper:.3g} s"))
            else:
                ratio = paper / fast["seconds_to_target"]
                note = f"{fast['seconds_to_target']:.3g} s against {paper:.3g} s"
                rows.append(goal(*names, ratio, ratio >= LOSS_SPEEDUP if is_goal else None, note))
    return rows or [missing("time to the paper's loss", "", "its own schedule", wanted,
                            "not measured")]


def gram_goals(results):
    wanted = f"≥ {GRAM_RATE:.0%}"
    rows = []
    for entry in results.get("gram") or []:
        threads = entry["threads"]
        where = (f"{entry['tokens']} tokens of {entry['cols']}, {threads} thread"
                 + "s" * (threads > 1))
        rate = entry["ssyrk_seconds"] / entry["f32_seconds"]
        speed = entry["flops"] / entry["f32_seconds"] / 1e9
        rows.append(goal("Gram sum of fp32", where, "ssyrk", wanted, rate, rate >= GRAM_RATE,
                         f"{speed:.3g} GFLOP/s"))
        for dtype in ("bf16", "f16"):
            ratio = entry[f"{dtype}_seconds"] / entry["f32_seconds"]
            rows.append(goal(f"Gram sum of {dtype}", where, "fp32", "not slower", ratio,
                             ratio <= NOISE, "its time over that of fp32"))
    return rows or [missing("Gram sum", "", "ssyrk", wanted, "not measured")]


def memory_goals(results):
    rows = []
    for entry in results.get("memory") or []:
        shape = entry["rows"], entry["cols"]
        what = "peak memory of a solve" + (" with swaps" if entry["swaps"] else "")
        texts = (what, f"{shape[0]}x{shape[1]}", "2 (W + G) + 8 N", "≤ 1x")
        peak = entry["peak_resident_bytes"] - entry["resident_before_bytes"]
        bound = memory_bound_bytes(*shape)
        rows.append(goal(*texts, peak / bound, peak <= bound,
                         f"{peak / 2**20:.0f} MiB of {bound / 2**20:.0f} MiB"))
    return rows or [missing("peak memory of a solve", "", "2 (W + G) + 8 N", "≤ 1x",
                            "not measured")]


def all_goals(results, goal_shapes):
    """Every line of the table, in the order of docs/benchmarks.md."""
    threads = max((cell["threads"] for cell in results.get("iterations") or []), default=1)
    rows = []
    for shape in goal_shapes:
        for count in range(threads, 0, -1):
            rows += peer_goals(results, shape, count)
    for make in (floor_goals, pattern_goals):
        for shape in goal_shapes:
            rows += make(results, shape, threads)
    for shape in goal_shapes:
        rows += scaling_goals(results, shape)
    return (rows + late.goals(results) + loss_goals(results) + gram_goals(results)
            + memory_goals(results) + joint.goals(results))
