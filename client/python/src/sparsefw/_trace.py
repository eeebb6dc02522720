"""What a trace keeps of a job's reports."""

from __future__ import annotations

from typing import Final

from sparsefw.results import Progress

_TRACED: Final = ("iteration", "relaxed_loss", "rounded_loss", "gap", "threshold_residual")


def keep_point(trace: list[dict[str, float]], progress: Progress) -> None:
    """Adds a report to a trace, unless it is there (a watch that went on repeats the last one)."""
    if progress.iteration > 0 and (not trace or trace[-1]["iteration"] < progress.iteration):
        trace.append({name: getattr(progress, name) for name in _TRACED})
