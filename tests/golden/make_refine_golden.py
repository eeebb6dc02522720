#!/usr/bin/python3
"""Writes refine.json: swap refinement and weight reconstruction in NumPy float64.

Usage: tests/golden/make_refine_golden.py [OUTPUT]      (default: refine.json beside this file)

Layers and starting masks are those of golden.json. Swaps are taken best first, out of every
exchange that the pattern allows, with the loss of every candidate computed from its mask, not
from a formula for the change. Reconstruction uses the pseudo-inverse.

A case is refused when the best two exchanges are nearer than MARGIN: rounding could turn it.
"""

import json
import pathlib
import sys

import numpy as np

MARGIN = 1e-9
TOLERANCE = 1e-7  # of the starting loss of the rows that an exchange touches
NOISE = 1e-11     # of the sum of w^2 G_jj of these rows


class NearTie(Exception):
    """A decision that rounding could turn."""


def row_losses(weights, gram, mask):
    pruned = weights * ~mask
    return np.einsum("ij,jk,ik->i", pruned, gram, pruned)


def group_of(pattern, index, cols):
    if pattern["kind"] == "unstructured":
        return 0
    size = cols if pattern["kind"] == "per_row" else pattern["group"]
    return index // size


def best_exchange(weights, gram, pattern, mask, movable, tolerance):
    """(change, p, q) of the exchange that lowers the loss most, None where there is none."""
    cols = mask.shape[1]
    now = row_losses(weights, gram, mask)
    found = []
    for p in np.flatnonzero(movable & mask):
        for q in np.flatnonzero(~mask):
            if group_of(pattern, p, cols) != group_of(pattern, q, cols):
                continue
            rows = sorted({p // cols, q // cols})
            other = mask[rows].copy()
            other[rows.index(p // cols), p % cols] = False
            other[rows.index(q // cols), q % cols] = True
            change = float((row_losses(weights[rows], gram, other) - now[rows]).sum())
            if change < -tolerance[rows].sum():
                found.append((change, int(p), int(q)))
    if not found:
        return None
    found.sort()
    if len(found) > 1 and found[1][0] - found[0][0] < MARGIN * abs(found[0][0]):
        raise NearTie
    return found[0]


def refine(weights, gram, pattern, mask, movable):
    tolerance = (TOLERANCE * row_losses(weights, gram, mask)
                 + NOISE * (weights**2 * np.diag(gram)).sum(axis=1))
    swaps = 0
    while (best := best_exchange(weights, gram, pattern, mask, movable, tolerance)) is not None:
        mask.flat[best[1]], mask.flat[best[2]] = False, True
        swaps += 1
    return swaps


def reconstructed_loss(weights, gram, mask):
    """The least loss of weights on the mask: what the kept columns explain is taken away."""
    loss = 0.0
    for row, kept in zip(weights, mask):
        target = gram[kept] @ row
        loss += row @ gram @ row - target @ np.linalg.pinv(gram[np.ix_(kept, kept)]) @ target
    return float(loss)


def mask_of(rows):
    return np.array([[keep == "1" for keep in row] for row in rows])


def rows_of(mask):
    return ["".join("1" if keep else "0" for keep in row) for row in mask]


def make_case(case, layer, keep_fixed):
    weights, gram = np.array(layer["weights"], float), np.array(layer["gram"], float)
    mask, fixed = mask_of(case["warm"]), mask_of(case["fixed"])
    movable = ~fixed if keep_fixed else np.ones_like(fixed)
    swaps = refine(weights, gram, case["pattern"], mask, movable)
    return {"layer": layer["name"], "pattern": case["pattern"], "warm": case["warm"],
            "fixed": case["fixed"], "keep_fixed": keep_fixed, "swaps": swaps,
            "mask": rows_of(mask), "loss": float(row_losses(weights, gram, mask).sum()),
            "full_loss": case["full_loss"],
            "reconstructed_loss": reconstructed_loss(weights, gram, mask)}


def main():
    folder = pathlib.Path(__file__).parent
    output = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else folder / "refine.json"
    golden = json.loads((folder / "golden.json").read_text())
    layers = {layer["name"]: layer for layer in golden["layers"]}
    cases, refused, seen = [], 0, set()
    for case in golden["cases"]:
        for keep_fixed in (True, False):
            fixed = case["fixed"] if keep_fixed else []
            key = json.dumps([case["layer"], case["pattern"], case["warm"], fixed])
            if key in seen:
                continue
            seen.add(key)
            try:
                cases.append(make_case(case, layers[case["layer"]], keep_fixed))
            except NearTie:
                refused += 1
    output.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
    print(f"{len(cases)} cases, {sum(case['swaps'] for case in cases)} swaps, "
          f"{refused} refused as near-tied, {output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
