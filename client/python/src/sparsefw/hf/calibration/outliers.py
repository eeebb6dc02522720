"""Outliers of a block, as OWL counts them (Yin et al. 2024, Outlier Weighed Layerwise Sparsity)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

# OWL's M: the score of an outlier is above so many times the mean.
_TIMES: Final = 5.0
# Rows of a matrix whose scores are in memory at a time.
_ROWS: Final = 1024


def share_of_outliers(scored: Sequence[tuple[Any, Any]]) -> float | None:
    """The share of a block's weights whose score |w_ij| ||x_j|| is above 5 times the mean score of the block.
    None where the mean is not finite.

    Args:
        scored: (weight [d_out, d_in], sum of the squares of each input over the tokens [d_in], float64). A
                matrix that no token reaches is left out. Empty: 0.
    """
    elements: int = sum(weight.numel() for weight, _ in scored)
    if not elements:
        return 0.0
    mean = sum(float(scores.sum()) for scores in _scores(scored)) / elements
    if not math.isfinite(mean):
        return None
    return sum(int((scores > _TIMES * mean).sum()) for scores in _scores(scored)) / elements


def _scores(scored: Sequence[tuple[Any, Any]]) -> Iterator[Any]:
    for weight, squares in scored:
        norms = squares.sqrt().to(weight.device)
        for rows in weight.split(_ROWS):
            yield rows.double().abs() * norms
