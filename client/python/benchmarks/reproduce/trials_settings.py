"""Which trials there are: what each one changes, and which row of its table it is compared with."""

from typing import Any

# The first of the 30 blocks are pruned, the rest stays dense.
BLOCKS = 12
SAMPLES, SEQUENCE_LENGTH = 16, 512
# Windows of 512 tokens by text.
WINDOWS = {"unused": 32, "handbook": 16}
STEPS = {"epochs": 4, "learning_rate": 2e-3, "held_back": 0.0625}
ROWS = {"pattern": "per-row", "sparsity": 0.6}


def _trial(base: str | None = "default", change: dict[str, Any] | None = None,
           pattern: dict[str, Any] = ROWS, **steps: Any) -> dict[str, Any]:
    """A row: `base` is the row that it is compared with, `change` goes to trials_refine.changed."""
    return {"base": base, "pattern": pattern, "change": change or {}, "steps": {**STEPS, **steps}}


REFINEMENT = {
    "default": _trial(None),
    "plain mean squared error": _trial(change={"loss": "plain"}),
    "2 sequences a step": _trial(change={"batch": 2}),
    "4 sequences a step": _trial(change={"batch": 4}),
    "4 sequences a step, rate 4e-3": _trial(change={"batch": 4}, learning_rate=4e-3),
    "without norms": _trial(change={"norms": False}),
    "1/8 held back": _trial(held_back=0.125),
    "1/4 held back": _trial(held_back=0.25),
    "attention and MLP apart": _trial(change={"apart": True}),
    "8 epochs": _trial(epochs=8),
    "4 epochs, a second solve, 4 epochs": _trial("8 epochs", {"second": True}),
}
PERMUTATION = {
    name: _trial(base, change, {"pattern": pattern})
    for pattern in ("2:4", "4:8")
    for name, base, change in (
        (pattern, None, {}), (f"{pattern}, channels permuted", pattern, {"permute": True}))
}
GROUPS = {"refinement": REFINEMENT, "permutation": PERMUTATION}
TRIALS = {name: trial for group in GROUPS.values() for name, trial in group.items()}


def options(trial: dict[str, Any]) -> dict[str, Any]:
    """The arguments of prune_model."""
    blocks = "|".join(map(str, range(BLOCKS)))
    return {
        "method": "wanda", **trial["pattern"], "samples": SAMPLES, "sequence_length": SEQUENCE_LENGTH,
        "ignore": ["lm_head", rf"\.layers\.(?!(?:{blocks})\.)"], "refine_blocks": trial["steps"]}


def meaning(trial: dict[str, Any]) -> dict[str, Any]:
    """All that decides a trial's outcome: with another meaning a kept trial is done again."""
    return {"options": options(trial), "change": trial["change"], "windows": WINDOWS}
