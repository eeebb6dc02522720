"""Reorders channels so that n:m removes less, and folds the order into the neighbouring matrices.

The inner channels of the MLP are rows of gate and up and columns of down. The values of a head are rows of v
and columns of o; query heads that share a value head have one order. The model computes the same.
"""

import time

import torch

_LEAST_GAIN = 1e-6  # of the cost, in a swap: float32 knows no less


class Search:
    """Swaps of channels between groups until none gains, or until the time is over.

    The cost is the sum of what n:m removes: in every row and group the least m - n of W^2 diag(G).
    """

    def __init__(self, cost, kept, size):
        """`cost`: W^2 diag(G), [rows, channels]."""
        self._cost, self._size, self._drop = cost, size, size - kept
        self._sum = cost.sum(0)
        self._groups = cost.shape[1] // size

    def removed(self, order):
        values = self._cost[:, order].view(len(self._cost), -1, self._size)
        return float(values.topk(self._drop, largest=False).values.double().sum())

    def _dealt(self):
        """Channels by their sum, dealt to the groups in turn: each has large and small ones."""
        ranked = self._sum.argsort()
        return ranked.view(self._size, self._groups).T.reshape(-1)

    def _rows(self, order, groups):
        """[slots of these groups, channels]: the group's cost with the slot's channel replaced."""
        channels = order.view(self._groups, self._size)[groups]
        values = self._cost[:, channels]  # [rows, groups, size]
        ranked, ranks = values.sort(-1)
        small = ranks.argsort(-1) < self._drop
        below, beyond = ranked[..., :self._drop - 1].sum(-1, keepdim=True), ranked[..., self._drop - 1 :]
        all_small = below + beyond[..., :1]
        # The other channels: the sum of the drop - 1 least, and the next one.
        fixed = torch.where(small, all_small - values, below).sum(0).reshape(-1)
        least = torch.where(small, beyond[..., 1:2], beyond[..., :1]).reshape(len(values), -1)
        # The sum of min(x, y) over the rows, from that of |x - y|.
        apart = torch.cdist(least.T.contiguous(), self._cost.T.contiguous(), p=1.0)
        return fixed[:, None] + (least.sum(0)[:, None] + self._sum[None] - apart) / 2

    def _swaps(self, order, replaced):
        """Pairs of slots whose exchange gains, the best first, each group in one of them at most."""
        now = replaced[:, order]
        own = now.diagonal()
        gain = own[:, None] + own[None] - now - now.T
        gain.view(self._groups, self._size, self._groups, self._size).diagonal(dim1=0, dim2=2).fill_(-1)
        best, other = gain.max(1)
        least = _LEAST_GAIN * float(own.sum()) / self._size
        used, found = set(), []
        for slot in best.argsort(descending=True).tolist():
            if best[slot] <= least:
                break
            pair = (slot // self._size, int(other[slot]) // self._size)
            if not used.intersection(pair):
                used.update(pair)
                found.append((slot, int(other[slot])))
        return found, sorted(used)

    def find(self, seconds):
        """(order of the channels, whether no swap is left)"""
        end = time.process_time() + seconds
        order = min(torch.arange(self._cost.shape[1]), self._dealt(), key=self.removed)
        replaced = self._rows(order, torch.arange(self._groups))
        while time.process_time() < end:
            swaps, groups = self._swaps(order, replaced)
            if not swaps:
                return order, True
            for one, two in swaps:
                order[[one, two]] = order[[two, one]]
            slots = torch.arange(len(order)).view(self._groups, self._size)[groups].reshape(-1)
            replaced[slots] = self._rows(order, torch.tensor(groups))
        return order, False


def squares(model, layers, samples):
    """By layer: the sums of squares of o's and of down's inputs in the dense model."""
    found = [{} for _ in layers]
    handles = []

    def watch(into, name):
        def hook(_module, args):
            into[name] = into.get(name, 0) + args[0].flatten(0, -2).square().sum(0)

        return hook

    for into, layer in zip(found, layers, strict=True):
        for name, module in (("o", layer.self_attn.o_proj), ("down", layer.mlp.down_proj)):
            handles.append(module.register_forward_pre_hook(watch(into, name)))
    every = model.model.layers
    model.model.layers = every[:len(layers)]
    try:
        with torch.no_grad():
            for ids in samples:
                model.model(input_ids=ids, use_cache=False)
    finally:
        model.model.layers = every
        for handle in handles:
            handle.remove()
    return found


def _permute_mlp(mlp, gram, kept, size, seconds):
    """(removed before, removed after, whether the search ended)"""
    search = Search(mlp.down_proj.weight.square() * gram, kept, size)
    before = search.removed(torch.arange(len(gram)))
    order, ended = search.find(seconds)
    for linear in (mlp.gate_proj, mlp.up_proj):
        linear.weight.copy_(linear.weight[order])
    mlp.down_proj.weight.copy_(mlp.down_proj.weight[:, order])
    return before, search.removed(order), ended


def _permute_values(attention, gram, kept, size, seconds):
    """As _permute_mlp, over all value heads."""
    width = attention.head_dim
    heads = attention.v_proj.weight.shape[0] // width
    shared = len(gram) // width // heads
    out = attention.o_proj.weight.view(-1, heads, shared, width)
    cost = (attention.o_proj.weight.square() * gram).view(-1, heads, shared, width)
    values = attention.v_proj.weight.view(heads, width, -1)
    before = after = 0.0
    every = True
    for head in range(heads):
        search = Search(cost[:, head].reshape(-1, width), kept, size)
        order, ended = search.find(seconds)
        before += search.removed(torch.arange(width))
        after += search.removed(order)
        every &= ended
        out[:, head] = out[:, head][..., order]
        values[head] = values[head][order]
    return before, after, every


def _logits(model, ids):
    """In float32 and in float64, of the model's float32 weights."""
    found = [model(input_ids=ids, use_cache=False).logits]
    found.append(model.double()(input_ids=ids, use_cache=False).logits)
    model.float()
    return found


def permute(model, count, samples, pattern, check, seconds=8.0):
    """Permutes the first `count` blocks in place.

    Args:
        samples: token ids of the sequences that G is summed over.
        check:   token ids whose logits must stay the same.
        seconds: of processor time, of one search.

    Returns:
        Facts for the file: share of the loss that the order saves by kind of matrix, the largest difference
        of a logit, seconds of processor time, searches that ended before their time was over.
    """
    kept, size = map(int, pattern.split(":"))
    layers = model.model.layers[:count]
    with torch.no_grad():
        logits = _logits(model, check)
        grams = squares(model, layers, samples)
        began = time.process_time()
        found = {"o": [], "down": []}
        for layer, gram in zip(layers, grams, strict=True):
            found["down"].append(_permute_mlp(layer.mlp, gram["down"], kept, size, seconds))
            found["o"].append(_permute_values(layer.self_attn, gram["o"], kept, size, seconds))
        spent = time.process_time() - began
        differences = [
            float((now - then).abs().max())
            for now, then in zip(_logits(model, check), logits, strict=True)]
    # In float32 the order of the sums alone makes some 1e-4. Norms are in float32 in any case.
    if differences[1] > 1e-5:
        raise ValueError(f"the permuted model's logits differ by {differences[1]} in float64")
    saved = {name: [1 - after / before for before, after, _ in of_kind] for name, of_kind in found.items()}
    return {
        "logits_differ_by": differences[0], "logits_differ_by_in_float64": differences[1],
        "search_seconds": spent,
        "searches_ended": {name: sum(ended for *_, ended in of_kind) for name, of_kind in found.items()},
        "saved": {name: [round(share, 4) for share in shares] for name, shares in saved.items()}}
