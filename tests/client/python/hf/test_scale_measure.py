"""What the simulation of many machines measures on a node, with small shapes."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "client/python/benchmarks/scale"))

import measure
import shapes


def test_every_part_of_a_block_is_timed():
    of = shapes.Model("small", 1, 64, 160, 4, 2)
    model = measure.one_block(of)
    [block] = model.model.layers
    assert sum(weight.numel() for weight in block.parameters() if weight.dim() == 2) == of.weights
    found = measure.measure(of, runs=1)
    assert found.keys() == {"forward", "gram_64", "gram_160", "refinement_step"}
    assert all(one["wall"] > 0 and one["processor"] > 0 and one["runs"] == 1 for one in found.values())
