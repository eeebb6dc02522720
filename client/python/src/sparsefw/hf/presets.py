"""Presets of whole models: the preset of their layers' jobs, refinement of blocks, distillation."""

from __future__ import annotations

import dataclasses
from typing import Final

from sparsefw.hf.training.distill import Distillation
from sparsefw.hf.training.refine import BlockRefinement


@dataclasses.dataclass(frozen=True)
class ModelPreset:
    """What a preset of prune_model means (docs/adr/0048, docs/results.md).

    Attributes:
        refinement: None: blocks are not refined.
        distillation: None: the model is not distilled, and need not be in memory as a whole.
    """

    refinement: BlockRefinement | None = None
    distillation: Distillation | None = None


# "paper" is the paper's, without anything of ours.
PRESETS: Final = {
    "paper": ModelPreset(),
    "fast": ModelPreset(BlockRefinement(epochs=1)),
    "balanced": ModelPreset(BlockRefinement(epochs=3)),
    "best": ModelPreset(BlockRefinement(epochs=16), Distillation()),
}
# A call has it that names neither a preset nor a method nor an option of one.
DEFAULT_PRESET: Final = "balanced"
# Where blocks are refined, every preset's jobs are those of this one: a dearer mask gained nothing there.
# Elsewhere a job's preset is the one of the same name.
REFINED_JOB: Final = "fast"
