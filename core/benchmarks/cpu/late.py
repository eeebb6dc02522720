"""Late iterations, where the engine looks only at the columns that can still change, and whole
solves. PyTorch takes as long for a late iteration as for an early one, so a few of them stand for
all."""
from cpu.measure import ask_peer
from cpu.plans import PATTERNS
from harness import tables
from harness.machine import thread_counts
from harness.process import run_json, timed_iterations

ALPHAS = (0.9, 0.5, 0.0)  # of plan.loss_shape; of other layers the first
SPEEDUP = {0.9: 100, 0.5: 20, 0.0: 6}
SOLVE_SPEEDUP = 70


# --- measuring ------------------------------------------------------------------------------

def measure(bin_folder, plan, layer_files, peer_python, log):
    """One entry for every shape, pattern and alpha, with all threads."""
    threads = thread_counts()[-1]
    results = []
    for rows, cols in plan.goal_shapes:
        path = layer_files.path(rows, cols)
        alphas = ALPHAS if (rows, cols) == plan.loss_shape else ALPHAS[:1]
        for pattern in PATTERNS:
            for alpha in alphas:
                cell = {"rows": rows, "cols": cols, "pattern": pattern, "alpha": alpha,
                        "threads": threads}
                log("late iterations " + " ".join(map(str, cell.values())))
                entry = {**cell, **_iterations(bin_folder, plan, path, cell),
                         "peer_seconds_per_iteration": _peer(plan, path, cell, peer_python)}
                expected = entry["seconds_per_iteration"] * plan.loss_iterations
                if expected <= plan.late_seconds:
                    entry["solve"] = _solve(bin_folder, plan, path, cell)
                results.append(entry)
    return results


def _iterations(bin_folder, plan, path, cell):
    (run,) = timed_iterations(bin_folder, path, cell["threads"], {
        "pattern": PATTERNS[cell["pattern"]], "alpha": cell["alpha"], "marks": [plan.late_from],
        "iterations": plan.loss_iterations, "seconds": plan.late_seconds})
    first, last = run[0], run[-1]
    if last["iterations"] <= first["iterations"]:  # out of time before the mark
        first = {"iterations": 0, "seconds": 0}
    count = last["iterations"] - first["iterations"]
    return {"first": first["iterations"], "last": last["iterations"],
            "seconds_per_iteration": (last["seconds"] - first["seconds"]) / count,
            "screened_iterations": last["screened_iterations"],
            "screened_epochs": last["screened_epochs"], "active_share": last["active_share"]}


def _peer(plan, path, cell, python):
    answer = ask_peer(python, "pytorch_peer.py", path, cell["threads"], {
        "pattern": PATTERNS[cell["pattern"]], "alpha": cell["alpha"],
        "iterations": plan.late_peer_iterations, "seconds": plan.goal_seconds})
    return answer and answer["seconds_after"][-1] / answer["iterations"]


def _solve(bin_folder, plan, path, cell):
    return run_json(bin_folder, "sparsefw-bench-solve", {
        "layer": path, "pattern": PATTERNS[cell["pattern"]], "alpha": cell["alpha"],
        "threads": cell["threads"], "iterations": plan.loss_iterations,
        "report-every": plan.loss_iterations})


# --- the goals ------------------------------------------------------------------------------

def goals(results):
    rows = []
    for entry in results.get("late") or []:
        threads = entry["threads"]
        where = (f"{entry['rows']}x{entry['cols']}, {entry['pattern']}, α={entry['alpha']:g}, "
                 f"{threads} thread" + "s" * (threads > 1))
        wanted = SPEEDUP[entry["alpha"]]
        own, peer = entry["seconds_per_iteration"], entry["peer_seconds_per_iteration"]
        note = (f"{own * 1e3:.3g} ms over {entry['first']}–{entry['last']}; "
                f"{entry['screened_iterations']} screened, "
                f"{entry['active_share']:.1%} of the weights")
        rows.append(_goal("a late iteration", where, wanted, peer and peer / own, note))
        solve = entry.get("solve")
        if solve and entry["alpha"] == 0.9:
            ratio = peer and peer * solve["iterations"] / solve["seconds"]
            rows.append(_goal(f"a whole solve of {solve['iterations']} iterations", where,
                              SOLVE_SPEEDUP, ratio, f"{solve['seconds']:.3g} s"))
    return rows or [tables.goal("a late iteration", "", "≥ 100x faster", None, None,
                                "not measured", "PyTorch")]


def _goal(what, where, wanted, ratio, note):
    texts = (what, where, f"≥ {wanted}x faster")
    if ratio is None:
        return tables.goal(*texts, None, None, f"no PyTorch; {note}", "PyTorch")
    return tables.goal(*texts, ratio, ratio >= wanted, note, "PyTorch")
