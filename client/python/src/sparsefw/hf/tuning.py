"""Settings chosen by the model itself.

Losses of single layers do not say which settings make the best model. Here every candidate prunes the first
blocks, the rest stays dense, and the model's loss on held-back calibration text decides.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from sparsefw._files import atomically
from sparsefw._text import printable
from sparsefw.errors import InvalidArgument, invalid
from sparsefw.hf import allocate
from sparsefw.hf import data as texts
from sparsefw.hf.calibration.capture import after_blocks
from sparsefw.hf.calibration.shared_grams import SharedGrams
from sparsefw.hf.calibration.walk import blocks_of, walk
from sparsefw.hf.layout import Block, compile_rule
from sparsefw.hf.perplexity import summed_loss
from sparsefw.hf.pools.choice import Place
from sparsefw.hf.progress import Progress
from sparsefw.hf.run import Run
from sparsefw.hf.settings import Settings
from sparsefw.hf.source import InMemory, Source
from sparsefw.hf.state import State
from sparsefw.hf.training.steps import Schedule
from sparsefw.hf.values import finite, is_number, plain, shown
from sparsefw.paired import paired

# What candidates may not differ in: then their losses would say nothing, or they would be other runs.
_COMMON: Final = (
    "model", "tokenizer", "data", "sparsity", "pattern", "server", "ignore", "routers", "samples",
    "sequence_length", "state_dir", "out", "progress", "device", "trace", "tune", "gram_memory",
    "split_above", "distill", "seed", "num_calibration_samples", "max_seq_length",
)  # fmt: skip
_FIELDS: Final = ("method", "propagate", "allocation", "allocation_bound", "gram", "refine_blocks")
# In a run's folder.
_TABLE: Final = "tuning"


@dataclasses.dataclass(frozen=True)
class Tuning:
    """How settings are chosen.

    Attributes:
        candidates: at least two dictionaries of arguments of prune_model, which replace those of the call;
                    {} are those of the call. Not sparsity, pattern, data and what else they must share.
        blocks:     of those with matrices, so many first ones are pruned by every candidate, the rest stays
                    dense; None: a quarter of them, at least two.
        held_back:  share of the sequences that judge, (0, 0.5], at least two. The winner prunes with all.
    """

    candidates: Sequence[Mapping[str, Any]]
    blocks: int | None = None
    held_back: float = 0.25

    def __post_init__(self) -> None:
        if (
            isinstance(self.candidates, str | Mapping)
            or not hasattr(self.candidates, "__len__")
            or len(self.candidates) < 2
        ):
            raise invalid("tune needs at least two candidates, dictionaries of arguments of prune_model")
        for index, candidate in enumerate(self.candidates):
            if not isinstance(candidate, Mapping):
                raise invalid(f"a candidate must be a dictionary; got {candidate!r}")
            for name in candidate:
                if not isinstance(name, str):
                    raise invalid(
                        f"candidate {index + 1} of tune: names of arguments must be texts; got {shown(name)}"
                    )
                if name in _COMMON:
                    raise invalid(f"candidates must share {name}; give it to the call")
        for name in ("blocks", "held_back"):
            object.__setattr__(self, name, plain(getattr(self, name)))
        blocks = self.blocks
        if blocks is not None and (not isinstance(blocks, int) or isinstance(blocks, bool) or blocks < 1):
            raise invalid(f"blocks of a tuning must be an integer of at least 1; got {blocks}")
        if not is_number(self.held_back) or not 0 < self.held_back <= 0.5:
            raise invalid(f"held_back must be in (0, 0.5]; got {self.held_back}")

    def check(self, sequences: int) -> None:
        """Raises InvalidArgument (CLIENT_ARGUMENT) where there are too few sequences."""
        split(sequences, self.held_back)

    def facts(self) -> dict[str, Any]:
        """For the manifest and the report."""
        return {
            "candidates": [
                {
                    key: allocate.describe(value) if key == "allocation" else value
                    for key, value in described(candidate).items()
                }
                for candidate in self.candidates
            ],
            "blocks": self.blocks,
            "held_back": self.held_back,
        }


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What a tuning found.

    Attributes:
        candidates: one dictionary each, in their order: options; sparsity (of the matrices that it pruned);
                    loss (nats a token, mean of the held-back windows); losses (of each window); difference
                    (mean over the windows of the loss less the winner's) and interval (95 %, see `paired`);
                    seconds (after a resumption those of its last part).
        chosen:     the index of the winner, the one with the least loss.
        dense_loss: of the dense model on the same windows.
        blocks:     names of the blocks that the candidates pruned.
        windows, seconds: held-back windows; of all of it.
    """

    candidates: list[dict[str, Any]]
    chosen: int
    dense_loss: float
    blocks: list[str]
    windows: int
    seconds: float

    @property
    def best(self) -> dict[str, Any]:
        """The winner's arguments."""
        return dict(self.candidates[self.chosen]["options"])

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no numbers that are not finite: they are None."""
        return dict(finite(dataclasses.asdict(self)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes JSON."""
        with atomically(Path(path)) as file:
            file.write((json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n").encode())

    def __str__(self) -> str:
        ranked = sorted(range(len(self.candidates)), key=lambda index: self.candidates[index]["loss"])
        header = "loss    removed  less the winner's         seconds  candidate"
        lines = [f"{header} ({len(self.blocks)} blocks pruned)"]
        for index in ranked:
            of = self.candidates[index]
            low, high = of["interval"]
            against = "" if index == self.chosen else f"+{of['difference']:.4f} [{low:+.4f}, {high:+.4f}]"
            facts = f"{of['loss']:.4f}  {of['sparsity']:7.2%}  {against:26}{of['seconds']:7.1f}"
            lines.append(f"{facts}  {json.dumps(of['options'])}")
        lines.append(
            f"{self.dense_loss:.4f}  of the dense model; nats a token on {self.windows} windows of "
            "calibration text that the candidates did not see; intervals: 95 %, bootstrap over windows"
        )
        return "\n".join(map(printable, lines))


def tuning_of(value: Any) -> Tuning | None:
    """The tuning that prune_model's argument stands for; None: none."""
    return value if value is None or isinstance(value, Tuning) else Tuning(value)


def described(candidate: Mapping[str, Any]) -> dict[str, Any]:
    """A candidate as JSON has it."""
    return {
        key: dataclasses.asdict(value) if isinstance(value, Schedule) else plain(value)
        for key, value in candidate.items()
    }


def with_candidate(settings: Settings, candidate: Mapping[str, Any]) -> Settings:
    """The call's settings with a candidate's arguments in their place; None takes an option away."""
    fields = {name: candidate[name] for name in _FIELDS if name in candidate}
    options = {**settings.options, **{key: candidate[key] for key in candidate if key not in _FIELDS}}
    return dataclasses.replace(settings, **fields, options=options)


def settings_of(settings: Settings, tuning: Tuning) -> list[Settings]:
    """Those of every candidate.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): no job would take them, or a job option has no such name.
    """
    found = []
    for index, candidate in enumerate(tuning.candidates):
        with named(index):
            found.append(with_candidate(settings, candidate))
    return found


@contextlib.contextmanager
def named(index: int) -> Iterator[None]:
    """What is wrong within is said of the candidate with this index."""
    try:
        yield
    except InvalidArgument as error:
        raise invalid(f"candidate {index + 1} of tune: {error.message}") from None


def split(count: int, share: float) -> tuple[list[int], list[int]]:
    """(indices of sequences that candidates see, of those that judge)

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): there are not enough of them.
    """
    few = max(2, round(count * share))
    if count - few < 2:
        raise invalid(f"tune needs at least four sequences, two of them held back; got {count}")
    return texts.hold_back(count, few)


def tune_settings(
    source: Source,
    settings: Settings,
    tuning: Tuning,
    layout: Sequence[Block],
    samples: Sequence[Any],
    state: State,
    place: Place,
    model: Any,
    lasting: bool,
    progress: bool,
) -> Tuned:
    """Runs the tuning, or reads what an earlier run has found. The model is as before afterwards.

    Memory: of a model in memory, a copy of the blocks that are pruned; of a folder, as its pruning, and
    embeddings and head at the end. Hidden states of all candidates share what those of one run have.

    Args:
        state: of the whole run; candidates have folders of their own in it until all is done.
        model: the source's digest.
        lasting: the state stays for another process.
    """
    folder = state.folder / _TABLE
    if (there := state.load(_TABLE)) is not None:
        shutil.rmtree(folder, ignore_errors=True)  # of a call that ended just before it did that
        return Tuned(**there)
    started = time.monotonic()
    seen, judging = split(len(samples), tuning.held_back)
    calibration = [samples[index] for index in seen]
    pruned = [block for block in layout if block.matrices]
    few = tuning.blocks or max(2, len(pruned) // 4)
    last = pruned[min(few, len(pruned)) - 1].index
    head = layout[: last + 1]
    shared = SharedGrams(folder / "grams")
    outcomes, facts_of = [], []
    with contextlib.ExitStack() as stack:
        for index, one in enumerate(settings_of(settings, tuning)):
            begun = time.monotonic()
            of_this = _within(_undistilled(one), head)
            facts = of_this.facts(model, texts.digest(calibration), calibration)
            own = State(folder / f"candidate-{index:02d}", facts)
            stack.callback(own.close)
            what = f"candidate {index + 1}/{len(tuning.candidates)}"
            shown = Progress(sum(len(block.matrices) for block in head), len(head), progress, what)
            with contextlib.closing(shown), _restored(source, head):
                run = Run(source, of_this, head, calibration, own, shown, lasting, grams=shared)
                report = run.to_the_end(place)
            outcomes.append(run.outcomes)
            facts_of.append({"sparsity": report.sparsity, "seconds": time.monotonic() - begun})
        windows = [samples[index].to(source.device) for index in judging]
        losses = _losses(source, layout, head, outcomes, windows, folder)
    found = _table(tuning, losses, facts_of, [block.name for block in head if block.matrices])
    found = dataclasses.replace(found, seconds=time.monotonic() - started)
    state.save(_TABLE, dataclasses.asdict(found))  # with what is not finite, so that it is read as it was
    shutil.rmtree(folder, ignore_errors=True)
    return found


def _undistilled(settings: Settings) -> Settings:
    """Without distillation, which is of a whole model: it comes after the choice."""
    # distill=False would name training, and settings that name training have no default preset.
    return settings if settings.distillation is None else dataclasses.replace(settings, distill=False)


def _within(settings: Settings, head: Sequence[Block]) -> Settings:
    """Without rules of allocation that are for later blocks."""
    rules = settings.allocation
    if isinstance(rules, str):
        return settings
    names = [matrix.name for block in head for matrix in block.matrices]
    kept = {text: value for text, value in rules.items() if any(map(compile_rule(text).holds, names))}
    return dataclasses.replace(settings, allocation=kept or "uniform")


@contextlib.contextmanager
def _restored(source: Source, layout: Sequence[Block]) -> Iterator[None]:
    """A model in memory has its dense weights afterwards."""
    copies: dict[int, dict[str, Any]] = {}
    if isinstance(source, InMemory):
        for of_block in layout:
            with source.block(of_block.index) as block:
                copies[of_block.index] = _dense(block, of_block)
    try:
        yield
    finally:
        for of_block in layout:
            if of_block.index in copies:
                with source.block(of_block.index) as block:
                    _put_back(block, copies[of_block.index])


def _dense(block: Any, layout: Block) -> dict[str, Any]:
    return {name: block.get_parameter(name).detach().clone() for name in layout.trained}


def _put_back(block: Any, weights: Mapping[str, Any]) -> None:
    for name, weight in weights.items():
        block.get_parameter(name).detach().copy_(weight)


def _losses(
    source: Source,
    layout: Sequence[Block],
    head: Sequence[Block],
    outcomes: Sequence[Callable[[int], Mapping[str, Any]]],
    windows: Sequence[Any],
    folder: Path,
) -> list[list[float]]:
    """Nats a token by model and window: of the dense model, then of every candidate. One pass over the
    blocks for all of them.
    """
    losses: list[list[float]] = []
    for step in walk(source, windows, folder, layout, 1 + len(outcomes)):
        of_block, block, streams = step.layout, step.block, step.streams
        step.advance(0)
        dense = _dense(block, of_block) if of_block.index < len(head) else {}
        for index, outcome in enumerate(outcomes, 1):
            try:
                if dense:
                    step.apply(outcome(of_block.index))
                step.advance(index)
            finally:
                _put_back(block, dense)
        if of_block is layout[-1]:
            length = step.tuple_length()
            blocks = blocks_of(source)
            with source.surroundings():
                for stream in streams:
                    losses.append(
                        [
                            summed_loss(after_blocks(source.model, blocks, ids, stream[index], length), ids)
                            / (ids.shape[1] - 1)
                            for index, ids in enumerate(windows)
                        ]
                    )
    return losses


def _table(
    tuning: Tuning, losses: Sequence[Sequence[float]], facts: Sequence[dict[str, Any]], blocks: list[str]
) -> Tuned:
    # A model that overflows has no loss; it is the worst.
    dense, *others = (
        np.nan_to_num(np.asarray(of_model), nan=math.inf, posinf=math.inf) for of_model in losses
    )
    means = [float(of_model.mean()) for of_model in others]
    chosen = int(np.argmin(means))
    if not math.isfinite(means[chosen]):
        raise invalid("no candidate of tune leaves a model with a finite loss on the held-back sequences")
    candidates = []
    for candidate, loss, of_model, more in zip(tuning.candidates, means, others, facts, strict=True):
        difference, low, high = paired(of_model, others[chosen])
        candidates.append(
            {
                "options": described(candidate),
                "loss": loss,
                "losses": of_model.tolist(),
                "difference": difference,
                "interval": [low, high],
                **more,
            }
        )
    return Tuned(candidates, chosen, float(dense.mean()), blocks, len(dense), 0.0)
