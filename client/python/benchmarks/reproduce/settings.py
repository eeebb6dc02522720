"""Which runs there are."""

import dataclasses
from typing import Any

# (label, options of prune_model without the pattern); a table has its rows in this order.
FRANK_WOLFE = {"method": "sparsefw", "step_rule": "line-search"}
STEPS = {"learning_rate": 2e-3, "held_back": 0.0625}
REFINED = {"refine_blocks": {"epochs": 4, **STEPS}}
SWAPS = {**FRANK_WOLFE, "warm_start": "wanda", "swaps": True}
METHODS = {
    "magnitude": {"method": "magnitude"},
    "RIA": {"method": "ria"},
    "Wanda": {"method": "wanda"},
    "SparseFW (Wanda)": {**FRANK_WOLFE, "warm_start": "wanda"},
    "SparseFW + swaps": SWAPS,
    "SparseGPT": {"method": "sparsegpt"},
    "ALPS": {"method": "alps"},
    "RIA, refined": {"method": "ria", **REFINED},
    "Wanda, refined": {"method": "wanda", **REFINED},
    "SparseFW + swaps, refined": {**SWAPS, **REFINED},
    "ALPS, refined": {"method": "alps", **REFINED},
    "preset fast": {"preset": "fast"},
    "preset balanced": {"preset": "balanced"},
    "preset best": {"preset": "best"},
}
# The presets of single layers: nothing is refined.
LAYER_METHODS = {
    "ALPS": METHODS["ALPS"],
    "best": {"preset": "best", "refine_blocks": False, "distill": False},
}
# What presets of models mean now: the preset of the jobs, and the refinement. With another meaning a run is
# another run; a test holds this against the package.
PRESETS = {
    "fast": {"job": "fast", "refinement": {"epochs": 1, **STEPS}, "distillation": None},
    "balanced": {"job": "fast", "refinement": {"epochs": 3, **STEPS}, "distillation": None},
    "best": {
        "job": "fast",
        "refinement": {"epochs": 16, **STEPS},
        "distillation": {"epochs": 8, "learning_rate": 2e-4, "held_back": 0.0625}},
}
# How search.py divides them: levels around the sparsity, blocks of a group, iterations of a level's mask, and
# the held-back sequences that judge.
SEARCH = {"levels": [-0.1, -0.05, 0.0, 0.05, 0.1], "blocks": 5, "iterations": 20, "sequences": 4}
# How the weights to remove are divided among the matrices.
ALLOCATIONS = {
    "uniform": {},
    "OWL": {"allocation": "owl"},
    "loss curve": {"allocation": "loss-curve"},
    "search": {"allocation": "search", "search": SEARCH},
}
# (epochs of refinement, of examples/fine_tune.py) after jobs of the preset fast. Runs of one time take
# about equal seconds.
TRAININGS = {
    "short": {"4 epochs of refinement": (4, 0), "2 of fine-tuning": (0, 2)},
    "long": {
        "16 epochs of refinement": (16, 0),
        "9 of fine-tuning": (0, 9),
        "4 of refinement, 7 of fine-tuning": (4, 7)},
}
PATTERNS = {
    "60 % per-row": {"pattern": "per-row", "sparsity": 0.6},
    "2:4": {"pattern": "2:4"},
    "50 % per-row": {"pattern": "per-row", "sparsity": 0.5},
    "50 % unstructured": {"pattern": "unstructured", "sparsity": 0.5},
    "60 % unstructured": {"pattern": "unstructured", "sparsity": 0.6},
    "70 % per-row": {"pattern": "per-row", "sparsity": 0.7},
}
PAPERS = tuple(PATTERNS)[:5]
DRAWN_PATTERNS = ("60 % per-row", "2:4")
# What every sweep changes one setting of.
BASE, BASE_ALPHA = ("60 % per-row", "SparseFW (Wanda)"), 0.9
# Rows that are also calibrated with other draws of articles.
DRAWN = ("ALPS", "ALPS, refined", "SparseFW + swaps, refined", "preset best")
TRACED = "60 % unstructured, losses along the iterations"


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much of it: calibration sequences, windows of held-out text, iterations, patterns, methods."""

    name: str
    samples: int
    sequence_length: int
    windows: int
    iterations: int
    patterns: tuple[str, ...]
    methods: tuple[str, ...] = tuple(METHODS)
    draws: tuple[int, ...] = ()
    alphas: tuple[float, ...] = ()
    iteration_counts: tuple[int, ...] = ()
    sample_counts: tuple[int, ...] = ()
    trace: bool = False  # losses along the iterations
    model: str = "smollm2"
    blocks: int | None = None  # the first ones are pruned, the others dense; None: all, of every method
    layers: bool = False  # single layers: LAYER_METHODS at every one of sample_counts
    allocations: tuple[tuple[str, str], ...] = ()  # ALLOCATIONS alone, of (pattern, preset)
    trainings: str = ""  # TRAININGS alone, of this pattern


SMALL = Scale(
    "small", 16, 512, 64, 200, DRAWN_PATTERNS, draws=(1, 2), alphas=(0.0, 0.5, 0.75, 0.9, 0.95),
    iteration_counts=(20, 50, 200, 1000), sample_counts=(4, 16, 64), trace=True)
# The other patterns of the paper, with the samples of the small ones.
PATTERNS_OF_PAPERS = Scale("patterns", 16, 512, 64, 200, PAPERS[2:])
# A model of another family, with the same samples.
GEMMA = Scale(
    "gemma", 16, 512, 64, 200, DRAWN_PATTERNS, model="gemma3",
    methods=("Wanda", "SparseFW (Wanda)", "SparseGPT", "ALPS",
             "preset fast", "preset balanced", "preset best"))
# A part of the small ones.
QUICK = Scale("small", 16, 512, 64, 200, ("60 % per-row",), ("Wanda", "SparseGPT", "preset balanced"))
MAIN = Scale("main", 64, 512, 64, 200, DRAWN_PATTERNS, draws=(1, 2))
# The paper's samples: nearly all of the calibration text, so that another draw would be the same.
FULL = Scale("full", 128, 2048, 64, 2000, PAPERS)
# Single layers at 1k, 8k and 32k tokens, of both models.
LAYERS = Scale("layers", 16, 512, 32, 200, ("60 % per-row", "2:4", "50 % unstructured"), tuple(LAYER_METHODS),
               draws=(1, 2), sample_counts=(16, 2, 64), blocks=4, layers=True)
LAYERS_BYTES = dataclasses.replace(LAYERS, name="layers-bytes", model="bytes", blocks=None, draws=())
ALLOCATION = Scale("allocation", 16, 512, 64, 200, (), allocations=(
    ("50 % per-row", "balanced"), ("60 % per-row", "balanced"), ("70 % per-row", "balanced"),
    ("60 % unstructured", "balanced"), ("60 % per-row", "best")))
ALLOCATION_BYTES = dataclasses.replace(ALLOCATION, name="allocation-bytes", model="bytes")
TRAINING = Scale("training", 16, 512, 64, 200, (), trainings="60 % per-row")
SCALES = {
    "quick": QUICK, "small": SMALL, "patterns": PATTERNS_OF_PAPERS, "gemma": GEMMA, "main": MAIN,
    "full": FULL, "layers": LAYERS, "layers-bytes": LAYERS_BYTES, "allocation": ALLOCATION,
    "allocation-bytes": ALLOCATION_BYTES, "training": TRAINING}


def of_layers(samples: int, pattern: str, method: str) -> str:
    """The name of a run of single layers."""
    return f"{samples} sequences, {pattern}, {method}"


def of_allocation(pattern: str, preset: str) -> str:
    """Begins the names of runs with this pattern and preset."""
    return pattern if preset == "balanced" else f"{pattern}, preset {preset}"


def is_grouped(scale: Scale) -> bool:
    """Whether its runs are compared within the groups of `groups`."""
    return bool(scale.layers or scale.allocations or scale.trainings)


def groups(scale: Scale) -> dict[str, dict[str, str]]:
    """Runs that are compared with the first of their group: {its label: {method: name of the run}}."""
    if scale.allocations:
        return {
            what: {how: f"{what}, {how}" for how in ALLOCATIONS}
            for what in (of_allocation(*one) for one in scale.allocations)}
    if scale.trainings:
        return {
            f"{scale.trainings}, {time}": {how: f"{scale.trainings}, {time}, {how}" for how in some}
            for time, some in TRAININGS.items()}
    found = {
        f"{samples * scale.sequence_length:,}, {pattern}": {
            method: of_layers(samples, pattern, method) for method in scale.methods}
        for samples in scale.sample_counts for pattern in scale.patterns
    }
    for draw in scale.draws:
        found[f"{scale.samples * scale.sequence_length:,}, {BASE[0]}, articles {draw}"] = {
            method: drawn(of_layers(scale.samples, BASE[0], method), draw) for method in scale.methods}
    return found


def layer_runs(scale: Scale) -> dict[str, dict[str, Any]]:
    """As `runs`, of single layers."""
    ignore = ["lm_head"]
    if scale.blocks is not None:
        ignore.append(rf"\.layers\.(?!(?:{'|'.join(map(str, range(scale.blocks)))})\.)")
    found = {
        of_layers(samples, pattern, method): {
            **PATTERNS[pattern], **LAYER_METHODS[method], "samples": samples, "ignore": ignore}
        for samples in scale.sample_counts for pattern in scale.patterns for method in scale.methods
    }
    for draw in scale.draws:
        for method in scale.methods:
            name = of_layers(scale.samples, BASE[0], method)
            found[drawn(name, draw)] = {**found[name], "draw": draw}
    return found


def sweeps(scale: Scale) -> dict[str, dict[Any, tuple[str, dict[str, Any]]]]:
    """{what changes: {its value: (name of the run, its options)}}; the base's value is that method's run."""
    pattern, method = BASE
    base, wanda = ({**PATTERNS[pattern], **METHODS[name]} for name in (method, "Wanda"))

    def along(values, usual, name, option, options=base, run=f"{pattern}, {method}"):
        return {
            value: (run, options) if value == usual else (name.format(value), {**options, option: value})
            for value in values
        }

    found = {
        "alpha": along(scale.alphas, BASE_ALPHA, pattern + ", alpha {}", "alpha"),
        "iterations": along(
            scale.iteration_counts, scale.iterations, pattern + ", {} iterations", "iterations"),
        "samples": along(
            scale.sample_counts, scale.samples, pattern + ", {} samples, " + method, "samples"),
        "samples of Wanda": along(
            scale.sample_counts, scale.samples, pattern + ", {} samples, Wanda", "samples", wanda,
            f"{pattern}, Wanda"),
    }
    return {what: runs for what, runs in found.items() if runs}


def training(refined: int, tuned: int) -> dict[str, Any]:
    """Options of a run of TRAININGS; fine_tune is of the example."""
    options: dict[str, Any] = {
        "preset": "fast", "refine_blocks": {"epochs": refined, **STEPS} if refined else False}
    return {**options, "fine_tune": {"epochs": tuned, "rate": 2e-4}} if tuned else options


def drawn(name: str, draw: int) -> str:
    """The name of a run with another draw of calibration articles."""
    return f"{name}, articles {draw}"


def runs(scale: Scale) -> dict[str, dict[str, Any]]:
    """Name: options of prune_model, and perhaps draw, in the order of their use."""
    if scale.layers:
        return layer_runs(scale)
    if scale.allocations:
        return {
            f"{of_allocation(pattern, preset)}, {how}": {**PATTERNS[pattern], "preset": preset, **options}
            for pattern, preset in scale.allocations for how, options in ALLOCATIONS.items()
        }
    if scale.trainings:
        return {
            f"{scale.trainings}, {time}, {how}": {**PATTERNS[scale.trainings], **training(*epochs)}
            for time, some in TRAININGS.items() for how, epochs in some.items()
        }
    found: dict[str, dict[str, Any]] = {}
    for pattern in scale.patterns:
        for method in scale.methods:
            found[f"{pattern}, {method}"] = {**PATTERNS[pattern], **METHODS[method]}
    for pattern in DRAWN_PATTERNS:
        for draw in scale.draws:
            for method in DRAWN:
                options = {**PATTERNS[pattern], **METHODS[method], "draw": draw}
                found[drawn(f"{pattern}, {method}", draw)] = options
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
