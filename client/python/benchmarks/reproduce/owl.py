"""The allocation of OWL (Yin et al. 2024, Outlier Weighed Layerwise Sparsity): a sparsity for every block.

A block with more outliers keeps more. An outlier is a weight whose score |w| ||x|| is above M times the
mean score of its block, as in OWL's own program; or, as a variant, of its matrix, the shares of a block's
matrices counting alike. Scores are those of the dense model.
"""

import torch

from sparsefw.hf import data

THRESHOLD, BOUND = 5.0, 0.08  # OWL's M and lambda for models of the Llama family


def allocation(model, tokenizer, text, samples, sequence_length, sparsity, by_matrix=False):
    """{regular expression of a block: its sparsity}; the mean over the blocks is `sparsity`.

    Args:
        model: its blocks are model.model.layers and of equal size.
    """
    sequences = data.sequences(tokenizer, text, sequence_length, samples)
    shares = [
        sum(map(share, scores)) / len(scores) if by_matrix else share(torch.cat(scores))
        for scores in scores_by_block(model, sequences)
    ]
    return {rf"\.layers\.{index}\.": value for index, value in enumerate(levels(shares, sparsity))}


def levels(shares, sparsity):
    """Sparsities in a range of 2 BOUND around `sparsity`, their mean; the largest share has the least."""
    least, most = min(shares), max(shares)
    kept = [2 * BOUND * (share - least) / (most - least) if most > least else 0.0 for share in shares]
    mean = sum(kept) / len(kept)
    return [sparsity - one + mean for one in kept]


def scores_by_block(model, sequences):
    """Yields the scores of each block's matrices, flat."""
    squares, hooks = {}, []

    def add(name):
        def hook(_, inputs):
            rows = inputs[0].detach().reshape(-1, inputs[0].shape[-1]).double()
            squares[name] = squares.get(name, 0) + (rows**2).sum(0)

        return hook

    blocks = [
        {name: module for name, module in block.named_modules() if isinstance(module, torch.nn.Linear)}
        for block in model.model.layers
    ]
    for index, linears in enumerate(blocks):
        for name, module in linears.items():
            hooks.append(module.register_forward_pre_hook(add((index, name))))
    with torch.no_grad():
        for one in sequences:
            model(input_ids=torch.as_tensor(one[0]).reshape(1, -1))
    for hook in hooks:
        hook.remove()
    for index, linears in enumerate(blocks):
        yield [
            (module.weight.detach().double().abs() * squares[index, name].sqrt()).flatten()
            for name, module in linears.items()
        ]


def share(scores):
    return (scores > THRESHOLD * scores.mean()).double().mean().item()
