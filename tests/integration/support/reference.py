"""The formulas in NumPy and float64, written from their definitions alone."""
import numpy as np


def saliency(method, weight, gram):
    weight = np.abs(weight.astype(np.float64))
    norms = np.sqrt(np.diagonal(gram).astype(np.float64))
    if method == "magnitude":
        return weight
    if method == "wanda":
        return weight * norms
    rows, columns = weight.sum(axis=1, keepdims=True), weight.sum(axis=0, keepdims=True)
    inverse = lambda sums: np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > 0)
    return weight * (inverse(rows) + inverse(columns)) * np.sqrt(norms)


def groups(pattern, sparsity, scores):
    """The scores with one group a row, and how many of a group are kept."""
    rows, columns = scores.shape
    if pattern == "unstructured":
        return scores.reshape(1, -1), rows * columns - int(rows * columns * sparsity)
    if pattern == "per-row":
        return scores, columns - int(columns * sparsity)
    keep, group = map(int, pattern.split(":"))
    return scores.reshape(-1, group), keep


def check_counts(mask, pattern, sparsity):
    grouped, keep = groups(pattern, sparsity, mask)
    assert (grouped.sum(axis=1) == keep).all(), f"{pattern}: not {keep} kept in every group"


def check_top(mask, scores, pattern, sparsity):
    """The kept ones are those of the highest scores; of equal scores the highest indices.

    Returns how many coordinates are within one float32 rounding of their group's threshold and
    so may be chosen either way; all the others must be exactly right.
    """
    grouped, keep = groups(pattern, sparsity, scores)
    kept, _ = groups(pattern, sparsity, mask)
    order = np.argsort(grouped, axis=1, kind="stable")
    expected = np.zeros(grouped.shape, bool)
    np.put_along_axis(expected, order[:, grouped.shape[1] - keep:], True, axis=1)
    if (expected == kept).all():
        return 0
    threshold = np.take_along_axis(grouped, order[:, [grouped.shape[1] - keep]], axis=1)
    wrong = (expected != kept) & (np.abs(grouped - threshold) > 2e-7 * threshold)
    assert not wrong.any(), f"{pattern}: {wrong.sum()} coordinates differ outside ties"
    return int((expected != kept).sum())


def loss(weight, gram, mask):
    removed = weight.astype(np.float64) * ~mask
    return float(((removed @ gram.astype(np.float64)) * removed).sum())
