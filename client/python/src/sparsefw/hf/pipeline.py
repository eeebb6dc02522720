"""The call that prunes a language model."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from sparsefw.client import Client
from sparsefw.hf import data as texts
from sparsefw.hf.folder import check_out, near, resolve_out, write_folder
from sparsefw.hf.layout import layout_of
from sparsefw.hf.perplexity import evaluating
from sparsefw.hf.progress import Progress
from sparsefw.hf.refine import BlockRefinement, check_refinement, refinement_of
from sparsefw.hf.report import Report
from sparsefw.hf.run import Run
from sparsefw.hf.settings import Settings, folder_of, servers_of
from sparsefw.hf.source import InMemory, Source, Streamed
from sparsefw.hf.state import State

GRAM_MEMORY: Final = 4 << 30
SPLIT_ABOVE: Final = 4 << 20


def prune_model(
    model: Any,
    tokenizer: Any = None,
    *,
    data: Any,
    sparsity: float | None = None,
    pattern: str = "per-row",
    method: str | None = None,
    server: str | Client | Sequence[str | Client] = "auto",
    ignore: str | Sequence[str] = ("lm_head",),
    routers: bool = False,
    propagate: bool = True,
    samples: int = 128,
    sequence_length: int = 2048,
    allocation: str | Mapping[str, float] = "uniform",
    allocation_bound: float = 0.1,
    refine_blocks: bool | BlockRefinement = False,
    state_dir: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool = True,
    gram: str = "auto",
    gram_memory: int = GRAM_MEMORY,
    split_above: int = SPLIT_ABOVE,
    device: Any = None,
    trace: bool = False,
    **options: Any,
) -> Report:
    """Prunes the linear layers in the blocks of a Hugging Face model.

    Block after block: the inputs of a block come through the pruned blocks before it; matrices that
    multiply the same tensor share a Gram matrix; the layers of a block are jobs that run in parallel.

    Args:
        model:     a transformers model, which is pruned in place; or a folder of one, which is read block by
                   block, so that it need not fit into memory.
        tokenizer: for data that is text; None with a folder: the folder's.
        data:      texts, or token ids: one list that is cut, or a list (tensor) of sequences.
        sparsity:  share to remove, [0, 1]; with "per-row" and "unstructured".
        pattern, method, options: as sparsefw.JobOptions (alpha, iterations, step_rule, swaps, reconstruct,
                   joint, preset, warm_start, ...); "sparsefw" unless method or preset says otherwise. The
                   device of the server is `job_device`.
        server:    "auto", "host:port", a client, or a list of servers.
        ignore:    regular expressions of parameter names that stay dense, or one of them. A parameter with
                   two or more dimensions that is neither covered nor ignored is an error. Embeddings and the
                   output head always stay dense, whatever is given here; so does what is tied to them.
        routers:   also prune what chooses the experts; they stay dense otherwise.
        propagate: False: every block sees what the dense model gives it.
        samples:   sequences of calibration text, at most.
        sequence_length: tokens of a sequence, at most.
        allocation: "uniform"; "loss-curve": a sweep on every matrix first, then the split of the budget that
                   minimises the sum of relative losses, each sparsity within allocation_bound of
                   `sparsity`; or {regular expression: sparsity}, the first that is found in a name counts.
        refine_blocks: after a block is pruned, gradient steps bring what it makes of its inputs to what the
                   dense block makes of the dense model's: True, or sparsefw.hf.BlockRefinement(epochs=, ...).
                   The state with the least error on held-back sequences is kept. Needs propagate.
        state_dir: a folder for finished blocks. The same call goes on from there after any end.
        out:       a folder for the pruned model, in the dtype it has, with tokenizer and sparsefw.json: a new
                   one, an empty one, which is filled, or one from an earlier run, which is replaced. Checked
                   before anything is computed.
        gram:      "client": summed by torch where the activations are; "server": activations are sent and
                   summed there; "auto": what is fewer bytes. Fused experts are always summed by the client.
        gram_memory: bytes of float64 sums that are held together; more are made in several passes.
        split_above: weights of a matrix above which its rows are divided among several servers.
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
    if "job_device" in options:
        options["device"] = options.pop("job_device")
    ignore = (ignore,) if isinstance(ignore, str) else tuple(ignore)  # not one a letter
    settings = Settings(
        sparsity=sparsity,
        pattern=pattern,
        method=method,
        ignore=ignore,
        routers=routers,
        propagate=propagate,
        samples=samples,
        sequence_length=sequence_length,
        allocation=allocation,
        allocation_bound=allocation_bound,
        gram=gram,
        gram_memory=gram_memory,
        split_above=split_above,
        options={key: value for key, value in options.items() if value is not None},
        refine_blocks=refinement_of(refine_blocks),
    )
    data = texts.listed(data)
    servers = servers_of(server)
    started = time.monotonic()
    folder, place = folder_of(model), resolve_out(out) if out is not None else None
    if place is not None:
        check_out(place, Path(state_dir) if state_dir is not None else None, folder)
    source: Source
    if folder is None:
        source = InMemory(model)
    else:
        source = Streamed(folder, device or ("cuda" if torch.cuda.is_available() else "cpu"))
        tokenizer = tokenizer or texts.tokenizer_of(folder, data)
    length = texts.longest(source.model.config, sequence_length)
    sequences = texts.sequences(tokenizer, data, length, samples)
    layout = layout_of(source.model, ignore, routers)
    if settings.refine_blocks is not None:
        check_refinement(source.model, len(sequences))
    facts = settings.facts(source.digest(), texts.digest(sequences), sequences, len(servers))
    with contextlib.ExitStack() as stack:
        stack.enter_context(evaluating(source.model))
        lasting = state_dir is not None
        if state_dir is None:
            disk = near(place) if place is not None else None
            state_dir = stack.enter_context(tempfile.TemporaryDirectory(prefix=".sparsefw-", dir=disk))
        state = State(Path(state_dir), facts)
        stack.callback(state.close)
        shown = Progress(sum(len(block.matrices) for block in layout), len(layout), progress)
        stack.callback(shown.close)
        run = Run(source, settings, layout, sequences, state, shown, lasting, trace)
        report = run.to_the_end(servers)
        report.settings = facts
        report.seconds = time.monotonic() - started
        if place is not None:
            report.out = str(place)
            write_folder(
                place,
                report,
                tokenizer if folder is None else None,
                lambda path: source.write(path, layout, run.outcomes),
            )
    return report
