"""Which runs there are."""

import dataclasses

# (label, options of prune_model without the pattern)
FRANK_WOLFE = {"method": "sparsefw", "step_rule": "line-search"}
TABLE1 = {
    "magnitude": {"method": "magnitude"},
    "Wanda": {"method": "wanda"},
    "RIA": {"method": "ria"},
    "SparseGPT": {"method": "sparsegpt"},
    "SparseFW (Wanda)": {**FRANK_WOLFE, "warm_start": "wanda"},
    "SparseFW (RIA)": {**FRANK_WOLFE, "warm_start": "ria"},
    "SparseFW (Wanda) + swaps": {**FRANK_WOLFE, "warm_start": "wanda", "swaps": True},
    "SparseFW (Wanda) + swaps + reconstruction": {
        **FRANK_WOLFE, "warm_start": "wanda", "swaps": True, "reconstruct": True},
    "ALPS": {"method": "alps"},
    "joint": {"method": "wanda", "joint": True},
}
PATTERNS = {
    "60 % per-row": {"pattern": "per-row", "sparsity": 0.6},
    "2:4": {"pattern": "2:4"},
    "50 % per-row": {"pattern": "per-row", "sparsity": 0.5},
    "50 % unstructured": {"pattern": "unstructured", "sparsity": 0.5},
    "60 % unstructured": {"pattern": "unstructured", "sparsity": 0.6},
}


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much of it: calibration sequences, windows of held-out text, iterations, patterns."""

    samples: int
    sequence_length: int
    windows: int
    iterations: int
    patterns: tuple[str, ...]
    alphas: tuple[float, ...] = ()
    iteration_counts: tuple[int, ...] = ()
    sample_counts: tuple[int, ...] = ()
    cloze: int = 0  # items of each text


QUICK = Scale(16, 512, 16, 200, ("60 % per-row", "2:4"))
FULL = Scale(
    128, 2048, 64, 2000, tuple(PATTERNS),
    alphas=(0.0, 0.5, 0.75, 0.9, 0.95),
    iteration_counts=(100, 500, 1000, 2000),
    sample_counts=(8, 32, 128),
    cloze=400,
)


def runs(scale):
    """(name, options of prune_model) in the order of their use."""
    found = {}
    for pattern in scale.patterns:
        for label, options in TABLE1.items():
            found[f"{pattern}, {label}"] = {**PATTERNS[pattern], **options}
    base = {**PATTERNS["60 % per-row"], **FRANK_WOLFE, "warm_start": "wanda"}
    for alpha in scale.alphas:
        found[f"60 % per-row, alpha {alpha}"] = {**base, "alpha": alpha}
    for count in scale.iteration_counts:
        found[f"60 % per-row, {count} iterations"] = {**base, "iterations": count}
    for count in scale.sample_counts:
        for label in ("Wanda", "SparseFW (Wanda)"):
            options = {**PATTERNS["60 % per-row"], **TABLE1[label], "samples": count}
            found[f"60 % per-row, {count} samples, {label}"] = options
    for options in found.values():
        if options["method"] == "sparsefw":
            options.setdefault("iterations", scale.iterations)
    return found
