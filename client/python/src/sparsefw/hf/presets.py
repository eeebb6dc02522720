"""Presets of whole models: the preset of their layers' jobs, refinement of blocks, distillation."""

from __future__ import annotations

import dataclasses
from typing import Final

from sparsefw.hf.distill import Distillation
from sparsefw.hf.refine import BlockRefinement


@dataclasses.dataclass(frozen=True)
class ModelPreset:
    """What a preset of prune_model means (docs/adr/0048, docs/results.md).

    Attributes:
        job:        the preset of every matrix's job. It is not always that of the same name: where blocks are
                    refined, a mask is as good a start as mask and weights, and cheaper.
        refinement: None: blocks are not refined.
        distillation: None: the model is not distilled, and need not be in memory as a whole.
    """

    job: str
    refinement: BlockRefinement | None = None
    distillation: Distillation | None = None


# "paper" is the paper's, without anything of ours.
PRESETS: Final = {
    "paper": ModelPreset("paper"),
    "fast": ModelPreset("fast", BlockRefinement(epochs=1)),
    "balanced": ModelPreset("fast", BlockRefinement(epochs=3)),
    "best": ModelPreset("balanced", BlockRefinement(epochs=16), Distillation()),
}
