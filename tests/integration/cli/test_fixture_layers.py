"""Real layers: what the server returns against the formulas in float64."""
import numpy as np
import pytest

from support import reference
from support.real_layers import FIXTURE, LAYERS, PATTERNS, RealLayer, check_losses


@pytest.fixture(scope="module", params=LAYERS, ids=lambda path: path.stem)
def real_layer(request):
    return RealLayer(request.param)


def test_there_are_at_least_three_layers():
    assert len(LAYERS) >= 3
    assert sum(path.stat().st_size for path in FIXTURE.rglob("*") if path.is_file()) < 10_000_000


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
