"""Losses of 0 but for rounding: of layers whose inputs lie in a line, a relaxed mask may lose nothing."""
import numpy as np
import pytest

from support import safetensors


@pytest.mark.parametrize("shape", [(1, 2), (2, 4), (3, 8)], ids=str)
def test_no_loss_is_negative(cli, folder, shape):
    """Ten layers of a shape: computed plainly, the relaxed loss of several of them is some -1e-9."""
    for seed in range(3, 13):
        random = np.random.default_rng(seed)
        weight = random.standard_normal(shape).astype("<f4")
        inputs = random.standard_normal((1, shape[1]))
        weights = safetensors.write(folder / "w.safetensors", {"weight": weight})
        gram = safetensors.write(folder / "g.safetensors", {"gram": (inputs.T @ inputs).astype("<f4")})
        losses = cli.run("submit", "--weights", weights, "--gram", gram, "--pattern", "per-row", "--sparsity", "0.5",
                         "--alpha", "0", "--step-rule", "line-search", "--iterations", "200",
                         "--out", folder / "mask.safetensors", "--overwrite", "--json").expect(0).json()["losses"]
        for name in ("full", "warm_start", "relaxed", "rounded", "final", "lower_bound"):
            assert losses[name] >= 0, (seed, losses)
