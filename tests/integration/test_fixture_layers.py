"""Real layers: what the server returns against the formulas in float64."""
from pathlib import Path

import numpy as np
import pytest

from support import reference, safetensors

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures/minilm"
LAYERS = sorted(FIXTURE.glob("*.safetensors")) + sorted(FIXTURE.glob("activations/*.safetensors"))
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
                         "--pattern", pattern, *sparsity, "--out", mask_file, "--json", *flags,
                         timeout=300).expect(0).json()
        return result, safetensors.read(mask_file)[0]["mask"]


@pytest.fixture(scope="module", params=LAYERS, ids=lambda path: path.stem)
def real_layer(request):
    return RealLayer(request.param)


def test_there_are_at_least_three_layers():
    assert len(LAYERS) >= 3
    assert sum(path.stat().st_size for path in FIXTURE.rglob("*") if path.is_file()) < 10_000_000


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


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("method", ["wanda", "ria"])
def test_one_shot_masks_are_those_of_the_formulas(cli, real_layer, folder, method, pattern):
    result, mask = real_layer.run(cli, folder, pattern, "--method", method)
    check_losses(real_layer, result, mask, pattern)
    scores = reference.saliency(method, real_layer.weight, real_layer.gram)
    undecided = reference.check_top(mask, scores, pattern, 0.6)
    print(f"{undecided} of {mask.size} within rounding of their threshold")
    assert undecided <= 16


@pytest.mark.parametrize("pattern", PATTERNS)
def test_sparsefw_is_never_worse_than_its_warm_start(cli, real_layer, folder, pattern):
    one_shot, warm = real_layer.run(cli, folder, pattern, "--method", "wanda")
    result, mask = real_layer.run(cli, folder, pattern, "--method", "sparsefw", "--alpha", "0.5",
                                  "--step-rule", "line-search", "--iterations", "60")
    check_losses(real_layer, result, mask, pattern)
    losses = result["losses"]
    assert losses["warm_start"] == pytest.approx(one_shot["losses"]["final"], rel=1e-9)
    assert 0 < losses["lower_bound"] <= losses["final"]
    assert losses["lower_bound"] <= losses["relaxed"]
    assert result["relative_reduction"] > 0.1
    # The half of the warm start with the highest saliency is fixed.
    scores = np.where(warm, reference.saliency("wanda", real_layer.weight, real_layer.gram), -1)
    rows, columns = scores.shape
    if pattern == "unstructured":
        flat, fixed = scores.reshape(1, -1), int(0.5 * warm.sum())
    else:
        flat, fixed = scores, int(0.5 * (warm.sum() // rows))
    order = np.argsort(flat, axis=1, kind="stable")[:, flat.shape[1] - fixed:]
    kept = np.take_along_axis(mask.reshape(flat.shape), order, axis=1)
    assert (~kept).sum() <= 16, "fixed weights may differ only where saliencies tie"
