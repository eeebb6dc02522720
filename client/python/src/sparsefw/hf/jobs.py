"""The jobs of a block: its matrices, as many at a time as have room for their Gram matrices."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparsefw.hf.calibration.grams import Group, split_passes
from sparsefw.hf.calibration.shared_grams import SharedGrams
from sparsefw.hf.calibration.step import LocalStep, Step
from sparsefw.hf.pools.servers import Servers
from sparsefw.hf.pools.tasks import Pool, Task, task_of
from sparsefw.hf.progress import Progress
from sparsefw.hf.settings import Settings


class Jobs:
    """Makes the tasks of every block of a run."""

    def __init__(
        self,
        settings: Settings,
        first: int,
        tokens: int,
        progress: Progress,
        shared: SharedGrams | None,
    ) -> None:
        """Args:
        first:  index of the first block with matrices.
        tokens: of all samples.
        shared: Gram matrices of other runs, whose inputs are the same until the first block is pruned.
        """
        self._settings, self._first, self._tokens = settings, first, tokens
        self._progress, self._shared = progress, shared

    def batches(
        self, pool: Pool, step: Step, shares: Mapping[str, float]
    ) -> Iterator[tuple[list[Task], dict[str, int]]]:
        """(tasks whose Gram matrices are in the pool until the next batch, tokens in each Gram matrix, 0 for
        none). Each batch is a pass over the samples.

        Args:
            shares: sparsity by matrix.
        """
        for groups, tokens in self._with_grams(pool, step):
            tasks = []
            for group in groups:
                for matrix in group.matrices:
                    weight = matrix.view(step.block).cpu().contiguous()
                    options: dict[str, Any] = self._settings.job_options(shares.get(matrix.name, 0.0))
                    tasks.append(task_of(matrix, weight, group.key, options, tokens[group.key]))
            yield tasks, tokens

    def _with_grams(self, pool: Pool, step: Step) -> Iterator[tuple[list[Group], dict[str, int]]]:
        """As many groups at a time as fit into gram_memory."""
        here = []
        for group in step.groups():
            if not (isinstance(pool, Servers) and isinstance(step, LocalStep) and self._streams(group, step)):
                here.append(group)
                continue
            self._progress.block(step.layout.index, "activations")
            tokens = pool.stream_gram(group.key, functools.partial(step.inputs, group))
            yield [group], {group.key: tokens}
            pool.drop_grams()
        for some in split_passes(here, self._settings.gram_memory):
            counts = {}
            for group, matrix, count in self._grams(step, some):
                counts[group.key] = count
                pool.add_gram(group.key, matrix, count)
            yield some, counts
            pool.drop_grams()

    def _grams(self, step: Step, groups: Sequence[Group]) -> Iterator[tuple[Group, Any, int]]:
        """(group, Gram matrix, tokens in it); the identity where there are none."""
        index = step.layout.index
        shared = self._shared_at(index)
        known = [group for group in groups if shared and shared.has(index, group.key)]
        for group in known:
            assert shared is not None
            yield group, *shared.load(index, group.key)
        if len(known) == len(groups):
            return
        self._progress.block(index, "activations")
        for group, matrix, tokens in step.grams([group for group in groups if group not in known]):
            if shared:
                shared.save(index, group.key, matrix, tokens)
            yield group, matrix, tokens

    def _shared_at(self, index: int) -> SharedGrams | None:
        """Those of other runs, where the block's inputs are those of the dense model."""
        dense = not self._settings.propagate or index == self._first
        return self._shared if dense else None

    def _streams(self, group: Group, step: LocalStep) -> bool:
        """Activations go to the server, rather than their sum."""
        if not group.certain or self._settings.gram == "client":
            return False
        if self._settings.gram == "auto" and self._shared_at(step.layout.index) is not None:
            return False  # one sum here serves every run
        activations = self._tokens * step.item_bytes()
        return self._settings.gram == "server" or activations < 4 * group.columns
