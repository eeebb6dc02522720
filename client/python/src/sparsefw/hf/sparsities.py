"""The sparsity of every matrix; some allocations look at the dense model first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc

from sparsefw import errors
from sparsefw.hf import allocate
from sparsefw.hf.calibration.outliers import share_of_outliers
from sparsefw.hf.calibration.step import Step
from sparsefw.hf.jobs import Jobs
from sparsefw.hf.layout import Block
from sparsefw.hf.pools.tasks import Pool
from sparsefw.hf.progress import Progress
from sparsefw.hf.settings import Settings
from sparsefw.hf.state import State

# Gives every block of a layout in turn.
Walk = Callable[[Pool, Sequence[Block]], Iterator[Step]]


class Sparsities:
    """Divides the sparsity of a run among its matrices. What was measured is in the state, block by block."""

    def __init__(
        self, settings: Settings, layout: Sequence[Block], state: State, progress: Progress, jobs: Jobs
    ) -> None:
        self._settings, self._layout = settings, layout
        self._state, self._progress, self._jobs = state, progress, jobs

    def find(self, pool: Pool, walk: Walk) -> dict[str, float]:
        """The sparsity by matrix; none where the pattern fixes it."""
        settings = self._settings
        matrices = [matrix for block in self._layout for matrix in block.matrices]
        sizes = {matrix.name: matrix.rows * matrix.columns for matrix in matrices}
        if ":" in settings.pattern:
            return {}
        if not isinstance(settings.allocation, str):
            return allocate.by_name(matrices, settings.allocation, settings.sparsity)
        assert settings.sparsity is not None
        if settings.allocation == "loss-curve":
            self._measure(pool, walk, "curve", self._curves_of)
            return allocate.by_loss(sizes, self._measured("curve"), settings.sparsity)
        if settings.allocation == "owl":
            self._measure(pool, walk, "outliers", self._outliers_of)
            blocks = [block for block in self._layout if block.matrices]
            of_block = allocate.by_outliers(
                {block.name: sum(sizes[matrix.name] for matrix in block.matrices) for block in blocks},
                self._measured("outliers"),
                settings.sparsity,
                settings.bound,
            )
            return {matrix.name: of_block[block.name] for block in blocks for matrix in block.matrices}
        return {matrix.name: settings.sparsity for matrix in matrices}

    def curves(self) -> dict[str, Any] | None:
        """The loss curve of every matrix, for the report."""
        return self._measured("curve") if self._settings.allocation == "loss-curve" else None

    def outliers(self) -> dict[str, float] | None:
        """The share of outliers of every block, for the report."""
        return self._measured("outliers") if self._settings.allocation == "owl" else None

    def _measured(self, what: str) -> dict[str, Any]:
        return {
            name: value
            for block in self._layout
            for name, value in (self._state.load(f"{what}-{block.index:04d}") or {}).items()
        }

    def _measure(
        self, pool: Pool, walk: Walk, what: str, measure: Callable[[Pool, Step, bool], dict[str, Any]]
    ) -> None:
        """Measures those blocks of the dense model that the state does not have. No block behind them is run.

        Args:
            measure: advances the step, too, where its last argument says so.
        """
        names = {block.index: f"{what}-{block.index:04d}" for block in self._layout if block.matrices}
        missing = [index for index, name in names.items() if self._state.load(name) is None]
        last = max(missing, default=-1)
        layout = [block for block in self._layout if block.index <= last]
        for step in walk(pool, layout) if layout else ():
            index = step.layout.index
            if index in missing:
                self._state.save(names[index], measure(pool, step, index < last))
            else:
                self._advance(step)

    def _advance(self, step: Step) -> None:
        self._progress.block(step.layout.index, "dense forward")
        step.advance()

    def _curves_of(self, pool: Pool, step: Step, advance: bool) -> dict[str, Any]:
        """The loss of every matrix at several sparsities."""
        settings = self._settings
        assert settings.sparsity is not None
        points = allocate.sweep_points(settings.sparsity, settings.bound)
        same = {matrix.name: settings.sparsity for matrix in step.layout.matrices}
        curves = {}
        for tasks, _ in self._jobs.batches(pool, step, same):
            for task, curve in pool.sweep(tasks, points):
                curves[task.matrix.name] = curve
        if advance:
            self._advance(step)
        return curves

    def _outliers_of(self, _pool: Pool, step: Step, _advance: bool) -> dict[str, float]:
        """The share of outliers. What counts them advances the step."""
        self._progress.block(step.layout.index, "outliers")
        groups = step.groups()
        squares = step.squares(groups)
        scored = [
            (matrix.view(step.block), squares[group.key])
            for group in groups
            if group.key in squares
            for matrix in group.matrices
        ]
        share = share_of_outliers(scored)
        if share is None:
            raise errors.refuse(
                grpc.StatusCode.INVALID_ARGUMENT,
                "NON_FINITE",
                f'{step.layout.name}: weights and inputs must be finite for allocation="owl"; the mean of '
                "their scores is not",
            )
        return {step.layout.name: share}
