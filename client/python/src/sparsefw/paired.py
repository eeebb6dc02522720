"""Differences of two models on the same windows of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

_RESAMPLES: Final = 10_000


def paired(losses: Sequence[float], others: Sequence[float]) -> tuple[float, float, float]:
    """(mean of losses - others, lower end, upper end of its 95 % interval)

    The interval is a bootstrap over windows, 10,000 resamples with a fixed seed. It does not contain what
    another draw of calibration text would change.

    Args:
        losses, others: nats a token by window, of the same windows in the same order; infinite where a
            model overflows.
    """
    difference = np.asarray(losses, dtype=float) - np.asarray(others, dtype=float)
    mean = float(difference.mean())
    if not np.isfinite(difference).all():
        return mean, mean, mean
    draws = np.random.default_rng(0).integers(len(difference), size=(_RESAMPLES, len(difference)))
    low, high = np.quantile(difference[draws].mean(1), (0.025, 0.975))
    return mean, float(low), float(high)
