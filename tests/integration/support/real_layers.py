"""The layers of tests/fixtures, sent by the command line, and their losses in float64."""
from pathlib import Path

import numpy as np
import pytest

from support import reference, safetensors
from support.processes import HANG

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures/minilm"
LAYERS = sorted(FIXTURE.glob("*.safetensors")) + sorted(FIXTURE.glob("activations/*.safetensors"))
GRAM_LAYERS = [path for path in LAYERS if "activations" not in str(path)]
PATTERNS = ["per-row", "unstructured", "2:4"]


class RealLayer:
    def __init__(self, path):
        self.path = path
        tensors, _ = safetensors.read(path)
        self.weight_name = next(name for name in tensors if name.endswith(".weight"))
        self.weight = tensors[self.weight_name]
        if "gram" in tensors:
            self.source = ["--gram", f"{path}:gram"]
            self.gram = tensors["gram"].astype(np.float64)
        else:
            self.source = ["--activations", f"{path}:activations"]
            inputs = tensors["activations"].astype(np.float64)
            self.gram = inputs.T @ inputs

    def run(self, cli, folder, pattern, *flags):
        """(result, mask)"""
        mask_file = folder / "mask.safetensors"
        sparsity = [] if ":" in pattern else ["--sparsity", "0.6"]
        result = cli.run("submit", "--weights", f"{self.path}:{self.weight_name}", *self.source,
                         "--pattern", pattern, *sparsity, "--out", mask_file, "--overwrite", "--json",
                         *flags,
                         timeout=HANG).expect(0).json()
        return result, safetensors.read(mask_file)[0]["mask"]


def loss_of_weights(layer, weights):
    difference = layer.weight.astype(np.float64) - weights.astype(np.float64)
    return float(np.sum((difference @ layer.gram) * difference))


def check_losses(layer, result, mask, pattern):
    reference.check_counts(mask, pattern, 0.6)
    assert result["kept"] == mask.sum()
    losses = result["losses"]
    # A Gram that the server summed itself is one of fp32 products.
    rel = 1e-6 if layer.source[0] == "--gram" else 1e-5
    assert losses["final"] == pytest.approx(reference.loss(layer.weight, layer.gram, mask), rel=rel)
    assert losses["full"] == pytest.approx(
        reference.loss(layer.weight, layer.gram, np.zeros_like(mask)), rel=rel)
    assert losses["final"] <= losses["warm_start"]
