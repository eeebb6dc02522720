"""One run over the blocks of a model: Gram matrices, jobs, outcomes, the way to the next block."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import torch
import transformers

import sparsefw
from sparsefw.errors import CALIBRATION_LOST, Unavailable
from sparsefw.hf.calibration.hidden import HiddenStates
from sparsefw.hf.calibration.shared_grams import SharedGrams
from sparsefw.hf.calibration.step import Step
from sparsefw.hf.calibration.walk import walk
from sparsefw.hf.cluster.settings import Ray
from sparsefw.hf.jobs import Jobs
from sparsefw.hf.layout import Block, dense_outside
from sparsefw.hf.pools.choice import Place, open_pool
from sparsefw.hf.pools.tasks import Pool
from sparsefw.hf.progress import Progress
from sparsefw.hf.report import Report
from sparsefw.hf.settings import Settings
from sparsefw.hf.source import InMemory, Source, apply, device_to_load, pack, packed
from sparsefw.hf.sparsities import Sparsities
from sparsefw.hf.state import DISTILLATION, BlockState, State
from sparsefw.hf.training.distill import check_memory, distill

# Begins the names of files in the state.
_DISTILLED: Final = "distilled"
# Losses of hidden states in a row, without a block between them, after which a run fails.
_TRIES: Final = 3
Outcome = TypeVar("Outcome")


class Run:
    """One run over all blocks."""

    def __init__(
        self,
        source: Source,
        settings: Settings,
        layout: Sequence[Block],
        samples: Sequence[Any],
        state: State,
        progress: Progress,
        lasting: bool,
        trace: bool = False,
        grams: SharedGrams | None = None,
    ) -> None:
        """`grams`: of other runs, whose inputs are the same until the first block is pruned."""
        self._source, self._settings, self._layout = source, settings, layout
        self._state, self._progress, self._lasting, self._trace = state, progress, lasting, trace
        self._samples = [sample.to(source.device) for sample in samples]
        # Records of finished blocks, so that tensors are not read and hashed for these alone.
        self._records: dict[int, list[dict[str, Any]]] = {}
        self._refinements: dict[int, dict[str, Any]] = {}
        first = next((block.index for block in layout if block.matrices), 0)
        tokens = sum(int(sample.shape[1]) for sample in samples)
        self._jobs = Jobs(settings, first, tokens, progress, grams)
        self._sparsities = Sparsities(settings, layout, state, progress, self._jobs)
        self._distillation: dict[str, Any] | None = None
        # What the dense model's last block gives, for distillation, and the length of what a block returns.
        self._targets: tuple[HiddenStates, int] | None = None
        self._cluster: dict[str, Any] | None = None
        self._counted: set[int] = set()  # blocks whose matrices the progress has counted

    def outcomes(self, index: int) -> Mapping[str, Any]:
        """The tensors of a finished block."""
        record = self._distillation
        distilled = record is not None and record["kept"] == "end" and self._layout[index].matrices
        done = self._state.load_block(index, _DISTILLED if distilled else "block")
        assert done is not None
        return done.tensors

    def to_the_end(self, place: Place) -> Report:
        """The report of all that is done then, by this call and those before it."""
        try:
            return self._to_the_end(place)
        finally:
            self._drop_targets()

    def _to_the_end(self, place: Place) -> Report:
        for block in self._layout:
            if (done := self._state.load_block(block.index)) is not None:
                self._keep_records(block.index, done)
        missing = [block for block in self._layout if block.index not in self._records]
        versions: dict[str, str] = {
            "sparsefw": sparsefw.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }
        if not missing:
            self._distillation = self._load_distillation()
        distils = self._settings.distillation is not None and self._distillation is None
        if distils:
            # Again: a distillation that counted as done may be damaged.
            what = self._settings.distilled_by
            check_memory(self._source.model, self._layout, device_to_load(self._source), what)
            self._state.forget(DISTILLATION)  # of other blocks; half of a new one must not count with it
        # Nothing behind the last block that is still to be pruned is run; distillation wants to know what the
        # dense model makes in the end.
        last = max((block.index for block in missing if block.matrices), default=-1)
        last = self._layout[-1].index if distils else last
        if missing or (distils and isinstance(place, Ray)):
            run, above = self._state.run, self._settings.split_above
            with open_pool(place, run, above, self._lasting, self._trace, self._progress) as pool:
                self._state.work_with(lambda: {**versions, "server": pool.version}, len(self._layout))
                shares: Mapping[str, float] = {}
                if missing:
                    shares = self._despite_losses(lambda: self._sparsities.find(pool, self._walk))
                for block in missing:
                    if not block.matrices:  # all of it is ignored
                        self._state.save_block(block.index, BlockState({}, []))
                        self._keep_records(block.index, BlockState({}, []))
                if last >= 0:
                    self._despite_losses(lambda: self._prune_blocks(pool, shares, last, distils))
                self._cluster = pool.facts()
        elif distils:
            self._state.work_with(lambda: versions, len(self._layout))
            self._prune_blocks(None, {}, last, distils)
        if distils:
            self._distil()
        self._apply([block for block in self._layout if block.index > last])
        layers = [record for block in self._layout for record in self._records[block.index]]
        dense = [name for block in self._layout for name in block.dense]
        dense += dense_outside(self._source.model, self._settings.ignore)
        made_by = self._state.versions(len(self._layout))
        refinements = [self._refinements[index] for index in sorted(self._refinements)]
        return Report(
            {},
            made_by,
            layers,
            dense,
            0.0,
            curves=self._sparsities.curves(),
            outliers=self._sparsities.outliers(),
            refinements=refinements,
            distillation=self._distillation,
            cluster=self._cluster,
        )

    def _keep_records(self, index: int, block: BlockState) -> None:
        self._records[index] = block.records
        if block.refinement is not None:
            self._refinements[index] = block.refinement

    def _apply(self, finished: Sequence[Block]) -> None:
        if isinstance(self._source, InMemory):
            for block in finished:
                with self._source.block(block.index) as module:
                    apply(module, block, self.outcomes(block.index))
        self._progress.done(sum(len(block.matrices) for block in finished))

    def _walk(self, pool: Pool | None, layout: Sequence[Block], streams: int = 1) -> Iterator[Step]:
        way = pool.walk if pool else walk
        return way(self._source, self._samples, self._state.folder, layout, streams)

    def _despite_losses(self, work: Callable[[], Outcome]) -> Outcome:
        """A cluster may lose hidden states for good. Then the samples pass the finished blocks again."""
        finished, tries = len(self._records), 0
        while True:
            try:
                return work()
            except Unavailable as error:
                tries = 1 if len(self._records) > finished else tries + 1
                finished = len(self._records)
                # A model in memory was pruned in part: its blocks are not the dense ones any more.
                in_memory = isinstance(self._source, InMemory)
                if error.reason != CALIBRATION_LOST or tries == _TRIES or in_memory:
                    raise

    def _prune_blocks(self, pool: Pool | None, shares: Mapping[str, float], last: int, distils: bool) -> None:
        """The first stream goes through the pruned blocks. A second one, for refinement and distillation,
        goes through the dense ones: there it becomes the targets of the block, and those of the model.

        Args:
            pool: None where every block is finished.
        """
        self._drop_targets()  # an earlier try may have left them
        propagate = self._settings.propagate
        streams = 1 if self._settings.refinement is None and not distils else 2
        layout = [block for block in self._layout if block.index <= last]
        for step in self._walk(pool, layout, streams):
            of_block = step.layout
            index = of_block.index
            advance = index < last
            done = self._state.load_block(index) if index in self._records else None
            if done is None:
                assert pool is not None
                outcome = self._solve(pool, step, shares)
            else:
                outcome = done
            if advance and not propagate:
                step.advance()
            if streams > 1 and (advance or done is None or distils):
                self._progress.block(index, "dense forward")
                step.advance(1)
            step.apply(outcome.tensors)
            if done is None:
                if self._settings.refinement is not None and of_block.matrices:
                    outcome = self._refine(step, outcome)
                self._state.save_block(index, outcome)
                self._keep_records(index, outcome)
            else:
                self._progress.block(index, "finished before")
                self._progress.done(0 if index in self._counted else len(of_block.matrices))
            self._counted.add(index)
            if advance and propagate:
                self._progress.block(index, "forward")
                step.advance()
            if distils and not advance:
                self._keep_targets(step)
            del done, outcome  # not beside those of the next block

    def _keep_targets(self, step: Step) -> None:
        """Nothing comes behind the last block: only one stream is still wanted."""
        length = step.tuple_length()
        step.end(0)
        targets = HiddenStates(self._state.folder)
        self._targets = targets, length
        for sample in step.hidden(1):
            targets.append(sample)

    def _drop_targets(self) -> None:
        if self._targets is not None:
            self._targets[0].close()
            self._targets = None

    def _load_distillation(self) -> dict[str, Any] | None:
        """None where there was none, or where its outcome is damaged: it is done again then."""
        record: dict[str, Any] | None = self._state.load(DISTILLATION)
        if self._settings.distillation is None or record is None or record["kept"] == "start":
            return record
        pruned = (block.index for block in self._layout if block.matrices)
        whole = all(self._state.load_block(index, _DISTILLED) is not None for index in pruned)
        return record if whole else None

    def _distil(self) -> None:
        """Distils the model; where it is in memory, it is changed there."""
        settings = self._settings.distillation
        assert settings is not None
        assert self._targets is not None
        targets, length = self._targets

        def shown(epoch: int, divergence: float) -> None:
            self._progress.model(f"distilling {epoch}/{settings.epochs}, divergence {divergence:.4f}")

        model = self._source.model
        with contextlib.closing(targets), self._source.whole(self._layout, self.outcomes):
            record = distill(model, self._layout, self._samples, targets, length, settings, shown)
            for of_block in self._layout if record["kept"] == "end" else ():
                if of_block.matrices:
                    block = model.get_submodule(of_block.name)
                    self._state.save_block(
                        of_block.index, BlockState(packed(block, of_block), []), _DISTILLED
                    )
        self._state.save(DISTILLATION, record)
        self._distillation = record

    def _refine(self, step: Step, outcome: BlockState) -> BlockState:
        """The block's outcome after refinement; the block has it."""
        settings = self._settings.refinement
        assert settings is not None
        index, name = step.layout.index, step.layout.name

        def shown(epoch: int, error: float) -> None:
            self._progress.block(index, f"refining {epoch}/{settings.epochs}, kept error {error:.2%}")

        record, tensors = step.refine(settings, shown)
        outcome = BlockState(outcome.tensors, outcome.records, {"name": name, **record})
        return outcome if tensors is None else dataclasses.replace(outcome, tensors=tensors)

    def _solve(self, pool: Pool, step: Step, shares: Mapping[str, float]) -> BlockState:
        """The outcome of a block's jobs."""
        tensors: dict[str, Any] = {}
        records: dict[str, dict[str, Any]] = {}
        if not step.layout.matrices:
            return BlockState(tensors, [])
        for tasks, tokens in self._jobs.batches(pool, step, shares):
            solved = pool.solve(tasks, lambda task, event: self._progress.event(task.matrix.name, event))
            for task, outcome in zip(tasks, solved, strict=True):
                name, tensor = pack(outcome.matrix, outcome.mask, outcome.weight)
                tensors[name] = tensor
                records[outcome.matrix.name] = {**outcome.record, "tokens": tokens[task.gram]}
                self._progress.done()
        return BlockState(tensors, [records[matrix.name] for matrix in step.layout.matrices])
