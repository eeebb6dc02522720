"""Losses of a job, and their trace."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from sparsefw.v1 import job_pb2

if TYPE_CHECKING:
    from sparsefw.results import Progress

# What a trace keeps of a report.
_TRACED: Final = ("iteration", "relaxed_loss", "rounded_loss", "gap", "threshold_residual")


@dataclasses.dataclass(frozen=True)
class Unshrunk:
    """Losses with G itself of a job with a `shrinkage`, to compare it with others.

    Attributes:
        full:       of pruning everything.
        warm_start: of the warm start's mask.
        result:     of the new weights where there are any, else of the mask.
    """

    full: float
    warm_start: float
    result: float

    @classmethod
    def of(cls, message: job_pb2.Losses.Unshrunk) -> Unshrunk:
        """From the wire."""
        return cls(full=message.full, warm_start=message.warm_start, result=message.result)


@dataclasses.dataclass(frozen=True)
class Losses:
    """Losses of masks M: ||W X - (M * W) X||^2 = tr((W - M*W) G (W - M*W)^T), in float64; with a
    `shrinkage` of the shrunk G.

    Attributes:
        full:          of pruning everything, ||W X||^2.
        warm_start:    of the warm start's mask.
        relaxed:       of the last relaxed iterate, before rounding.
        rounded:       of that iterate, rounded.
        final:         of the mask that is returned.
        lower_bound:   the certificate: no mask that keeps the fixed weights has a smaller loss.
        reconstructed: of the new weights, rounded to W's dtype; None where there are none.
        unshrunk:      with G itself; None without `shrinkage`, where the others are of G already.
    """

    full: float
    warm_start: float
    relaxed: float
    rounded: float
    final: float
    lower_bound: float
    reconstructed: float | None = None
    unshrunk: Unshrunk | None = None

    @property
    def result(self) -> float:
        """The loss of what is returned: `reconstructed`, or `final` without new weights."""
        return self.final if self.reconstructed is None else self.reconstructed

    @classmethod
    def of(cls, message: job_pb2.Losses) -> Losses:
        """From the wire."""
        has_new = message.HasField("reconstructed")
        return cls(
            full=message.full,
            warm_start=message.warm_start,
            relaxed=message.relaxed,
            rounded=message.rounded,
            final=message.mask,
            lower_bound=message.lower_bound,
            reconstructed=message.reconstructed if has_new else None,
            unshrunk=Unshrunk.of(message.unshrunk) if message.HasField("unshrunk") else None,
        )


def keep_point(trace: list[dict[str, float]], progress: Progress) -> None:
    """Adds a report to a trace, unless it is there (a watch that went on repeats the last one)."""
    if progress.iteration > 0 and (not trace or trace[-1]["iteration"] < progress.iteration):
        trace.append({name: getattr(progress, name) for name in _TRACED})
