"""Sparsities by a search on the model's own loss on text that is held back from calibration.

A group is one kind of matrix in a few neighbouring blocks. A sweep of every matrix, with the dense model's
inputs, gives its masks at all levels. A group's curve is the divergence of the model's predictions from those
of the dense model, with the group at each level and every other matrix at the middle one. The sum of the
curves is then made least: it takes groups as if they did not depend on each other.
"""

import re
import statistics

import torch

from sparsefw import connect
from sparsefw.hf import allocate, data
from sparsefw.hf.training.distill import divergence
from sparsefw.torch import GramSum

_MATRIX = re.compile(r"\.layers\.(\d+)\..*\.(\w+)$")


def held_back(tokenizer, text, length, samples, count):
    """`count` sequences of the text, each half way between two of the `samples` that calibration takes."""
    every = data.sequences(tokenizer, text, length, None)
    taken = {index * len(every) // samples for index in range(samples)}
    chosen = [(2 * (index * samples // count) + 1) * len(every) // (2 * samples) for index in range(count)]
    if taken & set(chosen):
        raise ValueError("a held-back sequence is also a sample")
    return [every[index] for index in chosen]


def matrices(model):
    """{name: module} of the blocks' matrices."""
    return {
        name: module for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and _MATRIX.search(name)}


def groups(names, blocks):
    """{rule of prune_model's allocation: names of its matrices}, `blocks` neighbouring blocks a group."""
    found = {}
    for name in names:
        index, kind = _MATRIX.search(name).groups()
        first = int(index) // blocks * blocks
        some = "|".join(str(first + offset) for offset in range(blocks))
        found.setdefault(rf"\.layers\.(?:{some})\..*\.{kind}\.", []).append(name)
    return found


def grams(model, linears, samples):
    """{name: the Gram matrix of the module's inputs}"""
    sums = {name: GramSum(module.in_features) for name, module in linears.items()}
    handles = [
        module.register_forward_pre_hook(lambda _module, args, sum=sums[name]: sum.add(args[0]))
        for name, module in linears.items()]
    with torch.no_grad():
        for ids in samples:
            model(input_ids=ids, use_cache=False)
    for handle in handles:
        handle.remove()
    return {name: of_inputs.matrix() for name, of_inputs in sums.items()}


def masks(server, linears, of_inputs, pattern, levels, iterations):
    """{name: [mask at each level]}"""
    found = {}
    with connect(server.address) as client:
        for name, module in linears.items():
            swept = client.sweep(
                module.weight.detach(), of_inputs.pop(name), pattern=pattern, sparsity=levels, keep_all=True,
                method="sparsefw", warm_start="wanda", step_rule="line-search", iterations=iterations)
            found[name] = [point.result.torch_mask() for point in swept]
    return found


def logits(model, sequences):
    """The model's, of one sequence after the other."""
    with torch.no_grad():
        for ids in sequences:
            yield model(input_ids=ids, use_cache=False).logits


def mean_divergence(model, sequences, wanted):
    """KL(dense || model), nats, the mean over all positions."""
    return statistics.fmean(
        divergence(found, dense)[0] for found, dense in zip(logits(model, sequences), wanted, strict=True))


def curves(model, linears, of_level, of_group, levels, sequences):
    """{group: [{"sparsity", "loss"}]}; the model's weights are the dense ones before and after."""
    middle = len(levels) // 2
    wanted = list(logits(model, sequences))
    dense = {name: module.weight.detach().clone() for name, module in linears.items()}

    def set_to(names, level):
        for name in names:
            linears[name].weight.data.copy_(dense[name] * of_level[name][level])

    set_to(linears, middle)
    base = mean_divergence(model, sequences, wanted)
    found = {}
    for group, names in of_group.items():
        points = []
        for level, sparsity in enumerate(levels):
            set_to(names, level)
            loss = base if level == middle else mean_divergence(model, sequences, wanted)
            points.append({"sparsity": sparsity, "loss": loss})
        set_to(names, middle)
        found[group] = points
    for name, module in linears.items():
        module.weight.data.copy_(dense[name])
    return found


def find(model, tokenizer, text, server, scale, options):
    """What is kept of a search.

    Args:
        options: of the run: pattern, sparsity and "search", as settings.SEARCH.

    Returns:
        {"allocation": {rule: sparsity}, "curves": {rule: points}}
    """
    how = options["search"]
    levels = [round(options["sparsity"] + step, 6) for step in how["levels"]]
    length = scale.sequence_length
    linears = matrices(model)
    of_group = groups(linears, how["blocks"])
    samples = data.sequences(tokenizer, text, length, scale.samples)
    of_inputs = grams(model, linears, samples)
    of_level = masks(server, linears, of_inputs, options["pattern"], levels, how["iterations"])
    judged = held_back(tokenizer, text, length, scale.samples, how["sequences"])
    found = curves(model, linears, of_level, of_group, levels, judged)
    sizes = {
        group: sum(linears[name].weight.numel() for name in names) for group, names in of_group.items()}
    allocation = allocate.by_loss(sizes, found, options["sparsity"])
    return {
        "allocation": {group: round(value, 6) for group, value in allocation.items()},
        "curves": {
            group: [{**point, "loss": float(f"{point['loss']:.6g}")} for point in points]
            for group, points in found.items()}}
