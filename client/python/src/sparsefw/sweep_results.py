"""What a sweep returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from sparsefw._inputs.packages import needed
from sparsefw._text import printable
from sparsefw.errors import Error
from sparsefw.results import Result


@dataclasses.dataclass(frozen=True, eq=False)
class SweepPoint:
    """One setting of a sweep and what it gave: `result`, or `error`.

    Attributes:
        new_weights_loss: the loss of weights solved on the point's mask, whether it returns them or not; None
                          where it was not computed. As `Result.losses`, no share.
    """

    setting: Mapping[str, Any]
    result: Result | None
    error: Error | None
    new_weights_loss: float | None = None


class SweepResult(Sequence[SweepPoint]):
    """Every point of a sweep, in the order of the job.

    Attributes:
        job:        its name.
        best_index: the point with the least loss among those with the first pattern.
    """

    def __init__(self, job: str, points: Sequence[SweepPoint], best_index: int, best: Result) -> None:
        self.job = job
        self.best_index = best_index
        self._points = tuple(points)
        self._best = best

    @property
    def best(self) -> Result:
        """With its mask, and its pruned weight where that was asked for."""
        return self._best

    @property
    def best_setting(self) -> Mapping[str, Any]:
        """The best point's method, pattern, sparsity, alpha, swaps, reconstruct, joint."""
        return self._points[self.best_index].setting

    @overload
    def __getitem__(self, index: int) -> SweepPoint: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[SweepPoint, ...]: ...
    def __getitem__(self, index: int | slice) -> SweepPoint | tuple[SweepPoint, ...]:
        return self._points[index]

    def __len__(self) -> int:
        return len(self._points)

    def __iter__(self) -> Iterator[SweepPoint]:
        return iter(self._points)

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary a point: its setting, its losses as shares of pruning everything, its error.

        With a shrinkage, which all points share, of the Gram matrix that it leaves.
        """
        rows = []
        for index, point in enumerate(self._points):
            row: dict[str, Any] = dict(point.setting)
            if point.result is not None:
                losses, full = point.result.losses, point.result.losses.full or 1.0
                row.update(
                    loss=losses.result / full,
                    mask_loss=losses.final / full,
                    new_weights_loss=None if (new := point.new_weights_loss) is None else new / full,
                    lower_bound=losses.lower_bound / full,
                    warm_start=losses.warm_start / full,
                    kept=point.result.kept,
                    seconds=point.result.timings.solve,
                )
            row["best"] = index == self.best_index
            row["error"] = str(point.error) if point.error else ""
            rows.append(row)
        return rows

    def to_pandas(self) -> Any:
        """`rows` as a pandas.DataFrame; pandas must be installed."""
        return needed("pandas", "pandas").DataFrame(self.rows())

    def __str__(self) -> str:
        rows = self.rows()
        columns = list(dict.fromkeys(key for row in rows for key in row))
        texts = [columns, *([_cell(row.get(column)) for column in columns] for row in rows)]
        widths = [max(len(line[i]) for line in texts) for i in range(len(columns))]
        return "\n".join(
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
            for line in texts
        )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else printable(str(value))
