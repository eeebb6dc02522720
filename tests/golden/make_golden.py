#!/usr/bin/python3
"""Writes golden.json: SparseFW and SparseGPT in NumPy float64, independent of the C++ code.

Usage: tests/golden/make_golden.py [OUTPUT]      (default: golden.json beside this file)

Layers have weights in multiples of 1/256 and activations in multiples of 1/16,
so weights are exact in fp16 and Gram matrices are exact in fp32 and JSON.

A case is refused when one of its decisions hangs on rounding: a selection
whose boundary is nearer than MARGIN but not an exact tie of equal histories.
What is left must come out the same in every correct float64 implementation.
"""

import json
import pathlib
import sys

import numpy as np

MARGIN = 1e-9
STEPS = 12
REPORTS = (0, 1, 2, 5, 12)


class NearTie(Exception):
    """A decision that rounding could turn."""


def top(scores, count, candidates):
    """The count best candidates of a flat array: what a stable ascending sort keeps at its end."""
    where = np.flatnonzero(candidates)
    order = where[np.argsort(scores[where], kind="stable")]
    keep = np.zeros(scores.shape, dtype=bool)
    if count > 0:
        keep[order[-count:]] = True
    if 0 < count < len(order):
        above, below = scores[order[-count]], scores[order[-count - 1]]
        if above != below and above - below < MARGIN * max(abs(above), abs(below)):
            raise NearTie
    return keep


def groups_of(pattern, shape):
    """Flat index runs and the number kept in each."""
    rows, cols = shape
    kind = pattern["kind"]
    if kind == "unstructured":
        size, kept = rows * cols, rows * cols - int(rows * cols * pattern["sparsity"])
    elif kind == "per_row":
        size, kept = cols, cols - int(cols * pattern["sparsity"])
    else:
        size, kept = pattern["group"], pattern["keep"]
    return [slice(start, start + size) for start in range(0, rows * cols, size)], kept


def saliency_of(method, weights, gram):
    magnitude = np.abs(weights)
    norms = np.sqrt(np.diag(gram))
    if method["name"] == "magnitude":
        return magnitude
    if method["name"] == "wanda":
        return magnitude * norms
    row_sums = magnitude.sum(axis=1, keepdims=True)
    col_sums = magnitude.sum(axis=0, keepdims=True)
    shares = np.divide(1, row_sums, out=np.zeros_like(row_sums), where=row_sums > 0)
    shares = shares + np.divide(1, col_sums, out=np.zeros_like(col_sums), where=col_sums > 0)
    return magnitude * shares * norms ** method["exponent"]


def warm_mask_of(scores, pattern):
    groups, kept = groups_of(pattern, scores.shape)
    warm = np.zeros(scores.size, dtype=bool)
    for group in groups:
        warm[group] = top(scores.ravel()[group], kept, np.ones(group.stop - group.start, bool))
    return warm.reshape(scores.shape)


def fixed_set_of(scores, warm, pattern, alpha):
    if pattern["kind"] == "unstructured":
        count = int(alpha * warm.sum())
        return top(scores.ravel(), count, warm.ravel()).reshape(warm.shape)
    return np.array([top(s, int(alpha * w.sum()), w) for s, w in zip(scores, warm)])


def loss_of(weights, gram, mask):
    pruned = weights * (1 - mask)
    return float(np.einsum("ij,jk,ik->", pruned, gram, pruned))


class FrankWolfe:
    def __init__(self, weights, gram, pattern, scores, warm, fixed):
        self.weights, self.gram, self.scores, self.fixed = weights, gram, scores, fixed
        self.groups, self.kept = groups_of(pattern, weights.shape)
        self.mask = warm.astype(float)

    def select(self, values, eligible):
        chosen = np.zeros(values.size, dtype=bool)
        for group in self.groups:
            free_capacity = self.kept - int(self.fixed.ravel()[group].sum())
            chosen[group] = top(values.ravel()[group], free_capacity, eligible.ravel()[group])
        return chosen.reshape(values.shape)

    def vertex(self, gradient):
        score = -gradient / 2
        free = ~self.fixed
        if np.any(free & (score != 0) & (np.abs(score) < MARGIN * np.abs(score).max())):
            raise NearTie
        return self.fixed | self.select(score, free & (score > 0))

    def round(self):
        """Largest entries, ties by saliency, then by index: ranks instead of nested keys."""
        values = self.mask.ravel()
        order = np.lexsort((np.arange(values.size), self.scores.ravel(), values))
        rank = np.empty(values.size)
        rank[order] = np.arange(values.size)
        rounded = self.fixed | self.select(rank.reshape(self.mask.shape), ~self.fixed)
        self.refuse_near_ties(values, rounded.ravel() & ~self.fixed.ravel())
        residual = np.abs(self.mask - rounded).sum() / max(1, rounded.sum())
        return rounded, float(residual)

    def refuse_near_ties(self, values, chosen):
        """Entries beside the last one chosen must be equal to it or clearly different."""
        for group in self.groups:
            free = ~self.fixed.ravel()[group]
            inside = values[group][chosen[group]]
            if inside.size:
                distance = np.abs(values[group][free] - inside.min())
                if np.any((distance > 0) & (distance < MARGIN)):
                    raise NearTie

    def run(self, rule, steps):
        trace, reports, bound, eta = [], [], -np.inf, 0.0
        for step in range(steps + 1):
            pruned = self.weights * (1 - self.mask)
            gradient = -2 * self.weights * (pruned @ self.gram)
            loss = float(np.sum(pruned * (pruned @ self.gram)))
            vertex = self.vertex(gradient).astype(float)
            gap = float(np.sum(gradient * (self.mask - vertex)))
            bound = max(bound, loss - gap)
            trace.append({"loss": loss, "gap": gap, "step_size": eta, "lower_bound": bound})
            if step in REPORTS:
                rounded, residual = self.round()
                reports.append({"iteration": step, "mask": rows_of(rounded), "residual": residual,
                                "loss": loss_of(self.weights, self.gram, rounded)})
            direction = self.weights * (vertex - self.mask)
            curvature = float(np.sum(direction * (direction @ self.gram)))
            if rule == "open_loop":
                eta = 2 / (step + 2)
            else:
                eta = min(1.0, max(0.0, gap / (2 * curvature))) if curvature > 0 else 0.0
            self.mask = (1 - eta) * self.mask + eta * vertex
        return trace, reports


