"""What a run measures, as data: every case is a request to sparsefw-bench-device, or to a server
(model_run.py)."""
import math
from collections import Counter
from dataclasses import dataclass

PATTERNS = {"unstructured": "unstructured:0.6", "per_row": "per_row:0.6", "2:4": "2:4"}
ALPHAS = (0.9, 0.0)
RULES = ("open-loop", "line-search")
PRECISIONS = ("fp32", "tf32", "bf16")
# The ways to update U, in every precision in which they differ: where they cross is what the
# engine's choice between them rests on.
FORMS = (("rows", "fp32"), ("dense", "fp32"), ("dense", "tf32"), ("dense", "bf16"))
EARLY_MARKS = (10, 25, 50, 100, 200, 500, 1000)

# The linear layers of one block of LLaMA-3.1-8B, in the order in which a model has them, and their
# shapes (rows, cols).
BLOCKS = 32
LLAMA_BLOCK = (("q", (4096, 4096)), ("k", (1024, 4096)), ("v", (1024, 4096)), ("o", (4096, 4096)),
               ("gate", (14336, 4096)), ("up", (14336, 4096)), ("down", (4096, 14336)))
# The paper's schedule, and what a user would set who wants to be done.
SOLVES = {"paper": {"rule": "open-loop", "iterations": 2000, "report_every": 2000},
          "gap": {"rule": "line-search", "iterations": 2000, "rel_gap": 0.01, "report_every": 50}}
MODEL_SCHEDULES = ("gap", "paper")  # the shorter one first: what a time limit cuts is the end
STREAMS = 4  # jobs at once on every device; the server's own default
MODEL_SECONDS = 1200  # of one schedule on the whole model


@dataclass(frozen=True)
class Plan:
    name: str
    goal_shape: tuple  # measured longest, and first
    shapes: tuple  # the others
    parallel_shape: tuple  # same columns as the goal's; so many of them at once as fill it
    goal_iterations: int = 2000
    iterations: int = 200
    peer_iterations: int = 50
    form_iterations: int = 60
    seconds: float = 10  # limit of one case
    repetitions: int = 3
    everything: bool = False  # all rules, alphas and precisions on all shapes
    gram_cols: tuple = (4096,)
    gram_tokens: int = 8192
    ceilings: tuple = ()  # flags of pytorch_ceilings.py
    block: tuple = LLAMA_BLOCK
    # The model through a server: how many of its blocks, and the time for them with all that it
    # takes to prepare them. --model takes them all, on both schedules.
    model_blocks: int = 2
    model_schedules: tuple = ("gap",)
    model_seconds: float = 60
    preset_seconds: float = 40

    def layers_by_shape(self):
        """The layers of one block: {shape: how many}"""
        return dict(Counter(shape for _, shape in self.block))


LLAMA = ((1024, 4096), (14336, 4096), (4096, 14336))
FULL = Plan("full", (4096, 4096), LLAMA, (1024, 4096), everything=True, gram_cols=(4096, 14336),
            peer_iterations=100, seconds=20, model_schedules=MODEL_SCHEDULES, model_seconds=300)
CHECK = Plan("check", (4096, 4096), LLAMA, (1024, 4096), repetitions=2, seconds=5)
QUICK = Plan("quick", (2048, 2048), (), (512, 2048), goal_iterations=500, repetitions=1, seconds=3,
             gram_cols=(2048,), ceilings=("--copy-mib", "1024"),
             block=(("q", (2048, 2048)), ("k", (512, 2048)), ("v", (512, 2048)),
                    ("o", (2048, 2048))), model_blocks=1, model_seconds=20)
# The least that goes through every part: for tests and for backends that are no GPU.
SMOKE = Plan("smoke", (64, 48), ((48, 64),), (16, 48), goal_iterations=60, iterations=40,
             peer_iterations=20, form_iterations=20, seconds=1, repetitions=1, gram_cols=(48,),
             gram_tokens=128,
             ceilings=("--size", "64", "--copy-mib", "8", "--cols", "48", "--tokens", "128"),
             block=(("q", (64, 48)), ("gate", (64, 48)), ("down", (48, 64))), model_seconds=30)
PLANS = {plan.name: plan for plan in (FULL, CHECK, QUICK, SMOKE)}


def _iterations(plan, pattern, alpha, rule="open-loop", precision="fp32", iterations=None,
                peers=()):
    return {"measure": "iterations", "pattern": PATTERNS[pattern], "alpha": alpha, "rule": rule,
            "precision": precision, "iterations": iterations or plan.iterations,
            "seconds": plan.seconds, "repetitions": plan.repetitions, "peers": list(peers)}


