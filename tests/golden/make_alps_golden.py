#!/usr/bin/python3
"""Writes alps.json: ALPS in NumPy float64, independent of the C++ code.

Usage: tests/golden/make_alps_golden.py [OUTPUT]      (default: alps.json beside this file)

Layers are correlated ones of its own, with weights in multiples of 1/256 and activations in
multiples of 1/16, so that JSON holds them exactly, and one with dead inputs. The arithmetic is that of the published program, with one
eigendecomposition for every rho, [d_in, d_out] matrices and its own order of operations; counts,
ties, the per-row pattern and the stop of the last steps are those of sparsefw/alps.h.

A case is refused where a selection hangs on rounding: its boundary is nearer than MARGIN.
"""

import json
import pathlib
import sys

import numpy as np

MARGIN = 1e-9
ITERATIONS = 300


class NearTie(Exception):
    """A decision that rounding could turn."""


def keep_largest(values, pattern):
    """Support of the largest magnitudes of values [d_in, d_out], group by group."""
    scores = np.abs(values).T  # rows are outputs
    rows, cols = scores.shape
    if pattern["kind"] == "unstructured":
        size, kept = rows * cols, rows * cols - int(rows * cols * pattern["sparsity"])
    elif pattern["kind"] == "per_row":
        size, kept = cols, cols - int(cols * pattern["sparsity"])
    else:
        size, kept = pattern["group"], pattern["keep"]
    flat = scores.ravel()
    support = np.zeros(flat.size, bool)
    for start in range(0, flat.size, size):
        order = start + np.argsort(flat[start:start + size], kind="stable")
        support[order[size - kept:]] = True
        if 0 < kept < size:
            above, below = flat[order[size - kept]], flat[order[size - kept - 1]]
            if above - below < MARGIN * above:
                raise NearTie
    return support.reshape(rows, cols).T


def alternate(gram, dense, pattern):
    """B after the last iteration, and how many there were."""
    values, vectors = np.linalg.eigh(gram)
    target = gram @ dense
    kept = keep_largest(dense, pattern)
    first, total = dense * kept, int(kept.sum())
    pruned, multiplier, checked = first.copy(), np.zeros_like(dense), kept
    rho, raised = 0.1, False
    inverse = (vectors / (values + rho)) @ vectors.T
    for iteration in range(ITERATIONS):
        solved = inverse @ (target - multiplier + rho * pruned)
        both = (multiplier + rho * solved) / rho
        kept = keep_largest(both, pattern)
        pruned = both * kept
        multiplier = multiplier + rho * (solved - pruned)
        if (iteration + 1) % 3:
            continue
        changed = int((kept != checked).sum())
        checked = kept
        if changed / total > 0.1:
            raised, rho = True, rho * 1.3
        elif changed / total > 0.005:
            raised, rho = True, rho * 1.2
        elif changed > 0.5:
            if raised:
                rho *= 1.1
            else:
                rho /= 5
                pruned, multiplier = first.copy(), np.zeros_like(dense)
        elif raised:
            break
        else:
            rho /= 5
        rho = min(rho, 1e6)
        inverse = (vectors / (values + rho)) @ vectors.T
        if iteration >= 30 and changed / total < 0.0003:
            break
    return solved, iteration + 1


def steps_on_support(gram, target, solved, support):
    """At most ten conjugate-gradient steps of all columns at once."""
    solution = solved * support
    residual = (target - gram @ solution) * support
    direction = residual.copy()
    wanted = 1e-4 * np.linalg.norm(target * support, axis=0)
    for _ in range(10):
        if (np.linalg.norm(residual, axis=0) <= wanted).all():
            break
        product = gram @ direction
        squares = (residual**2).sum(axis=0)
        curvature = (direction * product).sum(axis=0)
        alpha = np.divide(squares, curvature, out=np.zeros_like(squares), where=curvature > 0)
        solution += alpha * direction
        residual -= alpha * product * support
        beta = np.divide((residual**2).sum(axis=0), squares, out=np.zeros_like(squares),
                         where=squares > 0)
        direction = residual + beta * direction
    return solution


def alps(weights, gram, pattern):
    damped = gram + 0.01 * np.mean(np.diag(gram)) * np.eye(len(gram))
    norms = np.sqrt(np.diag(damped))
    normalised = damped / norms / norms[:, None]
    dense = (weights * norms).T
    solved, iterations = alternate(normalised, dense, pattern)
    support = keep_largest(solved, pattern)
    solution = steps_on_support(normalised, normalised @ dense, solved, support)
    return support.T, (solution / norms[:, None]).T, iterations


PATTERNS = [{"kind": "unstructured", "sparsity": 0.6}, {"kind": "per_row", "sparsity": 0.5},
            {"kind": "nm", "keep": 2, "group": 4}]


def make_layer(name, rows, cols, seed, dead=()):
    random = np.random.default_rng(seed)
    weights = np.round(256 * random.standard_normal((rows, cols))) / 256
    shared = 2 * random.standard_normal((6 * cols, 4)) @ random.standard_normal((4, cols))
    inputs = np.round(16 * (shared + random.standard_normal((6 * cols, cols)))) / 16
    inputs[:, list(dead)] = 0
    return {"name": name, "weights": weights.tolist(), "gram": (inputs.T @ inputs).tolist()}


def make_layers():
    return [make_layer("wide", 10, 32, 1), make_layer("tall", 30, 20, 2),
            make_layer("square", 24, 24, 3), make_layer("dead", 8, 24, 4, dead=(3, 17))]


def make_cases(layers):
    cases, refused = [], 0
    for layer in layers:
        weights, gram = np.array(layer["weights"]), np.array(layer["gram"])
        for pattern in PATTERNS:
            if weights.shape[1] % pattern.get("group", 1) or not gram.any():
                continue
            try:
                support, updated, iterations = alps(weights, gram, pattern)
            except NearTie:
                refused += 1
                continue
            left = weights - updated
            cases.append({
                "layer": layer["name"], "pattern": pattern, "iterations": iterations,
                "mask": ["".join("1" if kept else "0" for kept in row) for row in support],
                "weights": [[float(f"{value:.13g}") for value in row] for row in updated],
                "loss": float(np.einsum("ij,jk,ik->", left, gram, left))})
    return cases, refused


def main():
    here = pathlib.Path(__file__).parent
    output = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "alps.json"
    layers = make_layers()
    cases, refused = make_cases(layers)
    lists = [",\n".join(json.dumps(item) for item in items) for items in (layers, cases)]
    output.write_text('{"layers": [%s],\n"cases": [%s]}\n' % tuple(lists))
    print(f"{len(cases)} cases, {refused} refused")


if __name__ == "__main__":
    main()
