"""How the weights to remove are divided among the matrices."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sparsefw.errors import invalid
from sparsefw.hf.layout import Matrix, compile_rule
from sparsefw.hf.values import is_number, shown

# Points of a sweep, around the share that is asked for, in units of the bound.
STEPS: Final = (-1.0, -0.6, -0.3, 0.0, 0.3, 0.6, 1.0)
# Allocations that have a name, and their bound: how far a sparsity may be from the mean, or half the range of
# all sparsities ("owl"; lambda for models of the Llama family).
BOUNDS: Final = {"uniform": 0.1, "loss-curve": 0.1, "owl": 0.08}
# The largest sparsity that they give a matrix.
_MOST: Final = 0.99
Curve = Sequence[Mapping[str, float]]


def by_name(
    matrices: Sequence[Matrix], rules: Mapping[str, float], otherwise: float | None
) -> dict[str, float]:
    """The sparsity of the first rule that holds for the parameter's name."""
    compiled = [(compile_rule(text), float(value)) for text, value in rules.items()]
    chosen: dict[str, float] = {}
    for matrix in matrices:
        for rule, value in compiled:
            if rule.holds(matrix.name):
                chosen[matrix.name] = value
                break
        else:
            if otherwise is None:
                raise invalid(f"no rule of allocation matches {matrix.name}, and no sparsity is given")
            chosen[matrix.name] = otherwise
    unused = [rule.text for rule, _ in compiled if not any(rule.holds(matrix.name) for matrix in matrices)]
    if unused:
        raise invalid(f'the rule "{unused[0]}" of allocation matches no matrix')
    return chosen


def sweep_points(sparsity: float, bound: float) -> list[float]:
    """The sparsities of a layer's loss curve, within [sparsity - bound, sparsity + bound] and [0, 0.99]."""
    points = {round(min(max(sparsity + step * bound, 0.0), _MOST), 6) for step in STEPS}
    return sorted(points)


def _hull(curve: Curve) -> list[tuple[float, float]]:
    """The lower convex hull of (sparsity, loss), which noise does not break."""
    hull: list[tuple[float, float]] = []
    for point in sorted((float(p["sparsity"]), float(p["loss"])) for p in curve):
        while len(hull) > 1:
            (x0, y0), (x1, y1) = hull[-2:]
            if (y1 - y0) * (point[0] - x0) < (point[1] - y0) * (x1 - x0):
                break
            hull.pop()
        hull.append(point)
    return hull


def by_loss(sizes: Mapping[str, int], curves: Mapping[str, Curve], sparsity: float) -> dict[str, float]:
    """Minimises the sum of the layers' losses, each a share of pruning all of it, with
    sum(size * sparsity) = sparsity * sum(size).

    The curves are made convex and linear between their points: then taking the cheapest pieces first is
    optimal. The ends of a curve bound its layer.
    """
    hulls = {name: _hull(curves[name]) for name in sizes}
    chosen = {name: hull[0][0] for name, hull in hulls.items()}
    left = sum(size * (sparsity - chosen[name]) for name, size in sizes.items())
    pieces = sorted(
        ((y1 - y0) / ((x1 - x0) * sizes[name]), name, x1 - x0)
        for name, hull in hulls.items()
        for (x0, y0), (x1, y1) in itertools.pairwise(hull)
    )
    for _, name, width in pieces:
        share = min(1.0, left / (width * sizes[name]))
        if share <= 0:
            break
        chosen[name] += share * width
        left -= share * width * sizes[name]
    return {name: min(max(value, 0.0), 1.0) for name, value in chosen.items()}


def by_outliers(
    sizes: Mapping[str, int], shares: Mapping[str, float], sparsity: float, bound: float
) -> dict[str, float]:
    """The sparsity of every block as in OWL (Yin et al. 2024): what a block keeps grows linearly with its
    share of outliers, over a range of 2 bound, with sum(size * sparsity) = sparsity * sum(size).

    The range is narrower where a sparsity would leave [0, 0.99].

    Args:
        sizes:  weights of each block.
        shares: outliers of each block.
    """
    least, most = min(shares[name] for name in sizes), max(shares[name] for name in sizes)
    kept = {name: (shares[name] - least) / (most - least) if most > least else 0.0 for name in sizes}
    mean = sum(sizes[name] * kept[name] for name in sizes) / sum(sizes.values())
    up, down = mean - min(kept.values()), max(kept.values()) - mean
    width = 2 * bound
    if most > least:
        width = min(width, max(0.0, _MOST - sparsity) / up, sparsity / down)
    return {name: min(max(sparsity + width * (mean - kept[name]), 0.0), 1.0) for name in sizes}


def check(allocation: str | Mapping[str, float], pattern: str, sparsity: float | None) -> None:
    """Raises InvalidArgument where the arguments contradict each other, or no job would take them."""
    if not isinstance(allocation, Mapping) and not (isinstance(allocation, str) and allocation in BOUNDS):
        got = f'"{allocation}"' if isinstance(allocation, str) else allocation
        raise invalid(f'allocation must be "uniform", "loss-curve", "owl" or a dictionary; got {got}')
    if ":" in pattern and allocation != "uniform":
        raise invalid(f'pattern "{pattern}" fixes the sparsity of every layer: allocation must be "uniform"')
    if isinstance(allocation, str) and ":" not in pattern and sparsity is None:
        raise invalid(f'pattern "{pattern}" needs sparsity, the share to remove')
    if allocation == "loss-curve" and sparsity is not None and _is_share(sparsity) and sparsity > _MOST:
        raise invalid(f'sparsity must be at most {_MOST} with allocation="loss-curve"; got {sparsity}')
    # A server would refuse the value only when the block of a matrix with it comes.
    for rule, value in allocation.items() if isinstance(allocation, Mapping) else ():
        if not isinstance(rule, str):
            raise invalid(f"the rules of allocation must be texts; got {shown(rule)}")
        if not _is_share(value):
            raise invalid(f'the rule "{rule}" of allocation needs a sparsity in [0, 1]; got {value!r}')
    if sparsity is not None and ":" not in pattern and not _is_share(sparsity):
        raise invalid(f"sparsity must be a number in [0, 1]; got {sparsity!r}")


def _is_share(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1


def describe(allocation: str | Mapping[str, float]) -> Any:
    """For the manifest: rules as pairs, since the first that matches counts."""
    if isinstance(allocation, str):
        return allocation
    return [[pattern, float(value)] for pattern, value in allocation.items()]
