"""The form of the results file: what every reader of docs/benchmarks/*.json may rely on."""
from harness.store import SchemaError, require

VERSION = 1
NUMBER = (int, float)

MARK = {"iterations": int, "seconds": NUMBER, "toggled_per_iteration": NUMBER,
        "relaxed_loss": NUMBER}
CELL = {"rows": int, "cols": int, "pattern": str, "alpha": NUMBER, "threads": int}
SOLVE = {"seconds": NUMBER, "final_loss": NUMBER, "warm_start_loss": NUMBER, "iterations": int,
         "stop_cause": str, "peak_resident_bytes": int, "resident_before_bytes": int}
SECTIONS = {
    "ceilings": {"threads": int, "blas": str, "sgemm_flops_per_second": NUMBER,
                 "triad_bytes_per_second": NUMBER, "l2_triad_bytes_per_second": NUMBER},
    "iterations": {**CELL, "runs": list},
    "peer": {**CELL, "iterations": int, "seconds_after": list, "relaxed_loss": NUMBER},
    "gram": {"cols": int, "tokens": int, "threads": int, "flops": NUMBER,
             "ssyrk_seconds": NUMBER, "f32_seconds": NUMBER, "bf16_seconds": NUMBER,
             "f16_seconds": NUMBER},
    "time_to_loss": {**CELL, "paper": dict, "fast": dict, "fast_without_swaps": dict},
    "joint": {"rows": int, "cols": int, "pattern": str, "threads": int, "ways": dict},
    "methods": {"layer": str, "pattern": str, "threads": int, "ways": dict},
    "late": {**CELL, "first": int, "last": int, "seconds_per_iteration": NUMBER,
             "screened_iterations": int, "screened_epochs": int, "active_share": NUMBER},
    "memory": {"rows": int, "cols": int, "swaps": bool},
    "goals": {"what": str, "where": str, "against": str, "wanted": str, "note": str},
}
TOP = {"schema": int, "date": str, "commit": str, "plan": str, "machine": dict, "goals": list}
MACHINE = {"processor": str, "cores": int, "load_average_at_start": list,
           "busy_at_start": NUMBER, "compiler": str}


def check(results):
    """Raises SchemaError, which names the first thing that is wrong."""
    require(results, TOP, "results")
    if results["schema"] != VERSION:
        raise SchemaError(f"schema must be {VERSION}; got {results['schema']}")
    require(results["machine"], MACHINE, "machine")
    for section, keys in SECTIONS.items():
        for index, entry in enumerate(results.get(section, [])):
            require(entry, keys, f"{section}[{index}]")
    for index, cell in enumerate(results.get("iterations", [])):
        for run in cell["runs"]:
            for mark in run:
                require(mark, MARK, f"iterations[{index}] mark")
    for entry in results.get("memory", []):
        require(entry, SOLVE, "memory")
    for entry in results.get("time_to_loss", []):
        require(entry["paper"], SOLVE, "paper")
    for index, goal in enumerate(results["goals"]):
        if goal["value"] is None and goal["met"] is not None:
            raise SchemaError(f"goals[{index}] has a verdict without a value")
        if goal["value"] is None and not goal["note"]:
            raise SchemaError(f"goals[{index}] has no value and does not say why")
