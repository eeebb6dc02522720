"""The allocation of OWL (Yin et al. 2024, Outlier Weighed Layerwise Sparsity): a sparsity for every block.

A block with more outliers keeps more. An outlier is a weight whose score |w| ||x|| is above M times the
mean score of its matrix. Scores are those of the dense model, as in OWL's own program.
"""

import torch

from sparsefw.hf import data

THRESHOLD, BOUND = 5.0, 0.08  # OWL's M and lambda for models of the Llama family


def allocation(model, tokenizer, text, samples, sequence_length, sparsity):
    """{regular expression of a block: its sparsity}; the mean over the blocks is `sparsity`.

    Args:
        model: its blocks are model.model.layers and of equal size.
    """
    blocks = model.model.layers
    shares = outlier_shares(model, data.sequences(tokenizer, text, sequence_length, samples))
    by_block = [
        sum(shares[name] for name in shares if name.startswith(f"{index}."))
        / sum(1 for name in shares if name.startswith(f"{index}."))
        for index in range(len(blocks))
    ]
    return {
        rf"\.layers\.{index}\.": value for index, value in enumerate(levels(by_block, sparsity))}


def levels(shares, sparsity):
    """Sparsities in a range of 2 BOUND around `sparsity`, their mean; the largest share has the least."""
    least, most = min(shares), max(shares)
    kept = [2 * BOUND * (share - least) / (most - least) if most > least else 0.0 for share in shares]
    mean = sum(kept) / len(kept)
    return [sparsity - one + mean for one in kept]


def outlier_shares(model, sequences):
    """{matrix of a block: share of its scores above THRESHOLD times their mean}."""
    squares, hooks = {}, []

    def add(name):
        def hook(_, inputs):
            rows = inputs[0].detach().reshape(-1, inputs[0].shape[-1]).double()
            squares[name] = squares.get(name, 0) + (rows**2).sum(0)

        return hook

    linears = {
        name: module for name, module in model.model.layers.named_modules()
        if isinstance(module, torch.nn.Linear)}
    for name, module in linears.items():
        hooks.append(module.register_forward_pre_hook(add(name)))
    with torch.no_grad():
        for one in sequences:
            model(input_ids=torch.as_tensor(one[0]).reshape(1, -1))
    for hook in hooks:
        hook.remove()
    return {name: share(module.weight.detach(), squares[name]) for name, module in linears.items()}


def share(weights, squares):
    scores = weights.double().abs() * squares.sqrt()
    return (scores > THRESHOLD * scores.mean()).double().mean().item()
