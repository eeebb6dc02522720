"""Mask and weights together, beside every other way to new weights: seconds and loss."""
from cpu.measure import ask_peer
from cpu.plans import PATTERNS
from harness import tables
from harness.machine import thread_counts
from harness.process import run_json

WAYS = {
    "wanda, reconstructed": {"method": "wanda", "reconstruct": 1},
    "sparsefw with swaps, reconstructed": {"method": "sparsefw", "alpha": 0.5, "iterations": 200,
                                           "rule": "line-search", "swaps": 1, "reconstruct": 1},
    "sparsegpt": {"method": "sparsegpt"},
    "alps": {"method": "alps"},
    "joint from wanda": {"method": "wanda", "joint": 1},
    "joint from alps": {"method": "alps", "joint": 1},
    "joint from alps, wide window": {"method": "alps", "joint": 1, "alpha": 0.4,
                                     "joint-excluded": 0.25},
}
# Limits of the first joint way, from Wanda: seconds of two cores.
LIMITS = {(1024, 1024): 3, (2048, 2048): 20}


def measure(bin_folder, plan, layer_files, peer_python, log):
    """One entry a shape and pattern; the peer runs right before the engine."""
    results = []
    threads = thread_counts()[-1]
    for rows, cols in plan.joint_shapes:
        path = layer_files.path(rows, cols)
        for pattern in plan.joint_patterns:
            log(f"joint {rows}x{cols} {pattern}")
            entry = {"rows": rows, "cols": cols, "pattern": pattern, "threads": threads,
                     "peer": ask_peer(peer_python, "pytorch_alps.py", path, threads,
                                      {"pattern": PATTERNS[pattern]}), "ways": {}}
            for name, flags in WAYS.items():
                solve = run_json(bin_folder, "sparsefw-bench-solve",
                                 {"layer": path, "pattern": PATTERNS[pattern],
                                  "threads": threads, **flags})
                entry["ways"][name] = {key: solve[key] for key in (
                    "seconds", "reconstructed_loss", "full_loss", "joint_exchanges",
                    "joint_converged", "peak_resident_bytes")}
            results.append(entry)
    return results


def goals(results):
    rows = []
    for entry in results.get("joint") or []:
        shape = entry["rows"], entry["cols"]
        where = f"{shape[0]}x{shape[1]}, {entry['pattern']}, {entry['threads']} threads"
        ways = entry["ways"]
        joint = ways["joint from wanda"]
        limit = LIMITS.get(shape) if entry["pattern"] == "per_row" else None
        if limit:
            rows.append(tables.goal("joint from wanda", where, f"≤ {limit} s", joint["seconds"],
                                    joint["seconds"] <= limit, "seconds", ""))
        for name in ("joint from wanda", "joint from alps"):
            others = {key: way["reconstructed_loss"] for key, way in ways.items()
                      if not key.startswith("joint")}
            if entry["peer"]:
                others["ALPS in PyTorch"] = entry["peer"]["loss"]
            best = min(others, key=others.get)
            ratio = ways[name]["reconstructed_loss"] / others[best]
            rows.append(tables.goal(f"loss of {name}", where, "< 1x", ratio, ratio < 1,
                                    f"the best other one is {best}", "all others"))
        if entry["peer"]:
            ratio = joint["seconds"] / entry["peer"]["seconds"]
            rows.append(tables.goal("time of joint from wanda", where, "≤ 1x", ratio, ratio <= 1,
                                    f"{joint['seconds']:.3g} s against "
                                    f"{entry['peer']['seconds']:.3g} s", "ALPS in PyTorch"))
    return rows


def table(results):
    head = ["layer", "pattern", "way to new weights", "loss, of pruning everything", "seconds"]
    rows = []
    for entry in results["joint"]:
        layer = f"{entry['rows']}x{entry['cols']}"
        full = next(iter(entry["ways"].values()))["full_loss"]
        if entry["peer"]:
            rows.append([layer, entry["pattern"], "ALPS in PyTorch",
                         f"{entry['peer']['loss'] / full:.3%}", f"{entry['peer']['seconds']:.3g}"])
        for name, way in entry["ways"].items():
            rows.append([layer, entry["pattern"], name, f"{way['reconstructed_loss'] / full:.3%}",
                         f"{way['seconds']:.3g}"])
    return tables.table(head, rows, markdown=True)
