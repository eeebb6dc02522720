"""The measurements, one function each; every one returns plain data for the JSON."""
import contextlib
import tempfile
from pathlib import Path

from cpu import layers
from cpu.plans import ALPHAS, PATTERNS
from harness.machine import thread_counts
from harness.places import PEERS
from harness.process import LineProgram, run_json, timed_iterations

PEER_SECONDS = 3600  # of one answer, and of its start: it keeps the limits of a case itself
EARLY_MARKS = (10, 25, 50, 100, 150)
GOAL_ALPHA = 0.9
# Options for a quick result: steps until the gap is a small part of the loss.
FAST = {"rule": "line-search", "report-every": 25}
FAST_REL_GAP = {True: 0.01, False: 0.001}  # swaps finish what fewer steps have left


class Layers:
    """Layer files in a temporary folder, made when first asked for."""

    def __init__(self, log):
        self._log = log
        self._folder = tempfile.TemporaryDirectory(prefix="sparsefw-bench-")

    def path(self, rows, cols):
        path = Path(self._folder.name) / f"{rows}x{cols}.safetensors"
        if not path.exists():
            self._log(f"layer {rows}x{cols}")
            layers.write_layer(path, rows, cols)
        return path

    def fixture(self, name):
        path = Path(self._folder.name) / f"{name}.safetensors"
        if not path.exists():
            layers.write_fixture(path, name)
        return path

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._folder.cleanup()


def ask_peer(python, program, layer, threads, request):
    """The one answer of a PyTorch program in a process of its own; None without a Python."""
    if python is None:
        return None
    with LineProgram([python, PEERS / program, "--layer", layer, "--threads", threads],
                     PEER_SECONDS) as peer:
        return peer.ask(request, PEER_SECONDS)


def ceilings(bin_folder, plan, log):
    log("ceilings")
    return [run_json(bin_folder, "sparsefw-bench-ceilings",
                         {"threads": threads, **plan.ceilings}) for threads in thread_counts()]


def iterations(bin_folder, plan, layer_files, peer_python, log):
    """(cells of the engine, cells of the peer, what the peer is): for every cell the peer runs
    first and the engine right after it, on the same file with the same threads."""
    engine_cells, peer_cells, description = [], [], None
    shapes = sorted({*plan.shapes, *plan.goal_shapes}, key=lambda s: (s[0] * s[1], s))
    for rows, cols in shapes:
        path = layer_files.path(rows, cols)
        for threads in thread_counts():
            with contextlib.ExitStack() as stack:
                peer = None
                if peer_python:
                    peer = stack.enter_context(LineProgram(
                        [peer_python, PEERS / "pytorch_peer.py", "--layer", path, "--threads",
                         threads], PEER_SECONDS))
                    description = peer.description
                for pattern in PATTERNS:
                    for alpha in ALPHAS:
                        cell = {"rows": rows, "cols": cols, "pattern": pattern, "alpha": alpha,
                                "threads": threads}
                        log("iteration " + " ".join(map(str, cell.values())))
                        if peer:
                            peer_cells.append({**cell, **_run_peer(peer, plan, cell)})
                        marks = [peer_cells[-1]["iterations"]] if peer else []
                        engine_cells.append({**cell, **_run_engine(bin_folder, plan, path, cell,
                                                                   marks)})
    return engine_cells, peer_cells, description


def _is_goal(plan, cell):
    return (cell["rows"], cell["cols"]) in plan.goal_shapes and cell["alpha"] == GOAL_ALPHA


def _engine_limit(plan, cell):
    return plan.goal_seconds if _is_goal(plan, cell) else plan.seconds


def _peer_limit(plan, cell):
    if not _is_goal(plan, cell) or cell["pattern"] != "unstructured":
        return plan.seconds
    return (plan.peer_goal_seconds if cell["threads"] == thread_counts()[-1]
            else plan.goal_seconds)


def _run_peer(peer, plan, cell):
    return peer.ask({"pattern": PATTERNS[cell["pattern"]], "alpha": cell["alpha"],
                     "iterations": plan.iterations, "seconds": _peer_limit(plan, cell)},
                    PEER_SECONDS)


def _run_engine(bin_folder, plan, path, cell, marks):
    return {"runs": timed_iterations(bin_folder, path, cell["threads"], {
        "pattern": PATTERNS[cell["pattern"]], "alpha": cell["alpha"],
        "iterations": plan.iterations, "marks": sorted({*EARLY_MARKS, *marks}),
        "seconds": _engine_limit(plan, cell), "repetitions": plan.repetitions})}


def gram(bin_folder, plan, log):
    log("gram")
    return [run_json(bin_folder, "sparsefw-bench-gram", {"threads": threads, **plan.gram})
            for threads in thread_counts()]


def time_to_loss(bin_folder, plan, layer_files, log):
    """The paper's schedule to its end, then how soon the fast way has a mask as good."""
    rows, cols = plan.loss_shape
    results = []
    for pattern in ("unstructured", "per_row"):
        common = {"layer": layer_files.path(rows, cols), "pattern": PATTERNS[pattern],
                  "alpha": GOAL_ALPHA, "threads": thread_counts()[-1],
                  "iterations": plan.loss_iterations}
        log(f"time to loss {pattern}: open loop")
        paper = run_json(bin_folder, "sparsefw-bench-solve",
                             {**common, "rule": "open-loop", "report-every": plan.loss_iterations})
        fast = {}
        for name, swaps in (("fast", True), ("fast_without_swaps", False)):
            log(f"time to loss {pattern}: {name}")
            fast[name] = run_json(bin_folder, "sparsefw-bench-solve",
                                      {**common, **FAST, "rel-gap": FAST_REL_GAP[swaps],
                                       "swaps": int(swaps), "target": paper["final_loss"]})
        results.append({"rows": rows, "cols": cols, "pattern": pattern, "alpha": GOAL_ALPHA,
                        "threads": common["threads"], "paper": paper, **fast})
    return results


def memory(bin_folder, plan, layer_files, log):
    """Peak memory of one solve each, in a process of its own; with and without swaps."""
    results = []
    for rows, cols in plan.goal_shapes:
        for swaps in (0, 1):
            log(f"memory {rows}x{cols} swaps {swaps}")
            solve = run_json(bin_folder, "sparsefw-bench-solve", {
                "layer": layer_files.path(rows, cols), "pattern": PATTERNS["unstructured"],
                "alpha": GOAL_ALPHA, "threads": thread_counts()[-1],
                "iterations": plan.memory_iterations, "swaps": swaps})
            results.append({"rows": rows, "cols": cols, "swaps": bool(swaps), **solve})
    return results
