"""What a run measures: shapes, limits, repetitions."""
from dataclasses import dataclass, field

PATTERNS = {"unstructured": "unstructured:0.6", "per_row": "per_row:0.6", "2:4": "2:4"}
ALPHAS = (0.9, 0.0)


@dataclass(frozen=True)
class Plan:
    name: str
    shapes: tuple  # (rows, cols) of the per-iteration table
    goal_shapes: tuple  # those that the goals are about; measured longer
    iterations: int = 200
    seconds: float = 10  # limit of one cell of the table, engine and peer each
    goal_seconds: float = 60  # of a cell that a goal is about
    # The peer's limit where the goal is judged, with all threads: long enough for all iterations,
    # since the engine's first ones cost more than its later ones and the peer's do not.
    peer_goal_seconds: float = 300
    repetitions: int = 3  # of the engine, where they fit its limit
    ceilings: dict = field(default_factory=dict)  # flags of the program
    gram: dict = field(default_factory=dict)
    loss_shape: tuple = (2048, 2048)
    loss_iterations: int = 2000
    late_from: int = 100  # late iterations: from here to loss_iterations
    late_seconds: float = 60  # limit of one cell, and of a whole solve of it
    late_peer_iterations: int = 20
    memory_iterations: int = 700  # enough for screened iterations, unstructured ones too
    joint_shapes: tuple = ((1024, 1024), (2048, 2048))
    joint_patterns: tuple = ("per_row", "unstructured", "2:4")
    methods_shapes: tuple = ((1024, 1024),)  # the first is drawn
    methods_fixtures: tuple = ("layer.0.attention.self.query", "layer.2.intermediate.dense",
                               "layer.5.attention.output.dense")
    methods_repetitions: int = 3  # the fastest counts


FULL = Plan(
    name="full",
    shapes=((1024, 1024), (2048, 2048), (4096, 4096), (4096, 1024)),
    goal_shapes=((2048, 2048), (4096, 4096)),
    gram={"cols": 4096, "tokens": 8192, "repetitions": 5})

QUICK = Plan(
    name="quick",
    shapes=((512, 512), (512, 256)),
    goal_shapes=((512, 512),),
    iterations=100, seconds=2, goal_seconds=4, peer_goal_seconds=8,
    ceilings={"size": 1024, "seconds": 0.3},
    gram={"cols": 1024, "tokens": 2048, "repetitions": 3},
    loss_shape=(512, 512), loss_iterations=500, late_seconds=4,
    joint_shapes=((512, 512),), methods_shapes=((512, 512),), methods_repetitions=1)

# The least that goes through every part: for the tests.
SMOKE = Plan(
    name="smoke",
    shapes=((64, 48),),
    goal_shapes=((64, 48),),
    iterations=20, seconds=1, goal_seconds=1, peer_goal_seconds=1, repetitions=2,
    ceilings={"size": 64, "triad-mib": 3, "seconds": 0.01},
    gram={"cols": 64, "tokens": 256, "repetitions": 1},
    loss_shape=(64, 48), loss_iterations=60, late_from=30, late_seconds=1,
    late_peer_iterations=2, joint_shapes=((64, 48),), joint_patterns=("per_row",),
    methods_shapes=((64, 48),), methods_fixtures=(), methods_repetitions=1)

PLANS = {plan.name: plan for plan in (FULL, QUICK, SMOKE)}