def _on_goal_shape(plan):
    for precision in PRECISIONS:
        yield _iterations(plan, "unstructured", 0.9, precision=precision,
                          iterations=plan.goal_iterations,
                          peers=("fp32", "tf32") if precision == "fp32" else ())
    for pattern, alpha in (("unstructured", 0.9), ("unstructured", 0.0), ("2:4", 0.9)):
        for form, precision in FORMS:
            yield {"measure": "forms", "form": form, "pattern": PATTERNS[pattern], "alpha": alpha,
                   "precision": precision, "iterations": plan.form_iterations,
                   "marks": [10, plan.form_iterations], "seconds": plan.seconds}
    for pattern in PATTERNS:
        for alpha in ALPHAS:
            for rule in RULES:
                peers = ("fp32", "tf32") if rule == "open-loop" else ()
                if (pattern, alpha, rule) != ("unstructured", 0.9, "open-loop"):
                    yield _iterations(plan, pattern, alpha, rule, peers=peers)
    for pattern in PATTERNS:
        yield {"measure": "stages", "pattern": PATTERNS[pattern], "alpha": 0.9,
               "seconds": plan.seconds}
    if plan.everything:
        for pattern in PATTERNS:
            for alpha in ALPHAS:
                for rule in RULES:
                    for precision in ("tf32", "bf16"):
                        if (pattern, alpha, rule) != ("unstructured", 0.9, "open-loop"):
                            yield _iterations(plan, pattern, alpha, rule, precision)


# A layer like those of language models (sparsefw-bench-layer --spectrum decaying), and what its
# presets take there, beside the CPU engine where that is done in seconds.
REAL = "decaying"
PRESETS = (("fast", "per_row"), ("balanced", "per_row"), ("best", "per_row"), ("balanced", "2:4"),
           ("best", "2:4"), ("balanced", "unstructured"))
ON_CPU = ("fast", "balanced")


def _on_real_layer(plan):
    for pattern in PATTERNS:
        yield _iterations(plan, pattern, 0.9)
    yield _iterations(plan, "unstructured", 0.9, precision="tf32")
    for preset, pattern in PRESETS:
        for device in ("engine", "cpu") if preset in ON_CPU and pattern == "per_row" else ("engine",):
            yield {"measure": "preset", "preset": preset,
                   "pattern": PATTERNS[pattern], "on": device, "seconds": plan.preset_seconds}


def _on_other_shape(plan):
    for pattern in PATTERNS:
        for alpha in ALPHAS if plan.everything else (0.9,):
            for rule in RULES if plan.everything else ("open-loop",):
                for precision in PRECISIONS if plan.everything else ("fp32",):
                    first = rule == "open-loop" and precision == "fp32"
                    wanted = first and (plan.everything or pattern == "unstructured")
                    yield _iterations(plan, pattern, alpha, rule, precision,
                                      peers=("fp32", "tf32") if wanted else ())
    if plan.everything:
        for pattern in PATTERNS:
            yield {"measure": "stages", "pattern": PATTERNS[pattern], "alpha": 0.9,
                   "seconds": plan.seconds}


def model_cases(plan, whole=False, streams=STREAMS):
    """The blocks of the plan, or all of them on every schedule."""
    blocks = BLOCKS if whole else plan.model_blocks
    return [(None, {"measure": "model", "schedule": schedule, "blocks": blocks,
                    "layers": blocks * len(plan.block), "streams": streams,
                    "seconds": MODEL_SECONDS if whole else plan.model_seconds,
                    "pattern": PATTERNS["unstructured"], "alpha": 0.9, **SOLVES[schedule]})
            for schedule in (MODEL_SCHEDULES if whole else plan.model_schedules)]


def all_cases(plan, streams=STREAMS):
    """[(shape or None, request)], the most telling first: what a time limit cuts is the end."""
    goal = plan.goal_shape
    cases = [(goal, request) for request in _on_goal_shape(plan)]
    real = [((*goal, REAL), request) for request in _on_real_layer(plan)]
    cases[_of_goal():_of_goal()] = real
    cases += model_cases(plan, streams=streams)
    for cols in plan.gram_cols:
        for dtype in ("bf16", "fp16", "fp32"):
            cases.append((None, {"measure": "gram", "cols": cols, "tokens": plan.gram_tokens,
                                 "dtype": dtype}))
    engines = math.prod(goal) // math.prod(plan.parallel_shape)
    cases.append((plan.parallel_shape, {
        "measure": "parallel", "pattern": PATTERNS["unstructured"], "alpha": 0.9,
        "engines": engines, "iterations": plan.iterations}))
    # A layer is made once: all cases of a shape stand together.
    for shape in plan.shapes:
        cases += [(shape, request) for request in _on_other_shape(plan)]
    return cases


def _of_goal():
    """How many cases are the part "goal"."""
    return len(PRECISIONS) + 3 * len(FORMS)


def part_of(found, part):
    """A part of all_cases: "goal", the goal's shape and the ways to update U in three precisions,
    or the "rest"; None: all."""
    count = _of_goal()
    return {None: found, "goal": found[:count], "rest": found[count:]}[part]


def describe(shape, request):
    """One line for people."""
    size = "x".join(map(str, shape[:2])) if shape else "no layer"
    if shape and len(shape) > 2:
        size += f" {shape[2]}"
    if request["measure"] == "model":
        size = f"{request['layers']} layers through a server"
    words = [request["measure"], size]
    for key, value in request.items():
        if key == "peers":
            words += [f"beside PyTorch {peer}" for peer in value]
        elif key not in ("measure", "marks", "seconds", "repetitions", "layers", "report_every"):
            words.append(str(value) if isinstance(value, str) else f"{key}={value}")
    return " ".join(words)