def rows_of(mask):
    return ["".join("1" if keep else "0" for keep in row) for row in mask]


def make_layer(name, rows, cols, seed):
    """Correlated activations, two large features, two large columns of weights, one dead input."""
    random = np.random.RandomState(seed)  # a frozen stream, unlike default_rng
    weights = random.randn(rows, cols)
    weights[:, [1, cols - 2]] *= 3
    weights = np.clip(np.round(weights * 256) / 256, -7, 7)
    tokens = 3 * cols
    x = random.randn(tokens, 3) @ random.randn(3, cols) + 0.4 * random.randn(tokens, cols)
    x[:, [0, cols // 2]] *= 4
    x[:, cols - 1] = 0
    x = np.round(x * 16) / 16
    return {"name": name, "weights": weights.tolist(), "gram": (x.T @ x).tolist()}


# Worked by hand in tests/core/reference/reference_engine_test.cc.
HAND = {"name": "hand", "weights": [[2, -2, 1.5, 1], [1, 2, 3, 4]],
        "gram": [[1, 0.9, 0, 0], [0.9, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]}

# Every score has equals: only the order of ties decides.
TIES = {"name": "ties", "weights": [[1, 1, 1, 1], [2, -2, 2, -2]], "gram": np.eye(4).tolist()}

SMALL = [{"kind": "unstructured", "sparsity": 0.5}, {"kind": "per_row", "sparsity": 0.5},
         {"kind": "keep_of_group", "keep": 2, "group": 4}]

PATTERNS = {
    "hand": SMALL,
    "ties": SMALL,
    "wide": [{"kind": "unstructured", "sparsity": 0.6}, {"kind": "per_row", "sparsity": 0.6},
             {"kind": "keep_of_group", "keep": 2, "group": 4},
             {"kind": "keep_of_group", "keep": 3, "group": 8}],
    "tall": [{"kind": "unstructured", "sparsity": 0.29}, {"kind": "per_row", "sparsity": 0.35},
             {"kind": "keep_of_group", "keep": 1, "group": 3}],
}

METHODS = [{"name": "magnitude"}, {"name": "wanda"}, {"name": "ria", "exponent": 0.5},
           {"name": "ria", "exponent": 1.0}]


def make_case(layer, pattern, method, alpha, rule):
    weights, gram = np.array(layer["weights"], float), np.array(layer["gram"], float)
    scores = saliency_of(method, weights, gram)
    warm = warm_mask_of(scores, pattern)
    fixed = fixed_set_of(scores, warm, pattern, alpha)
    solver = FrankWolfe(weights, gram, pattern, scores, warm, fixed)
    trace, reports = solver.run(rule, STEPS)
    return {"layer": layer["name"], "pattern": pattern, "method": method, "alpha": alpha,
            "step_rule": rule, "warm": rows_of(warm),
            "fixed": rows_of(fixed), "warm_loss": loss_of(weights, gram, warm),
            "full_loss": loss_of(weights, gram, np.zeros_like(weights)),
            "trace": trace, "reports": reports}


# Not positive definite: the least eigenvalue is -0.05, -0.5, and the mean of the diagonal is 1.
INDEFINITE = [{"name": f"indefinite_{off}", "weights": HAND["weights"],
               "gram": [[1, off, 0, 0], [off, 1, 0, 0], [0, 0, 1, 0.25], [0, 0, 0.25, 1]]}
              for off in (1.05, 1.5)]


def upper_factor(gram, damping):
    """The authors' three steps: Cholesky, inverse, upper Cholesky; more damping when they fail."""
    h = gram.copy()
    dead = np.diag(h) == 0
    mean = np.diag(h)[~dead].mean()
    h[dead, dead] = mean
    while True:
        try:
            lower = np.linalg.cholesky(h + damping * mean * np.eye(len(h)))
            half = np.linalg.inv(lower)
            return np.linalg.cholesky(half.T @ half).T, dead, damping
        except np.linalg.LinAlgError:
            damping = min(1, 10 * damping)


def sparsegpt(weights, gram, pattern, block, damping):
    """The authors' loops with exact counts: blocks of columns, lazy update of what is right."""
    upper, dead, damping = upper_factor(gram, damping)
    w, (rows, cols) = weights.copy(), weights.shape
    w[:, dead] = 0
    keep = np.ones(weights.shape, dtype=bool)
    group = pattern["group"] if pattern["kind"] == "keep_of_group" else 0
    if group:
        block = max(1, block // group) * group

    def choose(first, last, count, by_row):
        scores = w[:, first:last] ** 2 / np.diag(upper)[first:last] ** 2
        for part in scores if by_row else [scores.ravel()]:
            yield top(part, part.size - count, np.ones(part.size, bool))

    for first in range(0, cols, block):
        last = min(cols, first + block)
        if not group:
            by_row = pattern["kind"] == "per_row"
            unit = 1 if by_row else rows
            count = int(unit * last * pattern["sparsity"]) - int(unit * first * pattern["sparsity"])
            chosen = list(choose(first, last, count, by_row))
            keep[:, first:last] = np.array(chosen).reshape(rows, last - first)
        errors = np.zeros((rows, last - first))
        for j in range(first, last):
            if group and j % group == 0:
                keep[:, j:j + group] = list(choose(j, j + group, group - pattern["keep"], True))
            target = np.where(keep[:, j], w[:, j], 0)
            error = (w[:, j] - target) / upper[j, j]
            w[:, j:last] -= np.outer(error, upper[j, j:last])
            w[:, j] = target
            errors[:, j - first] = error
        w[:, last:] -= errors @ upper[first:last, last:]
    return keep, w, damping


def weights_loss(weights, updated, gram):
    difference = weights - updated
    return float(np.einsum("ij,jk,ik->", difference, gram, difference))


def make_sparsegpt_case(layer, pattern, block, damping):
    weights, gram = np.array(layer["weights"], float), np.array(layer["gram"], float)
    wanda = warm_mask_of(saliency_of({"name": "wanda"}, weights, gram), pattern)
    keep, updated, used = sparsegpt(weights, gram, pattern, block, damping)
    return {"layer": layer["name"], "pattern": pattern, "block": block, "damping": damping,
            "damping_used": used, "mask": rows_of(keep), "weights": updated.tolist(),
            "warm_loss": loss_of(weights, gram, wanda), "mask_loss": loss_of(weights, gram, keep),
            "full_loss": loss_of(weights, gram, np.zeros_like(weights)),
            "weights_loss": weights_loss(weights, updated.astype(np.float32), gram)}


def sparsegpt_section(layers):
    cases, refused = [], 0
    for layer in layers:
        for pattern in PATTERNS.get(layer["name"], SMALL):
            for block in (1, 4, 5, 128):
                for damping in (0.01, 0.3):
                    try:
                        cases.append(make_sparsegpt_case(layer, pattern, block, damping))
                    except NearTie:
                        refused += 1
    return cases, refused


def rounded(value):
    """More digits than any comparison looks at; the inputs have fewer and stay exact."""
    if isinstance(value, float):
        return float(f"{value:.13g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return value


def lines_of(cases):
    return "[\n" + ",\n".join(json.dumps(rounded(case)) for case in cases) + "\n]"


def main():
    default = pathlib.Path(__file__).with_name("golden.json")
    output = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    inputs = [HAND, TIES, make_layer("wide", 4, 16, 11), make_layer("tall", 9, 6, 12)]
    layers = rounded(inputs)
    assert layers == inputs, "the inputs lose digits in the file"
    cases, refused = [], 0
    for layer in layers:
        for pattern in PATTERNS[layer["name"]]:
            for method in METHODS:
                for alpha in (0, 0.5, 0.9, 1):
                    for rule in ("open_loop", "line_search"):
                        try:
                            cases.append(make_case(layer, pattern, method, alpha, rule))
                        except NearTie:
                            refused += 1
    for layer in layers:
        weights, gram = np.array(layer["weights"], float), np.array(layer["gram"], float)
        layer["saliencies"] = [{"method": method,
                                "scores": saliency_of(method, weights, gram).tolist()}
                               for method in METHODS]
    gpt_cases, gpt_refused = sparsegpt_section(inputs + INDEFINITE)
    output.write_text('{"layers": %s,\n"cases": %s,\n"sparsegpt_layers": %s,\n"sparsegpt": %s}\n'
                      % (json.dumps(rounded(layers)), lines_of(cases),
                         json.dumps(INDEFINITE), lines_of(gpt_cases)))
    print(f"{len(cases)} + {len(gpt_cases)} cases, {refused} + {gpt_refused} refused as near-tied, "
          f"{output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
