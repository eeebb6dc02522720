"""Every method and preset on the same layers: loss against seconds, one line each.

A mask alone keeps the old weights; new weights lose less, so the two are groups of their own. The
plot (methods_plot.py) shows one large layer, the table of presets the fixture too.
"""
from cpu.measure import ask_peer
from cpu.plans import PATTERNS
from harness import tables
from harness.machine import thread_counts
from harness.process import run_json

PRESETS = ("paper", "fast", "balanced", "best")
SPARSEFW = {"alpha": 0.5, "iterations": 200, "rule": "line-search"}
# Name to flags of sparsefw-bench-solve; what has no new weights is a mask on the old ones.
WAYS = {
    "magnitude": {"method": "magnitude"},
    "Wanda": {"method": "wanda"},
    "RIA": {"method": "ria"},
    "SparseFW α = 0.5, line search": SPARSEFW,
    **{f"preset {name}": {"preset": name} for name in PRESETS},
    "magnitude, reconstructed": {"method": "magnitude", "reconstruct": 1},
    "Wanda, reconstructed": {"method": "wanda", "reconstruct": 1},
    "RIA, reconstructed": {"method": "ria", "reconstruct": 1},
    "Wanda, swaps, reconstructed": {"method": "wanda", "alpha": 0.5, "swaps": 1, "reconstruct": 1},
    "SparseFW, swaps, reconstructed": {**SPARSEFW, "swaps": 1, "reconstruct": 1},
    "SparseGPT": {"method": "sparsegpt"},
    "SparseGPT, reconstructed": {"method": "sparsegpt", "reconstruct": 1},
    "ALPS": {"method": "alps"},
    "joint from Wanda": {"method": "wanda", "joint": 1},
    "joint from SparseFW": {**SPARSEFW, "joint": 1},
    "joint from ALPS, wide window": {"method": "alps", "joint": 1, "alpha": 0.4,
                                     "joint-excluded": 0.25},
}
KEPT = ("seconds", "final_loss", "reconstructed_loss", "full_loss", "unshrunk",
        "joint_exchanges")


def measure(bin_folder, plan, layer_files, peer_python, log):
    """One entry a layer: {"layer", "pattern", "threads", "peer", "ways"}."""
    threads = thread_counts()[-1]
    paths = [(f"synthetic {rows}x{cols}", layer_files.path(rows, cols))
             for rows, cols in plan.methods_shapes]
    paths += [(name, layer_files.fixture(name)) for name in plan.methods_fixtures]
    results = []
    for name, path in paths:
        log(f"methods on {name}")
        entry = {"layer": name, "pattern": "per_row", "threads": threads,
                 "peer": ask_peer(peer_python, "pytorch_alps.py", path, threads,
                                  {"pattern": PATTERNS["per_row"]}), "ways": {}}
        for way, flags in WAYS.items():
            runs = [run_json(bin_folder, "sparsefw-bench-solve",
                             {"layer": path, "pattern": PATTERNS["per_row"], "threads": threads,
                              **flags}) for _ in range(plan.methods_repetitions)]
            fastest = min(runs, key=lambda run: run["seconds"])
            entry["ways"][way] = {key: fastest[key] for key in KEPT}
        results.append(entry)
    return results


def loss_of(way):
    """(per cent of pruning everything, whether with new weights); with G itself"""
    new = way["reconstructed_loss"] is not None
    if way.get("unshrunk"):
        return 100 * way["unshrunk"]["loss"] / way["unshrunk"]["full_loss"], new
    loss = way["reconstructed_loss"] if new else way["final_loss"]
    return 100 * loss / way["full_loss"], new


def points(entry):
    """[(name, seconds, loss in per cent, new weights)], the peer first."""
    found = []
    if entry["peer"]:
        full = next(iter(entry["ways"].values()))["full_loss"]
        found.append(("ALPS in PyTorch", entry["peer"]["seconds"],
                      100 * entry["peer"]["loss"] / full, True))
    for name, way in entry["ways"].items():
        loss, new = loss_of(way)
        found.append((name, way["seconds"], loss, new))
    return found


def table(results):
    """The table of the layer that is drawn: the first."""
    entry = results["methods"][0]
    rows = [[name, "new weights" if new else "mask", f"{loss:.2f} %", f"{seconds:.3g}"]
            for name, seconds, loss, new in sorted(points(entry), key=lambda point: -point[2])]
    return tables.table(["method", "result", "loss", "seconds"], rows, markdown=True)


def preset_table(results):
    """Loss and seconds of every preset on every layer."""
    entries = results["methods"]
    head = ["preset", *(entry["layer"] for entry in entries)]
    rows = []
    for name in PRESETS:
        cells = []
        for entry in entries:
            way = entry["ways"][f"preset {name}"]
            cells.append(f"{loss_of(way)[0]:.2f} %, {way['seconds']:.2g} s")
        rows.append([f"`{name}`", *cells])
    return tables.table(head, rows, markdown=True)
