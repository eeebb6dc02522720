"""The calls that prune a language model."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Unpack

from sparsefw.hf.folder import resolve_out
from sparsefw.hf.pools.choice import Given
from sparsefw.hf.report import Report
from sparsefw.hf.settings import SAMPLES, SEQUENCE_LENGTH, ModelOptions, Settings, rules_of
from sparsefw.hf.surroundings import own_surroundings
from sparsefw.hf.training.distill import Distillation
from sparsefw.hf.training.refine import BlockRefinement
from sparsefw.hf.tuning import Tuned, Tuning, tuning_of
from sparsefw.hf.work import Work

GRAM_MEMORY: Final = 4 << 30
SPLIT_ABOVE: Final = 4 << 20


@own_surroundings()
def prune_model(
    model: Any,
    tokenizer: Any = None,
    *,
    data: Any,
    sparsity: float | None = None,
    pattern: str = "per-row",
    method: str | None = None,
    server: Given = "auto",
    ignore: str | Sequence[str] = ("lm_head",),
    routers: bool = False,
    propagate: bool = True,
    samples: int = SAMPLES,
    sequence_length: int = SEQUENCE_LENGTH,
    seed: int | None = None,
    allocation: str | Mapping[str, float] = "uniform",
    allocation_bound: float | None = None,
    refine_blocks: bool | BlockRefinement | Mapping[str, Any] | None = None,
    distill: bool | Distillation | Mapping[str, Any] | None = None,
    tune: Tuning | Sequence[Mapping[str, Any]] | None = None,
    state_dir: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: bool = True,
    gram: str = "auto",
    gram_memory: int = GRAM_MEMORY,
    split_above: int = SPLIT_ABOVE,
    device: Any = None,
    trace: bool = False,
    **options: Unpack[ModelOptions],
) -> Report:
    """Prunes the linear layers in the blocks of a Hugging Face model.

    Block after block: the inputs of a block come through the pruned blocks before it; matrices that
    multiply the same tensor share a Gram matrix; the layers of a block are jobs that run in parallel.

    Args:
        model:     a transformers model, which is pruned in place; or a folder of one, which is read block by
                   block, so that it need not fit into memory; or its name on the Hugging Face hub,
                   "ORGANISATION/NAME", where no folder is called so.
        tokenizer: for data that is text; None with a folder: the folder's.
        data:      texts (strings, a column of a Dataset, rows with a column "text"), the path of a file of
                   text, or token ids: one list that is cut, or a list (tensor) of sequences, each
                   [tokens] or [1, tokens].
        sparsity:  share to remove, [0, 1]; with "per-row" and "unstructured".
        pattern, method, options: as sparsefw.JobOptions (alpha, iterations, step_rule, swaps, reconstruct,
                   joint, warm_start, ...). The device of the server is `job_device`. preset: "fast",
                   "balanced", "best" prune and refine, slower in this order; "paper" is the paper's. It
                   is "balanced" where no method, no option of one and no training is named.
        server:    "auto", "host:port", a client, or a list of servers.
        ignore:    regular expressions, or one; a parameter in whose name one is found stays dense. After
                   "re:" one is matched with the beginning of the module's name, as llm-compressor does. A
                   parameter with two or more dimensions that is neither covered nor ignored is an error.
                   Embeddings and the output head always stay dense, whatever is given here; so does what is
                   tied to them.
        routers:   also prune what chooses the experts; they stay dense otherwise.
        propagate: False: every block sees what the dense model gives it.
        samples:   sequences of calibration text, at most. num_calibration_samples is the same.
        sequence_length: tokens of a sequence, at most. max_seq_length is the same.
        seed:      None: where there are more sequences than `samples`, those are taken that are spread evenly
                   over the text; a number: sequences drawn at random with it.
        allocation: "uniform"; "loss-curve": a sweep on every matrix first, then the split of the budget that
                   minimises the sum of relative losses, each sparsity within allocation_bound (0.1) of
                   `sparsity`; "owl": a block with more outliers in the dense model keeps more, sparsities of
                   blocks in a range of 2 allocation_bound (0.08); or {regular expression: sparsity}, the
                   first that is found in a name counts.
        refine_blocks: after a block is pruned, gradient steps bring what it makes of its inputs to what the
                   dense block makes of the dense model's: True, False, sparsefw.hf.BlockRefinement(epochs=,
                   ...), or a dictionary of what differs from the preset's; None: as the preset has it, and
                   not at all without one. Needs propagate. The state with the least error on held-back
                   sequences stays.
        distill:   at the end, gradient steps on the whole model bring its predictions to the dense model's:
                   True, False, sparsefw.hf.Distillation(epochs=, ...), or a dictionary of what differs from
                   the preset's; None: as the preset has it ("best" distils). Needs an output head, and all of
                   the model in memory with 17 bytes a pruned weight more, 19 where products are bfloat16.
        tune:      candidates, dictionaries of arguments that replace those given here, or sparsefw.hf.Tuning.
                   Every one prunes the first blocks, and the one whose model has the least loss on held-back
                   sequences prunes the whole model. report.tuning is the table.
        state_dir: a folder for finished blocks. The same call goes on from there after any end.
        out:       a folder for the pruned model, in the dtype it has, with tokenizer and sparsefw.json: a new
                   one, or an empty one, which is filled. Checked before anything is computed.
        overwrite: replace the pruned model of another run in `out`. A run with a `state_dir` replaces its own
                   without it.
        gram:      "client": summed by torch where the activations are; "server": activations are sent and
                   summed there; "auto": what is fewer bytes. Fused experts are always summed by the client.
        gram_memory: bytes of float64 sums that are held together; more are made in several passes.
        split_above: weights of a matrix above which ranges of its rows are jobs of their own, which several
                   servers share; but with "unstructured".
        device:    of torch, for a folder; None: CUDA where there is one.
        trace:     the report's layers also have "trace": relaxed and rounded loss, gap and threshold
                   residual at every report that arrived (options: report_every); a slow reader gets the
                   latest.

    Returns:
        A report: `print(report)`, `report.rows()`, `report.save(path)`, `report.plot(path)`.

    Raises:
        InvalidArgument (CLIENT_ARGUMENT): arguments, or an architecture that is not covered.
        FailedPrecondition (STATE_DIFFERS): state_dir is of another run; the message names the difference.
        Error: of a server; the message names the matrix.
    """
    place = resolve_out(out) if out is not None else None
    settings = Settings(
        sparsity=sparsity,
        pattern=pattern,
        method=method,
        ignore=rules_of(ignore),
        routers=routers,
        propagate=propagate,
        samples=samples,
        sequence_length=sequence_length,
        seed=seed,
        allocation=allocation,
        allocation_bound=allocation_bound,
        gram=gram,
        gram_memory=gram_memory,
        split_above=split_above,
        options=options,
        refine_blocks=refine_blocks,
        distill=distill,
    )
    started = time.monotonic()
    with Work(
        model,
        tokenizer,
        data,
        settings,
        tuning_of(tune),
        server,
        state_dir,
        place,
        progress,
        device,
        overwrite,
    ) as work:
        report = work.prune(trace)
        report.seconds = time.monotonic() - started
        if place is not None:
            work.write(place, report)
    return report


@own_surroundings()
def tune(
    model: Any,
    tokenizer: Any = None,
    *,
    data: Any,
    candidates: Sequence[Mapping[str, Any]],
    blocks: int | None = None,
    held_back: float = 0.25,
    sparsity: float | None = None,
    pattern: str = "per-row",
    server: Given = "auto",
    ignore: str | Sequence[str] = ("lm_head",),
    routers: bool = False,
    samples: int = SAMPLES,
    sequence_length: int = SEQUENCE_LENGTH,
    seed: int | None = None,
    state_dir: str | os.PathLike[str] | None = None,
    progress: bool = True,
    gram_memory: int = GRAM_MEMORY,
    split_above: int = SPLIT_ABOVE,
    device: Any = None,
    **options: Any,
) -> Tuned:
    """Finds which of several settings make the best model, without pruning all of it.

    Every candidate prunes the first blocks, the rest stays dense; the model's loss on calibration sequences
    that it did not see decides. The model is as before afterwards.

    Args:
        candidates, blocks, held_back: as sparsefw.hf.Tuning.
        model, tokenizer, data, ...: as prune_model.
        options:   of all candidates; their own come first.

    Returns:
        `print(found)`, `found.best`: the winner's arguments for prune_model, `found.save(path)`.

    Raises:
        as prune_model.
    """
    settings = Settings(
        sparsity=sparsity,
        pattern=pattern,
        method=options.pop("method", None),
        ignore=rules_of(ignore),
        routers=routers,
        propagate=options.pop("propagate", True),
        samples=samples,
        sequence_length=sequence_length,
        seed=seed,
        allocation=options.pop("allocation", "uniform"),
        allocation_bound=options.pop("allocation_bound", None),
        gram=options.pop("gram", "auto"),
        gram_memory=gram_memory,
        split_above=split_above,
        refine_blocks=options.pop("refine_blocks", None),
        distill=options.pop("distill", None),
        options=options,
    )
    tuning = Tuning(candidates, blocks, held_back)
    with Work(
        model, tokenizer, data, settings, tuning, server, state_dir, None, progress, device, prunes=False
    ) as work:
        return work.tune()
