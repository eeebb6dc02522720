"""Which runs there are beside llm-compressor, and what a run's process is told.

llm-compressor chooses the mask of its Wanda row by row, that of its SparseGPT over all rows of 128 columns
together: the one is beside our per-row pattern, the other beside our unstructured one, whose SparseGPT has
the same blocks.
"""

import settings

SPARSEFW, PEER = "sparsefw", "llm-compressor"
_SWAPS = {**settings.SWAPS, "iterations": settings.SMALL.iterations}
_PER_ROW, _UNSTRUCTURED, _TWO_OF_FOUR = (
    settings.PATTERNS[name] for name in ("60 % per-row", "60 % unstructured", "2:4"))

# (pattern, method, tool, its options)
RUNS = [
    ("60 % per-row", "Wanda", PEER, {"modifier": "WandaPruningModifier", "sparsity": 0.6}),
    ("60 % per-row", "Wanda", SPARSEFW, {**_PER_ROW, "method": "wanda"}),
    ("60 % unstructured", "SparseGPT", PEER, {"modifier": "SparseGPTModifier", "sparsity": 0.6}),
    ("60 % unstructured", "SparseGPT", SPARSEFW, {**_UNSTRUCTURED, "method": "sparsegpt"}),
    ("2:4", "Wanda", PEER, {"modifier": "WandaPruningModifier", "sparsity": 0.5, "mask_structure": "2:4"}),
    ("2:4", "Wanda", SPARSEFW, {**_TWO_OF_FOUR, "method": "wanda"}),
    ("2:4", "SparseGPT", PEER, {"modifier": "SparseGPTModifier", "sparsity": 0.5, "mask_structure": "2:4"}),
    ("2:4", "SparseGPT", SPARSEFW, {**_TWO_OF_FOUR, "method": "sparsegpt"}),
    ("60 % per-row", "SparseFW (Wanda) + swaps", SPARSEFW, {**_PER_ROW, **_SWAPS}),
    ("2:4", "SparseFW (Wanda) + swaps", SPARSEFW, {**_TWO_OF_FOUR, **_SWAPS}),
    ("60 % per-row", "SparseGPT", SPARSEFW, {**_PER_ROW, "method": "sparsegpt"}),
]
