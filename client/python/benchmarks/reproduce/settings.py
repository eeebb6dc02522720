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


# The label that every sweep changes one setting of.
BASE = ("60 % per-row", "SparseFW (Wanda)")
BASE_ALPHA = 0.9
# Whose shrinkage is changed.
SHRUNK = ("SparseFW (Wanda)", "SparseFW (Wanda) + swaps + reconstruction", "ALPS")
# With what has changed of a preset: a kept run of other values is another run.
PRESETS = {"paper": {}, "fast": {}, "balanced": {"shrinkage": 0.1}, "best": {"shrinkage": 0.1}}


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much of it: calibration sequences, windows of held-out text, iterations, patterns, methods."""

    samples: int
    sequence_length: int
    windows: int
    iterations: int
    patterns: tuple[str, ...]
    labels: tuple[str, ...] = tuple(TABLE1)
    alphas: tuple[float, ...] = ()
    iteration_counts: tuple[int, ...] = ()
    sample_counts: tuple[int, ...] = ()
    presets: tuple[str, ...] = ()
    shrinkages: tuple[float, ...] = ()
    trace: bool = False  # losses along the iterations
    cloze: int = 0  # items of each text


SMALL = Scale(
    16, 512, 16, 200, tuple(PATTERNS),
    alphas=(0.0, 0.5, 0.75, 0.9, 0.95),
    iteration_counts=(20, 50, 200, 1000),
    sample_counts=(4, 16, 64),
    presets=tuple(PRESETS),
    shrinkages=(0, 0.1, 0.2),
    trace=True,
    cloze=100,
)
# A part of the small ones.
QUICK = dataclasses.replace(
    SMALL, patterns=("60 % per-row",), labels=("Wanda", "SparseGPT", "SparseFW (Wanda)"),
    alphas=(), iteration_counts=(), sample_counts=(), presets=(), shrinkages=(), trace=False)
FULL = Scale(
    128, 2048, 64, 2000, tuple(PATTERNS),
    alphas=(0.0, 0.5, 0.75, 0.9, 0.95),
    iteration_counts=(100, 500, 1000, 2000),
    sample_counts=(8, 32, 128),
    presets=tuple(PRESETS),
    shrinkages=(0, 0.1, 0.2),
    trace=True,
    cloze=400,
)
SCALES = {"quick": QUICK, "small": SMALL, "full": FULL}


def sweeps(scale):
    """{what changes: {its value: (name of the run, its options)}}; the base's value is the run of Table 1."""
    pattern, label = BASE
    base = {**PATTERNS[pattern], **TABLE1[label]}
    name = f"{pattern}, {label}"

    def along(values, usual, of_value, option):
        changed = {value: (f"{pattern}, {of_value(value)}", {**base, option: value}) for value in values}
        return {value: (name, base) if value == usual else run for value, run in changed.items()}

    found = {
        "alpha": along(scale.alphas, BASE_ALPHA, lambda value: f"alpha {value}", "alpha"),
        "iterations": along(
            scale.iteration_counts, scale.iterations, lambda value: f"{value} iterations", "iterations"),
        "samples": along(
            scale.sample_counts, scale.samples, lambda value: f"{value} samples, {label}", "samples"),
        "samples of Wanda": {
            value: (f"{pattern}, Wanda", {**PATTERNS[pattern], **TABLE1["Wanda"]})
            if value == scale.samples
            else (
                f"{pattern}, {value} samples, Wanda",
                {**PATTERNS[pattern], **TABLE1["Wanda"], "samples": value})
            for value in scale.sample_counts
        },
        "preset": {
            preset: (
                f"{pattern}, preset {preset}", {**PATTERNS[pattern], "preset": preset, **PRESETS[preset]})
            for preset in scale.presets
        },
    }
    for other in SHRUNK if scale.shrinkages else ():
        options = {**PATTERNS[pattern], **TABLE1[other]}
        found[f"shrinkage of {other}"] = {
            share: (f"{pattern}, shrinkage {share}, {other}", {**options, "shrinkage": share})
            if share
            else (f"{pattern}, {other}", options)
            for share in scale.shrinkages
        }
    return {what: runs for what, runs in found.items() if runs}


TRACED = "60 % unstructured, losses along the iterations"


def runs(scale):
    """(name, options of prune_model) in the order of their use."""
    found = {}
    for pattern in scale.patterns:
        for label in scale.labels:
            found[f"{pattern}, {label}"] = {**PATTERNS[pattern], **TABLE1[label]}
    for of_value in sweeps(scale).values():
        for name, options in of_value.values():
            found.setdefault(name, dict(options))
    if scale.trace:
        # As the paper's figure: Algorithm 2 with its own step size.
        found[TRACED] = {
            **PATTERNS["60 % unstructured"], "method": "sparsefw", "warm_start": "wanda",
            "step_rule": "open-loop", "report_every": max(1, scale.iterations // 40), "trace": True}
    for options in found.values():
        if options.get("method") == "sparsefw":
            options.setdefault("iterations", scale.iterations)
    return found
