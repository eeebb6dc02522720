"""Variants of the refinement of blocks, made by replacing parts of sparsefw.hf while a trial runs.

The package has no option for any of them.
"""

import contextlib
import copy
import dataclasses
import functools
import math
import statistics
from unittest import mock

import torch
import trials_settings

from sparsefw.hf import run
from sparsefw.hf.calibration import step
from sparsefw.hf.data import hold_back
from sparsefw.hf.layout import find_blocks
from sparsefw.hf.training import refine, steps

_usual, _Errors = refine.refine_block, refine._Errors


class PlainErrors(_Errors):
    """The mean squared error alone, in the unit of the mean change: one divisor for every token."""

    def __init__(self, hidden, targets, indices):
        super().__init__(hidden, targets, indices)
        self._mean = statistics.fmean(
            float(refine._change(hidden[index], targets[index]).mean()) for index in indices)

    def of(self, out, hidden, target):
        return (out.float() - target.float()).square().mean() / self._mean


class Batched(steps.Training):
    """Steps with the mean gradient of several sequences; the last step of an epoch takes what is left."""

    def __init__(self, module, names, schedule, count, size):
        an_epoch = count // schedule.epochs
        super().__init__(module, names, schedule, schedule.epochs * math.ceil(an_epoch / size))
        self._size, self._waiting = size, []

    def step(self, backward):
        self._waiting.append(backward)
        if len(self._waiting) == self._size:
            self._step_now()

    def write(self):
        if self._waiting:
            self._step_now()
        super().write()

    def _step_now(self):
        waiting, self._waiting = self._waiting, []

        def backward():
            for one in waiting:
                one()
            for weight in self._weights.values():
                if weight.grad is not None:
                    weight.grad.div_(len(waiting))

        super().step(backward)


class AttentionHalf(torch.nn.Module):
    """The part of a Llama block up to the sum behind attention."""

    parts = ("input_layernorm", "self_attn")

    def __init__(self, block):
        super().__init__()
        self.input_layernorm, self.self_attn = block.input_layernorm, block.self_attn

    def forward(self, hidden, **arguments):
        out = self.self_attn(hidden_states=self.input_layernorm(hidden), **arguments)
        return hidden + out[0]


class MlpHalf(torch.nn.Module):
    """The part of a Llama block from there on."""

    parts = ("post_attention_layernorm", "mlp")

    def __init__(self, block):
        super().__init__()
        self.post_attention_layernorm, self.mlp = block.post_attention_layernorm, block.mlp

    def forward(self, hidden, **_arguments):
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


def _half_layout(layout, half):
    """The layout of one half: names within it are those within the block."""
    return dataclasses.replace(
        layout,
        matrices=tuple(matrix for matrix in layout.matrices if matrix.module.startswith(half.parts)),
        vectors=tuple(name for name in layout.vectors if name.startswith(half.parts)))


def _outputs(block, hidden, calls):
    with torch.no_grad():
        return [call.run(block, hidden[index]).clone() for index, call in enumerate(calls)]


class Apart:
    """refine_block for attention first, towards what the dense half gives, and then for the MLP."""

    def __init__(self, dense):
        self._dense, self._inputs = dense, None

    def __call__(self, block, layout, hidden, targets, calls, settings, on_epoch):
        dense_inputs = self._inputs or [hidden[index].clone() for index in range(len(calls))]
        self._inputs = [targets[index].clone() for index in range(len(calls))]
        middle = _outputs(AttentionHalf(self._dense[layout.index]), dense_inputs, calls)
        half = AttentionHalf(block)
        first = _usual(half, _half_layout(layout, half), hidden, middle, calls, settings, on_epoch)
        inputs = _outputs(half, hidden, calls)
        half = MlpHalf(block)
        second = _usual(half, _half_layout(layout, half), inputs, targets, calls, settings, on_epoch)
        return {**second, "epoch": max(first["epoch"], second["epoch"])}


def _second_look(dense, put, changed_shares):
    """Once a block is refined, its removed weights get their old values back; it is solved again, and refined
    once more. `changed_shares` gets the share of the mask that changed, by matrix.
    """
    usual_solve, usual_refine = run.Run._solve, run.Run._refine
    given = {}

    def solve(this, pool, step_of, shares):
        given.update(pool=pool, shares=shares)
        return usual_solve(this, pool, step_of, shares)

    def refine_twice(this, step_of, outcome):
        usual_refine(this, step_of, outcome)
        matrices, block = step_of.layout.matrices, step_of.block
        masks = {}
        for matrix in matrices:
            view, old = matrix.view(block), matrix.view(dense[step_of.layout.index])
            masks[matrix.name] = view != 0
            view.copy_(torch.where(view != 0, view, old))
        outcome = usual_solve(this, given["pool"], step_of, given["shares"])
        step_of.apply(outcome.tensors)
        for matrix in matrices:
            now = matrix.view(block) != 0
            changed_shares.append(float((now != masks[matrix.name]).float().mean()))
        return usual_refine(this, step_of, outcome)

    put(run.Run, "_solve", solve)
    put(run.Run, "_refine", refine_twice)


def measured(inner):
    """refine_block with the errors that the usual one has, whatever the variant's own are."""

    def refine_block(block, layout, hidden, targets, calls, settings, on_epoch=lambda *_: None):
        trained, held = hold_back(len(calls), max(1, round(len(calls) * settings.held_back)))
        errors = _Errors(hidden, targets, trained)

        def error():
            with torch.no_grad():
                return statistics.fmean(
                    float(errors.of(calls[index].run(block, hidden[index]), hidden[index], targets[index]))
                    for index in held)

        before = error()
        record = inner(block, layout, hidden, targets, calls, settings, on_epoch)
        return {**record, "error_before": before, "error_after": error()}

    return refine_block


def _without_norms(block, layout, *rest):
    return _usual(block, dataclasses.replace(layout, vectors=()), *rest)


@contextlib.contextmanager
def changed(model, loss="relative", batch=1, norms=True, apart=False, second=False):
    """Within it prune_model refines as the trial says; gives facts of the trial, filled as it runs.

    Args:
        loss:   "plain": without the divisor of each token.
        batch:  sequences of a step.
        norms:  False: the matrices' weights alone are trained.
        apart:  attention and MLP one after the other.
        second: masks are found again after the first refinement.
    """
    inner = _usual if norms else _without_norms
    dense = None
    if apart or second:
        dense = copy.deepcopy(list(model.get_submodule(find_blocks(model))[:trials_settings.BLOCKS]))
    facts = {}
    with contextlib.ExitStack() as stack:

        def put(owner, name, value):
            stack.enter_context(mock.patch.object(owner, name, value))

        if loss == "plain":
            put(refine, "_Errors", PlainErrors)
        if batch > 1:
            put(refine, "Training", functools.partial(Batched, size=batch))
        if apart:
            inner = Apart(dense)
        put(step, "refine_block", measured(inner))
        shares = []
        if second:
            _second_look(dense, put, shares)
        yield facts
        if second:
            facts["mask_changed"] = round(statistics.fmean(shares), 4)
